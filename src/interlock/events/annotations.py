"""Annotations: where one stands in its text, in the fields that its type has for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

_PLACED: Final[Mapping[str, Callable[[int, int], Mapping[str, object]]]] = {
    "url_citation": lambda start, end: {"start_index": start, "end_index": end},
    "container_file_citation": lambda start, end: {"start_index": start, "end_index": end},
    "file_citation": lambda _start, end: {"index": end},
}
"""The fields that say where an annotation stands, by its type."""


def placed(annotation: Mapping[str, object], start: int, end: int) -> Mapping[str, object]:
    """Return an annotation with the fields that say where it stands; one of another type as it is.

    Args:
        annotation: In the API's shape, with its `type`.
        start: Where the text that it is about begins, in characters of the part.
        end: Where that text ends.
    """
    place = _PLACED.get(str(annotation.get("type")))
    return annotation if place is None else {**annotation, **place(start, end)}
