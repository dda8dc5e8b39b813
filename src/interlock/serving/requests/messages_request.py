"""Reads requests of Anthropic's Messages API as requests for responses. docs/guides/dialects.md has a table of the parameters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Final, Literal, TypeAlias

from attrs import evolve
from msgspec import Meta, Struct

from interlock.dialects.messages import MessagesTransducer
from interlock.events.chat import LONGEST
from interlock.events.items import FunctionCall, FunctionCallOutput
from interlock.events.json import as_json, dumps, members
from interlock.events.parts import Content, ContentPart, InputFile, InputImage, InputText, Json, OutputText
from interlock.events.request import Probability, Temperature
from interlock.parsers.hosted_tools import HostedTool
from interlock.parsers.routing import flat_name
from interlock.serving.requests.api_errors import ApiError, invalid, missing
from interlock.serving.requests.create import require_translated
from interlock.serving.requests.input_items import JsonItem, ReasoningOpener, open_none
from interlock.serving.requests.limits import ENGINE_PARAMETERS, not_run, require, require_object
from interlock.serving.requests.tool_offer import NO_PARAMETERS, ToolCheck, run_none

BILLING: Final = "x-anthropic-billing-header:"
"""Begins a text of Claude Code's system prompt that differs from request to request, which would defeat every prefix cache."""

INCLUDED: Final = ("reasoning.encrypted_content", "web_search_call.action.sources", "code_interpreter_call.outputs")
"""What the blocks of an answer need of the response."""

MESSAGES_NAMES: Final[Mapping[str, str]] = {
    "text.format": "output_config.format",
    "reasoning.effort": "output_config.effort",
    "max_output_tokens": "max_tokens",
    "safety_identifier": "metadata.user_id",
    "instructions": "system",
    "stop": "stop_sequences",
    "input": "messages",
}
"""The API's names of parameters, by the beginnings of those of the Responses API."""

BUDGETS: Final = ((4_096, "low"), (16_384, "medium"))
"""The reasoning effort for a budget of thinking tokens below a number; `high` for any other."""

HOSTED: Final[Mapping[re.Pattern[str], HostedTool]] = {
    re.compile(r"web_search_\d+"): "web_search",
    re.compile(r"code_execution_\d+"): "code_interpreter",
}
"""The tools of the server, by the API's types, which end in a date."""

DEFAULT_FIELDS: Final[Mapping[HostedTool, Mapping[str, object]]] = {"code_interpreter": {"container": {"type": "auto"}}}
"""The fields that a tool of the server must have in the Responses API."""

MCP_TOOLSET: Final = "mcp_toolset"
"""The type of a tool that has those of an MCP server."""

THREAD_REFUSED: Final = "thread_unsupported_request"
"""The code upon which Anthropic's SDKs send the whole conversation, for which a thread would stand."""

LONGEST_USER: Final = 64
"""The most characters of a `safety_identifier`."""


class _BlockSource(Struct, kw_only=True):
    type: Literal["base64", "url", "text", "content"]
    media_type: str = ""
    data: str = ""
    url: str = ""
    content: Json = None


class _Block(Struct, tag_field="type", kw_only=True):
    """A block of a message in a request."""


class _Text(_Block, tag="text", kw_only=True):
    text: str


class _Image(_Block, tag="image", kw_only=True):
    source: _BlockSource


class _Document(_Block, tag="document", kw_only=True):
    source: _BlockSource
    title: str | None = None


class _ThinkingBlock(_Block, tag="thinking", kw_only=True):
    thinking: str = ""
    signature: str = ""


class _Redacted(_Block, tag="redacted_thinking", kw_only=True):
    """Reasoning of another service, which nobody here can read."""


class _Use(_Block, kw_only=True):
    id: Annotated[str, Meta(min_length=1, max_length=LONGEST)]
    name: Annotated[str, Meta(min_length=1, max_length=4_096)]
    input: Json


class _ToolUse(_Use, tag="tool_use", kw_only=True):
    """A call of a client's tool."""


class _ServerUse(_Use, tag="server_tool_use", kw_only=True):
    """A call of a tool of the server."""


class _McpUse(_Use, tag="mcp_tool_use", kw_only=True):
    server_name: str


class _Result(_Block, kw_only=True):
    tool_use_id: Annotated[str, Meta(min_length=1, max_length=LONGEST)]
    content: Json = None
    is_error: bool | None = None


class _ToolReference(_Block, tag="tool_reference", kw_only=True):
    """A tool that the client's search for tools found; the request declares it, because `defer_loading` is ignored."""

    tool_name: str


class _ToolResult(_Result, tag="tool_result", kw_only=True):
    content: str | list[_Text | _Image | _Document | _ToolReference] | None = None


class _SearchResult(_Result, tag="web_search_tool_result", kw_only=True):
    """The result of a search."""


class _CodeResult(_Result, tag="code_execution_tool_result", kw_only=True):
    """The result of code."""


class _McpResult(_Result, tag="mcp_tool_result", kw_only=True):
    """The result of an MCP server's tool."""


_AnyBlock: TypeAlias = (
    _Text
    | _Image
    | _Document
    | _ThinkingBlock
    | _Redacted
    | _ToolUse
    | _ServerUse
    | _McpUse
    | _ToolResult
    | _SearchResult
    | _CodeResult
    | _McpResult
)


class _Message(Struct, kw_only=True):
    """A message of the conversation. Claude Code sends system messages, too."""

    role: Literal["user", "assistant", "system"]
    content: str | list[_AnyBlock]


class _RequestedChoice(Struct, kw_only=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class _Thinking(Struct, kw_only=True):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None
    display: str | None = None


class _OutputFormat(Struct, kw_only=True):
    type: Literal["json_schema"]
    schema: dict[str, Json]


class _OutputConfig(Struct, kw_only=True):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: _OutputFormat | None = None


class _ToolConfiguration(Struct, kw_only=True):
    enabled: bool | None = None
    allowed_tools: list[str] | None = None


class _RequestedServer(Struct, kw_only=True):
    """An MCP server, whose tools this server calls without asking."""

    type: Literal["url"]
    url: str
    name: str
    authorization_token: str | None = None
    tool_configuration: _ToolConfiguration | None = None


class _ToolsetRule(Struct, kw_only=True):
    enabled: bool | None = None


class _ListedTool(Struct, kw_only=True):
    name: str


class _Tool(Struct, kw_only=True):
    """A tool: of the client, if it has no type or the type `custom`, or of the server.

    A tool of the type `mcp_toolset` has the tools of the MCP server that it names, with rules for some or all of them.
    """

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Json] | None = None
    strict: bool | None = None
    mcp_server_name: str | None = None
    default_config: _ToolsetRule | None = None
    configs: dict[str, _ToolsetRule | None] | None = None
    tools: list[_ListedTool] | None = None
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None


class _RequestMetadata(Struct, kw_only=True):
    user_id: str | None = None


class _CountRequest(Struct, kw_only=True):
    model: Annotated[str, Meta(min_length=1)]
    messages: Annotated[list[_Message], Meta(min_length=1, max_length=5_000)]
    system: str | list[_Text] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _RequestedChoice | None = None
    thinking: _Thinking | None = None
    output_config: _OutputConfig | None = None
    output_format: _OutputFormat | None = None
    mcp_servers: list[_RequestedServer] | None = None


class MessagesRequest(_CountRequest, kw_only=True):
    """The body of `POST /v1/messages`."""

    max_tokens: Annotated[int, Meta(ge=1)]
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: Temperature | None = None
    top_p: Probability | None = None
    top_k: int | None = None
    metadata: _RequestMetadata | None = None


async def read_messages(
    raw: Mapping[str, object],
    opens: ReasoningOpener = open_none,
    runs: ToolCheck = run_none,
    *,
    counts: bool = False,
    request_id: str | None = None,
) -> tuple[dict[str, object], MessagesTransducer]:
    """Return the valid body of the request for a response, and the transducer of its answer.

    Args:
        raw: The body of `POST /v1/messages`, or of `POST /v1/messages/count_tokens`.
        opens: Opens the encrypted reasoning of a model; by default, none, which leaves it out.
        runs: Whether a tool of the server runs for a model; by default, none does.
        counts: Whether the body is the latter, whose tokens are only counted.
        request_id: The id of the request, which an error of the stream has.

    Raises:
        ApiError: 400 for a parameter, block or tool that is invalid or not supported.
    """
    body, transducer = await translate_messages(raw, opens, runs, counts=counts, request_id=request_id)
    require_translated(body, MESSAGES_NAMES)
    return body, transducer


async def translate_messages(
    raw: Mapping[str, object], opens: ReasoningOpener, runs: ToolCheck, *, counts: bool = False, request_id: str | None = None
) -> tuple[dict[str, object], MessagesTransducer]:
    """Return what `read_messages` does, but leave the parameters that both APIs have to the reader of the body."""
    require_object(raw)
    if raw.get("thread") is not None:
        message = "Threads are not supported. Send all messages of the conversation, with its 'system' and 'tools'."
        raise evolve(invalid("thread", message, "unsupported_parameter"), details={"error_code": THREAD_REFUSED})
    if raw.get("compaction") is not None and not counts:
        message = "Compaction requests are not supported. Ask for a summary in a message instead."
        raise invalid("compaction", message, "unsupported_parameter")
    request: _CountRequest = require(raw, _CountRequest if counts else MessagesRequest)
    tools = await _tools(request, runs)
    body: dict[str, object] = {
        **{name: raw[name] for name in ENGINE_PARAMETERS if name in raw},
        "model": request.model,
        "input": await _input(request.messages, partial(opens, request.model)),
        "instructions": _instructions(request.system),
        "tools": [*tools, *_mcp_servers(request)] or None,
        "include": [*INCLUDED],
        "store": False,
        **_choice(request, tools),
        **_reasoning(request),
        **_format(request),
    }
    if isinstance(request, MessagesRequest):
        _require_question(request.messages)
        user = None if request.metadata is None else _identifier(request.metadata.user_id)
        body |= {
            "max_output_tokens": request.max_tokens,
            "stream": bool(request.stream),
            "stop": request.stop_sequences or None,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k,
            "safety_identifier": user,
        }
    sent = {name: value for name, value in body.items() if value is not None}
    thinks = request.thinking is None or request.thinking.display != "omitted"
    return sent, MessagesTransducer(thinks=thinks, request_id=request_id)


def _require_question(messages: Sequence[_Message]) -> None:
    """Refuse a conversation that ends with the beginning of the answer: no engine here goes on with it."""
    last = next((index for index in reversed(range(len(messages))) if messages[index].role != "system"), None)
    if last is not None and messages[last].role == "assistant":
        message = "Prefilling the answer is not supported. The conversation must end with a user message."
        raise invalid(f"messages[{last}].role", message, "unsupported_value")


def _identifier(user: str | None) -> str | None:
    """Return a name of a user, or the digest of one that is longer than OpenAI's service allows; that of Claude Code is."""
    return user if user is None or len(user) <= LONGEST_USER else hashlib.sha256(user.encode(errors="replace")).hexdigest()


def _instructions(system: str | Sequence[_Text] | None) -> str | None:
    texts = [system] if isinstance(system, str) else [block.text for block in system or ()]
    return "\n\n".join(text for text in texts if text and not text.startswith(BILLING)) or None


async def _input(messages: Iterable[_Message], opens: Callable[[str], Awaitable[object]]) -> list[JsonItem]:
    items: list[JsonItem] = []
    for index, message in enumerate(messages):
        blocks = [_Text(text=message.content)] if isinstance(message.content, str) else message.content
        parts: list[ContentPart] = []
        for at, block in enumerate(blocks):
            part = _part(block, message.role, f"messages[{index}].content[{at}]")
            if part is not None:
                parts.append(part)
                continue
            items += _message(message.role, parts)
            parts = []
            items += await _items(block, opens)
        items += _message(message.role, parts)
    return items


def _message(role: str, parts: Sequence[ContentPart]) -> Iterator[JsonItem]:
    if parts:
        yield {"type": "message", "role": "developer" if role == "system" else role, "content": as_json(parts)}


def _part(block: _AnyBlock | _ToolReference, role: str, param: str) -> ContentPart | None:
    """Return a block as a content part, or None for a block that is an item of its own."""
    match block:
        case _Text():
            return OutputText(text=block.text) if role == "assistant" else InputText(text=block.text)
        case _Image() | _Document() if role == "assistant":
            raise invalid(param, "An assistant's message cannot have images or documents.")
        case _Image():
            return InputImage(image_url=_url(block.source, param))
        case _Document():
            return _document(block, param)
        case _ToolReference():
            return InputText(text=f"The tool {block.tool_name} is available.")
        case _:
            return None


def _url(source: _BlockSource, param: str) -> str:
    match source.type:
        case "url":
            return source.url
        case "base64":
            return f"data:{source.media_type};base64,{source.data}"
        case other:
            raise invalid(f"{param}.source.type", f"A source of the type '{other}' is not supported here.", "unsupported_value")


def _document(block: _Document, param: str) -> InputText | InputFile:
    source = block.source
    match source.type:
        case "text":
            return InputText(text=source.data)
        case "url":
            return InputFile(file_url=source.url)
        case _:
            return InputFile(filename=block.title or "document.pdf", file_data=_url(source, param))


async def _items(block: _AnyBlock, opens: Callable[[str], Awaitable[object]]) -> list[JsonItem]:
    """Return the items of a block: reasoning, a call or a result."""
    match block:
        case _ThinkingBlock():
            return await _thinking(block, opens)
        case _McpUse():
            return [_call(block.id, flat_name(block.server_name, block.name), block.input)]
        case _Use():
            return [_call(block.id, block.name, block.input)]
        case _ToolResult():
            return [_result(block.tool_use_id, _output(block))]
        case _Result():
            return [_result(block.tool_use_id, dumps(block.content).decode())]
        case _:
            return []


def _call(call_id: str, name: str, arguments: object) -> JsonItem:
    return members(as_json(FunctionCall(call_id=call_id, name=name, arguments=dumps(arguments or {}).decode())))


def _result(call_id: str, output: Content) -> JsonItem:
    return members(as_json(FunctionCallOutput(call_id=call_id, output=output)))


async def _thinking(block: _ThinkingBlock, opens: Callable[[str], Awaitable[object]]) -> list[JsonItem]:
    """Return the reasoning; if another model or server signed it, only its text counts (rule M14)."""
    if block.signature:
        with suppress(ApiError):
            await opens(block.signature)
            return [{"type": "reasoning", "summary": [], "encrypted_content": block.signature}]
    content = [{"type": "reasoning_text", "text": block.thinking}]
    return [{"type": "reasoning", "summary": [], "content": content}] if block.thinking else []


def _output(block: _ToolResult) -> Content:
    """Return the output of a tool; an error says that it is one, because an output has no field for it."""
    if isinstance(block.content, list):
        parts = [part for each in block.content if (part := _part(each, "user", "content")) is not None]
        return [InputText(text="The tool failed:"), *parts] if block.is_error else parts
    text = block.content or ""
    return f"The tool failed: {text}" if block.is_error else text


async def _tools(request: _CountRequest, runs: ToolCheck) -> list[Mapping[str, object]]:
    tools: list[Mapping[str, object]] = []
    for index, tool in enumerate(request.tools or ()):
        if tool.type in (None, "custom"):
            schema = NO_PARAMETERS if tool.input_schema is None else tool.input_schema
            described = {} if tool.description is None else {"description": tool.description}
            function = {"type": "function", "name": tool.name, "parameters": schema, "strict": tool.strict is True}
            tools.append({**function, **described})
        elif tool.type != MCP_TOOLSET:
            hosted = await _hosted(request.model, tool.type, f"tools[{index}].type", runs)
            filters: Mapping[str, object] = _domains(tool, f"tools[{index}]") if hosted == "web_search" else {}
            tools.append({"type": hosted, **DEFAULT_FIELDS.get(hosted, {}), **filters})
    return tools


def _domains(tool: _Tool, param: str) -> Mapping[str, object]:
    """Return the domains that a web search may read."""
    if tool.allowed_domains is not None and tool.blocked_domains is not None:
        raise invalid(f"{param}.blocked_domains", "A web search can have only one of 'allowed_domains' and 'blocked_domains'.")
    lists = {"allowed_domains": tool.allowed_domains, "blocked_domains": tool.blocked_domains}
    filters = {name: domains for name, domains in lists.items() if domains is not None}
    return {"filters": filters} if filters else {}


async def _hosted(model: str, kind: str, param: str, runs: ToolCheck) -> HostedTool:
    """Return a tool of the server, or refuse one that no server runs: the model would never see it."""
    for pattern, tool in HOSTED.items():
        if pattern.fullmatch(kind):
            if await runs(model, tool):
                return tool
            raise not_run(param, kind, tool)
    raise invalid(param, f"A tool of the type '{kind[:100]}' is not supported.", "unsupported_value")


def _mcp_servers(request: _CountRequest) -> Iterator[Mapping[str, object]]:
    """Yield the MCP servers, each with the tools that the model may call; one without any is left out."""
    toolsets = _toolsets(request)
    for index, server in enumerate(request.mcp_servers or ()):
        configuration = server.tool_configuration or _ToolConfiguration()
        if toolsets and server.name not in toolsets:
            raise invalid(f"mcp_servers[{index}]", "Another server has an 'mcp_toolset', but this one has none.")
        param, toolset = toolsets.get(server.name, ("", _Tool()))
        allowed = _both(configuration.allowed_tools, _enabled_tools(toolset, param))
        if configuration.enabled is not False and allowed != []:
            listed = {} if allowed is None else {"allowed_tools": allowed}
            token = {} if server.authorization_token is None else {"authorization": server.authorization_token}
            declared = {"type": "mcp", "server_label": server.name, "server_url": server.url, "require_approval": "never"}
            yield {**declared, **listed, **token}


def _toolsets(request: _CountRequest) -> Mapping[str, tuple[str, _Tool]]:
    """Return the toolsets and their places in the body, by the names of their servers."""
    servers = {server.name for server in request.mcp_servers or ()}
    toolsets: dict[str, tuple[str, _Tool]] = {}
    for index, tool in enumerate(request.tools or ()):
        if tool.type == MCP_TOOLSET:
            param, name = f"tools[{index}]", tool.mcp_server_name
            if name is None:
                raise missing(f"{param}.mcp_server_name")
            if name not in servers:
                raise invalid(f"{param}.mcp_server_name", f"'{name[:100]}' is not among the 'mcp_servers'.")
            if name in toolsets:
                raise invalid(f"{param}.mcp_server_name", f"Two toolsets are for the server '{name[:100]}'.")
            toolsets[name] = (param, tool)
    return toolsets


def _enabled_tools(toolset: _Tool, param: str) -> list[str] | None:
    """Return the tools that a toolset enables, or None for all; all but some are refused: the server has listed none yet."""
    rules = {name: rule.enabled for name, rule in (toolset.configs or {}).items() if rule is not None}
    by_default = toolset.default_config is None or toolset.default_config.enabled is not False
    if toolset.tools is not None:
        listed = [tool.name for tool in toolset.tools]
        return [name for name in listed if (by_default if (enabled := rules.get(name)) is None else enabled)]
    if not by_default:
        return [name for name, enabled in rules.items() if enabled]
    disabled = [name for name, enabled in rules.items() if enabled is False]
    if disabled:
        message = "Single tools cannot be disabled here. Disable all in 'default_config' and enable those that are needed."
        raise invalid(f"{param}.configs.{disabled[0][:100]}.enabled", message, "unsupported_value")
    return None


def _both(first: list[str] | None, second: list[str] | None) -> list[str] | None:
    """Return what two lists allow together, where None allows everything."""
    return second if first is None else first if second is None else [name for name in first if name in second]


def _choice(request: _CountRequest, tools: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    choice = request.tool_choice
    if choice is None:
        return {}
    parallel = {"parallel_tool_calls": False} if choice.disable_parallel_tool_use else {}
    match choice.type:
        case "tool":
            return {"tool_choice": _named_tool(request, choice.name, tools), **parallel}
        case "any":
            return {"tool_choice": "required", **parallel}
        case kind:
            return {"tool_choice": kind, **parallel}


def _named_tool(request: _CountRequest, name: str, tools: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """Return the choice of a tool by its name; `tools` are the request's as they were read, without its toolsets."""
    sent = (tool for tool in request.tools or () if tool.type != MCP_TOOLSET)
    for tool, read in zip(sent, tools, strict=True):
        if tool.name == name and read["type"] != "function":
            return {"type": read["type"]}
    return {"type": "function", "name": name}


def _reasoning(request: _CountRequest) -> Mapping[str, object]:
    """Return the effort that the request asks for, or that a budget of thinking tokens stands for."""
    if request.output_config is not None and request.output_config.effort is not None:
        return {"reasoning": {"effort": request.output_config.effort}}
    match request.thinking:
        case _Thinking(type="disabled"):
            return {"reasoning": {"effort": "none"}}
        case _Thinking(type="enabled", budget_tokens=int(budget)):
            return {"reasoning": {"effort": next((effort for limit, effort in BUDGETS if budget < limit), "high")}}
        case _:
            return {}


def _format(request: _CountRequest) -> Mapping[str, object]:
    """Return the format of the answer, from the parameter or from its older form."""
    current = None if request.output_config is None else request.output_config.format
    if current is not None and request.output_format is not None:
        raise invalid("output_format", "A request can have only one of 'output_config.format' and 'output_format'.")
    form = current or request.output_format
    if form is None:
        return {}
    return {"text": {"format": {"type": "json_schema", "name": "answer", "schema": form.schema, "strict": True}}}
