"""Which tools the embedded model calls, and with what.

It looks for words of the user in the names and descriptions of the tools, so that the tester of a client knows beforehand what
will be called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from interlock.serving.engines.embedded.example_values import arguments_for
from interlock.serving.engines.embedded.spelling import Message
from interlock.serving.engines.engine import Turn
from interlock.serving.engines.prompt import is_answered, is_from_user
from interlock.serving.requests.context_window import is_summary
from interlock.serving.requests.json_values import elements, members, text_of

__all__ = ["READ", "UNANSWERED", "calls_for", "is_waiting", "last_item", "user_text", "words_after_colon"]

READ: Final = 4_000
"""Characters that are read of the user's text, and of a tool's description."""

UNANSWERED: Final = "The user still waits for an answer."
"""The last line of a summary, where the user spoke last."""

SMALL_WORDS: Final = frozenset({"the", "and", "for", "what", "with", "from", "that", "this", "you", "get", "use", "please"})
SHORTEST_WORD: Final = 3

SEARCH: Final = re.compile(r"\b(?:search|look\s+up|latest|news)\b", re.IGNORECASE)
QUERY: Final = re.compile(
    r"\b(?:search(?:\s+the\s+web)?(?:\s+for)?|look\s+up|news\s+(?:about|of|on))\s+([^,.;:?!]+)", re.IGNORECASE
)
CODE: Final = re.compile(r"\b(?:calculate|compute|evaluate|python|run)\b|\d\s*(?:[-+*/%]|\*\*)\s*\(?\d", re.IGNORECASE)
ARITHMETIC: Final = re.compile(r"[\d\s().+*/%-]+")

HOSTED: Final[Mapping[str, tuple[str, re.Pattern[str]]]] = {
    "code_interpreter": ("python", CODE),
    "web_search": ("browser.search", SEARCH),
    "web_search_preview": ("browser.search", SEARCH),
}
"""The hosted tools that the model calls: as harmony addresses them, with the words of a user that ask for them."""


@frozen
class Tool:
    """A tool that the model can call: its kind, its own name, its name in harmony, and its declaration."""

    kind: str
    name: str
    recipient: str
    declaration: Mapping[str, object]


def calls_for(turn: Turn) -> Sequence[Message]:
    """Return the calls of a turn: none, the hosted tools that the user asks for, one other tool or the two that are named.

    A tool is called if the user spoke last, and where `tool_choice` requires a call also after the output of a client's tool.
    """
    choice = turn.request.tool_choice
    rules = members(choice)
    is_forced = choice == "required" or rules.get("mode") == "required" or rules.get("type") in ("function", "custom", *HOSTED)
    last = last_item(turn.items)
    if choice == "none" or not (is_waiting(last) or (is_forced and is_answered(last))):
        return ()
    text = user_text(turn)
    tools = [tool for tool in (*_tools(turn.request.tools), *_listed_tools(turn)) if _is_allowed(tool, rules)]
    chosen = [tool for tool in tools if tool.kind in HOSTED and HOSTED[tool.kind][1].search(text)]
    chosen += _best([tool for tool in tools if tool.kind not in HOSTED], text, alone=not chosen)
    if is_forced and not chosen:
        chosen = tools[:1]
    return [_call(tool, text) for tool in (chosen if turn.request.parallel_tool_calls else chosen[:1])]


def user_text(turn: Turn) -> str:
    """Return the beginning of the user's last message, or nothing."""
    last = next((item for item in reversed(turn.items) if is_from_user(item)), None)
    return text_of(last.get("content"))[:READ] if last else ""


def words_after_colon(text: str) -> str | None:
    """Return the text after the last colon and space, or None if there is none."""
    return (text.rpartition(": ")[2].strip() or None) if ": " in text else None


def last_item(items: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """Return the last item besides instructions and lists of tools."""
    for item in reversed(items):
        if item.get("role") not in ("system", "developer") and item.get("type") != "mcp_list_tools":
            return item
    return {}


def is_waiting(item: Mapping[str, object]) -> bool:
    """Return whether the user waits after an item: their own, or a summary that ends so."""
    text = text_of(item.get("content"))
    return is_from_user(item) or (is_summary(text) and text.endswith(UNANSWERED))


def _tools(declarations: Sequence[object], prefix: str = "") -> Iterator[Tool]:
    """Yield the tools of a request that can be called, those of namespaces with a prefix."""
    for tool in map(members, declarations):
        kind, name = str(tool.get("type")), str(tool.get("name", ""))
        if kind in ("function", "custom"):
            yield Tool(kind, name, f"functions.{prefix}{name}", tool)
        elif kind == "namespace":
            yield from _tools(elements(tool.get("tools")), f"{name}__")
        elif kind in HOSTED:
            yield Tool(kind, kind, HOSTED[kind][0], tool)


def _listed_tools(turn: Turn) -> Iterator[Tool]:
    """Yield the tools of the MCP servers that have listed them in this conversation."""
    for item in turn.items:
        if item.get("type") == "mcp_list_tools":
            server = {"server_label": item.get("server_label")}
            for tool in map(members, elements(item.get("tools"))):
                name = str(tool.get("name"))
                declaration = {**tool, **server, "parameters": tool.get("input_schema")}
                yield Tool("mcp", name, f"{item.get('server_label')}.{name}", declaration)


def _is_allowed(tool: Tool, rules: Mapping[str, object]) -> bool:
    """Return whether a `tool_choice` allows a tool: one that names its type and, if it gives them, its name and server."""
    labels = {"type": tool.kind, "name": tool.name, "server_label": tool.declaration.get("server_label")}
    allowed = elements(rules["tools"]) if rules.get("type") == "allowed_tools" else [rules]
    return not rules or any(all(members(one).get(key, label) == label for key, label in labels.items()) for one in allowed)


def _best(tools: Sequence[Tool], text: str, *, alone: bool) -> list[Tool]:
    """Return the first two tools that are named, else the one that fits best, if only a little where it would be alone."""
    places = [(place, index) for index, tool in enumerate(tools) if (place := _mention(tool.name, text)) >= 0]
    if places or not tools:
        return [tools[index] for _, index in sorted(places)[:2]]
    words = _words(text)
    scores = [len(words & _words(f"{tool.name} {str(tool.declaration.get('description') or '')[:READ]}")) for tool in tools]
    return [tools[scores.index(max(scores))]] if alone or max(scores) else []


def _mention(name: str, text: str) -> int:
    """Return the place where a text has a name as a word of its own, or -1."""
    match = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) if name and name in text else None
    return match.start() if match else -1


def _words(text: str) -> set[str]:
    """Return the words of a text or identifier in lower case, without small ones and without the s of the plural."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ")
    words = {word.casefold() for word in re.findall(r"\w+", spaced)}
    return {word.removesuffix("s") for word in words - SMALL_WORDS if len(word) >= SHORTEST_WORD}


def _call(tool: Tool, text: str) -> Message:
    """Return the call of a tool with the words after the colon; a grammar of a custom tool is not followed."""
    words = words_after_colon(text)
    match tool.kind:
        case "custom":
            return Message("commentary", words or text, tool.recipient)
        case "code_interpreter":
            return Message("commentary", _code(text), tool.recipient)
        case "web_search" | "web_search_preview":
            match = QUERY.search(text)
            arguments: Mapping[str, object] = {"query": match[1].strip() if match else words or text}
        case _:
            arguments = arguments_for(tool.declaration, words)
    return Message("commentary", json.dumps(arguments, ensure_ascii=False), tool.recipient, is_json=True)


def _code(text: str) -> str:
    """Return the arithmetic in a text as a program, else one that prints the text."""
    for match in ARITHMETIC.findall(text):
        arithmetic = match.lstrip(" \n\t).+*/%-").rstrip(" \n\t(.+*/%-")
        if arithmetic.strip("0123456789. "):
            return f"print({arithmetic})"
    return f"print({words_after_colon(text) or text!r})"
