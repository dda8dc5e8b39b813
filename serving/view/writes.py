"""Where in an item each event writes, as data: the page puts items together with it and knows no event by name.

It is read off the vocabulary: the fields that address an event, and the field in which its `done` shows the whole text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from interlock.events.items import ITEMS, statuses_of
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

_BESIDE: Final = frozenset({"logprobs", "name", "obfuscation", "status"})
"""What an event carries beside the text that it writes."""


def writes() -> Mapping[str, Mapping[str, object]]:
    """Return what each event does to the item that it is about.

    Returns:
        For each wire name an object: `op` is `all` (the item is what `field` of the event holds), `put` (so is a part),
        `append` or `set` (a text), `push` (an entry of a list) or `status`; `from` is the field of the event; `to` the field
        of the item or part; `list` and `index` say where the part stands.
    """
    return {name: write for name, event in EVENTS.items() for write in _write(event)}


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
    elif any(last in statuses_of(item) and stem == f"response.{kind}" for kind, item in ITEMS.items()):
        yield {"op": "status", "from": "", "to": "status", "value": last}
