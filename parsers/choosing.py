"""Which parser a format has. It imports a format's parser when that format is asked for: a recording of text needs no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, assert_never

from interlock.parsers.chunk import Parser
from interlock.parsers.plain import PlainParser
from interlock.parsers.routing import Routing

__all__ = ["Format", "parser_for"]

Format: TypeAlias = Literal["harmony", "tagged", "text", "vllm"]
"""What a model's output is given as: token ids of harmony, text with a family's markers, text, or the deltas of one of vLLM's own
parsers."""


def parser_for(
    format: Format,  # noqa: A002 - the word of the recordings
    request: Mapping[str, object],
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
) -> Parser:
    """Return a parser for one response.

    Args:
        format: As in a recording's first line.
        request: The body of `POST /v1/responses`: its `tools` say where calls go.
        tool_parser: For the format `tagged`, the family of the calls, by the name of vLLM's `--tool-call-parser`.
        reasoning_parser: Likewise that of the reasoning, by the name of `--reasoning-parser`.

    Raises:
        ModuleNotFoundError: The format is `harmony`, and `openai_harmony` is not installed.
        ValueError: There is no such family.
    """
    match format:
        case "harmony":
            from interlock.parsers.harmony import HarmonyParser  # noqa: PLC0415

            return HarmonyParser(Routing.from_request(request))
        case "vllm":
            from interlock.parsers.vllm import VllmParser  # noqa: PLC0415

            return VllmParser(Routing.from_request(request), request.get("include_reasoning") is not False)
        case "tagged":
            from interlock.parsers.families import FamilyParser, Settings, family  # noqa: PLC0415

            return FamilyParser(family(tool_parser, reasoning_parser), Settings.from_request(request))
        case "text":
            return PlainParser()
        case _:
            assert_never(format)
