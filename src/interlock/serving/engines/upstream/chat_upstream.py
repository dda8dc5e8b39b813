"""Chat Completions: writes the request for a turn and reads its chunks. docs/gateway.md has tables of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from attrs import define
from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import asdict

from interlock.events import response_object as wire
from interlock.parsers import Chunk
from interlock.parsers.chat_deltas import ChatParser
from interlock.serving.engines.engine import Turn
from interlock.serving.engines.upstream.chat_messages import chat_messages
from interlock.serving.engines.upstream.completions import Choice, CompletionsChunk, CompletionsTranslator, function_of
from interlock.serving.engines.upstream.gateway import Call, estimate
from interlock.serving.engines.upstream.upstream_client import upstream_error
from interlock.serving.requests.json_values import elements, members
from interlock.serving.requests.tool_offer import ToolOffer

SAME: Final = frozenset(
    {
        *("temperature", "top_p", "presence_penalty", "frequency_penalty", "user", "service_tier", "safety_identifier"),
        *("prompt_cache_key", "prompt_cache_retention"),
    }
)
"""The parameters of the Responses API that Chat Completions has too."""
RESERVED: Final = ("n", "messages", "functions", "function_call")
"""The fields of Chat Completions that a client must not set."""
MANY: Final = 16
"""The most calls of an event that are parsed in one go."""


class FunctionDelta(Struct):
    """A part of a call's name and arguments."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallDelta(Struct):
    """A part of a call."""

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


class ChatChoice(Choice):
    """A choice of a chunk, or of a whole answer, which has a `message`."""

    delta: ChatDelta | None = None
    message: ChatDelta | None = None
    logprobs: dict[str, Any] | None = None


@define(eq=False)
class ChatTranslator(CompletionsTranslator[ChatChoice]):
    """Translates one response to and from Chat Completions."""

    path = "chat/completions"
    not_sent = frozenset({*wire.CreateResponse.__struct_fields__, *RESERVED}) - SAME
    decoder: ClassVar = Decoder(CompletionsChunk[ChatChoice])

    @classmethod
    def of(cls, call: Call) -> ChatTranslator:
        """Return the translator of a response."""
        tagged = call.upstream.family
        if tagged is None:
            return cls(call, ChatParser(call.routing, call.request.raw.get("include_reasoning") is not False))
        from interlock.parsers.families import FamilyParser, Settings, family  # noqa: PLC0415 - other upstreams do without

        settings = Settings.from_request(call.declared)
        settings.routing = call.routing
        return cls(call, FamilyParser(family(tagged.tool_parser, tagged.reasoning_parser), settings))

    def _read_choice(self, choice: ChatChoice) -> Sequence[Chunk]:
        delta = choice.delta or choice.message
        if delta is None:
            if choice.finish_reason is None:
                raise upstream_error("The upstream server sent a choice without a delta.")
            return ()
        if delta.reasoning is None:
            delta.reasoning = delta.reasoning_content
        logprobs = _entries(choice.logprobs) if choice.logprobs and self._call.request.wants_logprobs else None
        if self._call.upstream.family is not None:
            return [Chunk((), _raw_text(delta), logprobs)]
        if delta.refusal or delta.function_call:  # the parser's fast path ignores these fields of a Struct
            return [Chunk((), "", logprobs, asdict(delta))]
        chunks = [Chunk((), "", logprobs, delta)]
        if delta.tool_calls and len(delta.tool_calls) > MANY:
            more = delta.tool_calls[MANY:]
            delta.tool_calls = delta.tool_calls[:MANY]
            chunks += [Chunk(delta=ChatDelta(tool_calls=[call])) for call in more]
        return chunks

    async def count(self, turn: Turn) -> int:
        """Return an estimate, because Chat Completions counts tokens only in its answers."""
        body = await self._body(turn)
        return estimate([body["messages"], body.get("tools")])

    async def _fields(self, turn: Turn) -> dict[str, object]:
        request, upstream = turn.request, self._call.upstream
        reasoning_field = upstream.fields.get("reasoning_content", "reasoning_content")
        fields: dict[str, object] = {
            "messages": chat_messages(request.instructions, turn.items, reasoning_field),
            "max_completion_tokens": turn.budget,
            "reasoning_effort": request.reasoning_effort,
            "verbosity": members(request.raw.get("text")).get("verbosity"),
            **_tool_parameters(self._offer(turn, self._call.functions), request.parallel_tool_calls),
        }
        if request.wants_logprobs:
            fields |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        return fields


def _tool_parameters(tools: ToolOffer, parallel: bool) -> dict[str, object]:  # noqa: FBT001 - a parameter of the API
    if not tools.tools:
        return {}
    choice = tools.choice
    if members(choice):
        choice = {"type": "function", "function": {"name": members(choice).get("name")}}
    return {"tools": [*map(function_of, tools.tools)], "tool_choice": choice, "parallel_tool_calls": None if parallel else False}


def _raw_text(delta: ChatDelta) -> str:
    """Return the text for the parser of the model's family."""
    if delta.reasoning or delta.refusal or delta.tool_calls or delta.function_call:
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
