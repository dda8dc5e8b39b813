"""The HTML document of the viewer. Its security policy allows only its own script and style, because streams are not trusted."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson

from interlock.events.items import ITEMS, literals_of
from interlock.events.stream import (
    EVENTS,
    ItemBracket,
    ItemEvent,
    PartEvent,
    ResponseEvent,
    StreamEvent,
    SummaryEvent,
    own_fields,
    wire_name,
)
from interlock.judges import DEVIATIONS, DIALECT_RULES, RULES
from interlock.serving.view.trace import Line, encode_lines

FOLDER: Final = Path(__file__).parent / "page"

TRACE_VERSION: Final = 2
"""The version of the lines; the page accepts no other."""

NDJSON: Final = "application/x-ndjson"

Mode: TypeAlias = Literal["stream", "list"]
"""What the page shows: a stream, or the recent streams of a server."""

HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@cache
def _part(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def head(mode: Mode, stream: Mapping[str, object] | None = None) -> Line:
    """Return the first line of a page. A stream has a `name` and, if it is known, a `request`."""
    rules = {name: (rule.name, rule.says, rule.breaks) for name, rule in {**RULES, **DIALECT_RULES}.items()}
    deviations = {name: (each.what, each.why) for name, each in DEVIATIONS.items()}
    machines: object = orjson.loads(_part("machines.json"))
    return "head", {
        "version": TRACE_VERSION,
        "mode": mode,
        "stream": stream,
        "machines": machines,
        "rules": rules,
        "deviations": deviations,
        "writes": {**writes(), **dialect_writes()},
    }


_BESIDE: Final = frozenset({"logprobs", "name", "obfuscation", "status"})
"""The fields of an event that are not written into its item."""


def writes() -> Mapping[str, Sequence[Mapping[str, object]]]:
    """Return what each event writes into its item, by wire name, so that the page hard-codes no event.

    `op` is `all` (the field is the whole item or response), `put` (it is a part), `append` or `set` (a text), `push` (an entry of
    a list) or `status` (`value` is the new status). `from` is the field of the event, and `to` the field of the item or part.
    `list` is the item's field with the list of parts, and `index` the event's field with the place of the part in it.
    """
    return {name: found for name, event in EVENTS.items() if (found := [*_write(event)])}


def _write(event: type[StreamEvent]) -> Iterator[Mapping[str, object]]:
    parts = "content" if issubclass(event, PartEvent) else "summary" if issubclass(event, SummaryEvent) else ""
    place = {"list": parts, "index": f"{parts}_index"} if parts else {}
    stem, _, last = wire_name(event).rpartition(".")
    fields = [name for name in own_fields(event) if name not in _BESIDE]
    whole = EVENTS.get(f"{stem}.done")
    if issubclass(event, ResponseEvent):
        yield {"op": "all", "from": "response"}
    elif issubclass(event, ItemBracket):
        yield {"op": "all", "from": "item"}
    elif "part" in fields:
        yield {"op": "put", "from": "part", **place}
    elif "annotation" in fields:
        yield {"op": "push", "from": "annotation", "to": "annotations", **place}
    elif last == "delta" and whole is not None and "delta" in fields:
        yield from ({"op": "append", "from": "delta", "to": name, **place} for name in own_fields(whole) if name not in _BESIDE)
    elif last == "done" and (parts or event.__bases__[0] is ItemEvent):
        yield from ({"op": "set", "from": name, "to": name, **place} for name in fields)
    elif any(last in literals_of(item, "status") and stem == f"response.{kind}" for kind, item in ITEMS.items()):
        yield {"op": "status", "from": "", "to": "status", "value": last}


_DIALECT_WRITES: Final[Mapping[str, Sequence[tuple[str, str, str]]]] = {
    "message_start": [("all", "message", "")],
    "content_block_start": [("all", "content_block", "")],
    "content_block_delta": [
        ("append", "delta.text", "text"),
        ("append", "delta.thinking", "thinking"),
        ("append", "delta.signature", "signature"),
        ("append", "delta.partial_json", "input"),
        ("push", "delta.citation", "citations"),
    ],
    "message_delta": [
        ("put", "delta.stop_reason", "stop_reason"),
        ("put", "delta.stop_sequence", "stop_sequence"),
        ("put", "usage", "usage"),
    ],
    "delta.role": [("all", "", ""), ("append", "choices.0.delta.content", "content")],
    "delta.content": [("append", "choices.0.delta.content", "content")],
    "delta.refusal": [("append", "choices.0.delta.refusal", "refusal")],
    "delta.reasoning": [("append", "choices.0.delta.reasoning_content", "reasoning_content")],
    "delta.tool_calls": [
        ("put", "choices.0.delta.tool_calls.0.id", "id"),
        ("put", "choices.0.delta.tool_calls.0.function.name", "name"),
        ("append", "choices.0.delta.tool_calls.0.function.arguments", "arguments"),
    ],
    "finish_reason": [("put", "choices.0.finish_reason", "finish_reason")],
    "usage": [("put", "usage", "usage")],
}
"""What each event of Messages and Chat Completions writes, as operation, field of the event and field of the block."""


def dialect_writes() -> dict[str, Sequence[Mapping[str, object]]]:
    """Return what each event of Messages and Chat Completions writes, by the names that the page shows; see `writes`."""
    return {
        name: [{"op": op, "from": source, **({"to": to} if to else {})} for op, source, to in rows]
        for name, rows in _DIALECT_WRITES.items()
    }


def _digest(name: str) -> str:
    return base64.b64encode(hashlib.sha256(_part(name).encode()).digest()).decode()


def _document(title: str, connect: str, data: str) -> str:
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest('viewer.js')}'; style-src 'sha256-{_digest('viewer.css')}'; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)} · Interlock</title>\n<style>{_part('viewer.css')}</style>\n</head>\n<body>\n"
        '<div id="app"></div>\n<noscript>This page needs JavaScript. It runs its own script only.</noscript>\n'
        f"{data}\n<script>{_part('viewer.js')}</script>\n</body>\n</html>\n"
    )


def served(title: str) -> str:
    """Return the document that fetches its lines from `lines`, relative to its own address."""
    return _document(title, "'self'", '<meta name="interlock-lines" content="lines">')


def standalone(title: str, lines: Iterable[Line]) -> str:
    """Return the document that contains its lines, the head first."""
    packed = base64.b64encode(gzip.compress(encode_lines(lines), mtime=0)).decode()
    return _document(title, "'none'", f'<script type="application/gzip" id="lines">{packed}</script>')
