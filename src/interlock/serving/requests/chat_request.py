"""Reads requests of OpenAI's Chat Completions as requests for responses. docs/guides/dialects.md has their table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from interlock.dialects.chat import ChatTransducer
from interlock.events.chat import LONGEST, add_extras, extras_in, split_extras
from interlock.events.items import CustomToolCall, CustomToolCallOutput, FunctionCall, FunctionCallOutput
from interlock.events.json import as_json, as_text, elements, members, parse
from interlock.events.parts import (
    Content,
    ContentPart,
    InputAudio,
    InputFile,
    InputImage,
    InputText,
    Json,
    OutputRefusal,
    OutputText,
)
from interlock.serving.requests.api_errors import ApiError, invalid, missing
from interlock.serving.requests.create import require_translated
from interlock.serving.requests.input_items import JsonItem, ReasoningOpener, open_none
from interlock.serving.requests.limits import ENGINE_PARAMETERS, not_run, require, require_object
from interlock.serving.requests.tool_offer import ToolCheck, run_none

LOGPROBS: Final = "message.output_text.logprobs"

FORWARDED: Final = (
    *("temperature", "top_p", "presence_penalty", "frequency_penalty", "parallel_tool_calls", "service_tier", "user", "metadata"),
    *("prompt_cache_key", "safety_identifier", "stop", "seed", "logit_bias", "top_k", "min_p", "repetition_penalty"),
    *("prediction", "stop_token_ids", "include_reasoning", *ENGINE_PARAMETERS),
)
"""The parameters that mean the same in both APIs, or that only an upstream server reads."""

CHAT_NAMES: Final[Mapping[str, str]] = {
    "text.format.type": "response_format.type",
    "text.format": "response_format.json_schema",
    "text.verbosity": "verbosity",
    "reasoning.effort": "reasoning_effort",
    "max_output_tokens": "max_tokens",
    "input": "messages",
}
"""The API's names of parameters, by the beginnings of those of the Responses API."""

GUIDED: Final = ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar", "json_schema", "regex", "ebnf")
"""The parameters of other servers that constrain the answer; ignored, they would let any text through."""


class _CalledFunction(Struct, kw_only=True):
    name: Annotated[str, Meta(min_length=1)]
    arguments: str = ""


class _CalledTool(Struct, kw_only=True):
    name: Annotated[str, Meta(min_length=1)]
    input: str = ""


class _Call(Struct, kw_only=True):
    id: Annotated[str, Meta(min_length=1, max_length=LONGEST)]
    function: _CalledFunction | None = None
    custom: _CalledTool | None = None
    extra_content: Json = None
    provider_specific_fields: Json = None


class _ChatMessage(Struct, kw_only=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Json]] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: Json = None
    refusal: str | None = None
    function_call: Json = None


class _StreamChoices(Struct, kw_only=True):
    include_usage: bool | None = None


class ChatRequest(Struct, kw_only=True):
    """The body of `POST /v1/chat/completions`, without the parameters that are passed on unread."""

    model: Annotated[str, Meta(min_length=1)]
    messages: Annotated[list[_ChatMessage], Meta(min_length=1, max_length=5_000)]
    stream: bool | None = None
    stream_options: _StreamChoices | None = None
    tools: list[dict[str, Json]] | None = None
    tool_choice: str | dict[str, Json] | None = None
    functions: list[dict[str, Json]] | None = None
    function_call: str | dict[str, Json] | None = None
    response_format: dict[str, Json] | None = None
    structured_outputs: Json = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    modalities: list[str] | None = None
    audio: Json = None
    web_search_options: dict[str, Json] | None = None


async def read_chat(
    raw: Mapping[str, object], opens: ReasoningOpener = open_none, runs: ToolCheck = run_none
) -> tuple[dict[str, object], ChatTransducer]:
    """Return the valid body of the request for a response, and the transducer of its answer.

    Args:
        raw: The body of `POST /v1/chat/completions`.
        opens: Opens the encrypted reasoning of a model; by default, none, which leaves it out.
        runs: Whether a tool of the server runs for a model; by default, none does.

    Raises:
        ApiError: 400 for a parameter, message or tool that is invalid or not supported.
    """
    body, transducer = await translate_chat(raw, opens, runs)
    require_translated(body, CHAT_NAMES)
    return body, transducer


async def translate_chat(
    raw: Mapping[str, object], opens: ReasoningOpener, runs: ToolCheck
) -> tuple[dict[str, object], ChatTransducer]:
    """Return what `read_chat` does, but leave the parameters that both APIs have to the reader of the body."""
    require_object(raw)
    request: ChatRequest = require(raw, ChatRequest)
    _require_supported(request, raw)
    if request.web_search_options is not None and not await runs(request.model, "web_search"):
        raise not_run("web_search_options", "web_search", "web_search")
    body: dict[str, object] = {
        **{name: raw[name] for name in FORWARDED if name in raw},
        "model": request.model,
        "input": [item async for item in _input(request.messages, partial(opens, request.model))],
        "tools": [*_tools(request)] or None,
        "tool_choice": _choice(request),
        "max_output_tokens": request.max_completion_tokens or request.max_tokens,
        "reasoning": None if request.reasoning_effort is None else {"effort": request.reasoning_effort},
        "text": _text(request),
        "stream": bool(request.stream),
        "store": False,
        "include": [],
    }
    if request.logprobs:
        body |= {"include": [LOGPROBS], "top_logprobs": request.top_logprobs or 0}
    sent = {name: value for name, value in body.items() if value is not None}
    usage = not request.stream or (request.stream_options is not None and bool(request.stream_options.include_usage))
    named = bool(members(sent.get("tool_choice")).get("name"))
    return sent, ChatTransducer(usage=usage, logprobs=bool(request.logprobs), names_function=named)


def _require_supported(request: ChatRequest, raw: Mapping[str, object]) -> None:
    if request.n not in (None, 1):
        raise invalid("n", "This server makes one choice for each request.", "unsupported_value")
    if request.top_logprobs and not request.logprobs:
        raise invalid("top_logprobs", "'top_logprobs' needs 'logprobs' to be true.")
    for name in GUIDED:
        if raw.get(name) is not None:
            raise invalid(name, f"'{name}' is not supported. Use 'response_format'.", "unsupported_value")
    for index, tool in enumerate(request.tools or ()):
        if tool.get("type") == "mcp" and tool.get("require_approval") in (None, "always"):
            refusal = "Chat Completions cannot ask for approval, so 'require_approval' must be 'never'."
            raise invalid(f"tools[{index}].require_approval", refusal, "unsupported_value")
    for index, message in enumerate(request.messages):
        if message.function_call is not None:
            raise invalid(f"messages[{index}].function_call", "A call of an answer must be in 'tool_calls'.", "unsupported_value")
    if request.audio is not None or any(each != "text" for each in request.modalities or ()):
        raise invalid("modalities", "This server answers with text alone.", "unsupported_value")


async def _input(messages: Iterable[_ChatMessage], opens: Callable[[str], Awaitable[object]]) -> AsyncIterator[JsonItem]:
    ids: dict[str, str] = {}
    custom: set[str] = set()
    for index, message in enumerate(messages):
        param = f"messages[{index}]"
        match message.role:
            case "tool":
                if not message.tool_call_id:
                    raise invalid(
                        f"{param}.tool_call_id", "A message of a tool needs the id of its call.", "missing_required_parameter"
                    )
                call_id = ids.get(message.tool_call_id, message.tool_call_id)
                kind = CustomToolCallOutput if message.tool_call_id in custom else FunctionCallOutput
                yield members(as_json(kind(call_id=call_id, output=_content(message, param))))
            case "assistant":
                ids |= {call.id: _call_id(call) for call in message.tool_calls or ()}
                custom |= {call.id for call in message.tool_calls or () if call.custom is not None}
                for data in _encrypted(message):
                    with suppress(ApiError):  # that of another service or model is dropped
                        await opens(data)
                        yield {"type": "reasoning", "summary": [], "encrypted_content": data}
                        message.reasoning = message.reasoning_content = None  # it has the text too
                for item in _assistant(message, param):
                    yield item
            case role:
                yield {"type": "message", "role": role, "content": as_json(_content(message, param))}


def _encrypted(message: _ChatMessage) -> Iterator[str]:
    """Yield the reasoning that only the server that wrote it can read."""
    for detail in map(members, elements(message.reasoning_details)):
        if detail.get("type") == "reasoning.encrypted" and (data := as_text(detail.get("data"))):
            yield data


def _assistant(message: _ChatMessage, param: str) -> Iterator[JsonItem]:
    """Yield the reasoning, the text and the calls of an answer."""
    reasoning = message.reasoning_content or message.reasoning
    if reasoning:
        yield {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": reasoning}]}
    if message.content or message.refusal:
        refusal = [OutputRefusal(refusal=message.refusal)] if message.refusal else []
        content = [*_parts(message.content or "", OutputText, param), *refusal]
        yield {"type": "message", "role": "assistant", "content": as_json(content)}
    for index, call in enumerate(message.tool_calls or ()):
        item: FunctionCall | CustomToolCall
        if call.custom is not None:
            item = CustomToolCall(call_id=_call_id(call), name=call.custom.name, input=call.custom.input)
        elif call.function is not None:
            arguments = call.function.arguments or "{}"
            item = FunctionCall(call_id=_call_id(call), name=call.function.name, arguments=arguments)
        else:
            raise missing(f"{param}.tool_calls[{index}].function")
        yield members(as_json(item))


def _call_id(call: _Call) -> str:
    """Return the id of a call with its extras; those of a call that this server made are in its id already."""
    _, extras = split_extras(call.id)
    return call.id if extras else add_extras(call.id, extras_in(asdict(call)))


def _content(message: _ChatMessage, param: str) -> Content:
    content = message.content or ""
    return content if isinstance(content, str) else _parts(content, InputText, param)


def _parts(content: str | Sequence[Mapping[str, object]], text: type[InputText | OutputText], param: str) -> list[ContentPart]:
    if isinstance(content, str):
        return [text(text=content)] if content else []
    return [_part(part, text, f"{param}.content[{index}]") for index, part in enumerate(content)]


def _part(part: Mapping[str, object], text: type[InputText | OutputText], param: str) -> ContentPart:
    converted: ContentPart
    match part.get("type"):
        case "text":
            converted = text(text=require(part.get("text"), str, f"{param}.text"))
        case "refusal":
            converted = OutputRefusal(refusal=require(part.get("refusal"), str, f"{param}.refusal"))
        case "image_url":
            image = members(part.get("image_url"))
            detail = {"detail": image["detail"]} if image.get("detail") else {}
            converted = require({"type": "input_image", "image_url": image.get("url"), **detail}, InputImage, param)
        case "file":
            converted = require({"type": "input_file", **members(part.get("file"))}, InputFile, param)
        case "input_audio":
            converted = require(part, InputAudio, param)
        case other:
            message = f"A content part of the type '{str(other)[:100]}' is not supported."
            raise invalid(f"{param}.type", message, "unsupported_value")
    return converted


def _tools(request: ChatRequest) -> Iterator[Mapping[str, object]]:
    yield from map(_flat, request.tools or ())
    for function in request.functions or ():
        yield {"type": "function", **function}
    if request.web_search_options is not None:
        yield {"type": "web_search", **request.web_search_options}


def _flat(tool: Mapping[str, object]) -> Mapping[str, object]:
    """Return a tool with the fields that the API nests under its type."""
    kind = tool.get("type")
    return {"type": kind, **members(tool.get(str(kind)))} if kind in ("function", "custom") and str(kind) in tool else tool


def _choice(request: ChatRequest) -> object:
    choice = request.function_call if request.tool_choice is None else request.tool_choice
    if not isinstance(choice, dict):
        return choice
    kind = str(choice.get("type", "function"))
    fields = members(choice.get(kind, choice if "name" in choice or "tools" in choice else None))
    tools = {"tools": [_flat(members(tool)) for tool in elements(fields.get("tools"))]} if kind == "allowed_tools" else {}
    return {"type": kind, **fields, **tools}


def _text(request: ChatRequest) -> Mapping[str, object] | None:
    form = members(request.response_format)
    schema = form.get("schema")
    if request.structured_outputs is not None:
        schema = members(request.structured_outputs).get("json")
        if form or schema is None or len(members(request.structured_outputs)) > 1:
            message = "Only the 'json' of 'structured_outputs' is supported, and not beside 'response_format'."
            raise invalid("structured_outputs", message, "unsupported_value")
        schema = parse(schema) if isinstance(schema, str) else schema
        form = {"type": "json_object"}
    if form.get("type") == "json_schema":
        form = {"type": "json_schema", **members(form.get("json_schema"))}
    elif form.get("type") == "json_object" and schema is not None:
        form = {"type": "json_schema", "name": "answer", "schema": schema}
    text = {"format": dict(form) or None, "verbosity": request.verbosity}
    return {name: value for name, value in text.items() if value is not None} or None
