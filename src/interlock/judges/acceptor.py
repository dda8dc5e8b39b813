"""Validates the events of a stream with the lifecycles that the driver uses.

For each event, the acceptor reports the rules that the event breaks, the state of the item or the response, and the events that
would have been legal. After an illegal event it continues from a state in which the event is legal, so it reports an error once.
It stores digests and a window of each open text, so its memory does not grow with the texts of messages and reasoning. It keeps
the texts of calls (arguments, code, commands) and the output of shell commands.

`judging` checks framing (rule R5 of docs/evidence/rules.md) and the end marker. One stream alone cannot show that R16, R17, R19
or R20 is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from attrs import define, evolve, frozen

from interlock.events import stream
from interlock.events.dialects import DIALECTS, OPEN_RESPONSES, DialectName, from_open_responses
from interlock.events.json import as_text, members
from interlock.events.rulebook import DEVIATIONS, Finding
from interlock.events.shapes import Path
from interlock.events.stream import EVENTS, TERMINAL, StreamEvent, wire_name
from interlock.fsm.lifecycles import RESPONSE
from interlock.judges.automaton import LifecycleAutomaton, Transition
from interlock.judges.contents import JUDGES, check_fields, is_unknown_part, judge_end, judge_opening
from interlock.judges.digests import Digest, TextDigest, digest, quote
from interlock.judges.stream_items import DONE, StreamItems, TrackedItem

_RESPONSE: Final = LifecycleAutomaton(RESPONSE)
_RUNNING: Final = _RESPONSE.at_state("in_progress")
_CREATED: Final = wire_name(stream.Created)
_ERROR: Final = wire_name(stream.ErrorEvent)
_OPENING: Final = frozenset(map(wire_name, (stream.Created, stream.Queued, stream.InProgress)))
_MIN_RESUMED: Final = 2
"""The lowest first number of a resumed stream; a stream that begins with 1 lost its first event."""


@define
class _Numbering:
    """The sequence numbers of a stream (R2)."""

    expected: int | None
    """The number of the next event; None accepts any."""
    _alternative: int | None = None
    """Also accepted as the next number: the one that continues the sequence before a wrong number."""
    _last: int | None = None
    """The last number; None before the first."""
    _missing: bool = False
    """Whether events since the last number have none."""

    def take(self, number: object) -> list[Finding]:
        """Check the number of an event, and expect the next."""
        expected, alternative, missing = self.expected, self._alternative, self._missing
        self._alternative = None
        if type(number) is not int:
            self.skip()
            self._missing = True
            deviation = "unnumbered" if not number and self._last is None else ""
            problem = "missing" if number is None else f"{quote(number)} instead of a number"
            return [Finding("R2", f"sequence_number is {problem}", deviation)]
        begins, self._last = self._last is None, number
        self._missing = False
        self.expected = number + 1
        if begins and missing:
            return [Finding("R2", f"sequence_number is {number}, and no earlier event has a number")]
        if expected is None or number in {expected, alternative}:
            return []
        self._alternative = expected + 1
        return [Finding("R2", f"sequence_number is {number} instead of {expected}")]

    def advance(self, number: int) -> None:
        """Take the expected number."""
        self.expected, self._alternative = number + 1, None

    def skip(self) -> None:
        """Count an unreadable event."""
        if self.expected is not None:
            self.expected += 1


@frozen(eq=False)
class _FastPath:
    """A legal delta; later deltas that differ only in the `blank` fields skip the full check."""

    blank: Mapping[str, object]
    """The fields that may differ (text, number and obfuscation), each None."""
    like: Mapping[str, object]
    """The delta with these fields blanked."""
    text: TextDigest
    """The text that the deltas extend."""
    indices: tuple[str, ...]
    """The integer fields; equality alone would accept booleans in them."""
    transition: Transition

    def fits(self, body: Mapping[str, object]) -> bool:
        """Return whether the obfuscation and the indices have the right types, which equality does not check."""
        return type(body.get("obfuscation", "")) is str and all(type(body[name]) is int for name in self.indices)


class Acceptor:
    """Validates the events of one stream.

    Args:
        dialect: The dialect of the stream.
        permissive: Whether two items may be written at once.
        first_sequence_number: The number of the first event: 0 for a full stream, more for a resumed one, whose items may
            lack their `added` event. None accepts any number.

    Raises:
        ValueError: There is no such dialect.
    """

    def __init__(
        self, *, dialect: DialectName = "openai", permissive: bool = False, first_sequence_number: int | None = 0
    ) -> None:
        if dialect not in DIALECTS:
            raise ValueError(f"dialect is {dialect!r} instead of {' or '.join(DIALECTS)}")
        self._dialect = dialect
        self._permissive = permissive
        self._items = StreamItems(whole=True)
        self._fast_path: _FastPath | None = None
        self.transition: Transition | None = None
        """The effect of the last event on a lifecycle, if any."""
        self._locate: Callable[[Finding], Finding] | None = None
        """Adds the item of the last event, and its state before it, to a finding; None for an event of the response."""
        self.events = 0
        """The number of events so far."""
        self.responses = 0
        """The number of responses so far; a file may have several."""
        self._kinds_before: list[str] = []
        self._begin(first_sequence_number)

    @property
    def items(self) -> Mapping[int, TrackedItem]:
        """The items of the stream so far, by index."""
        return self._items.items

    @property
    def kinds(self) -> list[str]:
        """The kinds of all items so far, in order; empty for an unknown kind."""
        return [*self._kinds_before, *(item.kind for item in self.items.values())]

    @property
    def ended(self) -> bool:
        """Whether the stream has had its terminal event."""
        return not self._response.legal

    def feed(self, body: Mapping[str, object], line: int | None = None) -> list[Finding]:
        """Validate an event, by its JSON object; the findings name the line where it begins."""
        fast_path = self._fast_path
        if fast_path is not None and {**body, **fast_path.blank} == fast_path.like:
            delta, number = body.get("delta"), body.get("sequence_number")
            if type(delta) is str and type(number) is int and number == self._numbers.expected and fast_path.fits(body):
                fast_path.text.add(delta)
                self._numbers.advance(number)
                self.transition = fast_path.transition
                self.events += 1
                return []
        self._fast_path = None
        return self._judge(body, line)

    def skip(self) -> None:
        """Skip an unreadable event, so that it causes no findings in the next ones."""
        self.events += 1
        self.transition = None
        self._fast_path = None
        self._numbers.skip()
        self._forget()

    def _forget(self) -> None:
        """Forget the text of the current item, which may have lost a delta."""
        if self._current is not None:
            self._current.forget()

    def _begin(self, first_sequence_number: int | None) -> None:
        """Begin a stream: the first one, or another one in the same file."""
        self.responses += 1
        self._kinds_before += [item.kind for item in self.items.values()]
        self._numbers = _Numbering(first_sequence_number)
        self._items = StreamItems(whole=first_sequence_number == 0)
        self._response = _RESPONSE.start if self._items.whole else _RESPONSE.unknown
        self._response_ids: set[Digest] = set()
        self._error = self._errored_last = False
        self._current: TrackedItem | None = None

    def end(self) -> list[Finding]:
        """Report what is missing at the end of the stream."""
        if self.ended:
            return []
        if self._errored_last:
            finding = Finding("R3", "the stream ends with an error event, without a terminal event", "error-is-last")
        else:
            items = [f"item {item.index} ({item.id}, {item.state})" for item in self.items.values() if not item.ended]
            open_items = f", with {', '.join(items)} open" if items else ""
            finding = Finding("R3", f"the stream ends without a terminal event{open_items}", expected=tuple(sorted(TERMINAL)))
        return [evolve(finding, event=self.events, state=self._response.state, expected=self._names_in_dialect(finding))]

    def _judge(self, body: Mapping[str, object], line: int | None) -> list[Finding]:
        openai_body, self.transition, self._locate = body, None, None
        findings: list[Finding] = []
        if self._dialect == OPEN_RESPONSES.name:
            findings += [Finding("R14", foreign)] if (foreign := _departure_from_dialect(body)) else []
            openai_body = from_open_responses(body)
        elif body.get("type") == _ERROR and isinstance(body.get(OPEN_RESPONSES.error_field), Mapping):
            findings.append(Finding("R14", "the fields of the error are nested", "nested-error"))
            openai_body = from_open_responses(body)
        number, name = openai_body.get("sequence_number"), as_text(openai_body.get("type"))
        state = self._response.state
        if self.ended and name == _CREATED and digest(members(openai_body.get("response")).get("id")) not in self._response_ids:
            findings.append(Finding("R3", "another response begins; it is judged separately", "another-stream"))
            self._begin(0)
        if self.ended:
            deviation = "late-rate-limits" if DEVIATIONS["late-rate-limits"].covers(name) else ""
            findings.append(Finding("R3", "comes after the terminal event", deviation))
        else:
            findings += self._check_resumption(name, number)
            event = EVENTS.get(name)
            findings += self._check_number(number) if event or number is not None else ()
            findings += self._take_unknown(openai_body, name) if event is None else self._take(event, openai_body)
            self._errored_last = event is stream.ErrorEvent
        self.events += 1
        located = findings if self._locate is None else [self._locate(finding) for finding in findings]
        return [
            evolve(
                finding,
                event=self.events - 1,
                sequence_number=number if type(number) is int else None,
                state=state if finding.item is None else finding.state,
                received=as_text(body.get("type")),
                expected=self._names_in_dialect(finding),
                line=line,
            )
            for finding in located
        ]

    def _check_resumption(self, name: str, number: object) -> list[Finding]:
        """Detect a resumed stream by the number and the name of its first event."""
        if self.events or self._numbers.expected != 0 or type(number) is not int or number < _MIN_RESUMED or name in _OPENING:
            return []
        self._items.whole, self._response = False, _RESPONSE.unknown
        self._numbers.expected = None
        message = f"begins with number {number}: judged as a resumed stream (--from {number})"
        return [Finding("R1", message, "resumed")]

    def _take_unknown(self, body: Mapping[str, object], name: str) -> list[Finding]:
        """Check an unknown event against the rules for all events."""
        if not name:
            self._forget()
            return [Finding("R14", f"the type of the event is {quote(body.get('type'))}")]
        findings = [Finding("R14", f"the API has no event {quote(name)}", "unknown-event")]
        index = body.get("output_index")
        item = self._items.items.get(index) if type(index) is int else None
        if item is not None and item.ended:
            findings.append(item.locate(Finding("R7", "comes after the item was done")))
        if item is not None:
            item.skip(name)
        return findings

    def _names_in_dialect(self, finding: Finding) -> tuple[str, ...]:
        if self._dialect != OPEN_RESPONSES.name:
            return finding.expected
        return tuple(map(OPEN_RESPONSES.event_name, finding.expected))

    def _check_number(self, number: object) -> list[Finding]:
        """Check the number of an event; a stream that begins with 0 is complete."""
        if not self.events and self._numbers.expected is None and number == 0:
            self._items.whole, self._response = True, _RESPONSE.start
        return self._numbers.take(number)

    def _take(self, event: type[StreamEvent], body: Mapping[str, object]) -> list[Finding]:
        findings, unreadable = check_fields(event, body)
        if issubclass(event, stream.ResponseEvent):
            return findings + self._take_response_event(event, body, readable=not unreadable)
        if event is stream.Keepalive:
            return findings + self._take_keepalive(wire_name(event))
        findings += self._check_open()
        if event is stream.ErrorEvent:
            self._error = True
        elif issubclass(event, stream.PartEvent | stream.SummaryEvent) and is_unknown_part(body):
            self._forget()
        else:
            findings += self._take_item_event(event, body, unreadable)
        return findings

    def _check_open(self) -> list[Finding]:
        """Check that the opening events came first."""
        finding = Finding("R1", "comes before the stream has opened", expected=self._response.legal)
        is_open = "in_progress" in self._response.states
        self._response = _RUNNING if is_open else _RESPONSE.union(self._response, _RUNNING)
        return [] if is_open else [finding]

    def _take_keepalive(self, name: str) -> list[Finding]:
        """Check a keep-alive, which may also come between the events of an edge."""
        if self._response is _RESPONSE.start:
            return [Finding("R4a", "comes before the response is created", expected=(_CREATED,))]
        following = _RESPONSE.step(self._response, name)
        if following is not None:
            self.transition = Transition(_RESPONSE, self._response, name, following)
        return []

    def _take_response_event(self, event: type[StreamEvent], body: Mapping[str, object], *, readable: bool) -> list[Finding]:
        findings: list[Finding] = []
        name = wire_name(event)
        following = _RESPONSE.step(self._response, name)
        if following is None:
            findings.append(
                Finding("R1", "is not allowed here: the opening events come first and once", expected=self._response.legal)
            )
            following = _RESPONSE.union(self._response, _RESPONSE.after(name))
        self.transition = Transition(_RESPONSE, self._response, name, following)
        self._response = following
        if not readable:
            return findings
        response = members(body.get("response"))
        findings += self._check_response_id(response.get("id"))
        if name in TERMINAL:
            items = sorted(self.items.values(), key=lambda item: 0 if self._items.whole else item.index)
            return [*findings, *judge_end(event, response, items, from_start=self._items.whole, has_error=self._error)]
        return [*findings, *judge_opening(event, response)]

    def _check_response_id(self, response_id: object) -> Iterator[Finding]:
        id_digest = digest(response_id)
        if self._response_ids and id_digest not in self._response_ids:
            yield Finding("R7", f"the response's id is now {quote(response_id)}")
        self._response_ids.add(id_digest)

    def _take_item_event(
        self, event: type[StreamEvent], body: Mapping[str, object], unreadable: Sequence[Path]
    ) -> Iterable[Finding]:
        findings: list[Finding] = []
        name = wire_name(event)
        item = self._items.find(event, body)
        begins = item is None
        if item is None:
            item, opening_findings = self._items.begin(event, body)
            findings += opening_findings
            if self._error and event is stream.ItemAdded:
                findings.append(Finding("R4", "an item begins after an error event"))
        if item is None:
            return findings
        self._locate = item.locate
        ended = item.ended
        findings += self._items.check_address(item, event, body)
        before = item.node
        misplaced = item.move(name)
        status = item.status if event is stream.ItemDone else None  # of an item that is done again
        transition = self.transition = Transition(item.automaton, before, name, item.node, item.index, status)
        if misplaced:
            findings.append(misplaced)
        if ended or (misplaced and event is stream.ItemAdded):
            return findings
        findings += self._check_turn(item, name, begins=begins)
        judge, readable = JUDGES.get(event), item.read(body, unreadable)
        if readable is None:
            item.forget()
        elif judge is not None:
            findings += judge(item, event, readable)
        if event is stream.ItemDone:
            self.transition = evolve(transition, status=item.status)
        if not findings and type(body.get("delta")) is str:
            self._fast_path = _fast_path_for(item, event, body)
        return findings

    def _check_turn(self, item: TrackedItem, event: str, *, begins: bool) -> list[Finding]:
        """Check that one item is written at a time; events of tools may come at any time."""
        current = self._current
        if item is current or (item.automaton and event in item.automaton.tool_events):
            return []
        if event != DONE:
            self._current = item
        if current is None or begins or self._permissive:
            return []
        deviation = "late-done" if event == DONE else ""
        return [Finding("R10", f"comes while item {current.index} ({current.id}) is being written", deviation)]


def _fast_path_for(item: TrackedItem, event: type[StreamEvent], body: Mapping[str, object]) -> _FastPath | None:
    """Return a fast path for the deltas after a legal one; None if that one changes the state or has log probabilities."""
    text, name = item.parts.open.text if item.parts.open else item.text, wire_name(event)
    if body.get("logprobs") or item.automaton is None or item.node is not item.automaton.step(item.node, name):
        return None
    blank = {field: None for field in ("delta", "sequence_number", "obfuscation") if field in body}
    indices = tuple(field for field in event.__struct_fields__ if field.endswith("_index"))
    transition = Transition(item.automaton, item.node, name, item.node, item.index)
    return _FastPath(blank, {**body, **blank}, text, indices, transition) if len(blank) > 1 else None


def _departure_from_dialect(body: Mapping[str, object]) -> str:
    """Describe how an event departs from the dialect of Open Responses; empty if it does not."""
    name = as_text(body.get("type"))
    if name in OPEN_RESPONSES.event_names:
        return f"Open Responses calls it {OPEN_RESPONSES.event_name(name)}"
    if name == _ERROR and OPEN_RESPONSES.error_field not in body:
        return "Open Responses nests the fields of an error"
    return ""
