"""Which parser a format has. It imports a format's parser when that format is asked for: a recording of text needs no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, assert_never

from interlock.parsers.chunk import Parser
from interlock.parsers.plain_text import PlainParser
from interlock.parsers.routing import Routing
from interlock.parsers.tagged import Tagged

__all__ = ["Format", "FormatName", "parser_for"]

FormatName: TypeAlias = Literal["harmony", "tagged", "text", "vllm"]
"""What a model's output is given as: token ids of harmony, text with a family's markers, text, or the deltas of one of vLLM's own
parsers."""

Format: TypeAlias = Literal["harmony", "text", "vllm"] | Tagged
"""A format by its name; of text with markers, the family too."""


def parser_for(format: Format, request: Mapping[str, object]) -> Parser:  # noqa: A002 - the word of the recordings
    """Return a parser for one response.

    Args:
        format: As in a recording's first line.
        request: The body of `POST /v1/responses`: its `tools` say where calls go.

    Raises:
        ModuleNotFoundError: The format is `harmony`, and `openai_harmony` is not installed.
        ValueError: There is no such family; the message lists those that there are.
    """
    match format:
        case "harmony":
            from interlock.parsers.harmony import HarmonyParser  # noqa: PLC0415

            return HarmonyParser(Routing.from_request(request))
        case "vllm":
            from interlock.parsers.vllm_deltas import VllmParser  # noqa: PLC0415

            return VllmParser(Routing.from_request(request), request.get("include_reasoning") is not False)
        case "text":
            return PlainParser()
        case Tagged(tool_parser, reasoning_parser):
            from interlock.parsers.families import FamilyParser, Settings, family  # noqa: PLC0415

            return FamilyParser(family(tool_parser, reasoning_parser), Settings.from_request(request))
        case _:
            assert_never(format)
