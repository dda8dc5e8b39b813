"""Keeps conversations within the context window of a model, by compaction or by truncation.

Compaction replaces items with a summary that the model writes. `truncation: auto` drops whole turns, the oldest first. A turn
begins with a user's message. Calls and their outputs stay together; instructions and the last turn are never dropped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from interlock.serving.requests.input_items import JsonItem
from interlock.serving.requests.limits import ENGINE_PARAMETERS

SUMMARIZE: Final = """\
The conversation so far will be replaced by a summary that you write now. Whoever continues, including you, will see only the
user's messages and your summary. Write down everything that is needed to continue:

- what the user wants, with every constraint, preference and standing instruction, whoever gave it;
- what was done and found out: decisions, facts, names, numbers, paths, code and commands that are still needed, word for word
  where the words matter, and the results of tool calls;
- what failed, and why;
- what remains to be done: open questions and the next steps.

Write the summary and nothing else. Do not answer the user now, and do not call tools."""
"""The message after a conversation, which asks the model for a summary."""

INTRODUCTION: Final = """\
[The conversation up to here was compacted. This is the assistant's own summary, which replaces everything that is no longer
shown. Continue from it.]

"""
"""The text that introduces a summary to the model."""

KEPT_ROLES: Final = frozenset({"user", "developer", "system"})
"""The roles whose messages survive a compaction."""

COMPACTIONS: Final = frozenset({"compaction", "compaction_trigger"})

SUMMARY_PARAMETERS: Final = (
    *("model", "instructions", "reasoning", "temperature", "top_p", "service_tier", "prompt_cache_key", "user"),
    *("safety_identifier", *ENGINE_PARAMETERS),
)
"""The parameters that a summary request copies from the original request: none for tools, limits or formats."""


def window(items: Sequence[JsonItem]) -> tuple[JsonItem, ...]:
    """Return the items that the model reads: the last compaction, the earlier items that it keeps, and all later items."""
    if COMPACTIONS.isdisjoint([item.get("type") for item in items]):
        return tuple(items)
    relevant = [item for item in items if not _is_empty(item)]
    last = max((index for index, item in enumerate(relevant) if item.get("type") == "compaction"), default=0)
    return (*compact(relevant[:last], relevant[last:]), *relevant[last:])


def _is_empty(item: JsonItem) -> bool:
    kind = item.get("type")
    return kind == "compaction_trigger" or (kind == "compaction" and not item.get("encrypted_content"))


def compact(before: Iterable[JsonItem], after: Iterable[JsonItem] = ()) -> list[JsonItem]:
    """Return the items that a compaction keeps: messages that the model did not write, and calls with an output `after` it."""
    answered = {item.get("call_id") for item in after if str(item.get("type")).endswith("_output")}
    return [item for item in before if item.get("role") in KEPT_ROLES or item.get("call_id", "") in answered]


def summary_request(raw: Mapping[str, object]) -> dict[str, object]:
    """Convert a request's body to the body of a summary request, whose input is only the message `SUMMARIZE`."""
    parameters = {name: raw[name] for name in SUMMARY_PARAMETERS if name in raw}
    return {**parameters, "input": SUMMARIZE, "store": False, "stream": False}


def summary_message(text: str) -> dict[str, object]:
    """Return a summary as a user's message, which every chat template allows anywhere."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": INTRODUCTION + text}]}


def is_summary(text: str) -> bool:
    """Return whether the text of a user's message comes from `summary_message`."""
    return text.startswith(INTRODUCTION)


async def truncate(items: Sequence[JsonItem], fits: Callable[[Sequence[JsonItem]], Awaitable[bool]]) -> Sequence[JsonItem]:
    """Return the instructions and as many of the last turns as fit, or all items if not even the last turn fits."""
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


def _turn_starts(items: Sequence[JsonItem]) -> list[int]:
    """Return the indices, except 0, of user messages that do not separate a call from its output."""
    calls: dict[tuple[str, object], int] = {}
    changes = [0] * (len(items) + 1)  # at each index, the change in the number of calls without an output
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


def _call_key(kind: str, item: JsonItem) -> tuple[str, object]:
    """Return the key of the call or approval request that an item answers."""
    if kind.endswith("_output"):
        return "call_id", item.get("call_id")
    return ("approval", item.get("approval_request_id")) if kind == "mcp_approval_response" else ("nothing", None)


def _tail(items: Sequence[JsonItem], start: int) -> list[JsonItem]:
    """Return the items from `start` on, after the instructions that precede it."""
    return [*(item for item in items[:start] if item.get("role") in ("system", "developer")), *items[start:]]
