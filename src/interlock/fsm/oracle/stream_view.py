"""A stream, split into its items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from attrs import define, frozen

from interlock.fsm.oracle.grammar import LETTERS

Json: TypeAlias = Mapping[str, Any]
"""A JSON object, whose types `field_types` checks before the rules read it."""

ADDED = LETTERS["response.output_item.added"]
DONE = LETTERS["response.output_item.done"]
TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


@frozen
class Violation:
    """A broken rule.

    Args:
        rule: `R1` to `R18`.
        index: The number of the event, from 0; the number of all events if something is missing at the end.
        message: What is wrong.
    """

    rule: str
    index: int
    message: str


@define
class Item:
    """The events of one output index.

    Args:
        index: The `output_index`.
        kind: The type of the item in `added`.
        added: The item in the first `response.output_item.added`.
        done: The item in the last `response.output_item.done`; None without one.
        events: The events, each with its place in the stream.
        word: The events as a word of the grammar's letters.
    """

    index: int
    kind: str
    added: Json
    done: Json | None
    events: list[tuple[int, Json]]
    word: str

    @property
    def at(self) -> int:
        """The place of its first event."""
        return self.events[0][0]

    @property
    def end(self) -> int:
        """The place of its last event."""
        return self.events[-1][0]


@frozen
class Stream:
    """A whole stream.

    Args:
        events: The bodies of the events.
        names: The types of the events; empty for a body without one.
        items: The items, in the order in which they were added.
        orphans: The events of items before their `added`, each with its place.
    """

    events: Sequence[Json]
    names: Sequence[str]
    items: Sequence[Item]
    orphans: Sequence[tuple[int, Json]]

    @classmethod
    def of(cls, events: Sequence[Json]) -> Stream:
        """Split a stream into its items, and ignore events whose index is not a number."""
        names = [name if isinstance(name := body.get("type"), str) else "" for body in events]
        items: dict[int, Item] = {}
        orphans: list[tuple[int, Json]] = []
        for place, (name, body) in enumerate(zip(names, events, strict=True)):
            letter, index = LETTERS.get(name), body.get("output_index")
            if letter is None or not isinstance(index, int):
                continue
            item = items.get(index)
            if item is None and letter != ADDED:
                orphans.append((place, body))
                continue
            if item is None:
                about = an_object(body.get("item"))
                item = items[index] = Item(index, str(about.get("type")), about, None, [], "")
            item.events.append((place, body))
            item.word += letter
            if letter == DONE:
                item.done = an_object(body.get("item"))
        return cls(events, names, list(items.values()), orphans)


def an_object(value: object) -> Json:
    """Return the value if it is a JSON object, otherwise an empty object."""
    return cast("Json", value) if isinstance(value, dict) else {}


def a_list(value: object) -> Sequence[Any]:
    """Return the value if it is a JSON array, otherwise an empty one."""
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()
