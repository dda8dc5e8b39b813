"""Compares the last response of a stream with the answer to the same request that is not streamed (rule R19)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from interlock.events.json import as_text, is_array, is_object, parse

_COMPARED: Final = ("output", "status", "incomplete_details")
_OWN: Final = frozenset({"id", "call_id", "container_id"})
"""The fields that differ from answer to answer."""
_LONGEST: Final = 80
"""The most characters of a value in a message."""


def compare_whole(streamed: Mapping[str, object] | None, whole: Mapping[str, object]) -> str:
    """Return the first difference between the last response of a stream and a whole answer; empty if there is none.

    Ids do not count, nor do fields that one of the two leaves out or has as null, nor spaces in the JSON of arguments. A stream
    without a terminal event has no response, which R3 says, and nothing to compare.
    """
    if streamed is None:
        return ""
    if not is_array(whole.get("output")):
        return "the whole answer is an error"
    return next((each for name in _COMPARED for each in _differences(streamed.get(name), whole.get(name), name)), "")


def _differences(streamed: object, whole: object, place: str) -> Iterator[str]:
    if streamed is None or whole is None:
        return
    if is_object(streamed) and is_object(whole):
        for name in {**streamed, **whole}:
            if name not in _OWN:
                yield from _differences(streamed.get(name), whole.get(name), f"{place}.{name}")
    elif is_array(streamed) and is_array(whole) and len(streamed) == len(whole):
        for number, both in enumerate(zip(streamed, whole, strict=True)):
            yield from _differences(*both, f"{place}[{number}]")
    elif not (streamed == whole or (place.endswith(".arguments") and _is_same_json(as_text(streamed), as_text(whole)))):
        yield f"`{place}` is {_shown(streamed)}, but {_shown(whole)} in the whole answer"


def _is_same_json(one: str, other: str) -> bool:
    value = parse(one)
    return value is not None and value == parse(other)


def _shown(value: object) -> str:
    """Return a value as code; of a list, only the types of its objects, or its length if they have none."""
    if is_array(value):
        value = [each.get("type") if is_object(each) else each for each in value]
        if value and all(each is None for each in value):
            return f"a list of {len(value)}"
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text if len(text) <= _LONGEST else f'{text[:_LONGEST]} …'}`"
