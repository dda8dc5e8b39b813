"""The items of a stream: which event is about which, and whether their indices and ids are what they should be (R6, R7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import define, field

from interlock.events.items import ITEMS
from interlock.events.stream import ItemAdded, ItemBracket, StreamEvent, wire_name
from interlock.fsm.acceptor.finding import Fault
from interlock.fsm.acceptor.track import ADDED, Track, kind_of
from interlock.fsm.acceptor.json_digest import a_text, an_object, shown

_PREFIXES: Final[Mapping[str, str]] = {kind: f"{item.prefix}_" for kind, item in ITEMS.items()}


@define
class Register:
    """The items of one stream.

    Args:
        whole: Whether the stream is seen from its beginning, so that every item is added before anything is said of it.
    """

    whole: bool
    items: dict[int, Track] = field(factory=dict[int, Track], init=False)
    """By their index, in the order in which they came."""
    _by_id: dict[str, Track] = field(factory=dict[str, Track], init=False)
    _ids: set[str] = field(factory=set[str], init=False)
    """Every id and call id so far."""
    _lists_logprobs: set[str] = field(factory=set[str], init=False)
    _next: int | None = field(default=None, init=False)
    """The index that the next item has."""

    def find(self, event: type[StreamEvent], body: Mapping[str, object]) -> Track | None:
        """Find the item that an event is about: by its index, or by its id if the index says nothing sensible.

        Returns:
            None for an item that begins, even at an index that another one has.
        """
        index, item_id = body.get("output_index"), _item_id(event, body)
        by_index = self.items.get(index) if type(index) is int else None
        if event is ItemAdded:
            return by_index if by_index and by_index.added and item_id in {"", by_index.id} else None
        by_id = self._by_id.get(item_id)
        if by_index is None or (by_index.ended and by_id is not None and not by_id.ended):
            return by_id
        return by_index

    def begin(self, event: type[StreamEvent], body: Mapping[str, object]) -> tuple[Track | None, list[Fault]]:
        """Register an item: a new one, or one that the stream mentions without having added it.

        Args:
            event: Which event it is.
            body: Its body.

        Returns:
            The item, None if the event does not say where it stands; and what is wrong with its beginning.
        """
        index, item_id = body.get("output_index"), _item_id(event, body)
        if type(index) is not int:
            return None, []
        item = an_object(body.get("item"))
        kind = a_text(item.get("type")) or kind_of(item_id, wire_name(event))
        before = self.items.get(index)
        if event is ItemAdded:
            faults = [*self._new_index(index, before), *self._new_ids(kind, item)]
        else:
            faults = [Fault("R7", "comes before its item is added", (ADDED,))] if self.whole else []
            self._next = max(index + 1, self._next or 0)
        known = event is ItemAdded and (before is None or before.added)
        track = Track(item_id, index, kind, known, lists_logprobs=self._lists_logprobs)
        self.items[index] = self._by_id[item_id] = track
        return track, faults

    def addressed(self, item: Track, event: type[StreamEvent], body: Mapping[str, object]) -> list[Fault]:
        """Judge whether an event names its item by the same index and id as its `added`."""
        faults: list[Fault] = []
        index, item_id = body.get("output_index"), _item_id(event, body)
        if type(index) is int and index not in {item.index, *item.aliases}:
            faults.append(Fault("R7", f"output_index is {index}, and that of item {item.id} is {item.index}"))
        item.id = item.id or item_id
        if "item_id" in event.__struct_fields__ and {item.id, *filter(_is_text, item.aliases)} == {item.id} != {item_id}:
            faults.append(Fault("R7", f"item_id is {shown(item_id)}, and that of item {item.index} is {shown(item.id)}"))
        item.aliases |= {index if type(index) is int else item.index, item_id}
        return faults

    def _new_index(self, index: int, before: Track | None) -> list[Fault]:
        """Judge the index of an item that begins; one that was spoken of before it was added has been judged then."""
        if before is not None:
            return [Fault("R7", f"output_index {index} is that of {before.id} already")] if before.added else []
        expected = self._next if self._next is not None or not self.whole else 0
        self._next = index + 1
        return [] if expected in {None, index} else [Fault("R6", f"output_index is {index} instead of {expected}")]

    def _new_ids(self, kind: str, item: Mapping[str, object]) -> list[Fault]:
        """Judge the ids of an item that begins."""
        faults: list[Fault] = []
        for name, prefix in (("id", _PREFIXES.get(kind, "")), ("call_id", "call_")):
            value = item.get(name)
            if not isinstance(value, str):
                continue
            if not value.startswith(prefix):
                wrong = f"the {name} {shown(value)} of a {kind} does not begin with {prefix!r}"
                faults.append(Fault("R7", wrong, habit="foreign-id"))
            shared = name == "call_id" and kind.endswith("_output")  # that of the call that it is the output of
            if value in self._ids and not shared:
                faults.append(Fault("R7", f"the {name} {shown(value)} is used twice"))
            self._ids.add(value)
        return faults


def _is_text(alias: object) -> bool:
    return isinstance(alias, str)


def _item_id(event: type[StreamEvent], body: Mapping[str, object]) -> str:
    return a_text(an_object(body.get("item")).get("id") if issubclass(event, ItemBracket) else body.get("item_id"))
