"""Compaction: what a summary takes the place of, how the model is asked for it, and how it is shown to the model again.

It knows items and bodies, and neither engines nor how a summary is sealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from interlock.serving.requests.api_errors import invalid
from interlock.serving.requests.json_values import elements, members

__all__ = [
    "INTRODUCTION",
    "SUMMARIZE",
    "TAKEN_OVER",
    "compacted",
    "is_summary",
    "require_last_trigger",
    "summary_message",
    "summary_request",
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
"""What the model is asked, as the last message of the conversation that is to be summarized."""

INTRODUCTION: Final = """\
[The conversation up to here was compacted. This is the assistant's own summary of it, which stands for all that is not shown any
more. Go on from it.]

"""
"""What stands before a summary where the model is shown it."""

LASTING: Final = frozenset({"user", "developer", "system"})
"""The roles whose messages a compaction leaves where they are."""

TAKEN_OVER: Final = (
    *("model", "instructions", "reasoning", "temperature", "top_p", "service_tier", "prompt_cache_key", "user"),
    *("safety_identifier", "chat_template_kwargs", "cache_salt", "priority", "vllm_xargs"),
)
"""What the request for a summary takes over from the request that it is made for; above all no tools, limits or forms."""


def threshold_of(body: Mapping[str, object]) -> int | None:
    """Return the tokens of a prompt beyond which a conversation is to be compacted: the fewest that a request gives, if any.

    Args:
        body: A request, found valid.
    """
    given = (members(each).get("compact_threshold") for each in elements(body.get("context_management")))
    return min((each for each in given if isinstance(each, int)), default=None)


def require_last_trigger(items: Sequence[Mapping[str, object]]) -> None:
    """Refuse a trigger of compaction after which more is said: what that would be, nobody knows.

    Args:
        items: The input of a request.

    Raises:
        ApiError: 400.
    """
    for index, item in enumerate(items[:-1]):
        if item["type"] == "compaction_trigger":
            raise invalid(f"input[{index}]", "A 'compaction_trigger' must be the last item of 'input'.")


def window(items: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, object], ...]:
    """Return what is left of a conversation for the model: from before its last compaction, only what that leaves.

    Args:
        items: The conversation, compactions included.

    Returns:
        The items without those that a compaction stands for, and without triggers and compactions that failed.
    """
    said = [item for item in items if not _says_nothing(item)]
    last = max((index for index, item in enumerate(said) if item.get("type") == "compaction"), default=0)
    return (*compacted(said[:last], said[last:]), *said[last:])


def _says_nothing(item: Mapping[str, object]) -> bool:
    kind = item.get("type")
    return kind == "compaction_trigger" or (kind == "compaction" and not item.get("encrypted_content"))


def compacted(before: Iterable[Mapping[str, object]], after: Iterable[Mapping[str, object]] = ()) -> list[Mapping[str, object]]:
    """Return what a compaction leaves of what came before it: what others than the model said, and calls without their answer.

    Args:
        before: The items before it.
        after: Those after it, where calls from before it may be answered.
    """
    answered = {item.get("call_id") for item in after if str(item.get("type")).endswith("_output")}
    return [item for item in before if item.get("role") in LASTING or item.get("call_id", "") in answered]


def summary_request(raw: Mapping[str, object]) -> dict[str, object]:
    """Return the body of the request for a summary, of the same model without tools; the conversation is to precede its input.

    Args:
        raw: The body of the request that the summary is made for.
    """
    return {**{name: raw[name] for name in TAKEN_OVER if name in raw}, "input": SUMMARIZE, "store": False, "stream": False}


def summary_message(text: str) -> dict[str, object]:
    """Return a summary as the model is shown it.

    It is a user's message, because every chat template has those in any place; it has no more weight than what it sums up.

    Args:
        text: The summary.
    """
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": INTRODUCTION + text}]}


def is_summary(text: str) -> bool:
    """Return whether the text of a user's message is a summary that the model is shown."""
    return text.startswith(INTRODUCTION)


def summed_up(text: str) -> str:
    """Return the summary in such a text."""
    return text.removeprefix(INTRODUCTION)
