"""Chat Completions: writes the request for a turn and reads its chunks. docs/guides/gateway.md has tables of both.

`CompletionsTranslator` has what `/v1/chat/completions` and `/v1/completions` share, among it the messages of a conversation.
"""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from attrs import define, evolve, field
from msgspec import UNSET, Struct, UnsetType, convert
from msgspec.json import Decoder
from msgspec.structs import asdict

from interlock.events import request as wire
from interlock.events.chat import OLD_CALL, add_extras, extras_in, split_extras
from interlock.events.json import as_text, elements, is_array, members
from interlock.events.parts import Json
from interlock.fsm.deltas import LEAST_PROBABLE, Delta, FinishReason, Open, ScoredToken, TokenLogprob, Usage
from interlock.parsers import Chunk
from interlock.parsers.chat_deltas import REPLACEMENT, ChatParser, join_halves, reasoning_of
from interlock.serving.engines.chat_messages import Message, chat_messages, function_of
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.prompt import estimate
from interlock.serving.engines.upstream.translator import (
    MARK,
    FunctionNames,
    Translator,
    UpstreamCall,
    api_call_id,
    upstream_call_id,
)
from interlock.serving.engines.upstream.upstream_client import error_event, has_message, upstream_error
from interlock.serving.requests.tool_offer import HostedTools, ToolOffer, offer

if TYPE_CHECKING:
    from interlock.parsers.families import Family, FamilyParser


logger = logging.getLogger(__name__)


_LENGTH: Final = ("length", "max_length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded")
_FILTERED: Final = (
    *("content_filter", "content_filtered", "guardrail_intervened", "prohibited_content", "recitation", "repetition", "safety"),
    *("blocklist", "sensitive", "spii", "image_safety", "image_prohibited_content", "image_recitation"),
)
_FAILED: Final = (
    *("abort", "error", "insufficient_system_resource", "malformed_function_call", "network_error", "function_call_filter"),
    *("image_other", "no_image"),
)
REASONS: Final[Mapping[str, FinishReason]] = {
    **dict.fromkeys(_LENGTH, "length"),
    **dict.fromkeys(_FILTERED, "content_filter"),
    **dict.fromkeys(_FAILED, "error"),
}
"""What the finish reasons of upstreams mean; all others mean `stop`, and "" is none."""
SUCCESSES: Final = frozenset(
    {"stop", "tool_calls", "tool_call", "tool_use", OLD_CALL, "stop_sequence", "end_turn", "end", "eos", "eos_token"}
    | {"complete", "completed", "finished", "done", "unload", "load"}
)
"""The finish reasons of a model that ended by itself. Any other one without output says that there is none for that reason."""


def plain_reason(reason: str) -> str:
    """Return a finish reason in lower case, with `_` for `-`, and without details after a colon."""
    return reason.partition(":")[0].strip().lower().replace("-", "_")


class StreamChoice(Struct):
    """The fields of a choice that both APIs have; vLLM and SGLang name the stop string that ended it, and Moonshot has usage."""

    index: Json = 0
    finish_reason: Json = None
    stop_reason: Json = None
    matched_stop: Json = None
    usage: Json = None


C = TypeVar("C", bound=StreamChoice)


class CompletionsChunk(Struct, Generic[C]):
    """An event of the stream, or the whole answer of a server that does not stream."""

    choices: list[C] | UnsetType | None = UNSET
    usage: Json = None
    x_groq: Json = None
    error: Json = None
    object: Json = None


@define(eq=False)
class CompletionsTranslator(Translator, Generic[C]):
    """Writes the fields of a request that both APIs have, and reads the choice with the index 0 in each chunk."""

    decoder: ClassVar[Decoder[Any]]
    """Decodes a `CompletionsChunk`."""
    _names: FunctionNames
    _half: str = field(default="", init=False)
    """The first half of a character that ends the raw text so far."""
    _word: str = field(default="", init=False)
    """The upstream's own word for the end of the turn."""
    _stop_sequence: str | None = field(default=None, init=False)
    """The request's stop string that ended the turn, if the upstream names it."""

    async def _write(self, turn: Turn) -> dict[str, object]:
        formats = {"stream_options": {"include_usage": True}, "response_format": _response_format(turn.request.text_format)}
        return {**await super()._write(turn), **formats}

    @abstractmethod
    def _read_choice(self, choice: C) -> Sequence[Chunk]:
        """Return the output in a choice; raise `ApiError` if it is malformed."""

    def read(self, data: bytes) -> Sequence[Chunk]:
        if data == b"[DONE]":
            if self.finish_reason is None and self._usage:  # a whole turn whose end no choice gives; `cut` if a call is open
                self.finish_reason = "cut"
            return ()
        chunk, is_exact = self._decode(data)
        usage = members(chunk.usage) or (members(members(chunk.x_groq).get("usage")) if chunk.x_groq else {})
        if usage:
            self._usage = usage
        if chunk.error is not None or chunk.object == "error":
            raise error_event(data)
        if chunk.choices is UNSET and not usage:
            raise error_event(data) if has_message(data) else upstream_error("The upstream server sent a chunk without choices.")
        outputs = self._read_choices(chunk.choices or ())
        return outputs if is_exact else [*map(_map_fields, outputs)]

    def _read_choices(self, choices: Sequence[C]) -> Sequence[Chunk]:
        outputs: list[Chunk] = []
        for choice in choices:
            if choice.index in (0, None):
                self._usage = members(choice.usage) or self._usage
                reason = choice.finish_reason
                if isinstance(reason, str) and reason:
                    self._word = plain_reason(reason)
                    self.finish_reason = REASONS.get(self._word, "stop")
                    self._stop_sequence = self._find_stop(choice)
                outputs += self._read_choice(choice)
        return outputs

    def _find_stop(self, choice: C) -> str | None:
        """Return the request's stop string that a choice names; services without stop strings have other reasons there."""
        stop = self.call.request.extensions.get("stop")
        stops = [stop] if isinstance(stop, str) else elements(stop)
        return next((each for each in (choice.stop_reason, choice.matched_stop) if isinstance(each, str) and each in stops), None)

    def end(self) -> EngineOutput:
        output = super().end()
        output.chunk.text = self._raw_end()
        output.stop_sequence, self._stop_sequence = self._stop_sequence, None
        return output

    def _raw(self, text: str) -> str:
        """Return more of a raw text; half a character at its end waits for the other half."""
        text, self._half = join_halves(self._half, text)
        return text

    def _raw_end(self) -> str:
        """Return what replaces half a character at the end of a raw text."""
        half, self._half = self._half, ""
        return REPLACEMENT if half else ""

    def _decode(self, data: bytes) -> tuple[CompletionsChunk[C], bool]:
        """Return a chunk, which may have infinite numbers and halves of characters, and whether it has neither."""
        try:
            return self.decoder.decode(data), True
        except (ValueError, RecursionError) as error:  # JSON, its types, UTF-8, and how deep it is
            fault = upstream_error(f"The upstream server sent a chunk that is malformed: {error}.")
        try:
            value = json.loads(data)
            if is_array(value) and has_message(data):
                raise error_event(data)
            return convert(value, self.decoder.type), False
        except (ValueError, RecursionError):
            raise fault from None

    def _messages(
        self, turn: Turn, reasoning_field: str, upstream_id: Callable[[str], str], origin: str | None = None
    ) -> list[Message]:
        """Return the messages for a turn; see `chat_messages`. `upstream_id` returns the upstream's id for a call id."""
        upstream = self.call.upstream
        return chat_messages(
            turn.request.instructions,
            map(self._names.apply, turn.items),
            reasoning_field=reasoning_field,
            written_id=lambda call_id: upstream.fit(upstream_id(call_id)),
            origin=origin,
            late_system=upstream.settings.late_system,
        )

    def _offer(self, turn: Turn, hosted: HostedTools) -> ToolOffer:
        """Return the tools of a turn as functions; on the first turn, log the tools that cannot be functions."""
        offered = offer(turn.request.tools, turn.request.tool_choice, turn.items, hosted, self._names.assign)
        if turn.index:  # the first turn made a required call
            return offered if offered.choice == "none" else evolve(offered, choice="auto")
        for kind in offered.left_out:
            logger.warning("a tool of the type %s is not offered to the model: no function can stand for it", kind)
        return offered


def _map_fields(output: Chunk) -> Chunk:
    """Return an output whose delta is a mapping, because the parser's fast path looks for no halves of characters in a Struct."""
    if isinstance(output.delta, Struct):
        output.delta = asdict(output.delta)
    return output


def _response_format(text_format: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the `response_format` for a text format, or None for plain text."""
    match text_format.get("type"):
        case "json_schema":
            schema = {name: text_format[name] for name in ("name", "description", "schema", "strict") if name in text_format}
            return {"type": "json_schema", "json_schema": schema}
        case "json_object":
            return {"type": "json_object"}
        case _:
            return None


# Chat Completions.

SAME: Final = frozenset(
    {
        *("temperature", "top_p", "presence_penalty", "frequency_penalty", "user", "service_tier", "safety_identifier"),
        *("prompt_cache_key", "prompt_cache_retention"),
    }
)
"""The parameters of the Responses API that Chat Completions has too."""
BYTES: Final = range(256)
RESERVED: Final = ("n", "messages", "functions", OLD_CALL)
"""The fields of Chat Completions that a client must not set."""
UNUSUAL: Final = ("reasoning_details", "refusal", OLD_CALL, "annotations")
"""The fields of a delta that the parser's fast path ignores in a Struct."""
MESSAGE: Final = ("content", "reasoning", "tool_calls", *UNUSUAL)
"""The fields of a delta or message, once `reasoning` has the text of all fields for reasoning."""
_UNUSUAL_VALUES: Final = attrgetter(*UNUSUAL)
MANY: Final = 16
"""The most calls of an event that are parsed in one go."""


class FunctionDelta(Struct):
    """A part of a call's name and arguments."""

    name: str | None = None
    arguments: str | dict[str, Json] | None = None


class CallDelta(Struct):
    """A part of a call."""

    index: Json = None
    id: Json = None
    function: FunctionDelta | None = None
    extra_content: Json = None
    provider_specific_fields: Json = None


class ChatDelta(Struct):
    """The delta of a choice, or its whole message, as `ChatParser` reads it."""

    content: str | list[dict[str, Json]] | None = None
    reasoning: Json = None
    reasoning_content: Json = None
    reasoning_details: Json = None
    refusal: str | None = None
    tool_calls: list[CallDelta] | None = None
    function_call: FunctionDelta | None = None
    annotations: Json = None


class ChatChoice(StreamChoice):
    """A choice of a chunk, or of a whole answer, which has a `message`."""

    delta: ChatDelta | None = None
    message: ChatDelta | None = None
    logprobs: Json = None


@define(eq=False)
class ChatTranslator(CompletionsTranslator[ChatChoice]):
    """Translates one response to and from Chat Completions."""

    path = "chat/completions"
    not_sent = frozenset({*wire.CreateResponse.__struct_fields__, *RESERVED}) - SAME
    decoder: ClassVar = Decoder(CompletionsChunk[ChatChoice])
    _family: Family | None = None
    """The family of the model, if the parser reads its raw text."""
    _reasoning: TaggedReasoning | None = None
    _streamed: set[str] = field(factory=set[str], init=False)
    """The fields in `MESSAGE` that the turn's deltas have had."""
    _has_whole: bool = field(default=False, init=False)
    """Whether the turn has output in a whole message."""
    _ids: dict[str, str] = field(factory=dict[str, str], init=False)
    """The API's ids of the turn's calls, by the upstream's."""

    @classmethod
    def of(cls, call: UpstreamCall) -> ChatTranslator:
        tagged, names = call.upstream.family, FunctionNames()
        routing = names.routing(call.routing)
        parser = ChatParser(routing, call.request.extensions.get("include_reasoning") is not False)
        if tagged is None:
            return cls(call, parser, names)
        from interlock.parsers.families import FamilyParser, ParserSettings, family  # noqa: PLC0415 - other upstreams do without

        model_family = family(tagged.tool_parser, tagged.reasoning_parser)
        if tagged.tool_parser is None:
            return cls(call, parser, names, None, TaggedReasoning(FamilyParser(model_family)))
        settings = ParserSettings.from_request(call.declared, routing)
        return cls(call, FamilyParser(model_family, settings), names, model_family)

    def _read_choice(self, choice: ChatChoice) -> Sequence[Chunk]:
        delta = self._delta(choice)
        if delta is None:  # such as one with only the results of a content filter
            return ()
        for call in delta.tool_calls or ():
            call.id = self._call_id(call)
        logprobs = _entries(members(choice.logprobs)) if self.call.request.wants_logprobs else None
        if self._family is not None:
            return [Chunk((), self._raw(_raw_text(delta)), logprobs)]
        if self._reasoning is not None and not isinstance(delta.content, list):
            self._split_reasoning(self._reasoning, delta)
        if any(_UNUSUAL_VALUES(delta)):
            return [Chunk((), "", logprobs, asdict(delta))]
        chunks = [Chunk((), "", logprobs, delta)]
        if delta.tool_calls and len(delta.tool_calls) > MANY:
            more = delta.tool_calls[MANY:]
            delta.tool_calls = delta.tool_calls[:MANY]
            chunks += [Chunk(delta=ChatDelta(tool_calls=[call])) for call in more]
        return chunks

    def _call_id(self, call: CallDelta) -> str:
        """Return the API's id of a call: with its extras if its first delta has them, and the same for all of its deltas."""
        upstream_id = as_text(call.id)
        if (known := self._ids.get(upstream_id)) is not None:
            return known
        extras = extras_in(asdict(call)) if call.extra_content or call.provider_specific_fields else {}
        call_id = api_call_id(upstream_id)
        if extras and (upstream_id or not self._ids):
            call_id = add_extras(call_id or MARK, extras, self.call.upstream.origin)
        if upstream_id:
            self._ids[upstream_id] = call_id
        return call_id

    def _split_reasoning(self, tagged: TaggedReasoning, delta: ChatDelta) -> None:
        """Move the reasoning between tags in a delta's content to its reasoning."""
        texts = [tagged.feed(self._raw(as_text(delta.content)))]
        if delta.tool_calls:
            texts += [tagged.feed(self._raw_end()), tagged.flush()]
        delta.reasoning += "".join(reasoning for reasoning, _ in texts)
        delta.content = "".join(text for _, text in texts)

    def _delta(self, choice: ChatChoice) -> ChatDelta | None:
        """Return the new output in a choice, with its reasoning in one field."""
        delta = choice.delta
        if delta is not None:
            reasons = delta.reasoning or delta.reasoning_content or delta.reasoning_details
            delta.reasoning = reasoning_of(delta) if reasons else ""
            if delta.content:
                self._streamed.add("content")
            if delta.reasoning:
                self._streamed.add("reasoning")
            if delta.tool_calls or any(_UNUSUAL_VALUES(delta)):
                self._streamed.update(name for name in MESSAGE if getattr(delta, name))
        return delta if choice.message is None else self._with_message(delta or ChatDelta(reasoning=""), choice.message)

    def _with_message(self, delta: ChatDelta, message: ChatDelta) -> ChatDelta:
        """Return a delta with the fields of a whole message that no delta has had; some services repeat the others at the end."""
        message.reasoning = reasoning_of(message)
        for name in MESSAGE:
            if name not in self._streamed:
                setattr(delta, name, getattr(message, name))
        self._has_whole |= any(getattr(message, name) for name in MESSAGE)
        return delta

    def end(self) -> EngineOutput:
        word, self._word, has_output = self._word, "", self._streamed or self._has_whole
        if word and not has_output and word not in SUCCESSES and self.finish_reason == "stop":
            raise upstream_error(f"The upstream server ended the turn without output, and gave the reason '{word[:100]}'.")
        output = super().end()
        self._streamed.clear()
        self._has_whole = False
        self._ids.clear()
        if self._reasoning is not None:
            texts = [self._reasoning.feed(output.chunk.text or ""), self._reasoning.flush()]
            output.chunk.delta = ChatDelta("".join(text for _, text in texts), "".join(reasoning for reasoning, _ in texts))
        return output

    async def count(self, turn: Turn) -> int:
        """Return an estimate, because Chat Completions counts tokens only in its answers."""
        body = await self.body(turn)
        return estimate([body["messages"], body.get("tools")])

    async def _fields(self, turn: Turn) -> dict[str, object]:
        request, upstream = turn.request, self.call.upstream
        reasoning_field = upstream.settings.fields.get("reasoning_content", "reasoning_content")
        tools = self._offer(turn, self.call.functions)
        upstream_id = upstream_call_id
        if self._family is not None:
            written_id = self._family.written_id

            def upstream_id(call_id: str) -> str:
                return written_id(split_extras(call_id)[0])

        fields: dict[str, object] = {
            "messages": self._messages(turn, reasoning_field, upstream_id, upstream.origin),
            "max_completion_tokens" if "max_completion_tokens" in upstream.settings.fields else self.call.limit: turn.budget,
            "reasoning_effort": request.reasoning_effort,
            "verbosity": request.verbosity,
            **_tool_parameters(tools, request.parallel_tool_calls),
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


def _entries(logprobs: Mapping[str, object]) -> Sequence[TokenLogprob] | None:
    entries = map(members, (*elements(logprobs.get("content")), *elements(logprobs.get("refusal"))))
    return [{**_entry(each), "top_logprobs": [*map(_entry, elements(each.get("top_logprobs")))]} for each in entries] or None


def _entry(value: object) -> ScoredToken:
    """Return the log probability of a token with all the fields that the API requires."""
    entry = members(value)
    token, raw, logprob = str(entry.get("token", "")), elements(entry.get("bytes")), entry.get("logprob")
    numbers = [byte for byte in raw if type(byte) is int and byte in BYTES]
    return {
        "token": token,
        "bytes": numbers if raw and len(numbers) == len(raw) else [*token.encode(errors="replace")],
        "logprob": max(LEAST_PROBABLE, min(logprob, 0.0)) if isinstance(logprob, int | float) else 0.0,
    }


@define(eq=False)
class TaggedReasoning:
    """Finds the reasoning that a service sends in the content, between tags, with the parser of a family without calls."""

    _parser: FamilyParser
    _kind: str = field(default="message", init=False)
    """The kind of the item to which the next text belongs."""

    def feed(self, content: str) -> tuple[str, str]:
        """Return the reasoning and the text that are certain after some content."""
        return self._texts(self._parser.feed(Chunk(text=content)))

    def flush(self) -> tuple[str, str]:
        """Return the reasoning and the text that waited because they might have been the beginning of a tag."""
        return self._texts(self._parser.end("stop", Usage()))

    def _texts(self, deltas: list[Delta]) -> tuple[str, str]:
        texts = {"reasoning": "", "message": ""}
        for delta in deltas:
            match delta:
                case Open(kind):
                    self._kind = kind
                case str():
                    texts[self._kind] += delta
                case _:
                    pass
        return texts["reasoning"], texts["message"]
