"""The APIs `/v1/chat/completions` and `/v1/completions`: what their requests and chunks have in common."""

from __future__ import annotations

import json
import logging
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from attrs import define, evolve, field
from msgspec import UNSET, Struct, UnsetType, convert
from msgspec.json import Decoder

from interlock.events.json import members
from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk
from interlock.serving.engines.engine import Turn
from interlock.serving.engines.upstream.translator import Translator
from interlock.serving.engines.upstream.upstream_client import error_in, upstream_error
from interlock.serving.requests.tool_offer import HostedTools, NameAssignment, ToolOffer, first_of_each_name, offer

logger = logging.getLogger(__name__)

_LENGTH: Final = ("length", "max_length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded")
_FILTERED: Final = (
    *("content_filter", "content_filtered", "guardrail_intervened", "prohibited_content", "recitation", "repetition", "safety"),
    *("blocklist", "sensitive", "spii"),
)
_FAILED: Final = ("abort", "error", "insufficient_system_resource", "malformed_function_call", "network_error")
REASONS: Final[Mapping[str, FinishReason]] = {
    **dict.fromkeys(_LENGTH, "length"),
    **dict.fromkeys(_FILTERED, "content_filter"),
    **dict.fromkeys(_FAILED, "error"),
}
"""What the finish reasons of upstreams mean, in lower case; all others mean `stop`, such as `tool_calls`, and "" is none."""

SURROGATES: Final = re.compile(rb"\\u[dD][89abAB]..(\\u[dD][c-fC-F]..)?|(\\u[dD][c-fC-F]..)|\\.")
"""Matches the escapes in JSON; the first group is the second half of a whole pair of surrogates, the second one alone."""
REPLACEMENT: Final = rb"\ufffd"
"""Replaces half a character without the other half."""


class Choice(Struct):
    """The fields of a choice that both APIs have."""

    index: Any = 0
    finish_reason: Any = None


C = TypeVar("C", bound=Choice)


class CompletionsChunk(Struct, Generic[C]):
    """An event of the stream, or the whole answer of a server that does not stream."""

    choices: list[C] | UnsetType | None = UNSET
    usage: Any = None
    error: Any = None
    object: Any = None


@define(eq=False)
class CompletionsTranslator(Translator, Generic[C]):
    """Writes the fields of a request that both APIs have, and reads the choice with the index 0 in each chunk."""

    decoder: ClassVar[Decoder[Any]]
    """Decodes a `CompletionsChunk`."""
    _half: bytes = field(default=b"", init=False)
    """The first half of a character that ends the last chunk, as an escape of JSON."""

    async def _body(self, turn: Turn) -> dict[str, object]:
        formats = {"stream_options": {"include_usage": True}, "response_format": _response_format(turn.request.text_format)}
        return {**await super()._body(turn), **formats}

    @abstractmethod
    def _read_choice(self, choice: C) -> Sequence[Chunk]:
        """Return the output in a choice; raise `ApiError` if it is malformed."""

    def read(self, data: bytes) -> Sequence[Chunk]:
        if data == b"[DONE]":
            if self._finish_reason is None and self._usage:  # a whole turn whose end no choice gives; `cut` if a call is open
                self._finish_reason = "cut"
            return ()
        chunk = self._decode(data)
        usage = members(chunk.usage)
        if usage:
            self._usage = usage
        if chunk.error is not None or chunk.object == "error":
            fault = error_in(data)
            raise fault if fault.code is not None else evolve(fault, code="upstream_error")
        if chunk.choices is UNSET and not usage:
            raise upstream_error("The upstream server sent a chunk without choices.")
        outputs: list[Chunk] = []
        for choice in chunk.choices or ():
            if choice.index in (0, None):
                reason = choice.finish_reason
                if isinstance(reason, str) and reason:
                    self._finish_reason = REASONS.get(reason.lower(), "stop")
                outputs += self._read_choice(choice)
        return outputs

    def _decode(self, data: bytes) -> CompletionsChunk[C]:
        """Return a chunk, which may have infinite numbers, and halves of characters, which are joined or replaced."""
        chunk: CompletionsChunk[C]
        try:
            chunk = self.decoder.decode(data)
        except (ValueError, RecursionError) as error:  # JSON, its types, UTF-8, and how deep it is
            fault = upstream_error(f"The upstream server sent a chunk that is malformed: {error}.")
        else:
            return chunk
        try:
            chunk = convert(json.loads(SURROGATES.sub(self._whole, data)), self.decoder.type)
        except (ValueError, RecursionError):
            raise fault from None
        return chunk

    def _whole(self, match: re.Match[bytes]) -> bytes:
        """Return an escape as it is, but the half of a character with the other one."""
        text = match[0]
        if match[2]:  # the second half
            half, self._half = self._half, b""
            return half + text if half else REPLACEMENT
        if not match[1] and text[1:3].lower() == b"ud":  # the first half, whose second comes with the next chunk
            self._half = text
            return b""
        return text

    def _offer(self, turn: Turn, hosted: HostedTools, assign_names: NameAssignment = first_of_each_name) -> ToolOffer:
        """Return the tools of a turn as functions; on the first turn, log the tools that cannot be functions."""
        offered = offer(turn.request.tools, turn.request.tool_choice, turn.items, hosted, assign_names)
        if turn.index:  # the first turn made a required call
            return offered if offered.choice == "none" else evolve(offered, choice="auto")
        for kind in offered.left_out:
            logger.warning("a tool of the type %s is not offered to the model: no function can stand for it", kind)
        return offered


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
