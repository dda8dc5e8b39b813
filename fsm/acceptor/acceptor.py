"""The acceptor: the declared lifecycles, run as a recogniser over somebody else's stream.

It is fed the bodies of events, one at a time, and says at each which rules the event breaks, where the item or the response
stood, and what would have been legal. After a finding it goes on from where the event would have been legal, so that one
fault is found once. It holds the ids and the digests of the items that are done, and of an open text no more than a
window, so a stream may be as long as it likes.

It knows nothing of bytes: framing (R5) and the end marker are judged by who reads them. Rules that compare a stream
with what the model wrote (R16, R17, R19) cannot be seen in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from attrs import define, evolve, frozen

from interlock.events.dialects import OPEN_RESPONSES, DialectName, from_open_responses
from interlock.events.spec import ADDED, DONE, ERROR, EVENTS, TERMINAL, EventSpec, Scope
from interlock.fsm.acceptor.automaton import Automaton, Node
from interlock.fsm.acceptor.contents import JUDGES
from interlock.fsm.acceptor.ending import Seen, judge_end, judge_opening, judge_status
from interlock.fsm.acceptor.finding import About, Fault, Finding
from interlock.fsm.acceptor.numbering import Numbering
from interlock.fsm.acceptor.register import Register
from interlock.fsm.acceptor.shapes import in_event
from interlock.fsm.acceptor.texts import Text
from interlock.fsm.acceptor.trace import Step
from interlock.fsm.acceptor.track import AUTOMATA, Track
from interlock.fsm.acceptor.values import a_text, an_object
from interlock.fsm.lifecycles import RESPONSE

_RESPONSE: Final = Automaton(RESPONSE)
_RUNNING: Final = _RESPONSE.anywhere_in("in_progress")
_KNOWN: Final = frozenset({ERROR.name, *_RESPONSE.events, *(name for one in AUTOMATA.values() for name in one.events)})


@frozen(eq=False)
class _Groove:
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
        """Whether the indices of an event that is equal are whole numbers."""
        return all(type(body[name]) is int for name in self.indices)


@define
class _Place:
    """Where a finding is to be put: at an event, in a state of the response or of an item."""

    sequence_number: int | None
    came: str
    state: str
    about: About | None = None


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
        self._numbers = Numbering(first_sequence_number)
        self._items = Register(whole=first_sequence_number == 0)
        self._response = _RESPONSE.start if self._items.whole else _RESPONSE.unknown
        self._response_id: object = None
        self._error = False
        self._pen: Track | None = None
        self._groove: _Groove | None = None
        self._moved: tuple[Track | None, Node, str, Node] | None = None
        """What the last event was about (None: the response), where that stood before, the event, and where it stood after."""
        self.events = 0
        """How many events were fed."""

    @property
    def items(self) -> Mapping[int, Track]:
        """The items of the stream so far, by their index."""
        return self._items.items

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
        return step.narrowed(lambda edge: edge.dest == item.status) if event == DONE.name else step

    def feed(self, body: Mapping[str, object]) -> list[Finding]:
        """Take an event.

        Args:
            body: The JSON object that it carries.

        Returns:
            What is wrong with it; empty if it is legal where it came.
        """
        groove = self._groove
        if groove is not None and {**body, **groove.blank} == groove.like:
            delta, number = body.get("delta"), body.get("sequence_number")
            if type(delta) is str and type(number) is int and number == self._numbers.expected and groove.fits(body):
                groove.text.add(delta)
                self._numbers.expected = number + 1
                self._moved = groove.moved
                self.events += 1
                return []
        self._groove = None
        return self._judge(body)

    def skip(self) -> None:
        """Pass over an event that could not be read; whatever it was, it is no fault of the next one."""
        self.events += 1
        self._moved = None
        self._groove = None
        self._numbers.skip()
        self._forget()

    def _forget(self) -> None:
        """Give up what the item that is being written has said, because something of it may have been lost."""
        if self._pen is not None:
            self._pen.forget()

    def end(self) -> list[Finding]:
        """Take the end of the stream.

        Returns:
            What is missing.
        """
        if self.ended:
            return []
        left = [f"item {item.index} ({item.id}, {item.state})" for item in self.items.values() if not item.ended]
        open_ = f", with {', '.join(left)} open" if left else ""
        fault = Fault("R3", f"the stream ends without a terminal event{open_}", tuple(sorted(TERMINAL)))
        return [self._found(fault, _Place(None, "", self._response.state))]

    def _judge(self, body: Mapping[str, object]) -> list[Finding]:
        said, self._moved = body, None
        foreign = ""
        if self._dialect == OPEN_RESPONSES.name:
            said, foreign = from_open_responses(body), _foreign(body)
        number = said.get("sequence_number")
        place = _Place(number if type(number) is int else None, a_text(body.get("type")), self._response.state)
        faults = [Fault("R14", foreign)] if foreign else []
        faults += self._numbered(number)
        spec = EVENTS.get(a_text(said.get("type")))
        if self.ended:
            faults.append(Fault("R3", "comes after the terminal event"))
        elif spec is None:
            faults.append(Fault("R14", f"there is no event {said.get('type')!r}"))
            self._forget()
        else:
            faults += self._take(spec, said, place)
        self.events += 1
        return [self._found(fault, place, self.events - 1) for fault in faults]

    def _found(self, fault: Fault, place: _Place, event: int | None = None) -> Finding:
        about = fault.about or place.about
        return Finding(
            rule=fault.rule,
            event=self.events if event is None else event,
            sequence_number=place.sequence_number,
            item=about.item if about else None,
            kind=about.kind if about else None,
            state=about.state if about else place.state,
            came=place.came,
            legal=tuple(map(self._spoken, fault.legal)),
            message=fault.message,
        )

    def _spoken(self, name: str) -> str:
        return OPEN_RESPONSES.event_name(name) if self._dialect == OPEN_RESPONSES.name else name

    def _numbered(self, number: object) -> list[Fault]:
        """Judge the number of an event; that of the first may tell that the stream is whole."""
        if not self.events and self._numbers.expected is None and number == 0:
            self._items.whole, self._response = True, _RESPONSE.start
        return self._numbers.take(number)

    def _take(self, spec: EventSpec, body: Mapping[str, object], place: _Place) -> list[Fault]:
        wrongs = in_event(spec, body)
        faults = [Fault("R14", wrong.message) for wrong in wrongs]
        readable = all(wrong.stray for wrong in wrongs)
        if spec.scope is Scope.RESPONSE:
            return faults + self._respond(spec, body, readable=readable)
        faults += self._opened()
        if spec is ERROR:
            self._error = True
        elif spec.name not in _KNOWN:
            faults.append(Fault("R10", "belongs to no lifecycle"))
        else:
            faults += self._about_item(spec, body, place, readable=readable)
        return faults

    def _opened(self) -> list[Fault]:
        """Judge whether the stream is open, so that its events may come."""
        fault = Fault("R1", "comes before the stream has opened", self._response.legal)
        opened = "in_progress" in self._response.states
        self._response = _RUNNING if opened else _RESPONSE.either(self._response, _RUNNING)
        return [] if opened else [fault]

    def _respond(self, spec: EventSpec, body: Mapping[str, object], *, readable: bool) -> list[Fault]:
        """Take an event of the response itself."""
        faults: list[Fault] = []
        following = _RESPONSE.step(self._response, spec.name)
        if following is None:
            faults.append(Fault("R1", "does not come here: the stream opens once, and first", self._response.legal))
            following = _RESPONSE.either(self._response, _RESPONSE.after(spec.name))
        self._moved = (None, self._response, spec.name, following)
        self._response = following
        if not readable:
            return faults
        response = an_object(body.get("response"))
        if self._response_id is None:
            self._response_id = response.get("id")
        if response.get("id") != self._response_id:
            faults.append(Fault("R7", f"the response's id was {self._response_id!r} and is now {response.get('id')!r}"))
        if spec.name in TERMINAL:
            items = sorted(self.items.values(), key=lambda item: 0 if self._items.whole else item.index)
            seen = Seen(items, self._items.whole, self._error)
            return [*faults, *judge_status(spec.name, response, "R3"), *judge_end(response, seen)]
        return [*faults, *judge_status(spec.name, response, "R1"), *judge_opening(response)]

    def _about_item(self, spec: EventSpec, body: Mapping[str, object], place: _Place, *, readable: bool) -> Iterable[Fault]:
        """Take an event of an item."""
        faults: list[Fault] = []
        item = self._items.find(spec, body)
        begins = item is None
        if item is None:
            item, begun = self._items.begin(spec, body)
            faults += begun
            if self._error and spec is ADDED:
                faults.append(Fault("R4", "an item begins after an error event"))
        if item is None:
            return faults
        place.about = item.about
        ended = item.ended
        faults += self._items.addressed(item, spec, body)
        before = item.node
        fault = item.move(spec.name)
        self._moved = (item, before, spec.name, item.node)
        if fault:
            faults.append(fault)
        if ended or (fault and spec is ADDED):
            return faults
        faults += self._written(item, spec, begins=begins)
        judge = JUDGES.get(spec.name)
        if not readable:
            item.forget()
        elif judge is not None:
            faults += judge(item, spec, body)
        if not faults and "delta" in spec.fields:
            self._groove = self._groove_of(item, spec, body)
        return faults

    def _written(self, item: Track, spec: EventSpec, *, begins: bool) -> list[Fault]:
        """Judge whose turn it is: while one item is written, only tools may have something to say about the others."""
        pen = self._pen
        if item is pen or (item.automaton and spec.name in item.automaton.apart):
            return []
        self._pen = item
        if pen is None or begins or self._permissive:
            return []
        return [Fault("R10", f"comes while item {pen.index} ({pen.id}) is being written")]

    def _groove_of(self, item: Track, spec: EventSpec, body: Mapping[str, object]) -> _Groove | None:
        """Remember a delta that was legal, for the next one will be like it."""
        text = item.part.text if item.part else item.text
        if body.get("logprobs") or item.automaton is None or item.node is not item.automaton.step(item.node, spec.name):
            return None
        blank = {name: None for name in ("delta", "sequence_number", "obfuscation") if name in body}
        indices = tuple(name for name in spec.scope.value if name.endswith("_index"))
        moved = (item, item.node, spec.name, item.node)
        return _Groove(blank, {**body, **blank}, text, indices, moved) if len(blank) > 1 else None


def _foreign(body: Mapping[str, object]) -> str:
    """Say what in an event is OpenAI's and not Open Responses'; an empty text if nothing is."""
    name = a_text(body.get("type"))
    if name in OPEN_RESPONSES.event_names:
        return f"Open Responses calls it {OPEN_RESPONSES.event_name(name)}"
    if name == ERROR.name and OPEN_RESPONSES.error_field not in body:
        return "Open Responses nests the fields of an error"
    return ""
