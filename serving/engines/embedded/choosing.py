"""Which tools the embedded model calls, and with what: a matter of the request's words alone.

It knows names, descriptions and `tool_choice`. A model would think; this looks for words of the user's in the names and
descriptions of the tools, so that whoever tests a client knows beforehand what will be called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from attrs import frozen

from interlock.serving.engines.embedded.pattern import Unreadable, example
from interlock.serving.engines.embedded.schema import arguments_for
from interlock.serving.engines.embedded.summing import is_unanswered
from interlock.serving.engines.engine import Turn
from interlock.serving.engines.prompt import is_answered, is_from_user
from interlock.serving.requests.values import elements, members, text_of

__all__ = ["READ", "Call", "chosen_calls", "user_text", "words_after_colon"]

SEPARATOR: Final = "__"
"""Between a namespace and a name, as chat templates write it."""

SMALL_WORDS: Final = frozenset({"the", "and", "for", "what", "with", "from", "that", "this", "you", "get", "use", "please"})
SHORTEST_WORD: Final = 3
READ: Final = 4_000
"""Characters of what a user says, and of a tool's description, that are read; all of them are counted."""

NAME_WEIGHT: Final = 3
"""How much more a word in a name says than one in a description."""


@frozen
class Call:
    """A call of a tool.

    Args:
        recipient: Whom harmony addresses.
        text: The arguments as JSON, or a custom tool's input as it is.
        is_json: Whether the text is JSON.
    """

    recipient: str
    text: str
    is_json: bool = True


@frozen
class Tool:
    """A tool that the model can call.

    Args:
        name: Its own name, as `tool_choice` and a user say it.
        recipient: Whom harmony addresses.
        declared: The tool as the request declares it.
    """

    name: str
    recipient: str
    declared: Mapping[str, object]


def chosen_calls(turn: Turn) -> tuple[Call, ...]:
    """Choose what is called in a turn: nothing, the hosted tools that the user asks for, one other tool or the two named.

    `none` calls nothing; with `required` or a named function even the client's answer to a call is followed by another one;
    else a tool is called if the user spoke last. A tool that the server ran is always followed by an answer.
    """
    choice = turn.request.tool_choice
    rules = members(choice)
    forced = choice == "required" or rules.get("mode") == "required" or rules.get("type") in ("function", "custom")
    last = _last(turn)
    if choice == "none" or not (is_from_user(last) or (forced and is_answered(last))):
        return ()
    said = user_text(turn)
    offered = list(_offered(turn, rules)) if is_from_user(last) else []
    calls = [hosted.call(said) for hosted in offered if hosted.words.search(said)]
    tools = [tool for tool in (*_tools(turn.request.tools, ""), *_listed(turn)) if _is_allowed(tool, rules)]
    calls += [_call(tool, said) for tool in _best(tools, said, beside=bool(calls))]
    if not calls and (forced or rules.get("type") in HOSTED):
        calls = [hosted.call(said) for hosted in offered[:1]]
    return tuple(calls if turn.request.parallel_tool_calls else calls[:1])


def _best(tools: Sequence[Tool], said: str, *, beside: bool) -> list[Tool]:
    """Return the tools that are named, two at most, else the one that fits best; beside other calls, only if it fits at all."""
    places = [(place, index) for index, tool in enumerate(tools) if (place := _mention(tool, said)) >= 0]
    if places or not tools:
        return [tools[index] for _, index in sorted(places)[:2]]
    words = _words(said)
    best = max(tools, key=lambda tool: _score(tool, words))
    return [best] if not beside or _score(best, words) else []


def _tools(declared: Sequence[object], space: str) -> Iterator[Tool]:
    """Yield the functions and custom tools of a request, those of namespaces under their flat names."""
    for tool in map(members, declared):
        name = str(tool.get("name", ""))
        if tool.get("type") in ("function", "custom"):
            yield Tool(name, f"functions.{space}{name}", tool)
        elif tool.get("type") == "namespace":
            yield from _tools(elements(tool.get("tools")), f"{name}{SEPARATOR}")


def _listed(turn: Turn) -> Iterator[Tool]:
    """Yield the tools of the MCP servers that have listed them in this conversation."""
    for item in turn.items:
        for tool in map(members, elements(item.get("tools")) if item.get("type") == "mcp_list_tools" else ()):
            declared = {"type": "mcp", "server_label": item.get("server_label"), "parameters": tool.get("input_schema")}
            name = str(tool.get("name"))
            yield Tool(name, f"{item.get('server_label')}.{name}", {**tool, **declared})


def _is_allowed(tool: Tool, rules: Mapping[str, object]) -> bool:
    """Return whether an object of `tool_choice` allows a tool; one of a hosted type allows none of them."""
    allowed = elements(rules["tools"]) if rules.get("type") == "allowed_tools" else [rules]
    return not rules or any(_is_meant(tool, members(one)) for one in allowed)


def _is_meant(tool: Tool, named: Mapping[str, object]) -> bool:
    """Return whether an object means a tool: by its type, and by whichever of its name and its server's label it gives."""
    given = {**tool.declared, "name": tool.name}
    return all(given.get(key) == named.get(key, given.get(key)) for key in ("type", "name", "server_label"))


def _code(said: str) -> str:
    """Return the arithmetic in a text as a program, else one that prints the text."""
    for written in ARITHMETIC.findall(said):
        found = written.lstrip(" \n\t).+*/%-").rstrip(" \n\t(.+*/%-")
        if found.strip("0123456789. "):
            return f"print({found})"
    return f"print({words_after_colon(said) or said!r})"


def _query(said: str) -> str:
    """What a text wants to be searched for."""
    found = SEARCHED.search(said)
    query = found[1].strip() if found else words_after_colon(said) or said
    return json.dumps({"query": query}, ensure_ascii=False)


@frozen
class Hosted:
    """A hosted tool that the model knows how to call.

    Args:
        recipient: Whom harmony addresses.
        words: The words of a user that ask for it.
        text: Returns what it is called with.
        is_json: Whether that is JSON.
    """

    recipient: str
    words: re.Pattern[str]
    text: Callable[[str], str]
    is_json: bool = True

    def call(self, said: str) -> Call:
        """Return the call that a text asks for."""
        return Call(self.recipient, self.text(said), self.is_json)


ARITHMETIC: Final = re.compile(r"[\d\s().+*/%-]+")
"""What arithmetic is written with; what it begins and ends with is cut to digits and parentheses."""
SEARCHED: Final = re.compile(
    r"\b(?:search(?:\s+the\s+web)?(?:\s+for)?|look\s+up|news\s+(?:about|of|on))\s+([^,.;:?!]+)", re.IGNORECASE
)

PYTHON: Final = Hosted(
    "python",
    re.compile(r"\b(?:calculate|compute|evaluate|python|run)\b|\d\s*(?:[-+*/%]|\*\*)\s*\(?\d", re.IGNORECASE),
    _code,
    is_json=False,
)
BROWSER: Final = Hosted("browser.search", re.compile(r"\b(?:search|look\s+up|latest|news)\b", re.IGNORECASE), _query)

HOSTED: Final[Mapping[str, Hosted]] = {
    "web_search": BROWSER,
    "web_search_preview": BROWSER,
    "code_interpreter": PYTHON,
}
"""The hosted tools by the type under which a request offers them."""


def _offered(turn: Turn, rules: Mapping[str, object]) -> Iterator[Hosted]:
    """Yield the hosted tools that a request offers and its choice allows."""
    for tool in turn.request.tools:
        kind = str(tool.get("type"))
        if kind in HOSTED and _is_allowed(Tool(kind, HOSTED[kind].recipient, tool), rules):
            yield HOSTED[kind]


def _last(turn: Turn) -> Mapping[str, object]:
    """Return the last item that is not an instruction, a reference, a list of tools, or a summary for a user who waits."""
    passed = ("item_reference", "mcp_list_tools")
    said = [item for item in turn.items if item.get("type") not in passed and not is_unanswered(item)]
    said = [item for item in said if item.get("role") not in ("system", "developer")]
    return said[-1] if said else {}


def user_text(turn: Turn) -> str:
    """Return the beginning of what the user said last, or nothing."""
    last = next((item for item in reversed(turn.items) if is_from_user(item)), None)
    return text_of(last.get("content"))[:READ] if last else ""


def words_after_colon(said: str) -> str | None:
    """Return the text after the last colon and space, or None if there is none."""
    _, colon, text = said.rpartition(": ")
    return text.strip() if colon and text.strip() else None


def _mention(tool: Tool, said: str) -> int:
    """Return where a text has a tool's name as a word of its own; -1 if nowhere."""
    if not tool.name or tool.name not in said:
        return -1
    found = re.search(rf"(?<!\w){re.escape(tool.name)}(?!\w)", said)
    return found.start() if found else -1


def _score(tool: Tool, words: AbstractSet[str]) -> int:
    description = str(tool.declared.get("description") or "")[:READ]
    return NAME_WEIGHT * len(words & _words(tool.name)) + len(words & _words(description))


def _words(text: str) -> set[str]:
    """Return the words of a text or of an identifier in any style, without the small ones, their plural s and their case."""
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ")
    found = {word.casefold() for word in re.findall(r"\w+", split)}
    return {word.removesuffix("s") for word in found - SMALL_WORDS if len(word) >= SHORTEST_WORD}


def _call(tool: Tool, said: str) -> Call:
    text = words_after_colon(said)
    if tool.declared.get("type") == "custom":
        return Call(tool.recipient, _input(tool, text or said), is_json=False)
    arguments = arguments_for(tool.declared.get("parameters"), text)
    return Call(tool.recipient, json.dumps(arguments, ensure_ascii=False))


def _input(tool: Tool, text: str) -> str:
    """Return the input of a custom tool: the text, unless its grammar is a regular expression that we can follow."""
    form = members(tool.declared.get("format"))
    if form.get("syntax") != "regex":
        return text
    try:
        return example(str(form.get("definition")))
    except Unreadable:
        return text
