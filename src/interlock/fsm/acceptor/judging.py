"""Judging somebody's stream: bytes in, a verdict out, in memory that does not grow with the stream.

It judges the framing itself (rule R5 and the end marker of R3), which only bytes can show, and leaves the events to the
acceptor. It knows nothing of files, connections and terminals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast

import orjson
from attrs import define, evolve, field, frozen

from interlock.events.decode import DEFAULT_LIMIT, SseDecoder, SseMessage
from interlock.events.dialects import OPEN_RESPONSES, DialectName
from interlock.events.json import loads
from interlock.events.sse import CONTENT_TYPE
from interlock.events.stream import TERMINAL, Created, wire_name
from interlock.fsm.acceptor.acceptor import Acceptor
from interlock.fsm.acceptor.finding import Finding, Severity
from interlock.fsm.acceptor.deviations import HABITS
from interlock.fsm.acceptor.hindsight import Step
from interlock.fsm.acceptor.json_digest import a_text, shown

DONE: Final = "[DONE]"
"""The data of the end marker."""
LISTED: Final = 1000
"""How many different findings are listed; all are counted."""

_Key: TypeAlias = tuple[str, str | None, str]
_ORDER: Final[Mapping[Severity, int]] = {"error": 0, "deviation": 1, "not_judged": 2}


@frozen
class Reported:
    """A finding, and how often the same was found.

    Args:
        finding: The first of them.
        times: How many there are that say the same of the same item.
    """

    finding: Finding
    times: int = 1


@frozen
class Verdict:
    """The judgement of a stream.

    Args:
        events: How many events it has.
        items: The kinds of its items, in order; an empty text where a kind is not known.
        status: The status that its response ended with; None if it did not end.
        marked: Whether the end marker came.
        reported: What is wrong with it: errors before deviations, and those by event, as far as they are listed.
        rules: How often each rule is broken.
        severities: How many different findings of each severity there are.
        responses: How many streams the file holds.
        late: What is wrong that only its end shows.
    """

    events: int
    items: Sequence[str]
    status: str | None
    marked: bool
    reported: Sequence[Reported]
    rules: Mapping[str, int]
    severities: Mapping[Severity, int]
    responses: int = 1
    late: Sequence[Finding] = ()

    @property
    def legal(self) -> bool:
        """Whether there is no error: the published contract and the clients known hold."""
        return not self.severities["error"]

    @property
    def strict(self) -> bool:
        """Whether nothing is wrong at all."""
        return not self.rules

    @property
    def readable(self) -> bool:
        """Whether there was anything to judge."""
        return bool(self.events) or self.marked


@frozen
class Judged:
    """One message of a stream, and what the judge made of it.

    Args:
        message: As it was decoded.
        body: The JSON object that it carries; None for the end marker and for what cannot be read.
        findings: What is wrong with it.
        step: What it did to a lifecycle; None if it is about none.
    """

    message: SseMessage
    body: Mapping[str, object] | None
    findings: Sequence[Finding]
    step: Step | None


@define
class _Tally:
    """The findings so far."""

    reported: dict[_Key, Reported] = field(factory=dict["_Key", Reported], init=False)
    rules: dict[str, int] = field(factory=dict[str, int], init=False)
    severities: dict[Severity, int] = field(factory=lambda: dict.fromkeys(_ORDER, 0), init=False)
    latest: list[Finding] = field(factory=list[Finding], init=False)
    """Those of the message at hand."""

    def add(self, findings: Iterable[Finding]) -> None:
        """Count findings, and list those that are new; a habit of the service is listed once."""
        for finding in findings:
            self.latest.append(finding)
            self.rules[finding.rule] = self.rules.get(finding.rule, 0) + 1
            key = (finding.rule, None, finding.habit) if finding.habit else (finding.rule, finding.item, finding.message)
            report = self.reported.get(key)
            if report is not None:
                self.reported[key] = evolve(report, times=report.times + 1)
                continue
            self.severities[finding.severity] += 1
            if self.severities[finding.severity] <= LISTED:
                self.reported[key] = Reported(finding)

    @property
    def sorted(self) -> list[Reported]:
        """What is listed, errors first, each by event."""
        return sorted(self.reported.values(), key=lambda one: (_ORDER[one.finding.severity], one.finding.event))


@define
class JsonLines:
    """Turns the bytes of such a file into messages, in memory that does not grow with it.

    Args:
        limit: How many bytes a line may have; one that is longer is cut.
    """

    limit: int = DEFAULT_LIMIT
    _pieces: list[bytes] = field(factory=list[bytes], init=False)
    """The pieces of the line that has not ended, as far as they fit."""
    _size: int = field(default=0, init=False)
    """How long the line is."""
    _line: int = field(default=0, init=False)

    def feed(self, data: bytes) -> list[SseMessage]:
        """Decode some bytes.

        Args:
            data: The next bytes of the file, split anywhere.

        Returns:
            A message for each line that they complete and that is not blank.
        """
        first, *rest = data.split(b"\n")
        self._keep(first)
        messages: list[SseMessage] = []
        for piece in rest:
            messages += self.end()
            self._keep(piece)
        return messages

    def end(self) -> list[SseMessage]:
        """End the line, and return its message if it is not blank."""
        data, overlong = b"".join(self._pieces).strip(), self._size > self.limit
        self._pieces, self._size, self._line = [], 0, self._line + 1
        if not data:
            return []
        text = data.decode(errors="replace")
        return [SseMessage("message", text, fields=("data",), overlong=overlong, line=self._line)]

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if piece and self._size <= self.limit:
            self._pieces.append(piece)


class Judge:
    """Judges the bytes of one stream as they come.

    Args:
        dialect: In which dialect the stream claims to be.
        permissive: Whether the events of two items that are being written may alternate.
        first: The number of the first event of a stream that was resumed; 0 for a whole stream.
    """

    def __init__(self, *, dialect: DialectName = "openai", permissive: bool = False, first: int = 0) -> None:
        self._decoder = SseDecoder()
        self._acceptor = Acceptor(dialect=dialect, permissive=permissive, first_sequence_number=first)
        self._tally = _Tally()
        self._dialect = dialect
        self._status: str | None = None
        self._marked = False
        self._over_http = False
        self._has_content = False
        self._lines: JsonLines | None = None
        self._line: int | None = None

    def content_type(self, value: str) -> None:
        """Judge the media type of a server's answer.

        Args:
            value: The value of the header `Content-Type`.
        """
        self._over_http = True
        if value.partition(";")[0].strip().lower() != CONTENT_TYPE:
            self._fault("R5", f"the content type is {shown(value)} instead of {CONTENT_TYPE}")

    def feed(self, piece: bytes) -> None:
        """Judge some bytes.

        Args:
            piece: The next bytes of the stream, split anywhere.
        """
        for message in self._decoded(piece):
            self._take(message)

    def follow(self, piece: bytes) -> Iterator[Judged]:
        """Judge some bytes, and yield each message that they complete with its judgement.

        Args:
            piece: The next bytes of the stream, split anywhere.
        """
        for message in self._decoded(piece):
            yield self._judged(message, self._take(message))

    def follow_end(self) -> Iterator[Judged]:
        """Judge what the end of the bytes completes: a last message without its empty line, or without its line feed."""
        for message in self._decoder.end() if self._lines is None else ():
            if message.data_lines or message.event != "message":
                yield self._judged(message, self._take_last(message))
        for message in self._lines.end() if self._lines is not None else ():
            yield self._judged(message, self._take(message))

    def _judged(self, message: SseMessage, body: Mapping[str, object] | None) -> Judged:
        return Judged(message, body, tuple(self._tally.latest), None if body is None else self._acceptor.step)

    def _decoded(self, piece: bytes) -> Iterable[SseMessage]:
        """Decode some bytes: as server-sent events, or, if the first of them begins an object, line by line."""
        if self._lines is None and not self._has_content and piece.strip():
            self._has_content = True
            if piece.lstrip().startswith(b"{"):
                self._lines = JsonLines()
                self._fault("R5", "each line is an object of its own: there are no server-sent events", habit="bare-lines")
        return self._decoder.feed(piece) if self._lines is None else self._lines.feed(piece)

    def end(self) -> Verdict:
        """Judge the end of the stream."""
        for _ in self.follow_end():
            pass
        self._tally.latest = []
        if self._decoder.without_data:
            self._fault("R5", f"{self._decoder.without_data} blocks name an event and have no data")
        self._tally.add(self._acceptor.end())
        if not self._marked and self._lines is None:
            habit = "" if self._dialect == OPEN_RESPONSES.name else "no-done-marker"
            self._fault("R3", "the stream has no end marker [DONE]", habit=habit)
        return Verdict(
            events=self._acceptor.events,
            items=self._acceptor.kinds,
            status=self._status,
            marked=self._marked,
            reported=self._tally.sorted,
            rules=dict(sorted(self._tally.rules.items(), key=lambda rule: int(rule[0][1:]))),
            severities=self._tally.severities,
            responses=self._acceptor.responses,
            late=tuple(self._tally.latest),
        )

    def _take_last(self, message: SseMessage) -> Mapping[str, object] | None:
        """Judge a message that has no empty line after it: clients throw it away, recorders cut the line off."""
        whole = not self._over_http and (message.data == DONE or _body(message) is not None)
        wrong = "the last event has no empty line after it" if whole else "the stream ends inside an event"
        body = self._take(message) if whole else None
        self._fault("R5", wrong, message.event, habit="framing" if whole else "")
        return body

    def _take(self, message: SseMessage) -> Mapping[str, object] | None:
        """Judge a message, and return the body of its event if it has one."""
        if self._tally.latest:
            self._tally.latest = []
        self._line = message.line
        for wrong, habit in _misframed(message) if self._lines is None else ():
            self._fault("R5", wrong, message.event, habit=habit)
        body = None if message.data == DONE else _body(message)
        if self._marked and (body is None or body.get("type") != wire_name(Created)):
            self._fault("R3", "comes after the end marker [DONE]", message.event)
            return None
        self._marked = message.data == DONE
        if self._marked:
            return None
        if body is None:
            self._fault("R5", _unreadable(message), message.event)
            self._acceptor.skip()
            return None
        name = body.get("type")
        if message.event != name and self._lines is None:
            bare = "event" not in message.fields
            said = "there is no event line" if bare else f"the event is {shown(message.event)}"
            wrong = f"{said}, and the body's type is {shown(name)}"
            self._fault("R5", wrong, message.event, habit="no-event-line" if bare else "")
        findings = self._acceptor.feed(body, message.line)
        if findings:
            self._tally.add(findings)
        if a_text(name) in TERMINAL:
            response = body.get("response")
            if isinstance(response, dict):
                status = cast("dict[str, object]", response).get("status")
                self._status = status if isinstance(status, str) else shown(status)
        return body

    def _fault(self, rule: str, wrong: str, came: str = "", *, habit: str = "") -> None:
        severity = HABITS[habit].severity if habit else "error"
        number, line = self._acceptor.events, self._line if came else None
        self._tally.add([Finding(rule, severity, number, None, None, None, "", came, (), wrong, habit, line)])


def judge(pieces: Iterable[bytes], *, dialect: DialectName = "openai", permissive: bool = False, first: int = 0) -> Verdict:
    """Judge a whole stream.

    Args:
        pieces: Its bytes, split anywhere.
        dialect: In which dialect it claims to be.
        permissive: Whether the events of two items that are being written may alternate.
        first: The number of its first event, if it was resumed; 0 for a whole stream.
    """
    judging = Judge(dialect=dialect, permissive=permissive, first=first)
    for piece in pieces:
        judging.feed(piece)
    return judging.end()


def _body(message: SseMessage) -> dict[str, object] | None:
    """Read the data as a JSON object; None if it is none."""
    try:
        body: object = orjson.loads(message.data)
    except orjson.JSONDecodeError:
        # Some writers escape half a character or write huge numbers; they can be read all the same.
        try:
            body = loads(message.data)
        except (ValueError, RecursionError):
            return None
    return cast("dict[str, object]", body) if isinstance(body, dict) else None


def _unreadable(message: SseMessage) -> str:
    if message.overlong:
        return "the event is too long to be judged"
    return f"the data is not a JSON object: {message.data[:40]!r}"


def _misframed(message: SseMessage) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the framing of a message, and the habit that it is."""
    if message.fields == _WELL_FRAMED and not message.had_cr and not message.invalid_utf8:
        return
    if message.data_lines > 1:
        yield "an event has more than one line of data", "framing"
    if message.had_cr:
        yield "a line ends with a carriage return", "framing"
    if message.has_id:
        yield "an event has an id", "framing"
    if message.invalid_utf8:
        yield "an event is not UTF-8", ""


_WELL_FRAMED: Final = ("event", "data")
