"""What the embedded model says: thoughts, preambles, calls and answers, all made of the request's own words.

It knows nothing of tokens: `Saying` is one message of the model's, and `interlock.serving.engines.embedded.writing` spells it.
It has no state and no chance in it: the same turn is always answered in the same way.
"""

from __future__ import annotations

import json
import re
from typing import Final, Literal

from attrs import frozen

from interlock.serving.engines.embedded.choosing import Call, chosen_calls, user_text, words_after_colon
from interlock.serving.engines.embedded.schema import Impossible, value_for
from interlock.serving.engines.embedded.summing import asks_for_summary, summarized
from interlock.serving.engines.engine import Turn
from interlock.serving.engines.prompt import is_answered, is_from_user, output_text, tool_name, tool_names
from interlock.serving.requests.values import members

__all__ = ["Saying", "speak"]

QUOTE: Final = 300
"""Characters of somebody's words that are repeated at most; of a tool's output it may be more."""

OUTPUT_QUOTE: Final = 4_000

OUTPUT_READ: Final = 100_000
MOST_RESULTS: Final = 16
"""The longest part of a tool's output that is read, in characters, and the most outputs that are mentioned."""


PAGE: Final = re.compile(r"^\[(\d+)\] (.*) \(\S+\)\nL0: (.*)$", re.MULTILINE)
"""A page as a browser shows it: its number, title and first line."""

SERVED: Final = ("mcp_call", "code_interpreter_call", "web_search_call")
"""The calls that carry what the server's tool answered."""


@frozen
class Saying:
    """One message of the model's, in harmony's terms.

    Args:
        channel: `analysis`, `commentary` or `final`.
        text: Its content.
        recipient: The tool that it calls, or None.
        content_type: What follows `<|constrain|>`, or None.
        end: The control token that ends it.
    """

    channel: Literal["analysis", "commentary", "final"]
    text: str
    recipient: str | None = None
    content_type: str | None = None
    end: Literal["<|end|>", "<|call|>", "<|return|>"] = "<|end|>"


def speak(turn: Turn) -> tuple[Saying, ...]:
    """Return what the model says in a turn: perhaps a thought, then a preamble and calls, or an answer; or a summary.

    The last message ends the turn: with `<|call|>` or `<|return|>`.
    """
    if turn.items and asks_for_summary(turn.items[-1]):
        return (Saying("final", summarized(turn.items[:-1]), end="<|return|>"),)
    calls = chosen_calls(turn)
    thoughts = _thoughts(turn, calls)
    if not calls:
        return (*thoughts, Saying("final", _answer(turn), end="<|return|>"))
    names = " and ".join(_spoken(call) for call in calls)
    return (*thoughts, Saying("commentary", f"I'll call {names}."), *_spelled(calls))


def _spelled(calls: tuple[Call, ...]) -> tuple[Saying, ...]:
    """Return the calls as messages, the last of which ends the turn."""
    return tuple(
        Saying(
            "commentary",
            call.text,
            recipient=call.recipient,
            content_type="json" if call.is_json else None,
            end="<|call|>" if call is calls[-1] else "<|end|>",
        )
        for call in calls
    )


def _spoken(call: Call) -> str:
    return call.recipient.removeprefix("functions.")


def _thoughts(turn: Turn, calls: tuple[Call, ...]) -> tuple[Saying, ...]:
    """Return a thought about the request, shorter or longer as its reasoning effort wants."""
    effort = turn.request.reasoning_effort
    if effort == "none":
        return ()
    said = f"The user says: {_quoted(user_text(turn), QUOTE)}."
    plan = f"I should call {' and '.join(map(_spoken, calls))}." if calls else "I should answer."
    if effort == "minimal":
        return (Saying("analysis", plan),)
    more = [f"Tools on offer: {len(turn.request.tools)}."] if turn.request.tools else []
    results = [f"{name} answered, so I should use that." for name, _ in _results(turn)]
    return (Saying("analysis", " ".join([said, *more, *results, plan])),)


def _answer(turn: Turn) -> str:
    """Return the answer, in the form that the request wants."""
    form = turn.request.text_format
    text = words_after_colon(user_text(turn))
    if form.get("type") == "json_schema":
        try:
            return json.dumps(value_for(members(form.get("schema")), text), ensure_ascii=False)
        except Impossible:
            return "{}"
    said = _said(turn)
    return json.dumps({"answer": said}, ensure_ascii=False) if form.get("type") == "json_object" else said


def _said(turn: Turn) -> str:
    """Return the answer as prose: what the tools said, or what the user did."""
    results = [_cited(name, output) for name, output in _results(turn)]
    refused = [f"I was not allowed to call {name}." for name in _refused(turn)]
    if results or refused:
        return "\n".join([*results, *refused])
    said = user_text(turn)
    if not said:
        return "I have read everything, but there is no message of yours that I could answer."
    return (
        f"You said: {_quoted(said, QUOTE)}.\n\nI am the stand-in model that is built into Interlock: what I write is a real "
        "stream of harmony tokens, and what I know is your request."
    )


def _cited(name: str, output: str) -> str:
    """What a tool said; of pages that it showed, the first line of each with a mark that names it."""
    pages = [f"{title}: {line}【{number}†L0】" for number, title, line in PAGE.findall(output)]
    return "\n".join(pages) if pages else f"{name} says: {_cut(output, OUTPUT_QUOTE)}"


def _refused(turn: Turn) -> list[str]:
    """Return the names of the tools whose call the client did not approve last."""
    refusals = [item for item in turn.request.input if item.get("type") == "mcp_approval_response" and not item.get("approve")]
    asked = {item.get("id"): str(item.get("name")) for item in turn.items if item.get("type") == "mcp_approval_request"}
    return [asked[about] for item in refusals if (about := item.get("approval_request_id")) in asked]


def _results(turn: Turn) -> list[tuple[str, str]]:
    """Return what the tools answered since the user spoke last, by their names: the last answers of many."""
    spoke = max((index for index, item in enumerate(turn.items) if is_from_user(item)), default=-1)
    since = turn.items[spoke + 1 :]
    answered = [item for item in since if is_answered(item) or (item.get("type") in SERVED and output_text(item))]
    names = tool_names(turn.items)
    return [(tool_name(item, names), output_text(item)[:OUTPUT_READ]) for item in answered[-MOST_RESULTS:]]


def _quoted(text: str, most: int) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{_cut(text, most)}\N{RIGHT DOUBLE QUOTATION MARK}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\N{HORIZONTAL ELLIPSIS}"
