"""Tracks the items of a stream; checks their indices, ids and orders (R6, R7, R8, R10, R11 of docs/evidence/rules.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import define, evolve, field, frozen

from interlock.events.items import ITEMS, literals_of
from interlock.events.json import as_text, members
from interlock.events.parts import OutputText
from interlock.events.rulebook import DEVIATIONS, Finding
from interlock.events.shapes import Path
from interlock.events.stream import EVENTS, ItemAdded, ItemBracket, ItemDone, ItemEvent, Place, StreamEvent, wire_name
from interlock.fsm.lifecycles import LIFECYCLES
from interlock.judges.automaton import AutomatonNode, LifecycleAutomaton
from interlock.judges.digests import Digest, LogprobsDigest, TextDigest, quote

AUTOMATA: Final[Mapping[str, LifecycleAutomaton]] = {
    kind: LifecycleAutomaton(lifecycle) for kind, lifecycle in LIFECYCLES.items()
}
"""The automaton of each kind of item."""

ADDED: Final = wire_name(ItemAdded)
DONE: Final = wire_name(ItemDone)
FINAL: Final = frozenset({"completed", "incomplete", "failed"})
"""The statuses of an item that has ended."""
_KIND_OF: Final[Mapping[str, str]] = {item.prefix: kind for kind, item in ITEMS.items()}
_PART_PLACES: Final = frozenset({Place.PART, Place.PART_DONE})


@define(eq=False)
class TrackedPart:
    """An open part of an item."""

    type: str
    index: int
    from_start: bool
    """Whether the stream has its first event."""
    text: TextDigest = field(init=False)
    logprobs: LogprobsDigest | None = field(init=False)
    """None if the part cannot have log probabilities or has malformed ones, or if the stream lacks its first event."""
    annotations: list[Digest] = field(factory=list[Digest], init=False)

    def __attrs_post_init__(self) -> None:
        self.text = TextDigest(self.from_start)
        self.logprobs = LogprobsDigest() if self.from_start and self.type == wire_name(OutputText) else None


@define(eq=False)
class TrackedParts:
    """The parts of an item, by the name of their list."""

    next_index: dict[str, int]
    """The index of the next part of each list, if it is known."""
    done: dict[str, list[tuple[Digest, Digest]] | None]
    """The exact and the loose digest of each part that is done; None if some parts of the list may be missing."""
    open: TrackedPart | None = None
    first_delta: str | None = None


@define(eq=False)
class TrackedShell:
    """The commands of a shell call, and the outputs of the commands that have ended."""

    commands: list[str] = field(factory=list[str])
    printed: dict[str, TextDigest] = field(factory=dict[str, TextDigest])
    """The deltas of the running command's output, by `stdout` and `stderr`."""
    outputs: list[Mapping[str, object]] = field(factory=list[Mapping[str, object]])
    ended_count: int = 0


@define(eq=False)
class ItemOpening:
    """The facts in the `added` event of an item."""

    stable: Mapping[str, object] = field(factory=dict[str, object])
    """The fields that must not change."""
    status: str = ""
    """Its status; empty for `in_progress`."""
    repeats: int = 1
    """How often `in_progress` may still come: once, and again after an approval."""
    findings: list[Finding] = field(factory=list[Finding])
    """The findings that are reported at `done`."""


@frozen(eq=False)
class ItemEnding:
    """The facts in the `done` event of an item: its status, and the exact and the loose digests of its fields."""

    status: str | None = None
    digests: Mapping[str, Digest] | None = None  # None if the event is unreadable
    loose: Mapping[str, Digest] = field(factory=dict[str, Digest])


@define(eq=False)
class TrackedItem:
    """The state of an item between two events."""

    id: str
    index: int
    kind: str
    """Its type; empty if unknown."""
    from_start: bool
    """Whether the stream has its `added` event."""
    lists_logprobs: set[str]
    """The names of the stream's events that had an empty list of log probabilities; all items share it."""
    node: AutomatonNode = field(init=False)
    addresses: set[int | str] = field(init=False)
    """Every index and id in its events, so that each wrong index, and only the first wrong id, is reported."""
    in_order: bool = field(default=True, init=False)
    """Whether its events came in order; only then do they determine its status."""
    only_done_events: bool = field(default=True, init=False)
    """Whether the names of all its events after `added` end with `.done`."""
    unreadable: frozenset[str] = field(default=frozenset(), init=False)
    """The fields of the item in its last event that are missing or have a wrong type; no rule but R14 reads them."""
    opening: ItemOpening | None = field(default=None, init=False)
    ending: ItemEnding | None = field(default=None, init=False)
    text: TextDigest = field(init=False)
    """The item's text, if it has a text instead of parts."""
    parts: TrackedParts = field(init=False)
    shell: TrackedShell = field(factory=TrackedShell, init=False)

    def __attrs_post_init__(self) -> None:
        automaton, lists = self.automaton, ("content", "summary")
        known = automaton or AUTOMATA["message"]
        self.node = known.start if self.from_start else known.unknown
        self.addresses = {self.index}
        self.text = TextDigest(self.from_start)
        has_parts = self.from_start and automaton is not None and not automaton.whole
        self.parts = TrackedParts(
            next_index=dict.fromkeys(lists, 0) if self.from_start else {},
            done={name: [] if has_parts else None for name in lists},
        )

    @property
    def automaton(self) -> LifecycleAutomaton | None:
        """The automaton of its kind; None for an unknown kind."""
        return AUTOMATA.get(self.kind)

    @property
    def added(self) -> bool:
        """Whether its `added` event came."""
        return self.opening is not None

    @property
    def ended(self) -> bool:
        """Whether its `done` event came."""
        return self.ending is not None

    @property
    def status(self) -> str | None:
        """The status in `done`."""
        return None if self.ending is None else self.ending.status

    @property
    def state(self) -> str:
        """The possible states of the lifecycle, for messages."""
        return self.node.state if self.automaton else "unknown"

    @property
    def statuses(self) -> tuple[str, ...]:
        """The statuses that the type of the item allows."""
        return literals_of(ITEMS[self.kind], "status") if self.kind in ITEMS else ()

    @property
    def own_text(self) -> tuple[str, ...]:
        """The path to the field with the item's text; empty for an item with parts or without text."""
        return ITEMS[self.kind].text_path if self.kind in ITEMS else ()

    @property
    def locate(self) -> Callable[[Finding], Finding]:
        """Returns a finding about this item in its present state, unless the finding is about another one."""
        item, kind, state = self.id, self.kind or None, self.state
        return lambda finding: finding if finding.item is not None else evolve(finding, item=item, kind=kind, state=state)

    @property
    def is_complete_tool_list(self) -> bool:
        """Whether it is a list of MCP tools that lacks only `output_item.done`."""
        return self.kind == "mcp_list_tools" and self.in_order and self.node.legal == (DONE,)

    def forget(self) -> None:
        """Stop comparing the texts so far, because an event is missing or unreadable."""
        self.text.complete = False
        self.parts.done = dict.fromkeys(self.parts.done, None)
        if self.parts.open is not None:
            self.parts.open.text.complete = False
            self.parts.open.logprobs = None

    def read(self, body: Mapping[str, object], unreadable: Sequence[Path]) -> Mapping[str, object] | None:
        """Return an event without the unreadable fields of its item; None if others than these are unreadable."""
        if not unreadable:
            self.unreadable = frozenset()
            return body
        if any(path[0] != "item" or len(path) == 1 for path in unreadable):
            return None
        self.unreadable = frozenset(str(path[1]) for path in unreadable)
        return {**body, "item": {name: one for name, one in members(body["item"]).items() if name not in self.unreadable}}

    def skip(self, event: str) -> None:
        """Skip an unknown event, which may stand for any number of known ones."""
        if self.automaton is not None and event.startswith(f"response.{self.kind}."):
            self.node = self.automaton.reachable_from(self.node)

    def move(self, event: str) -> Finding | None:
        """Move to the state after an event, by its wire name, and return a finding if the event is illegal here.

        An event after the end, and a second `added`, change nothing.
        """
        if self.ended:
            return Finding("R7", "comes after the item was done")
        if event == ADDED and self.added:
            return Finding("R7", "the item is added a second time", expected=self.node.legal)
        if event == ADDED:
            self.opening = ItemOpening()
        elif event == DONE:
            self.ending = ItemEnding()
        self.only_done_events = self.only_done_events and (event == ADDED or event.endswith(".done"))
        automaton = self.automaton
        following = automaton.step(self.node, event) if automaton else self.node
        if following is not None or automaton is None:
            self.node = following or self.node
            return None
        finding = self._find_misplaced(event, automaton)
        # Only the `.done` of a text is missing after its deltas; without a text, every event between `added` and `done` is.
        if event == DONE and DEVIATIONS["no-middle"].covers(self.kind) and self.only_done_events != bool(self.own_text):
            finding = evolve(finding, deviation="no-middle")
        self.in_order = False
        if finding.rule == "R8":
            self.parts.done = dict.fromkeys(self.parts.done, None)
        if event in automaton.events:
            # Either this event came too early, or another is missing.
            self.node = automaton.union(self.node, automaton.after(event))
        return finding

    def _find_misplaced(self, event: str, automaton: LifecycleAutomaton) -> Finding:
        legal = self.node.legal
        if event not in automaton.events:
            return Finding("R10", f"is not an event of {self.kind}", expected=legal)
        if event in automaton.completions and event in automaton.reachable_from(self.node).moves:
            return Finding("R11", "reports the end of a tool that did not run", expected=legal)
        inside_part = bool(legal) and all(EVENTS[name].before in _PART_PLACES for name in legal)
        if inside_part or not _PART_PLACES.isdisjoint({EVENTS[event].before, EVENTS[event].after}):
            return Finding("R8", "breaks the order of parts", expected=legal)
        return Finding("R10", f"is not allowed here in the lifecycle of {self.kind}", expected=legal)


def is_own_text(event: type[StreamEvent]) -> bool:
    """Return whether an event carries the text of an item without parts."""
    return event.__bases__[0] is ItemEvent and wire_name(event).endswith((".delta", ".done"))


def kind_of(item_id: str, event: str) -> str:
    """Guess the kind of an item without `added` from its id's prefix or else from an event; return "" if both are ambiguous."""
    by_id = _KIND_OF.get(item_id.partition("_")[0])
    if by_id is not None:
        return by_id
    kinds = [kind for kind, automaton in AUTOMATA.items() if event in automaton.events]
    return kinds[0] if len(kinds) == 1 else ""


@define
class StreamItems:
    """The items of one stream."""

    whole: bool
    """Whether the stream has its first event; then each item must be added before its other events."""
    items: dict[int, TrackedItem] = field(factory=dict[int, TrackedItem], init=False)
    """The items by index, in order of appearance."""
    _by_id: dict[str, TrackedItem] = field(factory=dict[str, TrackedItem], init=False)
    _ids: set[str] = field(factory=set[str], init=False)
    """Every id and call id so far."""
    _lists_logprobs: set[str] = field(factory=set[str], init=False)
    _next: int | None = field(default=None, init=False)
    """The index of the next item."""

    def find(self, event: type[StreamEvent], body: Mapping[str, object]) -> TrackedItem | None:
        """Find the item of an event by its index, or by its id if that is wrong; None if the event begins a new item."""
        index, item_id = body.get("output_index"), _item_id(event, body)
        by_index = self.items.get(index) if type(index) is int else None
        if event is ItemAdded:
            return by_index if by_index and by_index.added and item_id in {"", by_index.id} else None
        by_id = self._by_id.get(item_id)
        if by_index is None or (by_index.ended and by_id is not None and not by_id.ended):
            return by_id
        return by_index

    def begin(self, event: type[StreamEvent], body: Mapping[str, object]) -> tuple[TrackedItem | None, list[Finding]]:
        """Track an item from its first event, or anew from an `added` after other events; None if the event has no index."""
        index, item_id = body.get("output_index"), _item_id(event, body)
        if type(index) is not int:
            return None, []
        item = members(body.get("item"))
        kind = as_text(item.get("type")) or kind_of(item_id, wire_name(event))
        before = self.items.get(index)
        if event is ItemAdded:
            findings = [*self._check_index(index, before), *self._check_ids(kind, item)]
        else:
            findings = [Finding("R7", "comes before its item is added", expected=(ADDED,))] if self.whole else []
            self._next = max(index + 1, self._next or 0)
        from_start = event is ItemAdded and (before is None or before.added)
        state = TrackedItem(item_id, index, kind, from_start, self._lists_logprobs)
        self.items[index] = self._by_id[item_id] = state
        return state, findings

    def check_address(self, item: TrackedItem, event: type[StreamEvent], body: Mapping[str, object]) -> list[Finding]:
        """Check the index and the id of an event against its item."""
        findings: list[Finding] = []
        index, item_id = body.get("output_index"), _item_id(event, body)
        if type(index) is int and index not in item.addresses:
            findings.append(Finding("R7", f"output_index is {index}, but that of item {item.id} is {item.index}"))
            item.addresses.add(index)
        item.id = item.id or item_id
        has_first_wrong_id = item_id != item.id and not any(isinstance(one, str) and one != item.id for one in item.addresses)
        if "item_id" in event.__struct_fields__ and has_first_wrong_id:
            findings.append(Finding("R7", f"item_id is {quote(item_id)}, but that of item {item.index} is {quote(item.id)}"))
        item.addresses.add(item_id)
        return findings

    def _check_index(self, index: int, before: TrackedItem | None) -> list[Finding]:
        """Check the index of a new item, unless the item had events before `added`."""
        if before is not None:
            return [Finding("R7", f"output_index {index} already belongs to {before.id}")] if before.added else []
        expected = self._next if self._next is not None or not self.whole else 0
        self._next = index + 1
        return [] if expected in {None, index} else [Finding("R6", f"output_index is {index} instead of {expected}")]

    def _check_ids(self, kind: str, item: Mapping[str, object]) -> list[Finding]:
        findings: list[Finding] = []
        id_prefix = f"{ITEMS[kind].prefix}_" if kind in ITEMS else ""
        for name, prefix in (("id", id_prefix), ("call_id", "call_")):
            value = item.get(name)
            if not isinstance(value, str):
                continue
            if not value.startswith(prefix):
                message = f"the {name} {quote(value)} of the {kind} does not begin with {prefix!r}"
                findings.append(Finding("R7", message, "foreign-id"))
            shared = name == "call_id" and kind.endswith("_output")  # an output has the id of its call
            if value in self._ids and not shared:
                findings.append(Finding("R7", f"the {name} {quote(value)} is used twice"))
            self._ids.add(value)
        return findings


def _item_id(event: type[StreamEvent], body: Mapping[str, object]) -> str:
    return as_text(members(body.get("item")).get("id") if issubclass(event, ItemBracket) else body.get("item_id"))
