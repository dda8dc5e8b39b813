"""Whether the events, items and parts of a stream have the fields that the API gives them (rule R14).

It compares with the tables in `vocabulary`. It knows nothing of order, nor of what the values say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from interlock.fsm.oracle import vocabulary
from interlock.fsm.oracle.view import Json, Violation, a_list, an_object

_TYPES: Final[dict[str, type]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}
_STATUSES: Final = frozenset({"completed", "incomplete", "failed", "in_progress", "queued", "cancelled"})


@frozen
class _Shape:
    """The fields of one type: the types that each may have, which of them must be there, and which only in the end."""

    fields: Mapping[str, frozenset[type]]
    required: frozenset[str]
    later: frozenset[str]


def _shapes(table: str, *common: str) -> dict[str, _Shape]:
    """Read a table of the vocabulary."""
    rows: dict[str, list[str]] = {}
    row: list[str] = []
    for word in table.split():
        if ":" in word:
            row.append(word)
        else:
            row = rows[word] = list(common)
    return {name: _shape(fields) for name, fields in rows.items()}


def _shape(fields: Sequence[str]) -> _Shape:
    """Read one line of a table."""
    pairs = [field.split(":") for field in fields]
    return _Shape(
        {name.rstrip("?+"): frozenset(_TYPES[word] for word in types.split("|")) for name, types in pairs},
        frozenset(name for name, _ in pairs if not name.endswith(("?", "+"))),
        frozenset(name.rstrip("+") for name, _ in pairs if name.endswith("+")),
    )


_EVENTS: Final = _shapes(vocabulary.EVENTS, "type:string", "sequence_number?:integer")
_ITEMS: Final = _shapes(vocabulary.ITEMS, "type:string")
_PARTS: Final = _shapes(vocabulary.PARTS, "type:string")
_ACTIONS: Final = _shapes(vocabulary.ACTIONS, "type:string")
_RESPONSE: Final = _shapes(vocabulary.RESPONSE)["response"]
_USAGE: Final = _shapes(vocabulary.USAGE)["usage"]


def malformed(events: Sequence[Json]) -> list[Violation]:
    """Find what makes an event impossible to judge: a type that the API has not, a field missing or of a wrong type."""
    return [Violation("R14", place, wrong) for place, body in enumerate(events) for wrong in _in_event(body)]


def strays(events: Sequence[Json]) -> list[Violation]:
    """Find the fields that do not belong where they are, in events, items and parts."""
    found: list[Violation] = []
    for place, body in enumerate(events):
        for table, value in _typed_in(body):
            name = str(value.get("type"))
            if name in table and not value.keys() <= table[name].fields.keys():
                extra = sorted(value.keys() - table[name].fields.keys())
                found.append(Violation("R14", place, f"{name} has fields that it should not have: {extra}"))
        if not an_object(body.get("response")).keys().isdisjoint(("sequence_number", "output_index")):
            found.append(Violation("R14", place, "the response has a field of an event"))
    return found


def _typed_in(body: Json) -> Iterator[tuple[Mapping[str, _Shape], Json]]:
    """Yield an event and the item and parts that it carries, each with the table to compare it with."""
    yield _EVENTS, body
    if "item" in body:
        item = an_object(body["item"])
        yield _ITEMS, item
        yield _ACTIONS, an_object(item.get("action"))
        for part in (*a_list(item.get("content")), *a_list(item.get("summary"))):
            yield _PARTS, an_object(part)
    elif "part" in body:
        yield _PARTS, an_object(body["part"])


def _in_event(body: Json) -> Iterator[str]:
    """Yield what is malformed in an event."""
    name = str(body.get("type"))
    shape = _EVENTS.get(name)
    if shape is None:
        yield f"there is no event {name!r}"
        return
    yield from _wrong(body, shape, name)
    if "item" in shape.required:
        yield from _in_item(an_object(body.get("item")), ended=name == "response.output_item.done")
    elif "part" in shape.required:
        yield from _in_typed(body.get("part"), _PARTS, "part")
    elif "annotation" in shape.required and not isinstance(an_object(body.get("annotation")).get("type"), str):
        yield "an annotation without a type"
    elif "response" in shape.required:
        yield from _in_response(an_object(body.get("response")))


def _wrong(value: Json, shape: _Shape, name: str) -> Iterator[str]:
    """Yield which fields are missing or of a wrong type; unknown ones are passed over."""
    for field, types in shape.fields.items():
        if field in value:
            if type(value[field]) not in types:
                yield f"{name}: {field} is a {type(value[field]).__name__}"
        elif field in shape.required:
            yield f"{name}: {field} is missing"


def _in_typed(value: object, table: Mapping[str, _Shape], what: str) -> Iterator[str]:
    """Yield what is malformed in an object that says its type."""
    body = an_object(value)
    kind = str(body.get("type"))
    if kind in table:
        yield from _wrong(body, table[kind], kind)
    else:
        yield f"there is no {what} {kind!r}"


def _in_item(item: Json, *, ended: bool) -> Iterator[str]:
    """Yield what is malformed in an item."""
    yield from _in_typed(item, _ITEMS, "item")
    shape = _ITEMS.get(str(item.get("type")))
    if ended and shape is not None:
        yield from (f"{item['type']}: {field} is missing" for field in shape.later - item.keys())
    for part in (*a_list(item.get("content")), *a_list(item.get("summary"))):
        yield from _in_typed(part, _PARTS, "part")
    if item.get("type") == "web_search_call" and "action" in item:
        yield from _in_typed(item.get("action"), _ACTIONS, "action")
    if item.get("type") == "message" and item.get("role") != "assistant":
        yield "a message of the response is not the assistant's"


def _in_response(response: Json) -> Iterator[str]:
    """Yield what is malformed in a response object."""
    yield from _wrong(response, _RESPONSE, "response")
    if response.get("object") != "response":
        yield "response: object is not 'response'"
    if str(response.get("status")) not in _STATUSES:
        yield f"response: there is no status {response.get('status')!r}"
    if isinstance(response.get("usage"), dict):
        yield from _wrong(response["usage"], _USAGE, "usage")
