"""Maps the recipient of a call to the kind of its item.

The first row that fits counts. `functions.` may precede the recipients of the first four.

    recipient                              item
    a declared function                    function_call
    a declared custom tool                 custom_tool_call
    a declared tool that the client runs   its own kind: shell_call, apply_patch_call, …
    a declared hosted tool's function      its own kind: web_search_call, …
    `label__X`                             mcp_call X of the declared MCP server `label`
    `functions.X`                          function_call X
    `python`                               code_interpreter_call
    `browser.search`, `.open`, `.find`     web_search_call
    `assistant`, `user`, `all`             no call: a message
    `mcp.server.tool`, `server.tool`       mcp_call of that server
    a bare name                            mcp_call of the server that allows it, the only one, or one of that name

In formats other than harmony, the last three rows are a function_call, unless the name begins with `mcp.`, `container.` or a
declared server.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import orjson
from attrs import evolve, field, frozen

from interlock.events.items import ITEMS, ItemKind
from interlock.events.json import as_text, dumps, elements, is_object, members
from interlock.fsm.deltas import FinishReason
from interlock.fsm.lifecycle import NO_FIELDS
from interlock.parsers.client_tools import CLIENT_TOOLS
from interlock.parsers.hosted_tools import HOSTED_CALLS, HostedCall

EndReason: TypeAlias = FinishReason | Literal["tool_calls", "function_call"]
"""The reason for the end of a turn, including the reasons of Chat Completions for an end with calls."""

Payload: TypeAlias = Literal["text", "input", "browser", "fields"]
"""The form of an item's text: plain text, one that may be the only string in JSON, or arguments of the browser or for fields."""

SEPARATOR = "__"
"""Separates a namespace or server from a name in the flat names that chat templates show to a model."""


def flat_name(space: object, name: object) -> str:
    """Return the flat name of a tool in a namespace or on a server, or the name of another tool."""
    return f"{space}{SEPARATOR}{name}" if space else str(name)


def finish_reason_of(reason: EndReason) -> FinishReason:
    """Return the reason for `EndTurn`."""
    return "stop" if reason == "tool_calls" or reason == "function_call" else reason  # noqa: PLR1714 - narrows the type


@frozen
class Route:
    """The item that a text belongs to: its kind, its first fields, and the form of its text.

    `function` is the function of a browser call.
    """

    kind: ItemKind
    fields: Mapping[str, object] = field(factory=dict[str, object])
    payload: Payload = "text"
    function: str = ""

    @property
    def is_call(self) -> bool:
        """Whether the item is a call."""
        return not ITEMS[self.kind].stops_anywhere

    @property
    def has_call_id(self) -> bool:
        """Whether the item is a call that the client runs and answers by `call_id`."""
        return "call_id" in ITEMS[self.kind].generated_ids


REASONING = Route("reasoning")
PREAMBLE = Route("message", {"phase": "commentary"})
ANSWER = Route("message", {"phase": "final_answer"})

_NO_CALL = ("", "assistant", "user", "all")
_PYTHON = Route("code_interpreter_call")


def function_route(name: str, fields: Mapping[str, object] = NO_FIELDS) -> Route:
    """Return the route of a function of the client."""
    return Route("function_call", {"name": name, **fields})


def server_route(label: object, name: str) -> Route:
    """Return the route of a tool of an MCP server."""
    return Route("mcp_call", {"name": name, "server_label": label})


@frozen
class Routing:
    """Routes the calls of one request; `servers` has the allowed tools of each MCP server, by label."""

    declared: Mapping[str, Route] = field(factory=dict[str, Route])
    servers: Mapping[str, frozenset[str]] = field(factory=dict[str, frozenset[str]])

    @classmethod
    def from_request(cls, body: Mapping[str, object], hosted: Container[str] | None = None) -> Routing:
        """Create the routing for a request body from its `tools`; invalid tools are ignored.

        `hosted` has the hosted tools that the server offers to the model; of tools with the same name, it offers the first. By
        default, it may offer each that the request declares by its type, unless a function has its name.
        """
        tools = list(_mappings(body.get("tools")))
        declared: dict[str, Route] = {}
        for name, route in _declared(tools, hosted):
            declared.setdefault(name, route)
        servers = {
            label: frozenset(_allow(tool.get("allowed_tools")))
            for tool in tools
            if tool.get("type") == "mcp" and (label := as_text(tool.get("server_label")))
        }
        return cls(declared, servers)

    def recipient(self, recipient: str) -> Route | None:
        """Return the route of a harmony recipient (the text after `to=`); None if it calls nothing."""
        if (route := self._find_explicit(recipient)) is not None:
            return route
        return None if recipient in _NO_CALL else self._mcp_call(recipient)

    def function(self, name: str) -> Route:
        """Return the route of a call in a format that only has functions; an unknown name is a function."""
        if (route := self._find_explicit(name)) is not None:
            return evolve(route, payload="input") if route is _PYTHON else route
        server, dot, _ = name.partition(".")
        hosted = dot and (server in {"mcp", "container"} or self._server_prefix(name) is not None)
        return self._mcp_call(name) if hosted else function_route(name)

    def in_namespace(self, space: object, name: str) -> Route:
        """Return the route of a call in a namespace, which the request need not declare: services load deferred functions."""
        flat = flat_name(space, name)
        route = self.function(flat)
        return route if flat in self.declared or route != function_route(flat) else self.function(name)

    def nearest(self, name: str) -> str:
        """Return the name of the only declared tool that differs from a name at most in hyphens and underscores, or the name."""
        if name in self.declared:
            return name
        similar = [each for each in self.declared if each.replace("-", "_") == name.replace("-", "_")]
        return similar[0] if len(similar) == 1 else name

    def may_continue(self, name: str) -> bool:
        """Return whether this is the beginning of a longer name of a tool."""
        if any(each.startswith(name) and each != name and not each.startswith("functions.") for each in self.declared):
            return True
        return name not in self.declared and any(f"{label}{SEPARATOR}".startswith(name) for label in self.servers)

    def _find_explicit(self, recipient: str) -> Route | None:
        """Route a declared tool, a tool of a declared server, or a name with a fixed meaning."""
        if (route := self.declared.get(recipient)) is not None:
            return route
        space, _, name = recipient.partition(".")
        match space:
            case "functions" if name:
                return self._server_tool(name) or function_route(name)
            case "python":
                return _PYTHON
            case "browser":
                return Route("web_search_call", payload="browser", function=name)
            case _:
                return self._server_tool(recipient)

    def _server_tool(self, name: str) -> Route | None:
        """Route `<label>__<tool>`, a tool of a declared server."""
        label = max((label for label in self.servers if name.startswith(f"{label}{SEPARATOR}")), key=len, default=None)
        return None if label is None else server_route(label, name[len(label) + len(SEPARATOR) :])

    def _mcp_call(self, recipient: str) -> Route:
        name = recipient.removeprefix("mcp.") or recipient
        label = self._server_prefix(name)
        if label is not None:
            name = name.removeprefix(f"{label}.")
        elif "." in name.strip("."):
            label, _, name = name.strip(".").partition(".")
        else:
            label = self._server_of(name)
        return server_route(label, name)

    def _server_prefix(self, recipient: str) -> str | None:
        """Return the declared server that a recipient begins with; labels may contain dots."""
        return max((label for label in self.servers if recipient.startswith(f"{label}.")), key=len, default=None)

    def _server_of(self, tool: str) -> str:
        """Return the server of a bare tool name: the one that allows it, the only one, or one of that name."""
        owners = [label for label, tools in self.servers.items() if tool in tools] or list(self.servers)
        return owners[0] if len(owners) == 1 else tool


def _declared(tools: Sequence[Mapping[str, object]], hosted: Container[str] | None) -> Iterator[tuple[str, Route]]:
    """Yield the recipients of declared tools with their routes; a function with a reserved name requires `functions.`."""
    calls = [_hosted_call(tool, hosted) for tool in tools]
    reserved = {*_NO_CALL, *(call.name for call in calls if call is not None and call.name == call.recipient)}
    labels = {call.label: call for call in calls if call is not None and hosted is not None}
    for tool, call in sorted(zip(tools, calls, strict=True), key=lambda each: hosted is None and each[1] is not None):
        if call is not None and call.name == call.recipient:
            yield call.recipient, _hosted_route(call)
        elif call is not None:
            yield from _recipients(call.name, _hosted_route(call))
        elif tool.get("type") == "namespace":
            yield from _in_namespace(tool)
        elif (route := route_declared(tool)) is not None:
            name = str(route.fields["name"])
            if name in labels:  # as in vLLM, where such a function shows the hosted tool to the model
                yield from _recipients(name, _hosted_route(labels[name]))
            elif name in reserved:
                yield f"functions.{name}", route
            else:
                yield from _recipients(name, route)


def _in_namespace(namespace: Mapping[str, object]) -> Iterator[tuple[str, Route]]:
    space = as_text(namespace.get("name"))
    for tool in _mappings(namespace.get("tools")):
        if (route := route_declared(tool, {"namespace": space})) is not None:
            for between in (SEPARATOR, "."):
                yield from _recipients(f"{space}{between}{route.fields['name']}", route)


def _hosted_call(tool: Mapping[str, object], hosted: Container[str] | None) -> HostedCall | None:
    """Return the calls that a tool declares, if it is hosted; without `hosted`, a label is one of the client's own MCP server."""
    call = next((call for call in HOSTED_CALLS.values() if call.is_declared(tool)), None)
    if call is None or (tool.get("type") == "mcp" if hosted is None else call.tool not in hosted):
        return None
    return call


def _hosted_route(call: HostedCall) -> Route:
    if call.kind == _PYTHON.kind:
        return _PYTHON
    fields = {"name": call.name} if call.payload == "fields" else NO_FIELDS
    return Route(call.kind, fields, call.payload, call.recipient.partition(".")[2])


def _recipients(name: str, route: Route) -> Iterator[tuple[str, Route]]:
    yield name, route
    yield f"functions.{name}", route


def route_declared(tool: Mapping[str, object], fields: Mapping[str, object] = NO_FIELDS) -> Route | None:
    """Return the route of a declared tool; functions may be nested, as in chat completions."""
    name = as_text(tool.get("name")) or as_text(members(tool.get("function")).get("name"))
    runs = {"async": True} if tool.get("async") is True else NO_FIELDS
    match tool.get("type"):
        case "function" if name:
            return function_route(name, {**fields, **runs})
        case "custom" if name:
            return Route("custom_tool_call", {"name": name, **fields, **runs}, payload="input")
        case str(kind) if kind in CLIENT_TOOLS:
            return Route(CLIENT_TOOLS[kind].kind, {"name": kind}, payload="fields")
        case _:
            return None


def _allow(value: object) -> Iterator[str]:
    """Yield the tool names of an MCP tool's `allowed_tools`: a list, or a filter that contains one."""
    for name in elements(members(value).get("tool_names", value)):
        if isinstance(name, str):
            yield name


def _mappings(value: object) -> Iterator[Mapping[str, object]]:
    for each in elements(value):
        if is_object(each):
            yield each


def as_arguments(value: object) -> str:
    """Return the arguments of a call as text; some services send an object instead."""
    return dumps(value).decode() if is_object(value) else as_text(value)


def is_json(text: str) -> bool:
    """Return whether a text is complete JSON."""
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def breaks_off(text: str) -> bool:
    """Return whether a text is the beginning of JSON; broken JSON is not, wherever it ends."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return error.pos == len(text)
    return False
