"""The errors of the machines; each says whose fault it is."""

from __future__ import annotations


class InterlockError(Exception):
    """Anything that this project raises on purpose."""


class DeclarationError(InterlockError):
    """A table is declared wrongly: raised when its module is imported, so that it never runs."""


class IllegalTransition(InterlockError):  # noqa: N818 - the name of the thing, as in the literature
    """A trigger was fired in a state that has no edge for it: a defect of the caller. Nothing has changed.

    Args:
        table: The name of the table, such as `message`.
        state: The state it was in.
        trigger: What was fired.
        legal: The triggers that the state has.
    """

    def __init__(self, table: str, state: str, trigger: str, legal: tuple[str, ...]) -> None:
        super().__init__(f"{table}: {trigger!r} is illegal in state {state!r}, which has {', '.join(legal) or 'no edge'}")
        self.table = table
        self.state = state
        self.trigger = trigger
        self.legal = legal
