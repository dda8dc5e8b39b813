"""Translates a request's tools for models that only know functions.

A namespace becomes the functions `<namespace>__<name>`. A custom tool becomes a function with one string. A tool that the client
runs (shell, patches, tool search) becomes the function in `interlock.parsers.client_tools`. The tools of an MCP server become the
functions `<label>__<name>` once the conversation lists them. A *hosted tool*, which an operator can configure to run on an MCP
server, becomes what `HostedTools` has for it. A tool of an unknown type becomes a function if it has a name and parameters. All
other tools are left out. `interlock.parsers.routing` maps calls of these names back to their tools.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias, get_args

from attrs import field, frozen

from interlock.events.json import elements, is_object, members
from interlock.events.tools import AnyTool
from interlock.parsers.client_tools import CLIENT_TOOLS
from interlock.parsers.hosted_tools import HOSTED_CALLS, LABELS, HostedTool
from interlock.parsers.routing import SEPARATOR, Route, flat_name, route_declared, server_route
from interlock.serving.requests.input_items import JsonItem

JsonTool: TypeAlias = Mapping[str, object]

ToolCheck: TypeAlias = Callable[[str, HostedTool], Awaitable[bool]]
"""Returns whether a tool of the server runs for a model."""


async def run_none(_model: str, _tool: HostedTool) -> bool:
    """Return that no tool runs, for a server without any."""
    return False


CALL_SECONDS: Final = 120.0  # the default time limit of a hosted call

NO_PARAMETERS: Final[Mapping[str, object]] = {"type": "object", "properties": {}}
FUNCTION_FIELDS: Final = ("name", "description", "parameters", "strict")
"""The fields of a function that engines read."""
TOOL_ITEMS: Final = frozenset({"tool_search_output", "additional_tools"})
"""The types of input items that add tools."""
DISPENSABLE: Final = frozenset({"tool_search", "namespace", "programmatic_tool_calling", "mcp"})
"""Tools that are left out without a warning: they only load or call other tools, which are offered anyway, or have none."""

KNOWN_TYPES: Final = frozenset(tool.__struct_config__.tag for tool in get_args(AnyTool))
"""The types of tools in OpenAI's API."""

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
"""Matches the regular expressions that all of vLLM's grammar backends support. A backend rejects a request with another one."""


@frozen
class OfferedTool:
    """A tool for the engine, its type in the request, and the names by which `tool_choice` selects it.

    Calls of a tool that a client or an MCP server runs have a `route`.
    """

    tool: JsonTool
    kind: str
    names: frozenset[object] = frozenset()
    route: Route | None = None

    @property
    def name(self) -> str:
        """The name that the model sees, or else the server's label or the type."""
        return str(self.tool.get("name") or self.tool.get("server_label") or self.tool["type"])


@frozen
class ToolOffer:
    """The tools and the `tool_choice` for an engine, and the types of the tools that cannot be offered."""

    tools: tuple[JsonTool, ...]
    choice: object
    left_out: tuple[str, ...]


@frozen
class HostedTools:
    """The tools that a server runs, by type, and the labels of the MCP servers that the engine renders itself."""

    tools: Mapping[str, JsonTool] = field(factory=dict[str, JsonTool])
    labels: AbstractSet[object] = frozenset()


NameAssignment: TypeAlias = Callable[[Sequence[OfferedTool]], Sequence[OfferedTool]]


def first_of_each_name(tools: Sequence[OfferedTool]) -> Sequence[OfferedTool]:
    """Return the tools without those whose name an earlier one has."""
    named: dict[str, OfferedTool] = {}
    for tool in tools:
        named.setdefault(tool.name, tool)
    return [*named.values()]


def offer(
    tools: Iterable[JsonTool],
    choice: object,
    items: Iterable[JsonItem],
    hosted: HostedTools,
    assign_names: NameAssignment = first_of_each_name,
) -> ToolOffer:
    """Translate the tools and the `tool_choice` of a request, including tools that its conversation adds.

    `assign_names` returns the tools with distinct names.
    """
    conversation = [*items]
    lists = {
        item.get("server_label"): elements(item.get("tools")) for item in conversation if item.get("type") == "mcp_list_tools"
    }
    offered: dict[object, OfferedTool] = {}
    left_out: list[str] = []
    for tool in declare(tools, conversation):
        translations = [*_offered(tool, hosted), *_mcp_functions(tool, lists)]
        for each in translations:
            offered.setdefault(each.name if each.route is None else (*each.route.fields.items(),), each)
        if not translations and tool.get("type") not in DISPENSABLE:
            left_out.append(str(tool.get("type")))
    allowed, new_choice = _choose([*assign_names([*offered.values()])], choice)
    return ToolOffer(tuple(each.tool for each in allowed), new_choice, tuple(left_out))


def declare(tools: Iterable[JsonTool], items: Iterable[JsonItem]) -> tuple[JsonTool, ...]:
    """Return the tools of a request and of its conversation; tools of unknown types become functions."""
    added = [members(tool) for item in items if item.get("type") in TOOL_ITEMS for tool in elements(item.get("tools"))]
    return tuple(map(_know_type, (*tools, *added)))


def _know_type(tool: JsonTool) -> JsonTool:
    """Turn a tool of an unknown type with a name and parameters into a function; return any other tool unchanged."""
    if tool.get("type") in KNOWN_TYPES or not isinstance(tool.get("name"), str):
        return tool
    parameters = tool.get("parameters", tool.get("input_schema"))
    return {**tool, "type": "function", "parameters": parameters} if is_object(parameters) else tool


def _offered(tool: JsonTool, hosted: HostedTools) -> Iterator[OfferedTool]:
    """Yield the translations of a tool: none, one, or one for each tool of a namespace."""
    kind = str(tool.get("type"))
    match kind:
        case "function":
            fields = {name: tool[name] for name in FUNCTION_FIELDS if tool.get(name) is not None}
            function = {"type": kind, "parameters": NO_PARAMETERS, **fields}
            yield OfferedTool(function, kind, frozenset({tool.get("name")}), route_declared(tool))
        case "custom":
            yield OfferedTool(_custom_function(tool), kind, frozenset({tool.get("name")}), route_declared(tool))
        case "namespace":
            yield from _namespace_functions(tool)
        case "tool_search" if tool.get("execution") != "client":
            return
        case _ if kind in CLIENT_TOOLS:
            client_tool = CLIENT_TOOLS[kind]
            description = tool.get("description") or client_tool.description
            parameters = members(tool.get("parameters")) or client_tool.parameters
            function = {"type": "function", "name": kind, "description": description, "parameters": parameters}
            yield OfferedTool(function, kind, frozenset({kind}), route_declared(tool))
        case "mcp":
            label = tool.get("server_label")
            if label in hosted.labels or (label in LABELS and label in hosted.tools):
                yield OfferedTool(tool if label in hosted.labels else hosted.tools[str(label)], kind, frozenset({label}))
        case _ if kind in hosted.tools:
            stand_in = hosted.tools[kind]
            yield OfferedTool(stand_in if stand_in["type"] == "function" else {**tool, **stand_in}, kind)
        case _:
            return


def _mcp_functions(tool: JsonTool, lists: Mapping[object, Iterable[object]]) -> Iterator[OfferedTool]:
    """Yield the tools of an MCP server as functions, from its last `mcp_list_tools` item in the conversation."""
    label = tool.get("server_label")
    for each in map(members, lists.get(label, ()) if tool.get("type") == "mcp" else ()):
        name = str(each.get("name"))
        description = {"description": each["description"]} if each.get("description") else {}
        parameters = members(each.get("input_schema")) or NO_PARAMETERS
        function: JsonTool = {"type": "function", "name": flat_name(label, name), "parameters": parameters, **description}
        yield OfferedTool(function, "mcp", frozenset({label, name}), server_route(label, name))


def _namespace_functions(namespace: JsonTool) -> Iterator[OfferedTool]:
    space = str(namespace.get("name"))
    for tool in map(members, elements(namespace.get("tools"))):
        for each in _offered(tool, HostedTools()):
            name = flat_name(space, each.name)
            names = frozenset({*each.names, name, f"{space}.{each.name}"})
            yield OfferedTool({**each.tool, "name": name}, each.kind, names, route_declared(tool, {"namespace": space}))


def _custom_function(tool: JsonTool) -> JsonTool:
    """Return a function with one string. A `REGEX` match goes into its schema, any other grammar into its description."""
    text_format = members(tool.get("format"))
    grammar = members(text_format.get("grammar")) or text_format  # nested in Chat Completions, flat in the Responses API
    text: dict[str, object] = {"type": "string", "description": "The text for the tool, as it is."}
    descriptions = [str(tool["description"])] if tool.get("description") else []
    strict: dict[str, object] = {}
    definition, syntax = grammar.get("definition"), grammar.get("syntax")
    regex = REGEX.fullmatch(definition) if isinstance(definition, str) and syntax == "regex" else None
    if regex is not None:
        text["pattern"], strict = f"^(?:{regex[1]})$", {"strict": True}
    elif isinstance(definition, str):
        descriptions.append(f"The text must match this {syntax} grammar:\n{definition}")
    description = {"description": "\n\n".join(descriptions)} if descriptions else {}
    parameters = {"type": "object", "properties": {"input": text}, "required": ["input"], "additionalProperties": False}
    return {"type": "function", "name": tool.get("name"), **description, "parameters": parameters, **strict}


def _choose(offered: list[OfferedTool], choice: object) -> tuple[list[OfferedTool], object]:
    """Return the allowed tools and the choice. The choice of an MCP server whose tools became functions becomes `auto`."""
    entry = members(choice)
    if entry.get("type") == "mcp" and entry.get("name") is None and not any(each.tool["type"] == "mcp" for each in offered):
        return offered, "auto"
    if entry.get("type") == "allowed_tools":
        entries = [members(each) for each in elements(entry.get("tools"))]
        allowed = [each for each in offered if any(_is_named(each, each_entry) for each_entry in entries)]
        return allowed, entry.get("mode", "auto")
    if not entry:
        return offered, choice
    match = next((each.tool for each in offered if _is_named(each, entry)), None)
    if match is None:
        # The engine rejects an unknown function. Another tool may be one that cannot be offered, which is no error.
        return offered, {**entry, "type": "function"} if entry.get("type") in ("function", "custom") else "auto"
    return offered, {name: match[name] for name in ("type", "name", "server_label") if name in match}


def _is_named(offered: OfferedTool, choice: JsonTool) -> bool:
    """Return whether a choice names a tool; a namespace or a type alone names all of its tools."""
    if choice.get("type") == "namespace":
        return any(str(name).startswith(f"{choice.get('name')}{SEPARATOR}") for name in offered.names)
    if choice.get("type") != offered.kind:
        return False
    namespace, name = choice.get("namespace"), choice.get("name", choice.get("server_label"))
    if offered.kind == "mcp" and choice.get("server_label") not in offered.names:
        return False
    if isinstance(namespace, str):
        return f"{namespace}{SEPARATOR}{name}" in offered.names
    return name is None or name in offered.names


def list_hosted_functions(hosted: Mapping[str, str]) -> dict[str, Mapping[str, object]]:
    """Return the functions that stand for hosted tools, by the types of the tools in requests.

    `hosted` has the descriptions of the tools, which are empty for the usual text.
    """
    return {
        kind: {**call.function, "description": hosted[call.tool] or call.function["description"]}
        for call in HOSTED_CALLS.values()
        if call.tool in hosted
        for kind in call.types
    }


def find_hosted(hosted: Container[str], tools: Sequence[JsonTool]) -> set[str]:
    """Return which of the hosted tools a request declares."""
    return {call.tool for call in HOSTED_CALLS.values() if call.tool in hosted and any(map(call.is_declared, tools))}
