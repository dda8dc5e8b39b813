"""Parsers turn model output, in one of several formats, into deltas.

Parsers make no stream events and no item ids, and use no network. Each implements `Parser` and accepts any model output.

    chunk               a chunk of engine output, and the methods of every parser
    formats             the formats by name, the parser of each, and that of the format `text`
    harmony             the format `harmony`: from token ids to deltas
    families            the format `tagged`: text with markers
    chat_deltas         the format `chat`: deltas of Chat Completions, and of vLLM's parsers
    responses_events    the format `responses`: events of a Responses service
    routing             from a recipient to the kind of item
    item_writers        from the text of an item to deltas
    client_tools        tools that the client runs, and their calls
    hosted_tools        tools that a server can run, and their calls
    stop_strings        the end of a turn at a stop string, for engines
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import exporter

if TYPE_CHECKING:
    from interlock.parsers.chat_deltas import ChatParser
    from interlock.parsers.chunk import Chunk, Parser
    from interlock.parsers.families import FamilyParser
    from interlock.parsers.formats import Format, FormatName, PlainParser, Tagged, parser_for
    from interlock.parsers.harmony import HarmonyParser
    from interlock.parsers.responses_events import ResponsesParser
    from interlock.parsers.routing import EndReason, Routing
    from interlock.parsers.stop_strings import StopParser

__all__ = [
    "ChatParser",
    "Chunk",
    "EndReason",
    "FamilyParser",
    "Format",
    "FormatName",
    "HarmonyParser",
    "Parser",
    "PlainParser",
    "ResponsesParser",
    "Routing",
    "StopParser",
    "Tagged",
    "parser_for",
]

__getattr__ = exporter(
    __name__,
    __all__,
    [
        f"{__name__}.{home}"
        for home in ("chunk", "formats", "routing", "stop_strings", "chat_deltas", "responses_events", "families", "harmony")
    ],
)
