"""Validates the bytes of a stream as they arrive, without IO.

`Judge` is for streams of the Responses API: it checks the framing (rule R5 of docs/evidence/rules.md) and the end marker (R3),
and `Acceptor` the events. `DialectJudge` is the base of the judges of other APIs: it reads a whole stream, and follows the
table of the API's transducer.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import ClassVar, Final, TypeAlias, TypeVar, get_args

import orjson
from attrs import define, evolve, field, frozen

from interlock.dialects import ApiName
from interlock.dialects.transducer import AnyTransducer, EventTrigger
from interlock.events.dialects import OPEN_RESPONSES, DialectName
from interlock.events.json import EMPTY, as_text, is_object, parse
from interlock.events.rulebook import RULES, Finding, Rule, Severity
from interlock.events.sse import BOM, CONTENT_TYPE, SseDecoder, SseMessage
from interlock.events.stream import TERMINAL, Created, wire_name
from interlock.fsm.table import Table
from interlock.judges.acceptor import Acceptor
from interlock.judges.automaton import Automaton, NamedEdge, Transition
from interlock.judges.digests import quote
from interlock.judges.whole import compare_whole

E = TypeVar("E", bound=StrEnum)

Body: TypeAlias = Mapping[str, object]
Indexed: TypeAlias = Sequence[tuple[int, Body]]
"""Events, each with its place in the stream; or the choices of chunks, each with the place of its chunk."""

DONE: Final = "[DONE]"
"""The data of the end marker."""
MAX_LISTED: Final = 1000
"""The maximum number of distinct findings of each severity that a verdict lists; its counts include the rest."""

_LINE_ENDS: Final = re.compile(rb"(?:\r?\n)+")
_Key: TypeAlias = tuple[str, str | None, str]
_SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)


@frozen
class Verdict:
    """The result of validating a stream.

    Args:
        events: The number of events.
        items: The kind of each item, in order; an empty string if unknown.
        status: The final status of the last response that ended; of other APIs, the reason for the end. None if none ended.
        has_done_marker: Whether the end marker follows the last response.
        findings: The different findings, each with the number of times that it occurs: sorted by severity (errors first) and
            event, at most `MAX_LISTED` of each severity.
        rules: The number of findings for each rule that has any, including repeats.
        severities: The number of findings of each severity, including repeats.
        responses: The number of responses in the stream.
        end_findings: The findings at the end of the stream that belong to no message.
    """

    events: int
    items: Sequence[str]
    status: str | None
    has_done_marker: bool
    findings: Mapping[Finding, int]
    rules: Mapping[str, int]
    severities: Mapping[Severity, int]
    responses: int = 1
    end_findings: Sequence[Finding] = ()

    @property
    def legal(self) -> bool:
        """Whether there are no errors."""
        return not self.severities["error"]

    @property
    def is_clean(self) -> bool:
        """Whether there are no findings at all."""
        return not self.rules


@frozen
class JudgedMessage:
    """A message of a stream with its findings.

    Args:
        message: The decoded message.
        body: Its JSON object; None for the end marker, illegal messages after it, unreadable data, and a message that the stream
            ends inside.
        findings: Its findings.
        transition: Its effect on a machine; None if it has none.
    """

    message: SseMessage
    body: Mapping[str, object] | None
    findings: Sequence[Finding]
    transition: Transition | None


@define
class Tally:
    """The findings so far."""

    rules: dict[str, int] = field(factory=dict[str, int], init=False)
    severities: dict[Severity, int] = field(factory=lambda: dict.fromkeys(_SEVERITIES, 0), init=False)
    latest: list[Finding] = field(factory=list[Finding], init=False)
    """The findings of the current message."""
    _listed: dict[Severity, dict[_Key, Finding]] = field(factory=lambda: {severity: {} for severity in _SEVERITIES}, init=False)
    _times: dict[Finding, int] = field(factory=dict[Finding, int], init=False)

    def add(self, findings: Iterable[Finding]) -> None:
        """Count findings and list the new ones; a deviation is listed only once, for all items."""
        for finding in findings:
            self.latest.append(finding)
            self.rules[finding.rule] = self.rules.get(finding.rule, 0) + 1
            self.severities[finding.severity] += 1
            key = (finding.rule, None, finding.deviation) if finding.deviation else (finding.rule, finding.item, finding.message)
            listed = self._listed[finding.severity]
            if key in listed or len(listed) < MAX_LISTED:
                first = listed.setdefault(key, finding)
                self._times[first] = self._times.get(first, 0) + 1

    @property
    def findings(self) -> Mapping[Finding, int]:
        """The listed findings, sorted by severity (errors first) and event, each with the number of times that it occurs."""
        by_event = (sorted(listed.values(), key=lambda finding: finding.event) for listed in self._listed.values())
        return {finding: self._times[finding] for listed in by_event for finding in listed}


@define
class JsonLines(SseDecoder):
    """Decodes one JSON object per line: makes each line, after `data: `, the data of a server-sent event, and decodes these."""

    def __attrs_post_init__(self) -> None:
        super().feed(b"data: ")

    def feed(self, data: bytes) -> list[SseMessage]:
        """Decode the next bytes, and return a message for each line that they complete, except blank lines."""
        return _lines(super().feed(_LINE_ENDS.sub(_end_event, data)))

    def end(self) -> list[SseMessage]:
        """End the last line, and return its message unless it is blank."""
        return _lines(super().end())


def _end_event(match: re.Match[bytes]) -> bytes:
    """Return the end of a line's event, which is an empty line, and the beginning of the next event.

    Blank lines also become two lines each, so that `_lines` can count those of the file.
    """
    return b"\n\n" * match[0].count(b"\n") + b"data: "


def _lines(messages: Iterable[SseMessage]) -> list[SseMessage]:
    """Drop the messages of blank lines, and number the others by the lines of the file, each of which `_end_event` made two."""
    return [evolve(one, line=(one.line + 1) // 2) for one in messages if one.overlong or one.data.strip()]


@define
class StreamDecoder:
    """Decodes server-sent events, or JSON lines if the stream begins with a brace; a byte order mark may come first."""

    is_framed: bool = field(default=True, init=False)
    """Whether the stream has server-sent events, as far as it is known."""
    _decoder: SseDecoder = field(factory=SseDecoder, init=False)
    _blank: bytes | None = field(default=b"", init=False)
    """The white space and byte order mark of the beginning; None after the first other byte."""

    @property
    def without_data(self) -> int:
        """The number of events without data, which clients ignore."""
        return self._decoder.without_data

    def feed(self, data: bytes) -> list[SseMessage]:
        """Decode the next bytes, and return the messages that they complete."""
        if self._blank is None:
            return self._decoder.feed(data)
        data = self._blank + data
        text = data.removeprefix(BOM)
        if not text.strip() or BOM.startswith(data):
            self._blank = data
            return []
        self._blank = None
        if text.lstrip().startswith(b"{"):
            self._decoder, self.is_framed, data = JsonLines(), False, text
        return self._decoder.feed(data)

    def end(self) -> list[SseMessage]:
        """End the stream, and return its unfinished last message, if any."""
        unread, self._blank = self._blank or b"", None
        return [*self._decoder.feed(unread), *self._decoder.end()]


class Judge:
    """Validates the bytes of a stream as they arrive.

    Args:
        dialect: The dialect of the stream.
        permissive: Whether the model may write two items at once.
        first: The number of the first event of a resumed stream; 0 for a full stream.
        whole: The answer to the same request that is not streamed, which must be the last response of the stream (R19); None
            without one.
    """

    api: ClassVar[ApiName] = "responses"

    def __init__(
        self, *, dialect: DialectName = "openai", permissive: bool = False, first: int = 0, whole: Body | None = None
    ) -> None:
        self._decoder = StreamDecoder()
        self._acceptor = Acceptor(dialect=dialect, permissive=permissive, first_sequence_number=first)
        self._tally = Tally()
        self._dialect = dialect
        self._whole = whole
        self._last_response: Body | None = None
        self._status: str | None = None
        self._has_done_marker = False
        self._over_http = False
        self._framed = True
        self._line: int | None = None

    def content_type(self, value: str) -> None:
        """Check the value of the `Content-Type` header."""
        self._over_http = True
        if value.partition(";")[0].strip().lower() != CONTENT_TYPE:
            self._report("R5", f"the content type is {quote(value)} instead of {CONTENT_TYPE}")

    def feed(self, chunk: bytes) -> None:
        """Validate the next bytes of the stream, which may be split anywhere; raise `TypeError` for anything but bytes."""
        for message in self._decode(chunk):
            self._take(message)

    def follow(self, chunk: bytes) -> Iterator[JudgedMessage]:
        """Validate the next bytes, and yield each message that they complete, with its findings."""
        for message in self._decode(chunk):
            yield self._add_findings(message, self._take(message))

    def follow_end(self) -> Iterator[JudgedMessage]:
        """Validate and yield the last message if its final empty line or line feed is missing."""
        for message in self._decoder.end():
            if not self._framed:
                yield self._add_findings(message, self._take(message))
            elif message.is_event:
                yield self._add_findings(message, self._take_last(message))

    def _add_findings(self, message: SseMessage, body: Mapping[str, object] | None) -> JudgedMessage:
        return JudgedMessage(message, body, tuple(self._tally.latest), None if body is None else self._acceptor.transition)

    def _decode(self, chunk: bytes) -> Iterable[SseMessage]:
        if not isinstance(chunk, (bytes, bytearray)):  # pyright: ignore[reportUnnecessaryIsInstance] - of callers without a type checker
            raise TypeError(f"a stream is judged in chunks of bytes, not {type(chunk).__name__}: {chunk!r:.80}")
        messages = self._decoder.feed(chunk)
        if self._framed and not self._decoder.is_framed:
            self._framed = False
            self._report("R5", "the stream has one JSON object per line instead of server-sent events", deviation="bare-lines")
        return messages

    def end(self) -> Verdict:
        """Validate the end of the stream, and return the verdict."""
        for _ in self.follow_end():
            pass
        self._tally.latest = []
        if self._decoder.without_data:
            self._report("R5", f"events without data: {self._decoder.without_data}")
        self._tally.add(self._acceptor.end())
        if not self._has_done_marker and self._framed:
            deviation = "" if self._dialect == OPEN_RESPONSES.name else "no-done-marker"
            self._report("R3", "the stream has no end marker [DONE]", deviation=deviation)
        if self._whole is not None and (difference := compare_whole(self._last_response, self._whole)):
            self._report("R19", difference)
        return Verdict(
            events=self._acceptor.events,
            items=self._acceptor.kinds,
            status=self._status,
            has_done_marker=self._has_done_marker,
            findings=self._tally.findings,
            rules={rule: self._tally.rules[rule] for rule in RULES if rule in self._tally.rules},
            severities=self._tally.severities,
            responses=self._acceptor.responses,
            end_findings=tuple(self._tally.latest),
        )

    def _take_last(self, message: SseMessage) -> Mapping[str, object] | None:
        """Validate a last message without its empty line, which recorders may drop; over HTTP, clients drop the message."""
        self._line = message.line
        whole = not self._over_http and (message.data == DONE or read_body(message) is not None)
        problem = "the last event has no empty line after it" if whole else _merged(message) or "the stream ends inside an event"
        body = self._take(message) if whole else None
        self._report("R5", problem, message.event, deviation="framing" if whole else "")
        return body

    def _take(self, message: SseMessage) -> Mapping[str, object] | None:
        """Validate a message, and return the body of its event."""
        if self._tally.latest:
            self._tally.latest = []
        self._line = message.line
        for problem, deviation in _check_framing(message) if self._framed else ():
            self._report("R5", problem, message.event, deviation=deviation)
        body = None if message.data == DONE else read_body(message)
        if self._has_done_marker and (body is None or body.get("type") != wire_name(Created)):
            self._report("R3", "comes after the end marker [DONE]", message.event)
            return None
        self._has_done_marker = message.data == DONE
        if self._has_done_marker:
            return None
        if body is None:
            self._report("R5", _unreadable(message), message.event)
            self._acceptor.skip()
            return None
        name = body.get("type")
        if message.event != name and self._framed:
            bare = "event" not in message.fields
            header = "there is no event line" if bare else f"the event is {quote(message.event)}"
            problem = f"{header}, and the body's type is {quote(name)}"
            self._report("R5", problem, message.event, deviation="no-event-line" if bare else "")
        findings = self._acceptor.feed(body, message.line)
        if findings:
            self._tally.add(findings)
        if as_text(name) in TERMINAL:
            response = body.get("response")
            if is_object(response):
                status = response.get("status")
                self._status = status if isinstance(status, str) else quote(status)
                self._last_response = response
        return body

    def _report(self, rule: str, problem: str, received: str = "", *, deviation: str = "") -> None:
        line = self._line if received else None
        self._tally.add([Finding(rule, problem, deviation, self._acceptor.events, received=received, line=line)])


def judge(
    chunks: bytes | Iterable[bytes],
    *,
    dialect: DialectName = "openai",
    permissive: bool = False,
    first: int = 0,
    whole: Body | None = None,
) -> Verdict:
    """Validate a complete stream, full or resumed, in chunks of any size; the settings are those of `Judge`.

    Raises:
        TypeError: A chunk is not of bytes.
    """
    judging = Judge(dialect=dialect, permissive=permissive, first=first, whole=whole)
    for chunk in [chunks] if isinstance(chunks, bytes) else chunks:
        judging.feed(chunk)
    return judging.end()


def read_body(message: SseMessage) -> Mapping[str, object] | None:
    """Return the data as a JSON object, or None."""
    try:
        body: object = orjson.loads(message.data)
    except orjson.JSONDecodeError:
        body = parse(message.data)  # which also reads lone surrogates and huge numbers, which some services write
    return body if is_object(body) else None


def _unreadable(message: SseMessage) -> str:
    if message.overlong:
        return "the event is too long to be judged"
    return _merged(message) or f"the data is not a JSON object: {message.data[:40]!r}"


def _merged(message: SseMessage) -> str:
    """Return the problem of a message that has the lines of several events; empty if it has those of one."""
    lines = message.data.split("\n")
    are_events = all(line == DONE or is_object(parse(line)) for line in lines)
    events = max(message.fields.count("event"), len(lines) if are_events else 1)
    return f"no empty line separates {events} events" if events > 1 else ""


def _check_framing(message: SseMessage) -> Iterator[tuple[str, str]]:
    """Yield the faults in the framing of a message, each with its deviation (empty for an error)."""
    if message.fields == _WELL_FRAMED and not message.had_cr and not message.invalid_utf8:
        return
    if message.fields.count("data") > 1:
        yield "an event has more than one line of data", "framing"
    if message.had_cr:
        yield "a line ends with a carriage return", "framing"
    if "id" in message.fields:
        yield "an event has an id", "framing"
    if message.invalid_utf8:
        yield "an event is not UTF-8", ""


_WELL_FRAMED: Final = ("event", "data")


# The other APIs.


def transducer_automaton(
    table: Table[EventTrigger, E], emitted: Mapping[str, Sequence[str]], deltas: AbstractSet[str]
) -> Automaton:
    """Return the automaton of a transducer; of edges with equal ends and events, which no stream distinguishes, it has the first.

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
    """The names of events that do not depend on the transducer's state."""

    def __init__(self) -> None:
        self._decoder = StreamDecoder()
        self._messages: list[SseMessage] = []
        self._bodies: list[Body] = []
        """The body of each message but end markers; empty if it has none."""
        self._markers: list[tuple[int, SseMessage]] = []
        """The end markers, each with the number of messages before it."""
        self.request: Body = EMPTY
        """The request that the stream answers, for rules that depend on it; empty if it is unknown."""
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
        """Yield the reasons for the end in the stream, `failed` for an error; the last one is its status."""

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
                self._markers.append((len(self._messages), message))
                yield JudgedMessage(message, None, (), None)
                continue
            body = read_body(message)
            self._messages.append(message)
            self._bodies.append(body or {})
            if body is None and (problem := _merged(message)):
                self._add(Finding(self.framing_rule, problem, event=len(self._messages) - 1))
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
            has_done_marker=bool(self._markers),
            findings=tally.findings,
            rules={rule: tally.rules[rule] for rule in self.rules if rule in tally.rules},
            severities=tally.severities,
            end_findings=sorted(self.findings, key=lambda finding: finding.event)[:MAX_LISTED],
        )

    def _add(self, finding: Finding) -> None:
        if not finding.received and finding.event < len(self._messages):
            message, body = self._messages[finding.event], self._bodies[finding.event]
            finding = evolve(finding, received=as_text(body.get("type")) or message.event, line=message.line)
        self.findings.append(finding)
