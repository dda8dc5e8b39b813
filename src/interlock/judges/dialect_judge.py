"""The base of the judges of other APIs than Responses: it reads a whole stream, and follows its transducer's table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import ClassVar, TypeAlias, TypeVar

from attrs import evolve

from interlock.dialects import ApiName
from interlock.dialects.transducer import AnyTransducer, EventTrigger
from interlock.events.decode import SseMessage
from interlock.events.json import as_text
from interlock.events.rulebook import Finding, Rule
from interlock.events.sse import CONTENT_TYPE
from interlock.fsm.table import Table
from interlock.judges.automaton import Automaton, NamedEdge, Transition
from interlock.judges.judging import DONE, MAX_LISTED, JudgedMessage, StreamDecoder, Tally, Verdict, read_body

E = TypeVar("E", bound=StrEnum)

Body: TypeAlias = Mapping[str, object]
Indexed: TypeAlias = Sequence[tuple[int, Body]]
"""Events, each with its place in the stream; or the choices of chunks, each with the place of its chunk."""


def transducer_automaton(
    table: Table[EventTrigger, E], emitted: Mapping[str, Sequence[str]], deltas: AbstractSet[str]
) -> Automaton:
    """Return the automaton of a transducer. Of edges with the same ends and events it has the first, since no stream tells.

    Args:
        table: The table of the transducer.
        emitted: The names of the events that each effect makes; an effect without an entry makes none.
        deltas: The names of deltas, which may be missing.
    """
    edges: dict[str, list[NamedEdge]] = {}
    for source, state in table.states.items():
        distinct: dict[tuple[str, Sequence[str]], NamedEdge] = {}
        for trigger, (dest, effects) in state.rows.items():
            events = tuple(event for effect in effects for event in emitted.get(effect, ()))
            distinct.setdefault((dest.name, events), NamedEdge(source, str(trigger), dest.name, events))
        edges[source] = [*distinct.values()]
    return Automaton(table.name, table.initial, edges, frozenset(deltas))


class DialectJudge(ABC):
    """Validates the bytes of a stream at its end; then `findings` has all findings."""

    api: ClassVar[ApiName]
    framing_rule: ClassVar[str]
    """The rule about the frames of events."""
    rules: ClassVar[Mapping[str, Rule]]
    emitted: ClassVar[Mapping[str, Sequence[str]]]
    """The events that each effect of the transducer makes, by the names of `name_event`, without those in `stateless`."""
    automaton: ClassVar[Automaton]
    stateless: ClassVar[frozenset[str]] = frozenset({""})
    """The names of events that say nothing of the transducer's state."""

    def __init__(self) -> None:
        self._decoder = StreamDecoder()
        self._messages: list[SseMessage] = []
        self._bodies: list[Body] = []
        """The body of each message but end markers; empty if it has none."""
        self._marked_at: int | None = None
        """The number of messages before the first end marker."""
        self._node = self.automaton.start
        self.findings: list[Finding] = []

    @staticmethod
    @abstractmethod
    def recognizes(body: Body) -> bool:
        """Return whether a body has the shape of an event or a whole answer of the API."""

    @staticmethod
    @abstractmethod
    def name_event(body: Body) -> str:
        """Return the name of an event, as in `emitted`."""

    @staticmethod
    @abstractmethod
    def make_transducer() -> AnyTransducer:
        """Return a transducer that sends everything that the API can have."""

    @staticmethod
    @abstractmethod
    def check_emitted(events: Sequence[Body]) -> list[Finding]:
        """Validate the bodies of the events of a transducer that `make_transducer` has made."""

    @abstractmethod
    def _check(self) -> Iterator[Finding]:
        """Yield the findings of the whole stream."""

    @abstractmethod
    def _reasons(self) -> Iterator[object]:
        """Yield the reasons of the end that the stream has; the last one is its status."""

    def _items(self) -> list[str]:
        """Return the kinds of the items, if the API names them."""
        return []

    def _is_stray(self, body: Body) -> bool:
        """Return whether an event is about something that is not open."""
        del body
        return False

    def content_type(self, value: str) -> None:
        """Check the value of the `Content-Type` header."""
        if value.partition(";")[0].strip().lower() != CONTENT_TYPE:
            self._add(Finding(self.framing_rule, f"the content type is {value!r} instead of {CONTENT_TYPE}"))

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes of the stream, which may be split anywhere."""
        for _ in self.follow(chunk):
            pass

    def follow(self, chunk: bytes) -> Iterator[JudgedMessage]:
        """Read the next bytes, and yield each message that they complete, without findings."""
        return self._take(self._decoder.feed(chunk))

    def follow_end(self) -> Iterator[JudgedMessage]:
        """Read and yield the last message if its final empty line is missing."""
        return self._take(self._decoder.end())

    def _take(self, messages: Iterable[SseMessage]) -> Iterator[JudgedMessage]:
        for message in messages:
            if message.data == DONE:
                if self._marked_at is None:
                    self._marked_at = len(self._messages)
                yield JudgedMessage(message, None, (), None)
                continue
            body = read_body(message)
            self._messages.append(message)
            self._bodies.append(body or {})
            yield JudgedMessage(message, body, (), None if body is None else self._move(body))

    def _move(self, body: Body) -> Transition | None:
        """Follow the transducer's machine, and return its transition; None if the event does not concern the machine."""
        name = self.name_event(body)
        if name in self.stateless:
            return None
        is_stray = self._is_stray(body)
        automaton, before, event = self.automaton, self._node, ""
        if name in automaton.events and not is_stray:
            event = name
            # If the event is not legal, either it came too early, or another is missing.
            self._node = automaton.step(before, event) or automaton.union(before, automaton.after(event))
        return Transition(automaton, before, event, self._node)

    def end(self) -> Verdict:
        """Validate the stream, and return the verdict."""
        for _ in self.follow_end():
            pass
        for finding in self._check():
            self._add(finding)
        if not self._decoder.is_framed:
            self._add(Finding(self.framing_rule, "the stream has one JSON object per line", f"bare-{self.api}-lines"))
        tally = Tally()
        tally.add(self.findings)
        return Verdict(
            events=len(self._bodies),
            items=self._items(),
            status=next((reason for reason in reversed([*self._reasons()]) if reason and isinstance(reason, str)), None),
            has_done_marker=self._marked_at is not None,
            findings=tally.findings,
            rules={rule: tally.rules[rule] for rule in self.rules if rule in tally.rules},
            severities=tally.severities,
            end_findings=sorted(self.findings, key=lambda finding: finding.event)[:MAX_LISTED],
        )

    def _add(self, finding: Finding) -> None:
        if finding.event < len(self._messages):
            message, body = self._messages[finding.event], self._bodies[finding.event]
            finding = evolve(finding, received=as_text(body.get("type")) or message.event, line=message.line)
        self.findings.append(finding)
