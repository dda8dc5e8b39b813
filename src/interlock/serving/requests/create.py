"""The body of `POST /v1/responses`, read and judged, as one object that the rest of serving can rely on.

What each parameter may be is in `interlock.events.response_object`, what is read of items and tools in
`interlock.serving.requests.limits`; what no single parameter can say follows here in a few rules. This module knows nothing of
the models that are served, of stored responses, or of the size of bodies: the server judges those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from interlock.events.resource import without_secrets
from interlock.events.response_object import ContextManagements, Parameters
from interlock.serving.requests.api_errors import invalid, missing
from interlock.serving.requests.body import require_shallow
from interlock.serving.requests.conversation_bodies import require_alone
from interlock.serving.requests.input_items import STORED_NOWHERE, Item, join, read_input, require_input, require_type
from interlock.serving.requests.json_schema import flaw
from interlock.serving.requests.json_values import elements, is_object, members
from interlock.serving.requests.limits import (
    CHOICES,
    CONVERSATION,
    HOSTED_ITEMS,
    HOSTED_TOOLS,
    MOST_TOOLS,
    SCHEMA_FORMAT,
    TOOLS,
    Named,
    Shapes,
)
from interlock.serving.requests.refusals import QUOTED, require, require_list, too_long, unsupported, wrong_type
from interlock.serving.requests.summaries import require_last_trigger, threshold_of

__all__ = ["CreateResponse", "declared_tools", "read_hosted", "read_request"]

CALLED: Final = MappingProxyType({kind: TOOLS[kind] for kind in ("function", "custom")})
"""What is read of tools that the model calls by name and the client runs, which alone a namespace has."""

MODES: Final = ("none", "auto", "required")


class CreateResponse(Parameters, kw_only=True, frozen=True):
    """A valid request for a response: its parameters, and as JSON what is kept, echoed or rendered as it came.

    Args:
        raw: The whole body; `interlock.events.resource.response_settings` echoes it. It alone holds what only an MCP server is to
            get (`authorization`, `headers`), and so no engine renders tools from it.
        input: The request's own input items, each with its type; a string input is a user's message.
        tools: The tools, MCP servers without `authorization` and `headers`.
        tool_choice: `none`, `auto`, `required`, or an object with a `type`.
    """

    raw: Mapping[str, object]
    input: tuple[Item, ...] = ()
    tools: tuple[Mapping[str, object], ...] = ()
    tool_choice: str | Mapping[str, object] = "auto"
    background: bool = False
    include: list[str] = []  # noqa: RUF012 - every request gets a list of its own
    parallel_tool_calls: bool = True
    store: bool = True
    stream: bool = False
    top_logprobs: int = 0

    def __repr__(self) -> str:
        """Return which model is asked for what; nothing that a client may want to keep to itself."""
        return f"CreateResponse(model={self.model!r}, input={len(self.input)} items, tools={len(self.tools)})"

    @property
    def conversation_id(self) -> str | None:
        """The conversation that this request goes on from and is added to; never given beside a previous response."""
        given = self.raw.get("conversation")
        return None if given is None else str(members(given).get("id", given))

    @property
    def text_format(self) -> Mapping[str, object]:
        """The form of the answer: an object with the type `text`, `json_object` or `json_schema`."""
        return members(members(self.raw.get("text")).get("format")) or {"type": "text"}

    @property
    def reasoning_effort(self) -> str | None:
        """One of `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`, or None."""
        effort = members(self.raw.get("reasoning")).get("effort")
        return effort if isinstance(effort, str) else None

    @property
    def compact_threshold(self) -> int | None:
        """The tokens of a prompt beyond which the conversation is compacted before the model answers; None for never."""
        return threshold_of(self.raw)

    def continued(self, previous: Sequence[Item] = (), stored: Mapping[str, Item] = STORED_NOWHERE) -> tuple[Item, ...]:
        """Return what the model is asked to go on from: what came before, and this request's input.

        Args:
            previous: The conversation until the previous response, its output included.
            stored: Other items that references in the input may mean, by their ids.

        Raises:
            ApiError: 400 if a tool's output answers no call before it, 404 if a reference means no item that there is.
        """
        return join(previous, self.input, stored)

    @property
    def compacts_only(self) -> bool:
        """Whether the conversation is to be compacted and nothing else."""
        return bool(self.input) and self.input[-1]["type"] == "compaction_trigger"

    @property
    def wants_logprobs(self) -> bool:
        """Whether the text of messages shall carry its log probabilities."""
        return "message.output_text.logprobs" in self.include


def read_request(raw: Mapping[str, object]) -> CreateResponse:
    """Judge a body that was read already.

    Args:
        raw: The body; it is kept, and must not change any more.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    given = {name: value for name, value in raw.items() if value is not None}
    if "model" not in given:
        raise missing("model")
    if "prompt" in given:
        raise invalid("prompt", "'prompt' is not supported by this server.", "unsupported_parameter")
    parameters: Parameters = require(given, Parameters)
    require(raw.get("conversation"), CONVERSATION, "conversation")
    form = members(members(given.get("text")).get("format"))
    if form.get("type") == "json_schema":
        require(form, SCHEMA_FORMAT, "text", "format")
    request = CreateResponse(
        raw=raw,
        input=read_input(given.get("input")),
        tools=_tools(given.get("tools", []), TOOLS),
        tool_choice=_choice(given.get("tool_choice", "auto")),
        **{name: getattr(parameters, name) for name in Parameters.__struct_fields__ if name in given},
    )
    continues = request.previous_response_id is not None or request.conversation_id is not None
    require_input(request.input, continues=continues)
    require_alone(request.conversation_id, request.previous_response_id, stored=request.store)
    require_last_trigger(request.input)
    _require_distinct_names(request.tools)
    _require_schemas(request)
    _require_chosen_tool(request)
    if request.background and not request.store:
        raise invalid("background", "A response in the background needs 'store' to be true.")
    return request


def read_hosted(raw: Mapping[str, object]) -> CreateResponse:
    """Judge a body of which a host judges messages, reasoning, functions and parameters by itself.

    Args:
        raw: The body; it is kept, and must not change any more.

    Returns:
        The request; what the host judges of it has the API's defaults.

    Raises:
        ApiError: 400; an item is of a type that nobody knows, or one that is not the host's is not as it must be, or the body is
            nested too deeply.
    """
    require_shallow(raw)
    require(raw.get("context_management"), ContextManagements | None, "context_management")
    items = read_input(raw.get("input"), HOSTED_ITEMS)
    require_last_trigger(items)
    given, choice = raw.get("tools"), raw.get("tool_choice")
    tools = () if given is None else _tools(given, HOSTED_TOOLS)
    if choice is not None and not isinstance(choice, str):
        require(choice, Named, "tool_choice")
    chosen = choice if isinstance(choice, str) else members(choice) or "auto"
    return CreateResponse(raw=raw, model=str(raw.get("model") or ""), input=items, tools=tools, tool_choice=chosen)


def _tools(value: object, shapes: Shapes) -> tuple[Mapping[str, object], ...]:
    """Return the tools of a request without secrets, if each is as it must be; one of an unknown type is carried as it came."""
    tools = require_list(value, MOST_TOOLS, "tools")
    count = sum(1 + len(elements(members(tool).get("tools"))) for tool in tools)
    if count > MOST_TOOLS:
        raise too_long("tools", MOST_TOOLS, count)
    for index, tool in enumerate(tools):
        _require_tool(tool, f"tools[{index}]", shapes)
    return tuple(without_secrets(members(tool)) for tool in tools)


def _require_tool(tool: object, param: str, shapes: Shapes) -> None:
    if not is_object(tool):
        raise wrong_type(param, "an object", tool)
    kind = require_type(tool.get("type"), f"{param}.type")
    if kind in shapes:
        require(tool, shapes[kind], param)
    if kind == "namespace" and kind in shapes:
        for index, inner in enumerate(elements(tool.get("tools"))):
            _require_tool(inner, f"{param}.tools[{index}]", CALLED)


def _choice(value: object) -> str | Mapping[str, object]:
    """Return the choice of a request among its tools, if it is as it must be."""
    if isinstance(value, str):
        if value not in MODES:
            raise unsupported("tool_choice", value, MODES)
        return value
    if not is_object(value):
        raise wrong_type("tool_choice", "an object", value)
    require(value, CHOICES.get(require_type(value.get("type"), "tool_choice.type"), Named), "tool_choice")
    return value


def _require_distinct_names(tools: Iterable[object]) -> None:
    """Refuse two tools of one name, among the tools themselves and in each namespace."""
    seen: set[tuple[str, object]] = set()
    for param, tool in declared_tools(tools):
        if tool["type"] in CALLED:
            name = (param.rpartition("[")[0], tool["name"])
            if name in seen:
                raise invalid(f"{param}.name", f"Two tools are named '{tool['name']}'.", "duplicate_tool_name")
            seen.add(name)


def _require_schemas(request: CreateResponse) -> None:
    """Refuse what is no JSON schema where one must be: the parameters of a strict function, the form of an answer."""
    if request.text_format.get("type") == "json_schema":
        _require_schema("text.format.schema", request.text_format["schema"])
    for param, tool in declared_tools(request.tools):
        if tool["type"] == "function" and tool.get("strict") is True and tool.get("parameters") is not None:
            _require_schema(f"{param}.parameters", tool["parameters"])


def _require_schema(param: str, schema: object) -> None:
    found = flaw(schema)
    if found is not None:
        raise invalid(param, f"Invalid schema for '{param}': {found[:QUOTED]}.", "invalid_json_schema")


def _require_chosen_tool(request: CreateResponse) -> None:
    """Refuse a choice of a tool that is not declared."""
    choice = request.tool_choice
    if choice == "required" and not request.tools:
        raise invalid("tool_choice", "Tool choice 'required' must be specified with 'tools' parameter.")
    declared = [tool for _, tool in declared_tools(request.tools)]
    named = {(tool["type"], tool["name"]) for tool in declared if tool["type"] in CALLED}
    labels = {tool["server_label"] for tool in request.tools if tool["type"] == "mcp"}
    kinds = {tool["type"] for tool in declared}
    for param, tool in _chosen(members(choice)):
        kind = tool["type"]
        if kind in CALLED and (kind, tool.get("name")) not in named:
            raise invalid(f"{param}.name", f"'{tool.get('name')}' is not among the 'tools'.")
        if kind == "mcp" and "server_label" in tool and tool["server_label"] not in labels:
            raise invalid(f"{param}.server_label", f"'{tool['server_label']}' is not among the 'tools'.")
        if kind not in kinds:
            raise invalid(param, f"Tool choice '{kind}' not found in 'tools' parameter.")


def _chosen(choice: Mapping[str, object]) -> Iterable[tuple[str, Mapping[str, object]]]:
    """Return the tools that an object of `tool_choice` names, each with its path."""
    if choice.get("type") != "allowed_tools":
        return [("tool_choice", choice)] if choice else []
    return [(f"tool_choice.tools[{index}]", members(tool)) for index, tool in enumerate(elements(choice["tools"]))]


def declared_tools(tools: Iterable[object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield every tool of a valid request with its path, those of namespaces after their namespace."""
    for index, tool in enumerate(map(members, tools)):
        yield f"tools[{index}]", tool
        if tool["type"] == "namespace":
            inner = map(members, elements(tool.get("tools")))
            yield from ((f"tools[{index}].tools[{at}]", each) for at, each in enumerate(inner))
