"""Which parser a format has. It imports a format's parser when that format is asked for: a recording of text needs no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from attrs import frozen

from interlock.parsers.chunk import Parser
from interlock.parsers.plain_text import PlainParser
from interlock.parsers.routing import Routing

__all__ = ["Format", "FormatName", "Tagged", "parser_for"]

FormatName: TypeAlias = Literal["harmony", "tagged", "text", "vllm"]
"""What a model's output is given as: token ids of harmony, text with a family's markers, text, or the deltas of one of vLLM's own
parsers."""


@frozen
class Tagged:
    """A format of recordings and engines: text with the markers of a family.

    Args:
        tool_parser: How calls are written, by a name of vLLM's `--tool-call-parser`; None if they are not read.
        reasoning_parser: How reasoning is written, by a name of `--reasoning-parser`; None if it is not read.
    """

    tool_parser: str | None = None
    reasoning_parser: str | None = None

    def __str__(self) -> str:
        """Return the name of the format."""
        return "tagged"


Format: TypeAlias = Literal["harmony", "text", "vllm"] | Tagged
"""A format by its name; of text with markers, the family too."""


def parser_for(format: Format, request: Mapping[str, object]) -> Parser:  # noqa: A002 - the word of the recordings
    """Return a parser for one response.

    Args:
        format: As in a recording's first line.
        request: The body of `POST /v1/responses`: its `tools` say where calls go.

    Raises:
        ModuleNotFoundError: The format is `harmony`, and `openai_harmony` is not installed.
        ValueError: The format or family is unknown; the message lists the known ones.
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
            raise ValueError(_unknown(str(format)))


def _unknown(name: str) -> str:
    from interlock.parsers.families import REASONINGS, SYNTAXES  # noqa: PLC0415

    if name in SYNTAXES:
        return f"{name!r} is a family, not a format: did you mean Tagged({name!r})?"
    if name in REASONINGS:
        return f"{name!r} is a family's reasoning, not a format: did you mean Tagged(reasoning_parser={name!r})?"
    return f"unknown format {name!r}: give 'harmony', 'text', 'vllm', or Tagged(FAMILY) with one of {', '.join(SYNTAXES)}"
