"""What a model that knows functions alone is offered of a request's tools.

A namespace becomes the functions `<namespace>__<name>`, a custom tool a function of one string, and a tool that a client runs by
itself (a shell, patches, a search of tools) the function that `interlock.parsers.client_tools` has for it. What no function can
stand for is left out. By the same names `interlock.parsers.routing` reads the calls. It knows nothing of engines: which hosted
tools there are, whoever serves the request says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Final, TypeAlias

from attrs import field, frozen

from interlock.parsers.client_tools import CLIENT_TOOLS
from interlock.parsers.routing import SEPARATOR
from interlock.serving.requests.input_items import Item
from interlock.serving.requests.json_values import elements, is_object, members

__all__ = ["HostedTools", "ToolOffer", "declare", "offer"]

Tool: TypeAlias = Mapping[str, object]

NO_PARAMETERS: Final[Mapping[str, object]] = {"type": "object", "properties": {}}
FUNCTION_FIELDS: Final = ("name", "description", "parameters", "strict")
FINDINGS: Final = frozenset({"tool_search_output", "additional_tools"})
"""The input items that bring tools."""


ESCAPE: Final = r"\\(?:[dDwWsSnrtfv]|x[\da-fA-F]{2}|u[\da-fA-F]{4}|[ -/:;=?@\[-`{-~])"
REGEX: Final = re.compile(
    rf"""\^?(
        (?: [^\\^$({{\[+]
          | (?<![*+?}}])\+                    # no possessive quantifier
          | {ESCAPE}
          | \[\^?(?:[^\\\[\]]|{ESCAPE})+\]
          | \((?:\?:|(?!\?))
          | \{{\d+(?:,\d*)?\}}
        )*+
    )\$?""",
    re.ASCII | re.VERBOSE,
)
"""A regular expression of what every backend for grammars knows, which refuse a whole request for one that they do not know."""


@frozen
class OfferedTool:
    """A tool that is offered.

    Args:
        tool: As an engine gets it: a function, or a hosted tool.
        kind: Its type, as the request has it.
        names: By what a `tool_choice` may name it.
    """

    tool: Tool
    kind: str
    names: frozenset[object] = frozenset()


@frozen
class ToolOffer:
    """What is offered.

    Args:
        tools: The functions and hosted tools.
        choice: The `tool_choice` that means the same among them.
        declared: The request's tools and those that its input brings, by which the model's calls are read.
        left_out: The types of those that cannot be offered.
    """

    tools: tuple[Tool, ...]
    choice: object
    declared: tuple[Tool, ...]
    left_out: tuple[str, ...]


@frozen
class HostedTools:
    """The tools that a server runs.

    Args:
        tools: As an engine gets them, by the types that requests have for them.
        labels: The labels of the MCP servers that an engine knows by itself.
    """

    tools: Mapping[str, Tool] = field(factory=dict[str, Tool])
    labels: AbstractSet[object] = frozenset()


NONE: Final = HostedTools()


def offer(tools: Iterable[Tool], choice: object, items: Iterable[Item], hosted: HostedTools) -> ToolOffer:
    """Return what is offered of a request's tools.

    Args:
        tools: As the request has them.
        choice: Its `tool_choice`, if it has one.
        items: Its input, which may bring tools: what a search found.
        hosted: The hosted tools that may be offered.
    """
    said = [*items]
    declared = declare(tools, said)
    listed = {item.get("server_label"): elements(item.get("tools")) for item in said if item.get("type") == "mcp_list_tools"}
    offered: dict[object, OfferedTool] = {}
    left_out: list[str] = []
    for tool in declared:
        found = [*_offered(tool, hosted), *_of_server(tool, listed)]
        for each in found:
            offered.setdefault(each.tool.get("name", each.tool["type"]), each)
        if not found and not _is_needless(tool):
            left_out.append(str(tool.get("type")))
    kept, chosen = _choose(list(offered.values()), choice)
    return ToolOffer(tuple(each.tool for each in kept), chosen, declared, tuple(left_out))


def declare(tools: Iterable[Tool], items: Iterable[Item]) -> tuple[Tool, ...]:
    """Return the tools by which a model's calls are read: those of a request, and those that its conversation brings.

    Args:
        tools: Of the request.
        items: Of the conversation.
    """
    brought = (elements(item.get("tools")) for item in items if item.get("type") in FINDINGS)
    return tuple(_understood(tool) for tool in (*tools, *map(members, chain.from_iterable(brought))))


def _understood(tool: Tool) -> Tool:
    """Return a tool of a type that nobody knows as the function that it looks like, any other as it is."""
    if tool.get("type") in KNOWN or not isinstance(tool.get("name"), str):
        return tool
    parameters = tool.get("parameters", tool.get("input_schema"))
    return {**tool, "type": "function", "parameters": parameters} if is_object(parameters) else tool


def _is_needless(tool: Tool) -> bool:
    """Return whether nothing is lost without a tool: one that would find those that are offered anyway, or an empty namespace."""
    return tool.get("type") in ("tool_search", "namespace", "programmatic_tool_calling", "mcp")


def _offered(tool: Tool, hosted: HostedTools) -> Iterator[OfferedTool]:
    """Yield what is offered of a tool: nothing, itself or the members of a namespace."""
    kind = str(tool.get("type"))
    match kind:
        case "function":
            yield OfferedTool({"type": kind, **_fields(tool)}, kind, frozenset({tool.get("name")}))
        case "custom":
            yield OfferedTool(_custom(tool), kind, frozenset({tool.get("name")}))
        case "namespace":
            yield from _members(tool)
        case "tool_search" if tool.get("execution") != "client":
            return
        case _ if kind in CLIENT_TOOLS:
            yield OfferedTool(_client_tool(kind, tool), kind, frozenset({kind}))
        case "mcp":
            if tool.get("server_label") in hosted.labels:
                yield OfferedTool(tool, kind, frozenset({tool.get("server_label")}))
        case _ if kind in hosted.tools:
            yield OfferedTool({**tool, **hosted.tools[kind]}, kind)
        case _:
            return


def _of_server(tool: Tool, listed: Mapping[object, Iterable[object]]) -> Iterator[OfferedTool]:
    """Yield the tools of an MCP server as functions, by the last list of them in the conversation."""
    label = tool.get("server_label")
    for each in map(members, listed.get(label, ()) if tool.get("type") == "mcp" else ()):
        name = str(each.get("name"))
        about = {"description": each["description"]} if each.get("description") else {}
        parameters = members(each.get("input_schema")) or NO_PARAMETERS
        function: Tool = {"type": "function", "name": f"{label}{SEPARATOR}{name}", "parameters": parameters, **about}
        yield OfferedTool(function, "mcp", frozenset({label, name}))


def _members(space: Tool) -> Iterator[OfferedTool]:
    for tool in map(members, elements(space.get("tools"))):
        for each in _offered(tool, NONE):
            name = f"{space.get('name')}{SEPARATOR}{each.tool['name']}"
            named = frozenset({*each.names, name, f"{space.get('name')}.{each.tool['name']}"})
            yield OfferedTool({**each.tool, "name": name}, each.kind, named)


def _fields(tool: Tool) -> Tool:
    """Return what engines know of a function; one without parameters has none."""
    told = {name: tool[name] for name in FUNCTION_FIELDS if tool.get(name) is not None}
    return {"parameters": NO_PARAMETERS, **told}


def _custom(tool: Tool) -> Tool:
    """Return a function of one string, with a plain regular expression in its schema, or any other grammar in its description."""
    form = members(tool.get("format"))
    grammar = members(form.get("grammar")) or form  # as in chat completions, or as it is here
    text: dict[str, object] = {"type": "string", "description": "The text for the tool, as it is."}
    told = [str(tool["description"])] if tool.get("description") else []
    strict: dict[str, object] = {}
    definition, syntax = grammar.get("definition"), grammar.get("syntax")
    known = REGEX.fullmatch(definition) if isinstance(definition, str) and syntax == "regex" else None
    if known is not None:
        text["pattern"], strict = f"^(?:{known[1]})$", {"strict": True}
    elif isinstance(definition, str):
        told.append(f"The text must match this {syntax} grammar:\n{definition}")
    described = {"description": "\n\n".join(told)} if told else {}
    parameters = {"type": "object", "properties": {"input": text}, "required": ["input"], "additionalProperties": False}
    return {"type": "function", "name": tool.get("name"), **described, "parameters": parameters, **strict}


def _client_tool(kind: str, tool: Tool) -> Tool:
    own = CLIENT_TOOLS[kind]
    return {
        "type": "function",
        "name": kind,
        "description": tool.get("description") or own.description,
        "parameters": members(tool.get("parameters")) or own.parameters,
    }


def _choose(offered: list[OfferedTool], choice: object) -> tuple[list[OfferedTool], object]:
    """Return what may be called, and the choice among it; that of a whole MCP server cannot be said, and is `auto`."""
    asked = members(choice)
    if asked.get("type") == "mcp" and asked.get("name") is None and not any(each.tool["type"] == "mcp" for each in offered):
        return offered, "auto"
    if asked.get("type") == "allowed_tools":
        allowed = [members(each) for each in elements(asked.get("tools"))]
        kept = [each for each in offered if any(_is_meant(each, entry) for entry in allowed)]
        return kept, asked.get("mode", "auto")
    if not asked:
        return offered, choice
    meant = next((each.tool for each in offered if _is_meant(each, asked)), None)
    if meant is None:
        # A function that is not there is refused by whoever knows the functions; of another tool it is not sure that it can be.
        return offered, {**asked, "type": "function"} if asked.get("type") in ("function", "custom") else "auto"
    return offered, {name: meant[name] for name in ("type", "name", "server_label") if name in meant}


def _is_meant(offered: OfferedTool, choice: Tool) -> bool:
    """Return whether a choice means a tool; a namespace or a type alone means all of it."""
    if choice.get("type") == "namespace":
        return any(str(name).startswith(f"{choice.get('name')}{SEPARATOR}") for name in offered.names)
    if choice.get("type") != offered.kind:
        return False
    space, name = choice.get("namespace"), choice.get("name", choice.get("server_label"))
    if offered.kind == "mcp" and choice.get("server_label") not in offered.names:
        return False
    if isinstance(space, str):
        return f"{space}{SEPARATOR}{name}" in offered.names
    return name is None or name in offered.names


KNOWN: Final = frozenset(
    {
        *("function", "custom", "namespace", "mcp", *CLIENT_TOOLS),
        *("computer", "computer_use_preview", "file_search", "image_generation", "programmatic_tool_calling", "code_interpreter"),
        *("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"),
    }
)
"""The types of tools that the API has."""
