"""Compaction: which items a summary replaces, the request for the summary, and the summary as the model reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from interlock.serving.requests.api_errors import invalid
from interlock.serving.requests.json_values import elements, members

__all__ = [
    "INTRODUCTION",
    "SUMMARIZE",
    "SUMMARY_PARAMETERS",
    "compact_threshold",
    "compacted",
    "is_summary",
    "require_last_trigger",
    "summary_message",
    "summary_request",
    "summary_text",
    "window",
]

SUMMARIZE: Final = """\
The conversation so far is about to be replaced by a summary that you write now. Whoever goes on from it, you among them, will see
the user's messages and your summary, and nothing else of what was said and done. Write down what is needed to go on:

- what the user wants, with every constraint, preference and standing instruction that was given, by whomever;
- what was done and found out: decisions, facts, names, numbers, paths, code and commands that are still needed, word for word
  where the words matter, and what the tools that were called gave;
- what failed, and why;
- what is not done yet: questions that are open, and the next steps.

Write the summary and nothing else. Do not answer the user now, and do not call tools."""
"""The last message of a conversation to summarize."""

INTRODUCTION: Final = """\
[The conversation up to here was compacted. This is the assistant's own summary of it, which stands for all that is not shown any
more. Go on from it.]

"""
"""The text before a summary that the model reads."""

KEPT_ROLES: Final = frozenset({"user", "developer", "system"})
"""The roles whose messages survive a compaction."""

SUMMARY_PARAMETERS: Final = (
    *("model", "instructions", "reasoning", "temperature", "top_p", "service_tier", "prompt_cache_key", "user"),
    *("safety_identifier", "chat_template_kwargs", "cache_salt", "priority", "vllm_xargs"),
)
"""The parameters that the request for a summary has from the original request; tools, limits and formats are not among them."""


def compact_threshold(body: Mapping[str, object]) -> int | None:
    """Return the prompt tokens above which a valid request wants a compaction: the smallest threshold, or None."""
    thresholds = (members(each).get("compact_threshold") for each in elements(body.get("context_management")))
    return min((each for each in thresholds if isinstance(each, int)), default=None)


def require_last_trigger(items: Sequence[Mapping[str, object]]) -> None:
    """Refuse an input with a compaction trigger before its last item.

    Raises:
        ApiError: 400.
    """
    for index, item in enumerate(items[:-1]):
        if item["type"] == "compaction_trigger":
            raise invalid(f"input[{index}]", "A 'compaction_trigger' must be the last item of 'input'.")


def window(items: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, object], ...]:
    """Return the items of a conversation that the model reads.

    Items before the last compaction are compacted. Triggers and failed compactions are left out.
    """
    relevant = [item for item in items if not _is_empty(item)]
    last = max((index for index, item in enumerate(relevant) if item.get("type") == "compaction"), default=0)
    return (*compacted(relevant[:last], relevant[last:]), *relevant[last:])


def _is_empty(item: Mapping[str, object]) -> bool:
    kind = item.get("type")
    return kind == "compaction_trigger" or (kind == "compaction" and not item.get("encrypted_content"))


def compacted(before: Iterable[Mapping[str, object]], after: Iterable[Mapping[str, object]] = ()) -> list[Mapping[str, object]]:
    """Return the items before a compaction that it keeps: messages not from the model, and calls answered only after it."""
    answered = {item.get("call_id") for item in after if str(item.get("type")).endswith("_output")}
    return [item for item in before if item.get("role") in KEPT_ROLES or item.get("call_id", "") in answered]


def summary_request(raw: Mapping[str, object]) -> dict[str, object]:
    """Return the body of the request for a summary, by the body of the original request; the conversation precedes its input."""
    return {
        **{name: raw[name] for name in SUMMARY_PARAMETERS if name in raw},
        "input": SUMMARIZE,
        "store": False,
        "stream": False,
    }


def summary_message(text: str) -> dict[str, object]:
    """Return the message with a summary for the model.

    It is a user's message, because every chat template allows those anywhere.
    """
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": INTRODUCTION + text}]}


def is_summary(text: str) -> bool:
    """Return whether the text of a user's message is that of a `summary_message`."""
    return text.startswith(INTRODUCTION)


def summary_text(text: str) -> str:
    """Return the summary in the text of a `summary_message`."""
    return text.removeprefix(INTRODUCTION)
