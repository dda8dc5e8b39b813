"""Where in an item each event writes, as data: the page puts items together with it and knows no event by name.

It is read off the vocabulary: the fields that address an event, and the field in which its `done` shows the whole text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from interlock.events.olditems import ITEMS
from interlock.events.spec import EVENTS, EventSpec, Scope

_LISTS: Final[Mapping[Scope, tuple[str, str]]] = {
    Scope.PART: ("content", "content_index"),
    Scope.SUMMARY: ("summary", "summary_index"),
}
"""The list of parts that an event of a scope is about, and the field that holds the part's place in it."""

_BESIDE: Final = frozenset({"logprobs", "name", "status"})
"""What an event carries beside the text that it writes."""


def writes() -> Mapping[str, Mapping[str, object]]:
    """Return what each event does to the item that it is about.

    Returns:
        For each wire name an object: `op` is `all` (the item is what `field` of the event holds), `put` (so is a part),
        `append` or `set` (a text), `push` (an entry of a list) or `status`; `from` is the field of the event; `to` the field
        of the item or part; `list` and `index` say where the part stands.
    """
    return {name: write for name, spec in EVENTS.items() for write in _write(spec)}


def _write(spec: EventSpec) -> Iterator[Mapping[str, object]]:
    parts, index = _LISTS.get(spec.scope, ("", ""))
    place = {"list": parts, "index": index} if parts else {}
    stem, _, last = spec.name.rpartition(".")
    texts = [name for name in spec.fields if name not in _BESIDE]
    whole = EVENTS.get(f"{stem}.done")
    if spec.scope is Scope.RESPONSE:
        yield {"op": "all", "from": "response"}
    elif spec.scope is Scope.BRACKET:
        yield {"op": "all", "from": "item"}
    elif "part" in spec.fields:
        yield {"op": "put", "from": "part", **place}
    elif "annotation" in spec.fields:
        yield {"op": "push", "from": "annotation", "to": "annotations", **place}
    elif last == "delta" and whole is not None and "delta" in spec.fields:
        yield from ({"op": "append", "from": "delta", "to": name, **place} for name in whole.fields if name not in _BESIDE)
    elif last == "done" and spec.scope in {Scope.ITEM, Scope.PART, Scope.SUMMARY}:
        yield from ({"op": "set", "from": name, "to": name, **place} for name in texts)
    elif any(last in item.statuses and stem == f"response.{kind}" for kind, item in ITEMS.items()):
        yield {"op": "status", "from": "", "to": "status", "value": last}
