"""Parsers: what a model wrote, in one of several formats, as deltas.

A parser knows its format and nothing of events, items' ids or the network. All of them have the two methods of `Parser`, are
total over what a model can write, and ask `Routing` where a call goes, so that a call is the same item in every format.

    chunk               a chunk of engine output, and the methods of every parser
    choosing            which parser a format has
    harmony             the format `harmony`: token ids
    harmony_framing     the framing of harmony, as a table
    harmony_header      the grammar of harmony's headers
    harmony_vocabulary  the tokens of harmony
    families            the format `tagged`: text with markers
    tagged              the name of such a format
    vllm_deltas         the format `vllm`: deltas of vLLM's own parsers
    alignment           which tokens a piece of text is made of
    plain_text          the format `text`
    routing             from a recipient to the kind of item
    item_writers        from the text of an item to deltas
    browser             the action of a web search
    custom              free text inside of JSON
    client_tools        tools of the client that have items of their own
    client_calls        calls of these

What an embedder needs is exported here, and imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.late import exporter

if TYPE_CHECKING:
    from interlock.parsers.choosing import Format, FormatName, parser_for
    from interlock.parsers.chunk import Chunk, Parser
    from interlock.parsers.families import FamilyParser
    from interlock.parsers.harmony import HarmonyParser
    from interlock.parsers.plain_text import PlainParser
    from interlock.parsers.routing import Routing
    from interlock.parsers.tagged import Tagged
    from interlock.parsers.vllm_deltas import VllmParser

__all__ = [
    "Chunk",
    "FamilyParser",
    "Format",
    "FormatName",
    "HarmonyParser",
    "Parser",
    "PlainParser",
    "Routing",
    "Tagged",
    "VllmParser",
    "parser_for",
]

__getattr__ = exporter(
    __name__,
    __all__,
    [f"{__name__}.{home}" for home in ("chunk", "choosing", "plain_text", "routing", "tagged", "harmony", "vllm_deltas", "families")],
)
