"""What the embedded model writes when it is asked for a summary: a line for each item, in the conversation's own words.

So whoever tests a client knows beforehand what a summary says. A model would choose what matters; this leaves out what is oldest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from interlock.serving.engines.prompt import is_answered, is_from_user, output_text, tool_name, tool_names
from interlock.serving.requests.compaction import SUMMARIZE, is_summary, summed_up
from interlock.serving.requests.values import text_of

__all__ = ["UNANSWERED", "asks_for_summary", "is_unanswered", "summarized"]

Item = Mapping[str, object]

QUOTE: Final = 300
"""Characters of an item that a line repeats at most."""

MOST_LINES: Final = 200
"""Lines of a summary at most, the latest."""

UNANSWERED: Final = "The user still waits for an answer."
"""The last line, where the user spoke last."""

SERVED: Final = ("mcp_call", "code_interpreter_call", "web_search_call")


def asks_for_summary(item: Item) -> bool:
    """Return whether an item asks for a summary of those before it."""
    return item.get("type") == "message" and text_of(item.get("content")) == SUMMARIZE


def is_unanswered(item: Item) -> bool:
    """Return whether an item is a summary that says that the user waits."""
    text = text_of(item.get("content"))
    return is_summary(text) and text.endswith(UNANSWERED)


def summarized(items: Sequence[Item]) -> str:
    """Return the summary of a conversation.

    Args:
        items: All of it.
    """
    names = tool_names(items)
    lines = [line for item in items for line in _lines(item, names)]
    said = [item for item in items if item.get("role") not in ("system", "developer")]
    if said and (is_from_user(said[-1]) or is_unanswered(said[-1])):
        lines.append(UNANSWERED)
    left_out = [f"{len(lines) - MOST_LINES} earlier lines are left out."] if len(lines) > MOST_LINES else []
    return "\n".join([*left_out, *lines[-MOST_LINES:]]) or "Nothing was said."


def _lines(item: Item, names: Mapping[object, str]) -> Iterator[str]:
    text = text_of(item.get("content"))
    match item.get("type"), item.get("role"):
        case "message", "user" if is_summary(text):
            yield from (line for line in summed_up(text).split("\n") if line != UNANSWERED)
        case "message", role if text:
            yield f"The {role} said: {_quoted(text)}."
        case (("function_call" | "custom_tool_call"), _):
            yield f"The assistant called {item.get('name')} with {_quoted(text_of(item.get('arguments', item.get('input'))))}."
        case kind, _ if is_answered(item) or (kind in SERVED and output_text(item)):
            yield f"{tool_name(item, names)} answered: {_quoted(output_text(item))}."
        case _:
            pass


def _quoted(text: str) -> str:
    cut = text if len(text) <= QUOTE else f"{text[:QUOTE]}\N{HORIZONTAL ELLIPSIS}"
    return f"\N{LEFT DOUBLE QUOTATION MARK}{' '.join(cut.split())}\N{RIGHT DOUBLE QUOTATION MARK}"
