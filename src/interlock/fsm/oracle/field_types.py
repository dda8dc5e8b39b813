"""Checks the fields of events, items and responses against the tables in `api_fields` (rule R14 of docs/rules.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from attrs import frozen

from interlock.fsm.oracle import api_fields
from interlock.fsm.oracle.stream_view import Json, Violation, as_object

_TYPES: Final[dict[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
    type(None): "null",
}
_ADDED: Final = "response.output_item.added"


@frozen
class _Shape:
    """The allowed types of each field, the required fields, and the fields that only a done item must have."""

    fields: Mapping[str, frozenset[str]]
    required: frozenset[str]
    later: frozenset[str]


def _shapes(table: str, *common: str) -> dict[str, _Shape]:
    """Parse a table of `api_fields`; every row also gets the `common` fields."""
    rows: dict[str, list[str]] = {}
    row: list[str] = []
    for word in table.split():
        if ":" in word:
            row.append(word)
        else:
            row = rows[word] = list(common)
    return {name: _shape(fields) for name, fields in rows.items()}


def _shape(fields: Sequence[str]) -> _Shape:
    """Parse one row of a table; an id is any string here, because R7 checks its prefix."""
    pairs = [field.split(":") for field in fields]
    return _Shape(
        {name.rstrip("?+"): frozenset(re.sub(r"\w+_$", "string", words).split("|")) for name, words in pairs},
        frozenset(name for name, _ in pairs if not name.endswith(("?", "+"))),
        frozenset(name.rstrip("+") for name, _ in pairs if name.endswith("+")),
    )


_OBJECTS: Final = _shapes(api_fields.OBJECTS)
_EVENTS: Final = _shapes(api_fields.EVENTS, "type:string", "sequence_number?:integer", "stream_id?:string", "agent?:<agent>|null")
_ITEMS: Final = _shapes(api_fields.ITEMS, "type:string", "agent?:<agent>|null")
_RESPONSE: Final = _shapes(api_fields.RESPONSE)["response"]
_USAGE: Final = _shapes(api_fields.USAGE)["usage"]


def malformed(events: Sequence[Json]) -> list[Violation]:
    """Find unknown types, missing fields and wrong values. The other rules can only check events without them."""
    return [Violation("R14", place, wrong) for place, body in enumerate(events) for wrong in _in_event(body)]


def strays(events: Sequence[Json]) -> list[Violation]:
    """Find unknown fields in events and items, and event fields in responses."""
    violations: list[Violation] = []
    for place, body in enumerate(events):
        for table, value in ((_EVENTS, body), (_ITEMS, as_object(body.get("item")))):
            name = str(value.get("type"))
            if name in table and not value.keys() <= table[name].fields.keys():
                extra = sorted(value.keys() - table[name].fields.keys())
                violations.append(Violation("R14", place, f"{name} has unknown fields: {extra}"))
        if not as_object(body.get("response")).keys().isdisjoint(("sequence_number", "output_index")):
            violations.append(Violation("R14", place, "the response has an event field, `sequence_number` or `output_index`"))
    return violations


def _in_event(body: Json) -> Iterator[str]:
    """Yield a message for each malformed field of an event, or for its unknown type."""
    name = str(body.get("type"))
    if name not in _EVENTS:
        yield f"unknown event {name!r}"
        return
    yield from _wrong(body, _EVENTS[name], name)
    if "item" in _EVENTS[name].required:
        item = as_object(body.get("item"))
        kind = str(item.get("type"))
        if kind not in _ITEMS:
            yield f"unknown item {kind!r}"
            return
        yield from _wrong(item, _ITEMS[kind], kind)
        if name != _ADDED:
            yield from (f"{kind}: {field} is missing" for field in _ITEMS[kind].later - item.keys())
    elif "response" in _EVENTS[name].required:
        response = as_object(body.get("response"))
        yield from _wrong(response, _RESPONSE, "response")
        if isinstance(response.get("usage"), dict):
            yield from _wrong(response["usage"], _USAGE, "usage")


def _wrong(value: Json, shape: _Shape, name: str) -> Iterator[str]:
    """Yield a message for each missing or wrong field; ignore unknown fields."""
    for field, words in shape.fields.items():
        if field in value:
            if not _fits(value[field], words):
                yield f"{name}: {field} cannot be {value[field]!r:.80}"
        elif field in shape.required:
            yield f"{name}: {field} is missing"


def _fits(value: object, words: frozenset[str]) -> bool:
    """Return whether a value has one of the types or is one of the literals."""
    if not words.isdisjoint(("any", _TYPES[type(value)])):
        return True
    if isinstance(value, list):
        inner = frozenset(word[1:] for word in words if word.startswith("*"))
        return bool(inner) and all(_fits(one, inner) for one in cast("list[object]", value))
    if isinstance(value, dict):
        mapping = as_object(cast("object", value))
        return any(_has_shape(mapping, _OBJECTS[word[1:-1]]) for word in words if word.startswith("<"))
    return isinstance(value, str) and value in words


def _has_shape(value: Json, shape: _Shape) -> bool:
    """Return whether an object has valid fields, and no unknown ones unless its type allows them."""
    return (value.keys() <= shape.fields.keys() or "..." in shape.fields) and not any(_wrong(value, shape, ""))
