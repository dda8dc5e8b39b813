"""Parsers: what a model wrote, in one of several formats, as deltas.

A parser knows its format and nothing of events, items' ids or the network. All of them have the two methods of `Parser`, are
total over what a model can write, and ask `Routing` where a call goes, so that a call is the same item in every format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, assert_never

from interlock.parsers.chunk import Chunk, Parser
from interlock.parsers.families import FamilyParser, Settings, family
from interlock.parsers.harmony import HarmonyParser
from interlock.parsers.plain import PlainParser
from interlock.parsers.routing import Routing
from interlock.parsers.vllm import VllmParser

__all__ = ["Chunk", "FamilyParser", "Format", "HarmonyParser", "Parser", "PlainParser", "Routing", "VllmParser", "parser_for"]

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
            return HarmonyParser(Routing.from_request(request))
        case "vllm":
            return VllmParser(Routing.from_request(request), request.get("include_reasoning") is not False)
        case "tagged":
            return FamilyParser(family(tool_parser, reasoning_parser), Settings.from_request(request))
        case "text":
            return PlainParser()
        case _:
            assert_never(format)
