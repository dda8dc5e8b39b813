"""The APIs `/v1/chat/completions` and `/v1/completions`: what their requests and chunks have in common."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from attrs import define, evolve
from msgspec import UNSET, Struct, UnsetType
from msgspec.json import Decoder

from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk
from interlock.serving.engines.engine import Turn
from interlock.serving.engines.upstream.gateway import Translator
from interlock.serving.engines.upstream.upstream_client import error_in, upstream_error
from interlock.serving.requests.tool_offer import HostedTools, ToolOffer, offer

logger = logging.getLogger(__name__)

REASONS: Final[Mapping[str, FinishReason]] = {
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "repetition": "content_filter",
    "error": "error",
    "insufficient_system_resource": "error",
    "abort": "error",
}
"""The finish reasons of upstreams that do not mean `stop`; all others do, such as `tool_calls`."""


class Choice(Struct):
    """The field of a choice that both APIs have."""

    finish_reason: str | None = None


C = TypeVar("C", bound=Choice)


class CompletionsChunk(Struct, Generic[C]):
    """An event of the stream, or the whole answer of a server that does not stream."""

    choices: list[C] | UnsetType | None = UNSET
    usage: dict[str, Any] | None = None
    error: Any = None
    object: str | None = None


@define(eq=False)
class CompletionsTranslator(Translator, Generic[C]):
    """Writes the fields of a request that both APIs have, and reads the first choice of each chunk."""

    decoder: ClassVar[Decoder[Any]]
    """Decodes a `CompletionsChunk`."""

    async def _body(self, turn: Turn) -> dict[str, object]:
        formats = {"stream_options": {"include_usage": True}, "response_format": _response_format(turn.request.text_format)}
        return {**await super()._body(turn), **formats}

    @abstractmethod
    def _read_choice(self, choice: C) -> Sequence[Chunk]:
        """Return the output in a choice; raise `ApiError` if it is malformed."""

    def read(self, data: bytes) -> Sequence[Chunk]:
        if data == b"[DONE]":
            return ()
        try:
            chunk: CompletionsChunk[C] = self.decoder.decode(data)
        except (ValueError, RecursionError) as error:  # JSON, its types, UTF-8, and how deep it is
            raise upstream_error(f"The upstream server sent a chunk that is malformed: {error}.") from None
        if chunk.usage:
            self._usage = chunk.usage
        if chunk.error is not None or chunk.object == "error":
            fault = error_in(data)
            raise fault if fault.code is not None else evolve(fault, code="upstream_error")
        if chunk.choices:
            choice = chunk.choices[0]
            if choice.finish_reason is not None:
                self._finish_reason = REASONS.get(choice.finish_reason, "stop")
            return self._read_choice(choice)
        if chunk.choices is UNSET and not chunk.usage:
            raise upstream_error("The upstream server sent a chunk without choices.")
        return ()

    def _offer(self, turn: Turn, hosted: HostedTools) -> ToolOffer:
        """Return the tools of a turn as functions; on the first turn, log the tools that cannot be functions."""
        offered = offer(turn.request.tools, turn.request.tool_choice, turn.items, hosted)
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
