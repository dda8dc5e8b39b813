"""A response as a store in memory holds it: bytes of JSON, and no objects."""

from __future__ import annotations

from typing import Final

from attrs import define, field

from interlock.fsm.processes.stored import STORED, StoredTrigger
from interlock.serving.store.pieces import put_together
from interlock.serving.store.shelf import Link, chain
from interlock.serving.store.values import StoredResponse

__all__ = ["PER_EVENT", "PER_RESPONSE", "Held"]

PER_RESPONSE: Final = 1600
"""Bytes that the tables take for a response beside its JSON, as measured."""
PER_EVENT: Final = 16
"""The same for an event."""


@define(eq=False)
class Held:
    """A response as it is held.

    Args:
        tenant: To whom it belongs.
        id: Its id.
        state: The state of its life that was entered last.
        response: The response object without its output, as JSON.
        tip: The last item of its conversation, the output included.
        outputs: How many of the last items are its output.
        frames: The events of its log.
        trimmed: How many events have been removed from the log.
        owner: Who makes it.
        epoch: How many owners it has had.
        until: When the lease ends, by the clock of the store.
        cancelled: Whether cancelling was asked for.
        written: When it was written last.
        size: Bytes that it takes beside its items.
    """

    tenant: str
    id: str
    state: str = STORED.initial
    response: bytes = b""
    tip: Link | None = None
    outputs: int = 0
    frames: list[bytes] = field(factory=list[bytes])
    trimmed: int = 0
    owner: str = ""
    epoch: int = 0
    until: float = 0.0
    cancelled: bool = False
    written: float = 0.0
    size: int = PER_RESPONSE

    @property
    def leased(self) -> bool:
        """Whether it is being made, or would be if its owner were not lost."""
        return StoredTrigger.APPEND in STORED.states[self.state].rows

    def stored(self) -> StoredResponse:
        """Return the response that it was."""
        return put_together(self.response, [*chain(self.tip)][::-1], self.outputs)
