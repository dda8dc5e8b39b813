"""Judging somebody's stream: bytes in, a verdict out, in memory that does not grow with the stream.

It judges the framing itself (rule R5 and the end marker of R3), which only bytes can show, and leaves the events to the
acceptor. It knows nothing of files, connections and terminals.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast

import orjson
from attrs import define, evolve, field, frozen

from interlock.events.decode import SseDecoder, SseMessage
from interlock.events.dialects import DialectName
from interlock.events.spec import TERMINAL
from interlock.events.sse import CONTENT_TYPE
from interlock.fsm.acceptor.acceptor import Acceptor
from interlock.fsm.acceptor.finding import Finding
from interlock.fsm.acceptor.trace import Step

DONE: Final = "[DONE]"
"""The data of the end marker."""
LISTED: Final = 1000
"""How many different findings are listed; all are counted."""

_Key: TypeAlias = tuple[str, str | None, str]


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
    """What is to be said about a stream.

    Args:
        events: How many events it has.
        items: The kinds of its items, in order; an empty text where a kind is not known.
        status: The status that its response ended with; None if it did not end.
        marked: Whether the end marker came.
        reported: What is wrong with it, by event, as far as it is listed.
        rules: How often each rule is broken.
    """

    events: int
    items: Sequence[str]
    status: str | None
    marked: bool
    reported: Sequence[Reported]
    rules: Mapping[str, int]

    @property
    def legal(self) -> bool:
        """Whether nothing is wrong."""
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
    latest: list[Finding] = field(factory=list[Finding], init=False)
    """Those of the message at hand."""

    def add(self, findings: Iterable[Finding]) -> None:
        """Count findings, and list those that are new."""
        for found in findings:
            self.latest.append(found)
            self.rules[found.rule] = self.rules.get(found.rule, 0) + 1
            key = (found.rule, found.item, found.message)
            known = self.reported.get(key)
            if known is not None:
                self.reported[key] = evolve(known, times=known.times + 1)
            elif len(self.reported) < LISTED:
                self.reported[key] = Reported(found)


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
        self._status: str | None = None
        self._marked = False

    def content_type(self, said: str) -> None:
        """Take the media type that a server gave.

        Args:
            said: The value of the header `Content-Type`.
        """
        if said.partition(";")[0].strip().lower() != CONTENT_TYPE:
            self._fault("R5", f"the content type is {said!r} instead of {CONTENT_TYPE}")

    def feed(self, piece: bytes) -> None:
        """Take some bytes.

        Args:
            piece: The next bytes of the stream, split anywhere.
        """
        for message in self._decoder.feed(piece):
            self._take(message)

    def follow(self, piece: bytes) -> Iterator[Judged]:
        """Take some bytes, and tell of each message that they complete.

        Args:
            piece: The next bytes of the stream, split anywhere.
        """
        for message in self._decoder.feed(piece):
            body = self._take(message)
            yield Judged(message, body, tuple(self._tally.latest), None if body is None else self._acceptor.step)

    def end(self) -> Verdict:
        """Take the end of the stream."""
        for message in self._decoder.end():
            if message.data_lines or message.event != "message":
                self._fault("R5", "the stream ends inside an event")
        if self._decoder.without_data:
            self._fault("R5", f"{self._decoder.without_data} blocks name an event and have no data")
        self._tally.add(self._acceptor.end())
        if not self._marked:
            self._fault("R3", "the stream has no end marker [DONE]")
        return Verdict(
            events=self._acceptor.events,
            items=[item.kind for item in self._acceptor.items.values()],
            status=self._status,
            marked=self._marked,
            reported=sorted(self._tally.reported.values(), key=lambda one: one.finding.event),
            rules=dict(sorted(self._tally.rules.items(), key=lambda rule: int(rule[0][1:]))),
        )

    def _take(self, message: SseMessage) -> Mapping[str, object] | None:
        """Judge a message, and return the body of its event if it has one."""
        if self._tally.latest:
            self._tally.latest = []
        for wrong in _misframed(message):
            self._fault("R5", wrong, message.event)
        if self._marked:
            self._fault("R3", "comes after the end marker [DONE]", message.event)
        if message.data == DONE:
            self._marked = True
            return None
        body = _body(message)
        if body is None:
            self._fault("R5", _unreadable(message), message.event)
            self._acceptor.skip()
            return None
        name = body.get("type")
        if message.event != name:
            said = f"the event is {message.event!r}" if "event" in message.fields else "there is no event line"
            self._fault("R5", f"{said}, and the body's type is {name!r}", message.event)
        findings = self._acceptor.feed(body)
        if findings:
            self._tally.add(findings)
        if name in TERMINAL and self._status is None:
            response = body.get("response")
            if isinstance(response, dict):
                self._status = str(cast("dict[str, object]", response).get("status"))
        return body

    def _fault(self, rule: str, wrong: str, came: str = "") -> None:
        number = self._acceptor.events
        self._tally.add([Finding(rule, number, None, None, None, "", came, (), wrong)])


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
        # Some writers escape half a character or write numbers that JSON has not; they can be read all the same.
        try:
            body = json.loads(message.data)
        except (ValueError, RecursionError):
            return None
    return cast("dict[str, object]", body) if isinstance(body, dict) else None


def _unreadable(message: SseMessage) -> str:
    if message.overlong:
        return "the event is too long to be judged"
    return f"the data is not a JSON object: {message.data[:40]!r}"


def _misframed(message: SseMessage) -> Iterator[str]:
    if message.fields == _WELL_FRAMED and not message.had_cr and not message.invalid_utf8:
        return
    if message.data_lines > 1:
        yield "an event has more than one line of data"
    if message.had_cr:
        yield "a line ends with a carriage return"
    if message.has_id:
        yield "an event has an id"
    if message.invalid_utf8:
        yield "an event is not UTF-8"


_WELL_FRAMED: Final = ("event", "data")
