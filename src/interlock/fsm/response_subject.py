"""The state of a response in its lifecycle: the machine's state, the items, and the response so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from interlock.events import response_object as response
from interlock.fsm import deltas
from interlock.fsm.ids import Clock
from interlock.fsm.item_subject import ItemState
from interlock.fsm.lifecycle import Subject

_OWN: Final = frozenset(
    {"id", "object", "created_at", "status", "completed_at", "error", "incomplete_details", "output", "usage"}
)
SETTINGS: Final = {*response.Response.__struct_fields__} - _OWN
"""The fields of a response that its settings provide."""


class ResponseState(Subject["ResponseState"], kw_only=True):
    """A response in its lifecycle.

    Args:
        state: The current state of its lifecycle.
        body: The response as the API shows it; its status and output are current only after its end. Replaced, never mutated.
        clock: Returns the time for `completed_at`.
        additions: Returns the fields outside the API that the server adds when the response ends.
        output: The items, in the order of their `added` events.
    """

    body: response.Response
    clock: Clock
    additions: Callable[[], Mapping[str, object]] = dict[str, object]
    output: list[ItemState[Any]] = []  # noqa: RUF012 - msgspec makes a new one for each response

    def end(self, **fields: object) -> response.Response:
        """Record the end of the response, and return the final response."""
        self.body = self.snapshot(self.state.name, **self.additions(), **self.args, **fields)
        return self.body

    def snapshot(self, status: str, **fields: object) -> response.Response:
        """Return the response with a status and its items so far."""
        return replace(self.body, status=status, output=[item.shown_body for item in self.output], **fields)


def usage_of(usage: deltas.Usage) -> response.Usage:
    """Convert usage to the API's form, with both detail objects (rule R13 of docs/rules.md)."""
    return response.Usage(
        input_tokens=usage.input_tokens,
        input_tokens_details=response.InputTokensDetails(
            cached_tokens=usage.cached_tokens, cache_write_tokens=usage.cache_write_tokens
        ),
        output_tokens=usage.output_tokens,
        output_tokens_details=response.OutputTokensDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.input_tokens + usage.output_tokens,
    )
