"""Chat Completions: writes the request for a turn and reads its chunks. docs/guides/gateway.md has tables of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final

from attrs import define, field
from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import asdict

from interlock.events import response_object as wire
from interlock.events.chat import OLD_CALL, add_extras, extras_in, split_extras
from interlock.events.json import as_text, elements, members
from interlock.events.parts import Json
from interlock.fsm.deltas import Delta, Open, Usage
from interlock.parsers import Chunk
from interlock.parsers.chat_deltas import ChatParser, reasoning_of
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.token_estimate import estimate
from interlock.serving.engines.upstream.call_names import MARK, FunctionNames, api_call_id, upstream_call_id
from interlock.serving.engines.upstream.chat_messages import chat_messages
from interlock.serving.engines.upstream.completions import (
    SUCCESSES,
    CompletionsChunk,
    CompletionsTranslator,
    StreamChoice,
    function_of,
)
from interlock.serving.engines.upstream.translator import UpstreamCall
from interlock.serving.engines.upstream.upstream_client import upstream_error
from interlock.serving.requests.tool_offer import ToolOffer

if TYPE_CHECKING:
    from interlock.parsers.families import Family, FamilyParser, ParserSettings

SAME: Final = frozenset(
    {
        *("temperature", "top_p", "presence_penalty", "frequency_penalty", "user", "service_tier", "safety_identifier"),
        *("prompt_cache_key", "prompt_cache_retention"),
    }
)
"""The parameters of the Responses API that Chat Completions has too."""
BYTES: Final = range(256)
LEAST_PROBABLE: Final = -9999.0
"""The log probability that OpenAI's service gives to the least probable tokens."""
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
    _settings: ParserSettings | None = None
    """The settings of that parser."""
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
            return cls(call, parser, names, None, None, TaggedReasoning(FamilyParser(model_family)))
        settings = ParserSettings.from_request(call.declared)
        settings.routing = routing
        return cls(call, FamilyParser(model_family, settings), names, model_family, settings)

    def _read_choice(self, choice: ChatChoice) -> Sequence[Chunk]:
        delta = self._delta(choice)
        if delta is None:  # such as one with only the results of a content filter
            return ()
        for call in delta.tool_calls or ():
            call.id = self._call_id(call)
        logprobs = _entries(members(choice.logprobs)) if self._call.request.wants_logprobs else None
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
            call_id = add_extras(call_id or MARK, extras, self.upstream.origin)
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
            texts = [self._reasoning.feed(output.chunk.text), self._reasoning.flush()]
            output.chunk.delta = ChatDelta("".join(text for _, text in texts), "".join(reasoning for reasoning, _ in texts))
        return output

    async def count(self, turn: Turn) -> int:
        """Return an estimate, because Chat Completions counts tokens only in its answers."""
        body = await self._body(turn)
        return estimate([body["messages"], body.get("tools")])

    async def _fields(self, turn: Turn) -> dict[str, object]:
        request, upstream = turn.request, self._call.upstream
        reasoning_field = upstream.fields.get("reasoning_content", "reasoning_content")
        tools = self._offer(turn, self._call.functions)
        items, upstream_id = map(self._names.apply, turn.items), upstream_call_id
        if self._family is not None and self._settings is not None:
            self._settings.schemas = self._settings.schemas.with_tools(tools.tools)
            written_id = self._family.written_id

            def upstream_id(call_id: str) -> str:
                return written_id(split_extras(call_id)[0])

        fields: dict[str, object] = {
            "messages": chat_messages(
                request.instructions,
                items,
                reasoning_field,
                lambda call_id: upstream.fit(upstream_id(call_id)),
                upstream.origin,
                late_system=upstream.late_system,
            ),
            "max_completion_tokens" if "max_completion_tokens" in upstream.fields else self._call.limit: turn.budget,
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


def _entries(logprobs: Mapping[str, object]) -> Sequence[Mapping[str, object]] | None:
    entries = map(members, (*elements(logprobs.get("content")), *elements(logprobs.get("refusal"))))
    return [{**_entry(each), "top_logprobs": [*map(_entry, elements(each.get("top_logprobs")))]} for each in entries] or None


def _entry(value: object) -> dict[str, object]:
    """Return the log probability of a token with all the fields that the API requires."""
    entry = members(value)
    token, raw, logprob = str(entry.get("token", "")), elements(entry.get("bytes")), entry.get("logprob")
    is_raw = raw and all(type(byte) is int and byte in BYTES for byte in raw)
    return {
        "token": token,
        "bytes": raw if is_raw else [*token.encode(errors="replace")],
        "logprob": max(LEAST_PROBABLE, min(logprob, 0.0)) if isinstance(logprob, int | float) and not isnan(logprob) else 0.0,
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
