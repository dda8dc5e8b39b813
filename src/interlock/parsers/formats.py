"""The formats of model output, and their parsers, most of them imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from attrs import frozen

from interlock.parsers.chunk import Parser
from interlock.parsers.plain_text import PlainParser
from interlock.parsers.routing import Routing

FormatName: TypeAlias = Literal["chat", "harmony", "responses", "tagged", "text", "vllm"]
"""The names of the formats: deltas of Chat Completions, token ids of harmony, events of a Responses service, text with a family's
markers, plain text.

`vllm` is another name of `chat`, for recordings of vLLM's own parsers."""


@frozen
class Tagged:
    """The format of text with the markers of a family.

    Args:
        tool_parser: The format of calls, by a name of vLLM's `--tool-call-parser`; None leaves calls in the text.
        reasoning_parser: The format of reasoning, by a name of `--reasoning-parser`; None leaves reasoning in the text.
    """

    tool_parser: str | None = None
    reasoning_parser: str | None = None

    def __str__(self) -> str:
        """Return the name of the format."""
        return "tagged"


Format: TypeAlias = Literal["chat", "harmony", "responses", "text", "vllm"] | Tagged
"""The name of a format, or text with a family's markers."""


def parser_for(format: Format, request: Mapping[str, object]) -> Parser:  # noqa: A002 - the word of the recordings
    """Return a parser for one response to a request body of `POST /v1/responses`; its `tools` decide the kinds of calls.

    Raises:
        ModuleNotFoundError: The format is `harmony`, and `openai_harmony` is not installed.
        ValueError: The format or family is unknown; the message lists the known ones or suggests one.
    """
    match format:
        case "harmony":
            from interlock.parsers.harmony import HarmonyParser  # noqa: PLC0415

            return HarmonyParser(Routing.from_request(request))
        case "chat" | "vllm":
            from interlock.parsers.chat_deltas import ChatParser  # noqa: PLC0415

            return ChatParser(Routing.from_request(request), request.get("include_reasoning") is not False)
        case "responses":
            from interlock.parsers.responses_events import ResponsesParser  # noqa: PLC0415

            return ResponsesParser.from_request(request)
        case "text":
            return PlainParser()
        case Tagged(tool_parser, reasoning_parser):
            from interlock.parsers.families import FamilyParser, ParserSettings, family  # noqa: PLC0415

            return FamilyParser(family(tool_parser, reasoning_parser), ParserSettings.from_request(request))
        case _:
            raise ValueError(_unknown(str(format)))


def _unknown(name: str) -> str:
    from interlock.parsers.families import REASONINGS, SYNTAXES  # noqa: PLC0415

    if name in SYNTAXES:
        return f"{name!r} is a family, not a format: did you mean Tagged({name!r})?"
    if name in REASONINGS:
        return f"{name!r} is a family's reasoning, not a format: did you mean Tagged(reasoning_parser={name!r})?"
    names = "'chat', 'harmony', 'responses', 'text'"
    return f"unknown format {name!r}: give {names}, or Tagged(FAMILY) with one of {', '.join(SYNTAXES)}"
