"""A stream in OpenAI's dialect, split into its items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from attrs import define, frozen

from interlock.events.json import members
from interlock.verify.oracle.grammar import LETTERS

JsonObject: TypeAlias = Mapping[str, Any]
"""A JSON object; `rules.r14_fields` checks its types before the rules in `rules.SOUND_SHAPE` read it."""

ADDED = LETTERS["response.output_item.added"]
DONE = LETTERS["response.output_item.done"]
TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


@define
class ItemView:
    """The events of one output index.

    Args:
        index: The `output_index`.
        kind: The type of the item in `added`.
        added: The item in the first `response.output_item.added`.
        done: The item in the last `response.output_item.done`; None without one.
        events: The events, each with its position in the stream.
        word: The events as a word of the grammar's letters.
    """

    index: int
    kind: str
    added: JsonObject
    done: JsonObject | None
    events: list[tuple[int, JsonObject]]
    word: str

    @property
    def texts(self) -> list[str]:
        """The deltas that are text."""
        return [body["delta"] for _, body in self.events if isinstance(body.get("delta"), str)]

    def about(self, subject: str) -> list[tuple[int, JsonObject]]:
        """Return the events `response.SUBJECT.*`, each with its position in the stream."""
        return [(place, body) for place, body in self.events if body["type"].startswith(f"response.{subject}.")]

    @property
    def at(self) -> int:
        """The position of its first event."""
        return self.events[0][0]

    @property
    def end(self) -> int:
        """The position of its last event."""
        return self.events[-1][0]


@frozen
class Stream:
    """A full stream.

    Args:
        events: The bodies of the events.
        names: The types of the events; an empty string for a body without a type.
        items: The items, in the order in which they were added.
        orphans: The events that precede the `added` of their item, each with its position.
    """

    events: Sequence[JsonObject]
    names: Sequence[str]
    items: Sequence[ItemView]
    orphans: Sequence[tuple[int, JsonObject]]

    @classmethod
    def of(cls, events: Sequence[JsonObject]) -> Stream:
        """Split a stream into its items; an event without an integer `output_index` belongs to none."""
        names = [name if isinstance(name := body.get("type"), str) else "" for body in events]
        items: dict[int, ItemView] = {}
        orphans: list[tuple[int, JsonObject]] = []
        for place, (name, body) in enumerate(zip(names, events, strict=True)):
            letter, index = LETTERS.get(name), body.get("output_index")
            if letter is None or not isinstance(index, int):
                continue
            item = items.get(index)
            if item is None and letter != ADDED:
                orphans.append((place, body))
                continue
            if item is None:
                about = members(body.get("item"))
                item = items[index] = ItemView(index, str(about.get("type")), about, None, [], "")
            item.events.append((place, body))
            item.word += letter
            if letter == DONE:
                item.done = members(body.get("item"))
        return cls(events, names, list(items.values()), orphans)
