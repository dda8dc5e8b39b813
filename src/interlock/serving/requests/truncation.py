"""`truncation: auto`: drops the oldest turns of a conversation that is too long for the model.

A turn begins with a user's message and is dropped as a whole. Calls and their outputs stay together; instructions and the last
turn remain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import accumulate

from interlock.serving.requests.input_items import Item

__all__ = ["truncated", "wants_truncation"]


def wants_truncation(body: Mapping[str, object]) -> bool:
    """Return whether the body of a request allows turns to be dropped."""
    return body.get("truncation") == "auto"


async def truncated(items: Sequence[Item], fits: Callable[[Sequence[Item]], Awaitable[bool]]) -> Sequence[Item]:
    """Return as many of the last turns as fit, or all items if not even the last turn fits."""
    if await fits(items):
        return items
    tails = [_tail(items, start) for start in _turn_starts(items)]
    low, high = 0, len(tails)  # tails before `low` do not fit, and tails from `high` on do
    while low < high:
        middle = (low + high) // 2
        if await fits(tails[middle]):
            high = middle
        else:
            low = middle + 1
    return tails[low] if low < len(tails) else items


def _turn_starts(items: Sequence[Item]) -> list[int]:
    """Return the indices of user messages that no call before them has its output after, except index 0."""
    calls: dict[tuple[str, object], int] = {}
    changes = [0] * (len(items) + 1)  # at each index, the change of the number of calls before it with their outputs after it
    for index, item in enumerate(items):
        kind = str(item.get("type"))
        call = calls.get(_call_key(kind, item), index)
        changes[call + 1] += 1
        changes[index + 1] -= 1
        if not kind.endswith("_output"):
            calls["call_id", item.get("call_id")] = index
        if kind == "mcp_approval_request":
            calls["approval", item.get("id")] = index
    pending = [*accumulate(changes)]
    return [index for index, item in enumerate(items) if index and not pending[index] and item.get("role") == "user"]


def _call_key(kind: str, item: Item) -> tuple[str, object]:
    """Return the key of the call or approval request that an item answers."""
    if kind.endswith("_output"):
        return "call_id", item.get("call_id")
    return ("approval", item.get("approval_request_id")) if kind == "mcp_approval_response" else ("nothing", None)


def _tail(items: Sequence[Item], start: int) -> list[Item]:
    """Return the items from an index on, and the instructions before it."""
    return [*(item for item in items[:start] if item.get("role") in ("system", "developer")), *items[start:]]
