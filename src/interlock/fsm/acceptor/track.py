"""What is remembered of an item while its events go by: where its lifecycle may stand, and its texts so far.

It judges the order of an item's events (R7, R8, R10, R11), and nothing of what they say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, get_args, get_type_hints

from attrs import define, evolve, field

from interlock.events.items import ITEMS, statuses_of
from interlock.events.parts import OutputText
from interlock.events.stream import EVENTS, ItemAdded, ItemDone, ItemEvent, Place, StreamEvent, own_fields, wire_name
from interlock.fsm.acceptor.automaton import Automaton, Node
from interlock.fsm.acceptor.finding import About, Fault
from interlock.fsm.acceptor.text_digest import Logprobs, Text
from interlock.fsm.acceptor.json_digest import Digest
from interlock.fsm.item_subject import Item
from interlock.fsm.lifecycles import LIFECYCLES

AUTOMATA: Final[Mapping[str, Automaton[Item[Any]]]] = {kind: Automaton(lifecycle) for kind, lifecycle in LIFECYCLES.items()}
"""The automaton of each kind of item."""

ADDED: Final = wire_name(ItemAdded)
DONE: Final = wire_name(ItemDone)
_KIND_OF: Final[Mapping[str, str]] = {item.prefix: kind for kind, item in ITEMS.items()}
_MAY_LACK_EVENTS: Final = {"web_search_call": True, "file_search_call": True, "custom_tool_call": False}
"""The kinds of item that may be done without their other events, or, where that is not true, without the last before it."""
_OF_A_PART: Final = frozenset({Place.PART, Place.PART_DONE})


@define(eq=False)
class Part:
    """A part that is open.

    Args:
        type: Its `type`.
        index: Its place in its list.
        known: Whether it was seen from its beginning.
    """

    type: str
    index: int
    known: bool
    text: Text = field(init=False)
    logprobs: Logprobs | None = field(init=False)
    """None once they cannot be judged, and for a part that has none."""
    annotations: list[Digest] = field(factory=list[Digest], init=False)

    def __attrs_post_init__(self) -> None:
        """Start without text."""
        self.text = Text(self.known)
        self.logprobs = Logprobs() if self.known and self.type == wire_name(OutputText) else None


@define(eq=False)
class Track:
    """An item of the stream.

    Args:
        id: Its id.
        index: Its `output_index`.
        kind: Its type, as far as it is known.
        known: Whether it was seen from its `added`.
    """

    id: str
    index: int
    kind: str
    known: bool
    added: bool = field(default=False, init=False)
    """Whether its `added` was seen."""
    stable: Mapping[str, object] = field(factory=dict[str, object])
    """What must stay the same, as `added` had it."""
    automaton: Automaton[Item[Any]] | None = field(init=False)
    """None for a kind of item that has no lifecycle here."""
    node: Node = field(init=False)
    aliases: set[object] = field(factory=set[object], init=False)
    """The ids and indices that events about it gave, right or wrong, so that a wrong one is found once."""
    text: Text = field(init=False)
    """The item's own text."""
    part: Part | None = None
    parts: dict[str, list[tuple[Digest, Digest]] | None] = field(init=False)
    """The parts that are done, by their list, each whole and without its log probabilities; None for a list of which
    some were not seen."""
    next_index: dict[str, int] = field(init=False)
    """The index that the next part of a list has, as far as it is known."""
    first_delta: str | None = None
    early: list[Fault] = field(factory=list[Fault], init=False)
    """What it had when it was added and should not have had before it was done."""
    begun_as: str = field(default="", init=False)
    """The status with which it was added, if that was not that it runs."""
    quiet: bool = field(default=True, init=False)
    """Whether nothing came between its `added` and its `done`, but that its text is whole."""
    approved: bool = field(default=False, init=False)
    """Whether it is a call that was approved."""
    announced: int = field(default=0, init=False)
    """How often it was said to be in progress."""
    commands: list[str] = field(factory=list[str], init=False)
    """The commands of a shell call."""
    printed: dict[str, str] = field(factory=dict[str, str], init=False)
    """What the command of a shell that runs has printed, by stream."""
    outputs: list[Mapping[str, object]] = field(factory=list[Mapping[str, object]], init=False)
    """What was said of the commands that have ended."""
    ended_commands: int = field(default=0, init=False)
    lists_logprobs: set[str] = field(factory=set[str])
    """The events of the stream that had an empty list of log probabilities."""
    status: str | None = None
    """The status that its `done` gave."""
    ended: bool = False
    """Whether its `done` was seen."""
    orderly: bool = True
    """Whether its events came in order, so that they tell how it ended."""
    done: Mapping[str, Digest] | None = None
    """What its `done` showed, field by field."""
    loose: Mapping[str, Digest] = field(factory=dict[str, Digest])
    """The same without what services show otherwise at the end (`loosened`)."""

    def __attrs_post_init__(self) -> None:
        """Start where the lifecycle starts, or anywhere in it."""
        self.automaton = AUTOMATA.get(self.kind)
        start = self.automaton or AUTOMATA["message"]
        self.node = start.start if self.known else start.unknown
        self.text = Text(self.known)
        self.next_index = {"content": 0, "summary": 0} if self.known else {}
        self.parts = {name: [] if self.known and self.automaton else None for name in ("content", "summary")}

    @property
    def state(self) -> str:
        """Where it stands, to be read."""
        return self.node.state if self.automaton else "unknown"

    @property
    def statuses(self) -> tuple[str, ...]:
        """The statuses that its type knows."""
        return statuses_of(ITEMS[self.kind]) if self.kind in ITEMS else ()

    @property
    def own_text(self) -> tuple[str, ...]:
        """Where it has the text that it writes, as the names of fields; nothing for a kind that writes none, or parts."""
        return _own_text(self.kind)

    @property
    def about(self) -> About:
        """Which item it is, for a finding."""
        return About(self.id, self.kind or None, self.state)

    @property
    def listed(self) -> bool:
        """Whether it is a listing of tools that completed."""
        return self.kind == "mcp_list_tools" and self.orderly and self.node.legal == (DONE,)

    def forget(self) -> None:
        """Forget what can no longer be compared, because an event could not be read."""
        self.text.known = False
        self.parts = dict.fromkeys(self.parts, None)
        if self.part is not None:
            self.part.text.known = False
            self.part.logprobs = None

    def pass_over(self, event: str) -> None:
        """Pass over an unknown event, which may stand for any that are known.

        Args:
            event: Its wire name.
        """
        if self.automaton is not None and event.startswith(f"response.{self.kind}."):
            self.node = self.automaton.beyond(self.node)

    def move(self, event: str) -> Fault | None:
        """Follow an event: go to the state that it leads to, or to one where it would have been legal.

        Args:
            event: Its wire name.

        Returns:
            What is wrong with its place, if anything is.
        """
        if self.ended:
            return Fault("R7", "comes after the item was done")
        if event == ADDED and self.added:
            return Fault("R7", "the item is added a second time", self.node.legal)
        self.added = self.added or event == ADDED
        self.ended = event == DONE
        self.quiet = self.quiet and (event == ADDED or event.endswith(".done"))
        following = self.automaton.step(self.node, event) if self.automaton else self.node
        if following is not None or self.automaton is None:
            self.node = following or self.node
            return None
        fault = self._misplaced(event, self.automaton)
        if event == DONE and self.quiet == _MAY_LACK_EVENTS.get(self.kind):
            fault = evolve(fault, habit="no-middle")
        self.orderly = False
        self.parts = dict.fromkeys(self.parts, None) if fault.rule == "R8" else self.parts
        if event in self.automaton.events:
            # The event came too early, or another did not come at all.
            self.node = self.automaton.either(self.node, self.automaton.after(event))
        return fault

    def _misplaced(self, event: str, automaton: Automaton[Item[Any]]) -> Fault:
        """Return which rule an event breaks that is not legal where the item stands."""
        legal = self.node.legal
        if event not in automaton.events:
            return Fault("R10", f"is no event of a {self.kind}", legal)
        if event in automaton.completions and automaton.leads_to(self.node, event):
            return Fault("R11", "says that a tool came to its end that did not run", legal)
        if self.node.inside_part or not _OF_A_PART.isdisjoint({EVENTS[event].before, EVENTS[event].after}):
            return Fault("R8", "breaks the order of parts", legal)
        return Fault("R10", f"does not come here in the lifecycle of a {self.kind}", legal)


@cache
def _own_text(kind: str) -> tuple[str, ...]:
    events = map(EVENTS.__getitem__, AUTOMATA[kind].events if kind in AUTOMATA else ())
    names = (own_fields(event)[0] for event in events if is_own_text(event) and "delta" not in own_fields(event))
    for name in names:
        holders = (field for field, hint in get_type_hints(ITEMS[kind]).items() if name in _fields_in(hint))
        return (name,) if name in ITEMS[kind].__struct_fields__ else (next(holders), name)
    return ()


def is_own_text(event: type[StreamEvent]) -> bool:
    """Return whether an event is about a text that is a field of its item."""
    return event.__bases__[0] is ItemEvent and wire_name(event).endswith((".delta", ".done"))


def _fields_in(hint: object) -> Iterator[str]:
    """Yield the fields of the objects that a field may hold."""
    for arm in get_args(hint):
        yield from getattr(arm, "__struct_fields__", ())


def kind_of(item_id: str, event: str) -> str:
    """Guess the kind of an item whose `added` was not seen.

    Args:
        item_id: Its id, whose prefix tells the kind.
        event: The wire name of an event of it, which tells the kind if the id does not.

    Returns:
        The kind, or an empty text if it cannot be told.
    """
    by_id = _KIND_OF.get(item_id.partition("_")[0])
    if by_id is not None:
        return by_id
    kinds = [kind for kind, automaton in AUTOMATA.items() if event in automaton.events]
    return kinds[0] if len(kinds) == 1 else ""
