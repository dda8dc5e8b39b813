"""`truncation: auto`: which turns of a conversation go when it is too long for a model.

The oldest go first, and whole turns of them: a turn begins with what a user said. No call goes without its output and no output
without its call, instructions stay, and so does the last turn. It knows items, and not how long they are; whoever can count says
what fits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import accumulate

from interlock.serving.requests.input_items import Item

__all__ = ["truncated", "wants_truncation"]


def wants_truncation(body: Mapping[str, object]) -> bool:
    """Return whether a request lets turns go.

    Args:
        body: Of `POST /v1/responses`.
    """
    return body.get("truncation") == "auto"


async def truncated(items: Sequence[Item], fits: Callable[[Sequence[Item]], Awaitable[bool]]) -> Sequence[Item]:
    """Return a conversation without its oldest turns, with as many of the others as fit.

    Args:
        items: The conversation.
        fits: Says whether a model can take some items.

    Returns:
        All items, if they fit or if not even the last turn does.
    """
    if await fits(items):
        return items
    ends = [_from(items, start) for start in _starts(items)]
    low, high = 0, len(ends)  # those before `low` do not fit, those from `high` do
    while low < high:
        middle = (low + high) // 2
        if await fits(ends[middle]):
            high = middle
        else:
            low = middle + 1
    return ends[low] if low < len(ends) else items


def _starts(items: Sequence[Item]) -> list[int]:
    """Return where turns begin before which a conversation can be cut, the first one aside."""
    made: dict[tuple[str, object], int] = {}
    bound = [0] * (len(items) + 1)  # how many more answers than before, at each place, lie behind it with their calls before it
    for place, item in enumerate(items):
        kind = str(item.get("type"))
        since = made.get(_answered(kind, item), place)
        bound[since + 1] += 1
        bound[place + 1] -= 1
        if not kind.endswith("_output"):
            made["call_id", item.get("call_id")] = place
        if kind == "mcp_approval_request":
            made["approval", item.get("id")] = place
    free = [across == 0 for across in accumulate(bound)]
    return [place for place, item in enumerate(items) if place and free[place] and item.get("role") == "user"]


def _answered(kind: str, item: Item) -> tuple[str, object]:
    """Return what an item answers, if it makes no sense without that."""
    if kind.endswith("_output"):
        return "call_id", item.get("call_id")
    return ("approval", item.get("approval_request_id")) if kind == "mcp_approval_response" else ("nothing", None)


def _from(items: Sequence[Item], start: int) -> list[Item]:
    """Return the items from a turn on, after the instructions that stand before it."""
    return [*(item for item in items[:start] if item.get("role") in ("system", "developer")), *items[start:]]
