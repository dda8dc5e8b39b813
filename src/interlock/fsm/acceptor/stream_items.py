"""Tracks the items of a stream, and checks their indices and ids (rules R6 and R7 of docs/rules.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import define, field

from interlock.events.items import ITEMS
from interlock.events.stream import ItemAdded, ItemBracket, StreamEvent, wire_name
from interlock.fsm.acceptor.finding import Fault
from interlock.fsm.acceptor.json_digest import as_object, as_text, quoted
from interlock.fsm.acceptor.tracked_item import ADDED, TrackedItem, kind_of

_PREFIXES: Final[Mapping[str, str]] = {kind: f"{item.prefix}_" for kind, item in ITEMS.items()}


@define
class StreamItems:
    """The items of one stream.

    Args:
        whole: Whether the stream has its first event; then each item must be added before its other events.
    """

    whole: bool
    items: dict[int, TrackedItem] = field(factory=dict[int, TrackedItem], init=False)
    """The items by index, in order of appearance."""
    _by_id: dict[str, TrackedItem] = field(factory=dict[str, TrackedItem], init=False)
    _ids: set[str] = field(factory=set[str], init=False)
    """Every id and call id so far."""
    _lists_logprobs: set[str] = field(factory=set[str], init=False)
    _next: int | None = field(default=None, init=False)
    """The index of the next item."""

    def find(self, event: type[StreamEvent], body: Mapping[str, object]) -> TrackedItem | None:
        """Find the item of an event by its index, or by its id if the index is wrong.

        Returns:
            The item, or None if the event begins a new one, even if the index is taken.
        """
        index, item_id = body.get("output_index"), _item_id(event, body)
        by_index = self.items.get(index) if type(index) is int else None
        if event is ItemAdded:
            return by_index if by_index and by_index.added and item_id in {"", by_index.id} else None
        by_id = self._by_id.get(item_id)
        if by_index is None or (by_index.ended and by_id is not None and not by_id.ended):
            return by_id
        return by_index

    def begin(self, event: type[StreamEvent], body: Mapping[str, object]) -> tuple[TrackedItem | None, list[Fault]]:
        """Start tracking an item at its first event, or anew at an `added` that comes after other events of it.

        Returns:
            The item and its faults so far; no item if the event has no index.
        """
        index, item_id = body.get("output_index"), _item_id(event, body)
        if type(index) is not int:
            return None, []
        item = as_object(body.get("item"))
        kind = as_text(item.get("type")) or kind_of(item_id, wire_name(event))
        before = self.items.get(index)
        if event is ItemAdded:
            faults = [*self._check_index(index, before), *self._check_ids(kind, item)]
        else:
            faults = [Fault("R7", "comes before its item is added", (ADDED,))] if self.whole else []
            self._next = max(index + 1, self._next or 0)
        from_start = event is ItemAdded and (before is None or before.added)
        state = TrackedItem(item_id, index, kind, from_start, lists_logprobs=self._lists_logprobs)
        self.items[index] = self._by_id[item_id] = state
        return state, faults

    def check_address(self, item: TrackedItem, event: type[StreamEvent], body: Mapping[str, object]) -> list[Fault]:
        """Check the index and the id of an event against its item."""
        faults: list[Fault] = []
        index, item_id = body.get("output_index"), _item_id(event, body)
        if type(index) is int and index not in {item.index, *item.aliases}:
            faults.append(Fault("R7", f"output_index is {index}, but that of item {item.id} is {item.index}"))
        item.id = item.id or item_id
        if "item_id" in event.__struct_fields__ and {item.id, *filter(_is_text, item.aliases)} == {item.id} != {item_id}:
            faults.append(Fault("R7", f"item_id is {quoted(item_id)}, but that of item {item.index} is {quoted(item.id)}"))
        item.aliases |= {index if type(index) is int else item.index, item_id}
        return faults

    def _check_index(self, index: int, before: TrackedItem | None) -> list[Fault]:
        """Check the index of a new item, unless the item had events before `added`."""
        if before is not None:
            return [Fault("R7", f"output_index {index} already belongs to {before.id}")] if before.added else []
        expected = self._next if self._next is not None or not self.whole else 0
        self._next = index + 1
        return [] if expected in {None, index} else [Fault("R6", f"output_index is {index} instead of {expected}")]

    def _check_ids(self, kind: str, item: Mapping[str, object]) -> list[Fault]:
        """Check the ids of a new item."""
        faults: list[Fault] = []
        for name, prefix in (("id", _PREFIXES.get(kind, "")), ("call_id", "call_")):
            value = item.get(name)
            if not isinstance(value, str):
                continue
            if not value.startswith(prefix):
                message = f"the {name} {quoted(value)} of the {kind} does not begin with {prefix!r}"
                faults.append(Fault("R7", message, deviation="foreign-id"))
            shared = name == "call_id" and kind.endswith("_output")  # an output has the id of its call
            if value in self._ids and not shared:
                faults.append(Fault("R7", f"the {name} {quoted(value)} is used twice"))
            self._ids.add(value)
        return faults


def _is_text(alias: object) -> bool:
    return isinstance(alias, str)


def _item_id(event: type[StreamEvent], body: Mapping[str, object]) -> str:
    return as_text(as_object(body.get("item")).get("id") if issubclass(event, ItemBracket) else body.get("item_id"))
