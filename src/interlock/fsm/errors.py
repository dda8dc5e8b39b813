"""Exceptions of the state machines."""

from __future__ import annotations


class InterlockError(Exception):
    """Base class of Interlock's own exceptions."""


class DeclarationError(InterlockError):
    """A table is invalid. Raised on construction, usually at import."""


class IllegalTransition(InterlockError):  # noqa: N818 - the usual name in the literature
    """The caller fired a trigger in a state without an edge for it. The machine is unchanged.

    Args:
        table: The name of the table, such as `message`.
        state: The name of the machine's state.
        trigger: The illegal trigger.
        legal: The triggers that have an edge in the state.
    """

    def __init__(self, table: str, state: str, trigger: str, legal: tuple[str, ...]) -> None:
        super().__init__(f"{table}: {trigger!r} is illegal in state {state!r}; legal: {', '.join(legal) or 'nothing'}")
        self.table = table
        self.state = state
        self.trigger = trigger
        self.legal = legal
