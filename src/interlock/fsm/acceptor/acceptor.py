"""The acceptor: the declared lifecycles, run as a recogniser over somebody else's stream.

It is fed the bodies of events, one at a time, and says at each which rules the event breaks, where the item or the response
stood, and what would have been legal. After a finding it goes on from where the event would have been legal, so that one
fault is found once. It holds the ids and the digests of the items that are done, and of an open text no more than a
window, so a stream may be as long as it likes.

It knows nothing of bytes: framing (R5) and the end marker are judged by who reads them. Rules that compare a stream
with what the model wrote (R16, R17, R19) cannot be seen in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import define, evolve, frozen

from interlock.events.dialects import OPEN_RESPONSES, DialectName, from_open_responses
from interlock.events.stream import (
    EVENTS,
    TERMINAL,
    Created,
    ErrorEvent,
    InProgress,
    ItemAdded,
    PartEvent,
    Queued,
    ResponseEvent,
    StreamEvent,
    SummaryEvent,
    wire_name,
)
from interlock.fsm.acceptor.automaton import Automaton, Node
from interlock.fsm.acceptor.contents import JUDGES
from interlock.fsm.acceptor.ending import Seen, judge_end, judge_opening, judge_status
from interlock.fsm.acceptor.fields import in_event, is_unknown_part
from interlock.fsm.acceptor.finding import About, Fault, Finding
from interlock.fsm.acceptor.deviations import HABITS
from interlock.fsm.acceptor.register import Register
from interlock.fsm.acceptor.hindsight import Step
from interlock.fsm.acceptor.text_digest import Text
from interlock.fsm.acceptor.track import AUTOMATA, DONE, Track
from interlock.fsm.acceptor.json_digest import Digest, a_text, an_object, digest, shown
from interlock.fsm.lifecycles import RESPONSE

_RESPONSE: Final = Automaton(RESPONSE)
_RUNNING: Final = _RESPONSE.anywhere_in("in_progress")
_CREATED: Final = wire_name(Created)
_ERROR: Final = wire_name(ErrorEvent)
_OPENING: Final = frozenset(map(wire_name, (Created, Queued, InProgress)))
_TAIL: Final = 2
"""The least number with which a stream that was resumed begins; one that begins with 1 has lost its first event."""
_KNOWN: Final = frozenset({_ERROR, *_RESPONSE.events, *(name for one in AUTOMATA.values() for name in one.events)})


@define
class _Place:
    """Where a finding is to be put: at an event, in a state of the response or of an item."""

    sequence_number: int | None
    came: str
    state: str
    about: About | None = None
    line: int | None = None


@define
class _Numbering:
    """Counts along.

    Args:
        expected: The number of the next event; None if any will do.
    """

    expected: int | None
    _otherwise: int | None = None
    """What the next number may be too: a wrong number may be wrong by itself, or the first after a gap."""
    _last: int | None = None
    """The last number; None while no event had one."""
    _missing: int = 0
    """How many events had none since then."""

    def take(self, number: object) -> list[Fault]:
        """Judge the number of an event, and expect the next."""
        expected, otherwise, missing = self.expected, self._otherwise, self._missing
        self._otherwise = None
        if type(number) is not int:
            self.skip()
            self._missing += 1
            habit = "unnumbered" if not number and self._last is None else ""
            return [Fault("R2", f"sequence_number is {shown(number)}, and not a number", habit=habit)]
        begins, self._last = self._last is None, number
        self._missing = 0
        self.expected = number + 1
        if begins and missing:
            return [Fault("R2", f"sequence_number is {number}, and the {missing} events before have none")]
        if expected is None or number in {expected, otherwise}:
            return []
        self._otherwise = expected + 1
        return [Fault("R2", f"sequence_number is {number} instead of {expected}")]

    def skip(self) -> None:
        """Count an event whose number cannot be read."""
        if self.expected is not None:
            self.expected += 1


@frozen(eq=False)
class _FastPath:
    """Deltas of one text, one after the other, which differ in nothing but their text and their number.

    Args:
        blank: What makes such events equal: their own values taken out.
        like: What they are equal to then.
        text: The text that they write.
        indices: Their fields that are whole numbers, which a boolean would be equal to.
        moved: What each of them does to the lifecycle; see `Acceptor.step`.
    """

    blank: Mapping[str, object]
    like: Mapping[str, object]
    text: Text
    indices: tuple[str, ...]
    moved: tuple[Track | None, Node, str, Node]

    def fits(self, body: Mapping[str, object]) -> bool:
        """Return whether an event that is equal has whole numbers for its indices, and text where nothing was compared."""
        return type(body.get("obfuscation", "")) is str and all(type(body[name]) is int for name in self.indices)


class Acceptor:
    """Judges one stream.

    Args:
        dialect: In which dialect the stream claims to be.
        permissive: Whether the events of two items that are being written may alternate.
        first_sequence_number: The number of the first event. From 0 the stream is whole; a stream that was resumed later
            begins in the middle, and the items that it has then are learnt. None takes what comes.
    """

    def __init__(
        self, *, dialect: DialectName = "openai", permissive: bool = False, first_sequence_number: int | None = 0
    ) -> None:
        self._dialect = dialect
        self._permissive = permissive
        self._numbers = _Numbering(first_sequence_number)
        self._items = Register(whole=first_sequence_number == 0)
        self._response = _RESPONSE.start if self._items.whole else _RESPONSE.unknown
        self._response_ids: set[Digest] = set()
        self._error = False
        self._errored_last = False
        self._pen: Track | None = None
        self._fast_path: _FastPath | None = None
        self._moved: tuple[Track | None, Node, str, Node] | None = None
        """What the last event was about (None: the response), where that stood before, the event, and where it stood after."""
        self.events = 0
        """How many events were fed."""
        self.responses = 1
        """How many streams they belong to; more than one only where a file holds several."""
        self._kinds_before: list[str] = []

    @property
    def items(self) -> Mapping[int, Track]:
        """The items of the stream so far, by their index."""
        return self._items.items

    @property
    def kinds(self) -> list[str]:
        """The kinds of all items so far, in order; an empty text where a kind is not known."""
        return [*self._kinds_before, *(item.kind for item in self.items.values())]

    @property
    def ended(self) -> bool:
        """Whether the terminal event came."""
        return not self._response.legal

    @property
    def step(self) -> Step | None:
        """What the last event did to a lifecycle; None if it was about none."""
        if self._moved is None:
            return None
        item, before, event, after = self._moved
        if item is None:
            return _RESPONSE.explain(before, event, after)
        if item.automaton is None:
            return Step("", item.index)
        step = evolve(item.automaton.explain(before, event, after), index=item.index)
        # The status of an item that is done tells how it ended.
        return step.narrowed(lambda edge: edge.dest == item.status) if event == DONE else step

    def feed(self, body: Mapping[str, object], line: int | None = None) -> list[Finding]:
        """Judge an event.

        Args:
            body: The JSON object that it carries.
            line: The line of the stream on which it begins, for the findings.

        Returns:
            What is wrong with it; empty if it is legal where it came.
        """
        fast_path = self._fast_path
        if fast_path is not None and {**body, **fast_path.blank} == fast_path.like:
            delta, number = body.get("delta"), body.get("sequence_number")
            if type(delta) is str and type(number) is int and number == self._numbers.expected and fast_path.fits(body):
                fast_path.text.add(delta)
                self._numbers.expected = number + 1
                self._moved = fast_path.moved
                self.events += 1
                return []
        self._fast_path = None
        return self._judge(body, line)

    def skip(self) -> None:
        """Skip an event that could not be read, without blaming the next one for what it missed."""
        self.events += 1
        self._moved = None
        self._fast_path = None
        self._numbers.skip()
        self._forget()

    def _forget(self) -> None:
        """Forget the text of the active item, because a piece of it may have been lost."""
        if self._pen is not None:
            self._pen.forget()

    def _begin_another(self) -> None:
        """Forget the stream that has ended, for another one follows it in the same file."""
        self.responses += 1
        self._kinds_before += [item.kind for item in self.items.values()]
        self._numbers = _Numbering(0)
        self._items = Register(whole=True)
        self._response, self._response_ids = _RESPONSE.start, set()
        self._error, self._errored_last, self._pen = False, False, None

    def end(self) -> list[Finding]:
        """Judge the end of the stream.

        Returns:
            What is missing.
        """
        if self.ended:
            return []
        if self._errored_last:
            fault = Fault("R3", "the stream ends with an error event, without a terminal event", habit="error-is-last")
            return [self._found(fault, _Place(None, "", self._response.state))]
        unfinished = [f"item {item.index} ({item.id}, {item.state})" for item in self.items.values() if not item.ended]
        open_ = f", with {', '.join(unfinished)} open" if unfinished else ""
        fault = Fault("R3", f"the stream ends without a terminal event{open_}", tuple(sorted(TERMINAL)))
        return [self._found(fault, _Place(None, "", self._response.state))]

    def _judge(self, body: Mapping[str, object], line: int | None) -> list[Finding]:
        openai_body, self._moved = body, None
        faults: list[Fault] = []
        if self._dialect == OPEN_RESPONSES.name:
            faults += [Fault("R14", foreign)] if (foreign := _foreign(body)) else []
            openai_body = from_open_responses(body)
        elif _is_nested_error(body):
            faults.append(Fault("R14", "the fields of an error are nested", habit="nested-error"))
            openai_body = from_open_responses(body)
        number, name = openai_body.get("sequence_number"), a_text(openai_body.get("type"))
        place = _Place(number if type(number) is int else None, a_text(body.get("type")), self._response.state, line=line)
        if self.ended and name == _CREATED and digest(an_object(openai_body.get("response")).get("id")) not in self._response_ids:
            faults.append(Fault("R3", "another response begins, which is judged by itself", habit="another-stream"))
            self._begin_another()
        if self.ended:
            faults.append(Fault("R3", "comes after the terminal event"))
        else:
            faults += self._resumed(name, number)
            event = EVENTS.get(name)
            faults += self._numbered(number) if event or number is not None else ()
            faults += self._take_unknown(openai_body, name) if event is None else self._take(event, openai_body, place)
            self._errored_last = event is ErrorEvent
        self.events += 1
        return [self._found(fault, place, self.events - 1) for fault in faults]

    def _resumed(self, name: str, number: object) -> list[Fault]:
        """Judge how the stream begins; one that begins in the middle, by its number, is taken for one that was resumed."""
        if self.events or self._numbers.expected != 0 or type(number) is not int or number < _TAIL or name in _OPENING:
            return []
        self._items.whole, self._response = False, _RESPONSE.unknown
        self._numbers.expected = None
        message = f"begins with number {number}: taken for the tail of a stream that was resumed (--from {number})"
        return [Fault("R1", message, habit="resumed")]

    def _take_unknown(self, body: Mapping[str, object], name: str) -> list[Fault]:
        """Judge an event that nobody knows by what holds for all of them."""
        if not name:
            self._forget()
            return [Fault("R14", f"there is no event {shown(body.get('type'))}")]
        faults = [Fault("R14", f"there is no event {shown(name)}", habit="unknown-event")]
        index = body.get("output_index")
        item = self._items.items.get(index) if type(index) is int else None
        if item is not None and item.ended:
            faults.append(Fault("R7", "comes after the item was done", about=item.about))
        if item is not None:
            item.pass_over(name)
        return faults

    def _found(self, fault: Fault, place: _Place, event: int | None = None) -> Finding:
        about = fault.about or place.about
        return Finding(
            rule=fault.rule,
            severity=HABITS[fault.habit].severity if fault.habit else "error",
            event=self.events if event is None else event,
            sequence_number=place.sequence_number,
            item=about.item if about else None,
            kind=about.kind if about else None,
            state=about.state if about else place.state,
            came=place.came,
            expected=tuple(map(self._spoken, fault.expected)),
            message=fault.message,
            habit=fault.habit,
            line=place.line,
        )

    def _spoken(self, name: str) -> str:
        return OPEN_RESPONSES.event_name(name) if self._dialect == OPEN_RESPONSES.name else name

    def _numbered(self, number: object) -> list[Fault]:
        """Judge the number of an event; that of the first may tell that the stream is whole."""
        if not self.events and self._numbers.expected is None and number == 0:
            self._items.whole, self._response = True, _RESPONSE.start
        return self._numbers.take(number)

    def _take(self, event: type[StreamEvent], body: Mapping[str, object], place: _Place) -> list[Fault]:
        wrongs = in_event(event, body)
        faults = [Fault("R14", wrong.message, habit=wrong.habit) for wrong in wrongs]
        readable = all(wrong.stray for wrong in wrongs)
        if issubclass(event, ResponseEvent):
            return faults + self._respond(event, body, readable=readable)
        faults += self._opened()
        if event is ErrorEvent:
            self._error = True
        elif wire_name(event) not in _KNOWN:
            faults.append(Fault("R10", "belongs to no lifecycle", habit="unknown-event"))
        elif issubclass(event, PartEvent | SummaryEvent) and is_unknown_part(body):
            self._forget()
        else:
            faults += self._about_item(event, body, place, readable=readable)
        return faults

    def _opened(self) -> list[Fault]:
        """Judge whether the stream is open, so that its events may come."""
        fault = Fault("R1", "comes before the stream has opened", self._response.legal)
        is_open = "in_progress" in self._response.states
        self._response = _RUNNING if is_open else _RESPONSE.either(self._response, _RUNNING)
        return [] if is_open else [fault]

    def _respond(self, event: type[StreamEvent], body: Mapping[str, object], *, readable: bool) -> list[Fault]:
        """Judge an event of the response itself."""
        faults: list[Fault] = []
        name = wire_name(event)
        following = _RESPONSE.step(self._response, name)
        if following is None:
            faults.append(Fault("R1", "does not come here: the stream opens once, and first", self._response.legal))
            following = _RESPONSE.either(self._response, _RESPONSE.after(name))
        self._moved = (None, self._response, name, following)
        self._response = following
        if not readable:
            return faults
        response = an_object(body.get("response"))
        faults += self._identified(response.get("id"))
        if name in TERMINAL:
            items = sorted(self.items.values(), key=lambda item: 0 if self._items.whole else item.index)
            seen = Seen(items, self._items.whole, self._error)
            return [*faults, *judge_status(event, response, "R3"), *judge_end(response, seen)]
        return [*faults, *judge_status(event, response, "R1"), *judge_opening(response)]

    def _identified(self, response_id: object) -> Iterator[Fault]:
        """Judge whether the response has the id that it had."""
        one = digest(response_id)
        if self._response_ids and one not in self._response_ids:
            yield Fault("R7", f"the response's id is now {shown(response_id)}")
        self._response_ids.add(one)

    def _about_item(
        self, event: type[StreamEvent], body: Mapping[str, object], place: _Place, *, readable: bool
    ) -> Iterable[Fault]:
        """Judge an event of an item."""
        faults: list[Fault] = []
        name = wire_name(event)
        item = self._items.find(event, body)
        begins = item is None
        if item is None:
            item, opening_faults = self._items.begin(event, body)
            faults += opening_faults
            if self._error and event is ItemAdded:
                faults.append(Fault("R4", "an item begins after an error event"))
        if item is None:
            return faults
        place.about = item.about
        ended = item.ended
        faults += self._items.addressed(item, event, body)
        before = item.node
        fault = item.move(name)
        self._moved = (item, before, name, item.node)
        if fault:
            faults.append(fault)
        if ended or (fault and event is ItemAdded):
            return faults
        faults += self._written(item, name, begins=begins)
        judge = JUDGES.get(event)
        if not readable:
            item.forget()
        elif judge is not None:
            faults += judge(item, event, body)
        if not faults and type(body.get("delta")) is str:
            self._fast_path = _fast_path_of(item, event, body)
        return faults

    def _written(self, item: Track, event: str, *, begins: bool) -> list[Fault]:
        """Judge whose turn it is: while one item is written, only tools may have something to say about the others."""
        pen = self._pen
        if item is pen or (item.automaton and event in item.automaton.apart):
            return []
        if event != DONE:
            self._pen = item
        if pen is None or begins or self._permissive:
            return []
        habit = "late-done" if event == DONE else ""
        return [Fault("R10", f"comes while item {pen.index} ({pen.id}) is being written", habit=habit)]


def _fast_path_of(item: Track, event: type[StreamEvent], body: Mapping[str, object]) -> _FastPath | None:
    """Remember a delta that was legal, for the next one will be like it."""
    text, name = item.part.text if item.part else item.text, wire_name(event)
    if body.get("logprobs") or item.automaton is None or item.node is not item.automaton.step(item.node, name):
        return None
    blank = {field: None for field in ("delta", "sequence_number", "obfuscation") if field in body}
    indices = tuple(field for field in event.__struct_fields__ if field.endswith("_index"))
    moved = (item, item.node, name, item.node)
    return _FastPath(blank, {**body, **blank}, text, indices, moved) if len(blank) > 1 else None


def _is_nested_error(body: Mapping[str, object]) -> bool:
    return body.get("type") == _ERROR and isinstance(body.get(OPEN_RESPONSES.error_field), Mapping)


def _foreign(body: Mapping[str, object]) -> str:
    """Return what in an event is OpenAI's and not Open Responses'; an empty text if nothing is."""
    name = a_text(body.get("type"))
    if name in OPEN_RESPONSES.event_names:
        return f"Open Responses calls it {OPEN_RESPONSES.event_name(name)}"
    if name == _ERROR and OPEN_RESPONSES.error_field not in body:
        return "Open Responses nests the fields of an error"
    return ""
