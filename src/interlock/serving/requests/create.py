"""Validates the bodies of requests that create responses and conversations.

`interlock.events.request` has the types of parameters, and `interlock.serving.requests.limits` the types of items and
tools; this module has the rules that cover several parameters. Bodies must not change after they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from interlock.events import request as wire
from interlock.events.json import elements, is_object, members
from interlock.events.request import ContextManagements, Metadata, Parameters
from interlock.events.response_object import Conversation
from interlock.events.settings_echo import drop_secrets, response_settings
from interlock.events.tools import JsonSchemaFormat
from interlock.serving.requests.api_errors import ApiError, invalid, missing
from interlock.serving.requests.body import require_shallow
from interlock.serving.requests.input_items import (
    JsonItem,
    join,
    read_input,
    read_items,
    require_input,
    require_type,
    summary_request,
)
from interlock.serving.requests.limits import (
    CHOICES,
    CONVERSATION,
    HOST_ITEMS,
    HOST_TOOLS,
    MAX_TOOLS,
    SOME_TEXT,
    TOOL_KINDS,
    Kinds,
    Named,
    require,
    require_json_schema,
    require_list,
    require_object,
    shape_of,
    too_long,
    unsupported_value,
    wrong_type,
)
from interlock.serving.requests.tool_offer import declare

PARAMETERS: Final = frozenset(wire.CreateResponse.__struct_fields__)
"""The parameters of the API."""

MAX_ADDED: Final = 20
"""The most items that one request may add to a conversation, as in OpenAI's API."""

LEAST_TOKENS: Final = 16
"""The smallest limit of output tokens in the API; the other APIs allow 1."""

CALLED: Final[Kinds] = {kind: TOOL_KINDS[kind] for kind in ("function", "custom")}
"""The tools that the model calls by name and the client runs; in a namespace, only these are checked."""

MODES: Final = ("none", "auto", "required")

SUMMARIES: Final = frozenset({"auto", "concise", "detailed"})
"""The kinds of summaries of the reasoning; a model's own is of all kinds."""


STOP: TypeAlias = SOME_TEXT | list[SOME_TEXT] | None
"""The type of `stop`: for an empty stop string, every engine has another fault."""

_DeclaredTool: TypeAlias = tuple[str, Mapping[str, object]]
"""The path and the declaration of a tool."""


class HostParameters(Struct, kw_only=True):
    """The parameters that this server serves and a host engine does not see."""

    context_management: ContextManagements | None = None
    conversation: str | Conversation | None = None
    prompt_cache_key: str | None = None
    truncation: Literal["auto", "disabled"] | None = None


class ResponseRequest(Parameters, kw_only=True, frozen=True):
    """A valid request for a response.

    Items in `input` have a type, and a string input is a user's message. `tool_choice` is `none`, `auto`, `required`, or an
    object with a `type`; `read_for_host` leaves others to the engine. Only this module reads `raw`, the client's own body.
    """

    raw: Mapping[str, object]
    input: tuple[JsonItem, ...] = ()
    tools: tuple[Mapping[str, object], ...] = ()
    tool_choice: str | Mapping[str, object] = "auto"
    background: bool = False
    include: list[str] = []  # noqa: RUF012 - msgspec copies it for each request
    parallel_tool_calls: bool = True
    store: bool = True
    stream: bool = False
    top_logprobs: int = 0

    def __repr__(self) -> str:
        """Return the model and counts, and nothing private."""
        return f"ResponseRequest(model={self.model!r}, input={len(self.input)} items, tools={len(self.tools)})"

    @property
    def conversation_id(self) -> str | None:
        """The conversation that the response continues and extends; a request with one names no previous response."""
        return self.conversation.id if isinstance(self.conversation, Conversation) else self.conversation

    @property
    def text_format(self) -> Mapping[str, object]:
        """The output format: an object with the type `text`, `json_object` or `json_schema`."""
        return members(members(self.raw.get("text")).get("format")) or {"type": "text"}

    @property
    def reasoning_effort(self) -> str | None:
        """One of `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`, or None."""
        effort = members(self.raw.get("reasoning")).get("effort")
        return effort if isinstance(effort, str) else None

    @property
    def wants_summary(self) -> bool:
        """Whether the request asks for a summary of the reasoning, also by the older name of the parameter."""
        reasoning = members(self.raw.get("reasoning"))
        return not SUMMARIES.isdisjoint((reasoning.get("summary"), reasoning.get("generate_summary")))

    @property
    def verbosity(self) -> object:
        """How much the model writes: `low`, `medium`, `high`, or None."""
        return members(self.raw.get("text")).get("verbosity")

    @property
    def compact_threshold(self) -> int | None:
        """The prompt tokens above which the conversation is compacted before the model answers; None for never."""
        if not self.context_management:
            return None
        thresholds = [each.compact_threshold for each in self.context_management]
        return min((each for each in thresholds if each is not None), default=None)

    @property
    def compacts_only(self) -> bool:
        """Whether the request asks only for a compaction."""
        return bool(self.input) and self.input[-1]["type"] == "compaction_trigger"

    @property
    def wants_logprobs(self) -> bool:
        """Whether the request asks for the log probabilities of message text."""
        return "message.output_text.logprobs" in self.include

    @property
    def prewarms(self) -> bool:
        """Whether the request only prepares the engine's prefix cache, without output."""
        return members(self.raw.get("prompt_cache_options")).get("prewarm") is True

    @property
    def wants_encrypted_reasoning(self) -> bool:
        """Whether reasoning items have their encrypted content: on request, and with `"store": false` if it has no `include`."""
        return "reasoning.encrypted_content" in self.include or (
            self.raw.get("store") is False and self.raw.get("include") is None
        )

    @property
    def settings(self) -> dict[str, object]:
        """The settings that the response echoes."""
        return response_settings(self.raw)

    @property
    def extensions(self) -> Mapping[str, object]:
        """The parameters outside of the API, which an engine may know."""
        return {name: value for name, value in self.raw.items() if name not in PARAMETERS}

    @property
    def declared_servers(self) -> Iterator[Mapping[str, object]]:
        """The declarations of MCP servers with their secrets (`authorization`, `headers`), which `tools` lacks."""
        return (tool for tool in map(members, elements(self.raw.get("tools"))) if tool.get("type") == "mcp")

    def apply_updates(self, items: Iterable[JsonItem]) -> ResponseRequest:
        """Return the request with the effort and text format of the last updates in its conversation, which replace its own."""
        settings: dict[str, Mapping[str, object]] = {}
        for item in items:
            if item["type"] == "configuration_update":
                for name, field in (("reasoning", "effort"), ("text", "format")):
                    value = members(item.get(name)).get(field)
                    if value is not None:
                        settings[name] = {**members(self.raw.get(name)), field: value}
        return replace(self, raw={**self.raw, **settings}) if settings else self

    def forward(self, without: Container[str]) -> dict[str, object]:
        """Return the parameters as the client sent them, for another server, except those in `without`."""
        return {name: value for name, value in self.raw.items() if name not in without}

    def declare_tools(self, items: Iterable[JsonItem]) -> dict[str, object]:
        """Return the body for a parser, with all tools that calls may name, including the tools that the conversation adds."""
        return {**self.raw, "tools": [*declare(self.tools, items)]}

    def summary(self) -> dict[str, object]:
        """Return the body of the request for a summary of the conversation."""
        return summary_request(self.raw)


def read_request(raw: Mapping[str, object]) -> ResponseRequest:
    """Validate the body of `POST /v1/responses`; raise a 400 for invalid parameters, or some that exclude each other."""
    require_object(raw)
    body = {name: value for name, value in raw.items() if value is not None}
    if "model" not in body:
        raise missing("model")
    if "prompt" in body:
        raise invalid("prompt", "'prompt' is not supported by this server.", "unsupported_parameter")
    parameters: Parameters = require(body, Parameters)
    if "stop" in body:
        require(body["stop"], STOP, "stop")
    if "conversation" in body:
        require(body["conversation"], CONVERSATION, "conversation")
    text_format = members(members(body.get("text")).get("format"))
    if text_format.get("type") == "json_schema":
        require(text_format, shape_of(JsonSchemaFormat), "text", "format")
    request = ResponseRequest(
        raw=raw,
        input=read_input(body.get("input")),
        tools=_tools(body["tools"], TOOL_KINDS) if "tools" in body else (),
        tool_choice=_choice(body["tool_choice"]) if "tool_choice" in body else "auto",
        **{name: getattr(parameters, name) for name in Parameters.__struct_fields__ if name in body},
    )
    _require_consistent(request, text_format)
    return request


def read_translated(
    body: Mapping[str, object], read: Callable[[Mapping[str, object]], ResponseRequest] = read_request
) -> ResponseRequest:
    """Validate a body that stands for a request of another API, whose limit of output tokens may be below that of Responses.

    Args:
        body: What `read_chat` or `read_messages` returned.
        read: Validates the rest.

    Raises:
        ApiError: 400 for an invalid parameter, by its name in Responses.
    """
    limit = body.get("max_output_tokens")
    if not isinstance(limit, int) or limit >= LEAST_TOKENS:
        return read(body)
    return replace(read({**body, "max_output_tokens": LEAST_TOKENS}), max_output_tokens=limit)


def require_translated(body: Mapping[str, object], names: Mapping[str, str]) -> None:
    """Refuse an invalid body that stands for a request of another API, by that API's names of parameters."""
    try:
        join((), read_translated(body).input, {})  # which refuses an output that follows no call
    except ApiError as error:
        raise error.rename(names) from None


def _require_consistent(request: ResponseRequest, text_format: Mapping[str, object]) -> None:
    """Refuse parameters that are valid, but not together, and invalid JSON schemas."""
    conversation_id = request.conversation_id
    require_input(request.input, continues=request.previous_response_id is not None or conversation_id is not None)
    if conversation_id is not None:
        _require_compatible(request.previous_response_id, stored=request.store)
    _require_last_trigger(request.input)
    declared = [*_walk_tools(request.tools)] if request.tools else []
    if declared:
        _require_distinct_names(declared)
    if text_format.get("type") == "json_schema":
        require_json_schema("text.format.schema", text_format["schema"])
    if declared or request.tool_choice != "auto":
        _require_schemas(declared)
        _require_chosen_tool(request.tool_choice, declared)
    if request.background and not request.store:
        raise invalid("background", "A background response needs 'store' to be true.")


def read_for_host(raw: Mapping[str, object]) -> ResponseRequest:
    """Validate a body for an engine, such as vLLM, that validates messages, reasoning, functions and parameters itself."""
    require_shallow(raw)
    _require_conversation(raw)
    require(raw.get("stop"), STOP, "stop")
    parameters: HostParameters = require(raw, HostParameters)
    items = read_input(raw.get("input"), HOST_ITEMS)
    _require_last_trigger(items)
    choice = raw.get("tool_choice")
    tools = () if raw.get("tools") is None else _tools(raw["tools"], HOST_TOOLS)
    if choice is not None and not isinstance(choice, str):
        require(choice, Named, "tool_choice")
    tool_choice = choice if isinstance(choice, str) else members(choice) or "auto"
    served = {name: getattr(parameters, name) for name in HostParameters.__struct_fields__}
    return ResponseRequest(
        raw=raw, model=str(raw.get("model") or ""), input=items, tools=tools, tool_choice=tool_choice, **served
    )


def _require_last_trigger(items: Sequence[JsonItem]) -> None:
    for index, item in enumerate(items[:-1]):
        if item["type"] == "compaction_trigger":
            raise invalid(f"input[{index}]", "A 'compaction_trigger' must be the last item of 'input'.")


def _tools(value: object, kinds: Kinds) -> tuple[Mapping[str, object], ...]:
    """Return valid tools, and MCP servers without their secrets; a tool of an unknown type is not checked."""
    tools = require_list(value, MAX_TOOLS, "tools")
    count = sum(1 + len(elements(members(tool).get("tools"))) for tool in tools)
    if count > MAX_TOOLS:
        raise too_long("tools", MAX_TOOLS, count)
    for index, tool in enumerate(tools):
        _require_tool(tool, f"tools[{index}]", kinds)
    return tuple(drop_secrets(tool) if tool.get("type") == "mcp" else tool for tool in map(members, tools))


def _require_tool(tool: object, param: str, kinds: Kinds) -> None:
    if not is_object(tool):
        raise wrong_type(param, "an object", tool)
    kind = require_type(tool.get("type"), f"{param}.type")
    if kind in kinds:
        require(tool, shape_of(kinds[kind]), param)
    if kind == "namespace" and kind in kinds:
        for index, inner in enumerate(elements(tool.get("tools"))):
            _require_tool(inner, f"{param}.tools[{index}]", CALLED)


def _choice(value: object) -> str | Mapping[str, object]:
    if isinstance(value, str):
        if value not in MODES:
            raise unsupported_value("tool_choice", value, MODES)
        return value
    if not is_object(value):
        raise wrong_type("tool_choice", "an object", value)
    kind = CHOICES.get(require_type(value.get("type"), "tool_choice.type"))
    require(value, Named if kind is None else shape_of(kind), "tool_choice")
    return value


def _require_distinct_names(declared: Iterable[_DeclaredTool]) -> None:
    """Refuse two functions or custom tools with the same name at the top level or in namespaces of the same name."""
    seen: set[tuple[object, object]] = set()
    namespace: object = None
    for param, tool in declared:
        if param.count("[") == 1:
            namespace = tool.get("name") if tool["type"] == "namespace" else None
        if tool["type"] in CALLED:
            name = (namespace, tool["name"])
            if name in seen:
                raise invalid(f"{param}.name", f"Two tools are named '{tool['name']}'.", "duplicate_tool_name")
            seen.add(name)


def _require_schemas(declared: Iterable[_DeclaredTool]) -> None:
    """Refuse an invalid JSON schema in a strict function; those of other functions are not checked."""
    for param, tool in declared:
        if tool["type"] == "function" and tool.get("strict") is True and tool.get("parameters") is not None:
            require_json_schema(f"{param}.parameters", tool["parameters"])


def _require_chosen_tool(choice: str | Mapping[str, object], declared: Sequence[_DeclaredTool]) -> None:
    if isinstance(choice, str):
        if choice == "required" and not declared:
            raise invalid("tool_choice", "Tool choice 'required' must be specified with 'tools' parameter.")
        return
    named = {(tool["type"], tool["name"]) for _, tool in declared if tool["type"] in CALLED}
    labels = {tool["server_label"] for param, tool in declared if tool["type"] == "mcp" and param.count("[") == 1}
    kinds = {tool["type"] for _, tool in declared}
    for param, tool in _chosen_tools(choice):
        kind = tool["type"]
        if kind in CALLED and (kind, tool.get("name")) not in named:
            raise invalid(f"{param}.name", f"'{tool.get('name')}' is not among the 'tools'.")
        if kind == "mcp" and "server_label" in tool and tool["server_label"] not in labels:
            raise invalid(f"{param}.server_label", f"'{tool['server_label']}' is not among the 'tools'.")
        if kind not in kinds:
            raise invalid(param, f"Tool choice '{kind}' not found in 'tools' parameter.")


def _chosen_tools(choice: Mapping[str, object]) -> Iterable[tuple[str, Mapping[str, object]]]:
    """Return the tools that a `tool_choice` object names, each with its path."""
    if choice.get("type") != "allowed_tools":
        return [("tool_choice", choice)]
    return [(f"tool_choice.tools[{index}]", members(tool)) for index, tool in enumerate(elements(choice["tools"]))]


def _walk_tools(tools: Iterable[object]) -> Iterator[_DeclaredTool]:
    """Yield every tool with its path; the tools of a namespace follow it."""
    for index, tool in enumerate(map(members, tools)):
        yield f"tools[{index}]", tool
        if tool["type"] == "namespace":
            inner = map(members, elements(tool.get("tools")))
            yield from ((f"tools[{index}].tools[{at}]", each) for at, each in enumerate(inner))


def _require_conversation(raw: Mapping[str, object]) -> None:
    """Refuse an invalid conversation in a body that is not validated yet."""
    value, previous, store = (raw.get(parameter) for parameter in ("conversation", "previous_response_id", "store"))
    if value is not None:
        require(value, CONVERSATION, "conversation")
        previous_response_id = None if previous is None else require(previous, SOME_TEXT, "previous_response_id")
        _require_compatible(previous_response_id, stored=require(store, bool | None, "store") is not False)


def _require_compatible(previous_response_id: str | None, *, stored: bool) -> None:
    """Refuse a conversation together with a previous response, or for a response that is not stored."""
    if previous_response_id is not None:
        message = "A request can have only one of 'previous_response_id' and 'conversation'."
        raise invalid("previous_response_id", message, "mutually_exclusive_parameters")
    if not stored:
        raise invalid("conversation", "A response in a conversation needs 'store' to be true.")


def read_conversation(raw: Mapping[str, object]) -> tuple[tuple[JsonItem, ...], Mapping[str, str]]:
    """Return the first items and the metadata in a valid body that creates a conversation."""
    items = () if raw.get("items") is None else read_conversation_items(raw)
    return items, read_metadata({"metadata": None, **raw})


def read_metadata(raw: Mapping[str, object]) -> Mapping[str, str]:
    """Return the metadata in a valid body that replaces that of a conversation."""
    if "metadata" not in raw:
        raise missing("metadata")
    metadata = raw["metadata"]
    return {} if metadata is None else require(metadata, Metadata, "metadata")


def read_conversation_items(raw: Mapping[str, object]) -> tuple[JsonItem, ...]:
    """Return the items in a valid body that adds them to a conversation."""
    if "items" not in raw:
        raise missing("items")
    return read_items(raw["items"], MAX_ADDED, "items")
