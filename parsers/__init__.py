"""Parsers: what a model wrote, in one of several formats, as deltas.

A parser knows its format and nothing of events, items' ids or the network. All of them have the two methods of `Parser`, are
total over what a model can write, and ask `Routing` where a call goes, so that a call is the same item in every format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, assert_never

from interlock.parsers.chunk import Chunk, Parser
from interlock.parsers.harmony import HarmonyParser
from interlock.parsers.plain import PlainParser
from interlock.parsers.routing import Routing
from interlock.parsers.vllm import VllmParser

__all__ = ["Chunk", "Format", "HarmonyParser", "Parser", "PlainParser", "Routing", "VllmParser", "parser_for"]

Format: TypeAlias = Literal["harmony", "text", "vllm"]
"""What a model's output is given as: token ids of harmony, text, or the deltas of one of vLLM's own parsers."""


def parser_for(format: Format, request: Mapping[str, object]) -> Parser:  # noqa: A002 - the word of the recordings
    """Give a parser for one response.

    Args:
        format: As in a recording's first line.
        request: The body of `POST /v1/responses`: its `tools` say where calls go.

    Raises:
        ModuleNotFoundError: The format is `harmony`, and `openai_harmony` is not installed.
    """
    match format:
        case "harmony":
            return HarmonyParser(Routing.from_request(request))
        case "vllm":
            return VllmParser(Routing.from_request(request), request.get("include_reasoning") is not False)
        case "text":
            return PlainParser()
        case _:
            assert_never(format)
