"""The words of the embedded model: thoughts, preambles, calls, answers and summaries, made of the request's own words.

The same turn always has the same messages. How they are spelled in tokens is `interlock.serving.engines.embedded.spelling`'s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from interlock.serving.engines.embedded.example_values import value_for
from interlock.serving.engines.embedded.spelling import Message
from interlock.serving.engines.embedded.tool_calls import (
    READ,
    UNANSWERED,
    calls_for,
    is_waiting,
    last_item,
    user_text,
    words_after_colon,
)
from interlock.serving.engines.engine import Turn
from interlock.serving.engines.prompt import call_text, is_answered, is_from_user, output_text, tool_name, tool_names
from interlock.serving.requests.context_window import SUMMARIZE, is_summary, summary_text
from interlock.serving.requests.json_values import members, text_of

__all__ = ["messages_for"]

Item = Mapping[str, object]

QUOTE: Final = 300
"""Characters of a quotation at most; a tool's output may have `READ`."""

MOST_OUTPUTS: Final = 16
MOST_PAGES_READ: Final = 100_000
MOST_LINES: Final = 200
"""Outputs of tools that an answer mentions, characters of them that are read for pages, and lines of a summary."""

PAGE: Final = re.compile(r"^\[(\d+)\] (.*) \(\S+\)\nL0: (.*)$", re.MULTILINE)
"""A page as a browser shows it: its number, title and first line."""

SERVED: Final = ("mcp_call", "code_interpreter_call", "web_search_call")
"""The calls that carry the output of a tool that the server ran."""


def messages_for(turn: Turn) -> list[Message]:
    """Return the messages of a turn: perhaps a thought, then a preamble and calls, or an answer; or a summary.

    Raises:
        PromptError: A JSON schema cannot be filled.
    """
    if turn.items and _asks_for_summary(turn.items[-1]):
        return [Message("final", _summary(turn.items[:-1]))]
    calls = calls_for(turn)
    names = " and ".join(str(call.recipient).removeprefix("functions.") for call in calls)
    thoughts = _thoughts(turn, f"I should call {names}." if calls else "I should answer.")
    if not calls:
        return [*thoughts, Message("final", _answer(turn))]
    return [*thoughts, Message("commentary", f"I'll call {names}."), *calls]


def _thoughts(turn: Turn, plan: str) -> list[Message]:
    """Return a thought about the request, in the length of its reasoning effort."""
    match turn.request.reasoning_effort:
        case "none":
            return []
        case "minimal":
            return [Message("analysis", plan)]
        case _:
            tools = [f"Tools on offer: {len(turn.request.tools)}."] if turn.request.tools else []
            results = [f"{name} answered, so I should use that." for name, _ in _outputs(turn)]
            return [Message("analysis", " ".join([f"The user says: {_quoted(user_text(turn))}.", *tools, *results, plan]))]


def _answer(turn: Turn) -> str:
    """Return the answer, in the form that the request asks for."""
    form = turn.request.text_format
    match form.get("type"):
        case "json_schema":
            return json.dumps(value_for(members(form.get("schema")), words_after_colon(user_text(turn))), ensure_ascii=False)
        case "json_object":
            return json.dumps({"answer": _prose(turn)}, ensure_ascii=False)
        case _:
            return _prose(turn)


def _prose(turn: Turn) -> str:
    """Return the outputs of the tools, or the user's words."""
    results = [_cited(name, output) for name, output in _outputs(turn)]
    refusals = [f"I was not allowed to call {name}." for name in _refused(turn)]
    if results or refusals:
        return "\n".join([*results, *refusals])
    text = user_text(turn)
    if not text:
        return "I have read everything, but there is no message of yours that I could answer."
    return (
        f"You said: {_quoted(text)}.\n\nI am the stand-in model that is built into Interlock: what I write is a real "
        "stream of harmony tokens, and what I know is your request."
    )


def _cited(name: str, output: str) -> str:
    """Return the output of a tool; of the pages of a browser, the first line of each with a mark that names it."""
    pages = [f"{title}: {line}【{number}†L0】" for number, title, line in PAGE.findall(output[:MOST_PAGES_READ])]
    return "\n".join(pages) or f"{name} says: {_cut(output, READ)}"


def _refused(turn: Turn) -> list[str]:
    """Return the names of the tools whose call the client did not approve last."""
    refusals = [item for item in turn.request.input if item.get("type") == "mcp_approval_response" and not item.get("approve")]
    names = {item.get("id"): str(item.get("name")) for item in turn.items if item.get("type") == "mcp_approval_request"}
    return [names[request] for item in refusals if (request := item.get("approval_request_id")) in names]


def _outputs(turn: Turn) -> list[tuple[str, str]]:
    """Return the names and outputs of the tools that answered since the user spoke last, the latest of many."""
    start = max((index for index, item in enumerate(turn.items) if is_from_user(item)), default=-1) + 1
    names = tool_names(turn.items)
    items = [item for item in turn.items[start:] if _has_output(item)]
    return [(tool_name(item, names), output_text(item)) for item in items[-MOST_OUTPUTS:]]


def _has_output(item: Item) -> bool:
    return is_answered(item) or (item.get("type") in SERVED and bool(output_text(item)))


def _asks_for_summary(item: Item) -> bool:
    return item.get("type") == "message" and text_of(item.get("content")) == SUMMARIZE


def _summary(items: Sequence[Item]) -> str:
    """Return a summary of a conversation: a line for each item. The oldest are left out where there are too many."""
    names = tool_names(items)
    lines = [line for item in items for line in _lines(item, names)]
    if is_waiting(last_item(items)):
        lines.append(UNANSWERED)
    gap = [f"{len(lines) - MOST_LINES} earlier lines are left out."] if len(lines) > MOST_LINES else []
    return "\n".join([*gap, *lines[-MOST_LINES:]]) or "Nothing was said."


def _lines(item: Item, names: Mapping[object, str]) -> Iterator[str]:
    """Yield what a summary says of an item; of an earlier summary, its lines."""
    text = text_of(item.get("content"))
    match item.get("type"), item.get("role"):
        case "message", "user" if is_summary(text):
            yield from (line for line in summary_text(text).split("\n") if line != UNANSWERED)
        case "message", role if text:
            yield f"The {role} said: {_line(text)}."
        case (("function_call" | "custom_tool_call"), _):
            yield f"The assistant called {item.get('name')} with {_line(call_text(item))}."
        case _ if _has_output(item):
            yield f"{tool_name(item, names)} answered: {_line(output_text(item))}."
        case _:
            pass


def _line(text: str) -> str:
    return " ".join(_quoted(text).split())


def _quoted(text: str) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{_cut(text, QUOTE)}\N{RIGHT DOUBLE QUOTATION MARK}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\N{HORIZONTAL ELLIPSIS}"
