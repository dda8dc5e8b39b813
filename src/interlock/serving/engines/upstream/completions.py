"""The APIs `/v1/chat/completions` and `/v1/completions`: what their requests and chunks have in common."""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from attrs import define, evolve, field
from msgspec import UNSET, Struct, UnsetType, convert
from msgspec.json import Decoder
from msgspec.structs import asdict

from interlock.events.chat import OLD_CALL
from interlock.events.json import elements, is_array, members
from interlock.events.parts import Json
from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk
from interlock.parsers.chat_deltas import REPLACEMENT, join_halves
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.upstream.call_names import FunctionNames
from interlock.serving.engines.upstream.translator import Translator
from interlock.serving.engines.upstream.upstream_client import error_event, has_message, upstream_error
from interlock.serving.requests.tool_offer import HostedTools, ToolOffer, offer

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

    async def _body(self, turn: Turn) -> dict[str, object]:
        formats = {"stream_options": {"include_usage": True}, "response_format": _response_format(turn.request.text_format)}
        return {**await super()._body(turn), **formats}

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
        stop = self._call.request.extensions.get("stop")
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


def function_of(tool: Mapping[str, object]) -> Mapping[str, object]:
    """Return a function tool in the format of Chat Completions, which nests all fields except `type`."""
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


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
