"""Chat Completions: writes the request for a turn and reads its chunks. docs/gateway.md has tables of both."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import define, evolve, field
from msgspec import UNSET, DecodeError, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from interlock.events import response_object as wire
from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk, Parser
from interlock.parsers.chat_deltas import ChatParser
from interlock.parsers.routing import Routing
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.upstream.chat_messages import chat_messages
from interlock.serving.engines.upstream.gateway import REASONS, Call, count_of, ended_early
from interlock.serving.engines.upstream.upstream_client import error_of, upstream_error
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.hosted_tools import hosted_functions, hosted_kinds, with_hosted
from interlock.serving.requests.json_values import elements, members
from interlock.serving.requests.tool_offer import HostedTools, ToolOffer, offer

__all__ = ["ChatTranslator"]

logger = logging.getLogger(__name__)

PARAMETERS: Final = frozenset(wire.CreateResponse.__struct_fields__)
SAME: Final = (
    *("temperature", "top_p", "presence_penalty", "frequency_penalty", "user", "service_tier", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_retention"),
)
"""The parameters that Chat Completions has too."""
DROPPED: Final = frozenset({"n", "messages", "functions", "function_call"})
"""The parameters outside the API that are not sent: the gateway reads one choice, and writes messages and tools itself."""

CHARACTERS: Final = 4
"""The characters per token of an estimate."""


class FunctionDelta(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class ChatDelta(Struct):
    """The delta of a choice, or its whole message, as `ChatParser` reads it."""

    content: str | list[dict[str, Any]] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[CallDelta] | None = None
    function_call: FunctionDelta | None = None


class Choice(Struct):
    delta: ChatDelta | None = None
    message: ChatDelta | None = None
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class ChatChunk(Struct):
    """An event of the stream, or the whole answer of a server that does not stream."""

    choices: list[Choice] | UnsetType | None = UNSET
    usage: dict[str, Any] | None = None
    error: Any = None
    object: str | None = None


DECODER: Final = Decoder(ChatChunk)


@define(eq=False)
class ChatTranslator:
    """Translates one response to and from Chat Completions."""

    parser: Parser
    _call: Call
    _wants_logprobs: bool
    _finish_reason: FinishReason | None = field(default=None, init=False)
    _usage: Mapping[str, object] = field(factory=dict[str, object], init=False)

    @classmethod
    def of(cls, call: Call) -> ChatTranslator:
        """Return the translator of a response."""
        hosted = hosted_kinds(call.hosted, call.request.tools)
        tagged = call.upstream.family
        parser: Parser
        if tagged is not None:
            from interlock.parsers.families import FamilyParser, Settings, family  # noqa: PLC0415 - other upstreams do without

            settings = Settings.from_request(call.declared)
            settings.routing = with_hosted(settings.routing, hosted)
            parser = FamilyParser(family(tagged.tool_parser, tagged.reasoning_parser), settings)
        else:
            routing = with_hosted(Routing.from_request(call.declared), hosted)
            parser = ChatParser(routing, call.request.raw.get("include_reasoning") is not False)
        return cls(parser, call, call.request.wants_logprobs)

    async def request(self, turn: Turn) -> tuple[str, Mapping[str, object]]:
        self._finish_reason, self._usage = None, {}
        return "chat/completions", self._call.upstream.renamed(self._body(turn))

    def read(self, data: bytes) -> EngineOutput | None:
        if data == b"[DONE]":
            return None
        try:
            chunk = DECODER.decode(data)
        except (ValidationError, DecodeError) as error:
            message = f"The upstream server sent a chunk that is malformed: {error}."
            raise upstream_error(message) from None
        if chunk.usage:
            self._usage = chunk.usage
        if chunk.error is not None or chunk.object == "error":
            raise event_error(data)
        if chunk.choices:
            return self._read_choice(chunk.choices[0])
        if chunk.choices is UNSET and not chunk.usage:
            raise upstream_error("The upstream server sent a chunk without choices.")
        return None

    def _read_choice(self, choice: Choice) -> EngineOutput | None:
        if choice.finish_reason is not None:
            self._finish_reason = REASONS.get(choice.finish_reason, "stop")
        delta = choice.delta or choice.message
        if delta is None:
            if choice.finish_reason is None:
                raise upstream_error("The upstream server sent a choice without a delta.")
            return None
        if delta.reasoning is None:
            delta.reasoning = delta.reasoning_content
        logprobs = _entries(choice.logprobs) if self._wants_logprobs and choice.logprobs else None
        if self._call.upstream.family is not None:
            return EngineOutput(Chunk((), _raw_text(delta), logprobs))
        return EngineOutput(Chunk((), "", logprobs, delta))

    def end(self) -> EngineOutput:
        if self._finish_reason is None:
            raise ended_early()
        usage = self._usage
        prompt, output = members(usage.get("prompt_tokens_details")), members(usage.get("completion_tokens_details"))
        return EngineOutput(
            Chunk(),
            self._finish_reason,
            input_tokens=count_of(usage.get("prompt_tokens")),
            cached_tokens=count_of(prompt.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))),
            output_tokens=count_of(usage.get("completion_tokens")),
            reasoning_tokens=count_of(output.get("reasoning_tokens")),
        )

    async def count(self, turn: Turn) -> int:
        """Return an estimate, because Chat Completions counts tokens only in its answers."""
        from interlock.events.json import dumps  # noqa: PLC0415

        body = self._body(turn)
        return len(dumps([body["messages"], body.get("tools")])) // CHARACTERS

    def _body(self, turn: Turn) -> dict[str, object]:
        request, raw = turn.request, turn.request.raw
        text = members(raw.get("text"))
        tools = offer(request.tools, request.tool_choice, turn.items, HostedTools(hosted_functions(self._call.hosted)))
        if not turn.index:
            for kind in tools.left_out:
                logger.warning("a tool of the type %s is not offered to the model: no function can stand for it", kind)
        body: dict[str, object] = {
            **{name: value for name, value in raw.items() if name not in PARAMETERS and name not in DROPPED},
            **{name: raw[name] for name in SAME if raw.get(name) is not None},
            "model": self._call.model,
            "messages": chat_messages(
                request.instructions, turn.items, self._call.upstream.fields.get("reasoning_content", "reasoning_content")
            ),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_completion_tokens": turn.budget,
            "reasoning_effort": request.reasoning_effort,
            "verbosity": text.get("verbosity"),
            "response_format": response_format(request.text_format),
            **_tool_parameters(tools, request.parallel_tool_calls, is_first=not turn.index),
        }
        if request.wants_logprobs:
            body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        return {name: value for name, value in body.items() if value is not None}


def _tool_parameters(tools: ToolOffer, parallel: bool, *, is_first: bool) -> dict[str, object]:  # noqa: FBT001 - a parameter of the API
    if not tools.tools:
        return {}
    functions = [
        {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}} for tool in tools.tools
    ]
    choice = tools.choice
    if members(choice):
        choice = {"type": "function", "function": {"name": members(choice).get("name")}}
    if not is_first and choice != "none":
        choice = "auto"  # the first turn made the required call
    return {"tools": functions, "tool_choice": choice, "parallel_tool_calls": None if parallel else False}


def response_format(text_format: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the `response_format` for a text format, or None for plain text."""
    match text_format.get("type"):
        case "json_schema":
            schema = {name: text_format[name] for name in ("name", "description", "schema", "strict") if name in text_format}
            return {"type": "json_schema", "json_schema": schema}
        case "json_object":
            return {"type": "json_object"}
        case _:
            return None


def _raw_text(delta: ChatDelta) -> str:
    """Return the text for the parser of the model's family."""
    if delta.reasoning or delta.tool_calls or delta.function_call:
        message = "The upstream server parses the output of this model itself, so the gateway must not be given its family."
        raise upstream_error(message)
    return delta.content if isinstance(delta.content, str) else ""


def _entries(logprobs: Mapping[str, object]) -> Sequence[Mapping[str, object]] | None:
    entries = [_entry(members(each)) for each in (*elements(logprobs.get("content")), *elements(logprobs.get("refusal")))]
    return entries or None


def _entry(entry: Mapping[str, object]) -> Mapping[str, object]:
    """Return the log probability of a token with all the fields that the API requires."""
    token = str(entry.get("token", ""))
    raw = entry.get("bytes")
    alternatives = [_entry(members(each)) for each in elements(entry.get("top_logprobs"))]
    result: dict[str, object] = {
        "token": token,
        "bytes": raw if isinstance(raw, list) else [*token.encode(errors="replace")],
        "logprob": entry.get("logprob", 0.0),
    }
    return {**result, "top_logprobs": alternatives} if "top_logprobs" in entry else result


def event_error(data: bytes) -> ApiError:
    """Return the error in the data of an event."""
    from interlock.events.json import loads  # noqa: PLC0415

    error = error_of(loads(data))
    return error if error.code is not None else evolve(error, code="upstream_error")
