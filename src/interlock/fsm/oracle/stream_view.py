"""A stream cut into its items, so that a rule can be read off.

It knows which events belong together. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from attrs import define, frozen

from interlock.fsm.oracle.grammar import LETTERS

Json: TypeAlias = Mapping[str, Any]
"""A JSON object; the types of its fields have been looked at by `shapes` before a rule relies on them."""

ADDED = LETTERS["response.output_item.added"]
DONE = LETTERS["response.output_item.done"]
TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


@frozen
class Violation:
    """A rule that a stream breaks.

    Args:
        rule: The rule's number, `R1` to `R18`.
        index: The event, counted from 0, at which it shows; the number of events if something is missing at the end.
        message: What is wrong.
    """

    rule: str
    index: int
    message: str


@define
class Item:
    """The events of one output index.

    Args:
        index: Its `output_index`.
        kind: Its type, as it was added.
        added: The item in its first `response.output_item.added`.
        done: The item in its last `response.output_item.done`, None if there was none.
        events: All its events, each with its place in the stream.
        word: The same events, as a word in the grammar's letters.
    """

    index: int
    kind: str
    added: Json
    done: Json | None
    events: list[tuple[int, Json]]
    word: str

    @property
    def at(self) -> int:
        """The place in the stream at which it was added."""
        return self.events[0][0]

    @property
    def end(self) -> int:
        """The place in the stream of its last event."""
        return self.events[-1][0]


@frozen
class Stream:
    """A whole stream.

    Args:
        events: Its bodies.
        names: Their types; an empty text for a body without one.
        items: Its items, in the order in which they were added.
        orphans: Events about an item that is not known (yet), each with its place.
    """

    events: Sequence[Json]
    names: Sequence[str]
    items: Sequence[Item]
    orphans: Sequence[tuple[int, Json]]

    @classmethod
    def of(cls, events: Sequence[Json]) -> Stream:
        """Cut a stream into its items; events whose index is no number belong to none."""
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
    """Return a JSON object as what it is, and an empty one for anything else."""
    return cast("Json", value) if isinstance(value, dict) else {}


def a_list(value: object) -> Sequence[Any]:
    """Return a JSON array as what it is, and an empty one for anything else."""
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()
