"""What a store raises: it cannot be reached, it is full, or somebody else was faster."""

from __future__ import annotations

from interlock.fsm.errors import InterlockError

__all__ = ["Conflict", "Gap", "LeaseLost", "StoreDown", "StoreError", "StoreFull", "StoreUnfit"]


class StoreError(InterlockError):
    """Anything that a store raises on purpose."""


class StoreDown(StoreError):  # noqa: N818 - the name of the thing
    """The store cannot be used now: it cannot be reached, is full or cannot be written. It may come back by itself.

    Whether a commit that was under way has been made is not known.
    """


class StoreUnfit(StoreError):  # noqa: N818 - the name of the thing
    """There can be no such store here: its URL says nothing that is known, or what it needs is not installed."""


class StoreFull(StoreError):  # noqa: N818 - the name of the thing
    """There is no room for another response in the background, even if all that have ended gave way."""


class LeaseLost(StoreError):  # noqa: N818 - the name of the thing
    """Somebody else owns the response, or it has ended or was deleted. Nothing was written."""


class Gap(StoreError):  # noqa: N818 - the name of the thing
    """Events were to be appended that do not follow on the last one. Nothing was written.

    Args:
        expected: The number of the next event.
        first: The number that the first of the events had.
    """

    def __init__(self, expected: int, first: int) -> None:
        super().__init__(f"The next event has the number {expected}, not {first}.")
        self.expected = expected
        self.first = first


class Conflict(StoreError):  # noqa: N818 - the name of the thing
    """Another has written to the conversation meanwhile, or is about to; or a response of that id is being made.

    Nothing was written.
    """
