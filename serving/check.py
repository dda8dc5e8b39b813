"""Checking somebody's stream: bytes in, findings out.

It judges the framing itself (rule R5 and the end marker of R3), which only bytes can show, and leaves the events to the
independent oracle. It knows nothing of files and terminals.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from attrs import frozen

from interlock.events.decode import SseDecoder, SseMessage
from interlock.events.dialects import DialectName
from interlock.fsm import oracle

_DONE = "[DONE]"
_NO_BODY: Mapping[str, object] = {}


@frozen(order=True)
class Finding:
    """A rule that a stream breaks.

    Args:
        event: The event, counted from 0, at which it shows; the number of events if something is missing at the end.
        rule: The rule's number, `R1` to `R19`.
        message: What is wrong.
    """

    event: int
    rule: str
    message: str


@frozen
class Verdict:
    """What is to be said about a stream.

    Args:
        names: The wire names of its events, in order; empty for an event that has none.
        findings: What is wrong with it, by event; empty if it is legal.
    """

    names: Sequence[str]
    findings: Sequence[Finding]


def judge(pieces: Iterable[bytes], dialect: DialectName = "openai") -> Verdict:
    """Judge a whole stream.

    Args:
        pieces: Its bytes, split anywhere.
        dialect: In which of the two dialects it claims to be.
    """
    messages = [*_messages(pieces)]
    events = [message for message in messages if message.data_lines and message.data != _DONE]
    bodies = [_body(message) for message in events]
    findings = {Finding(found.index, found.rule, found.message) for found in oracle.check(bodies, dialect=dialect)}
    findings.update(_ending(messages, len(events)))
    for number, (message, body) in enumerate(zip(events, bodies, strict=True)):
        findings.update(Finding(number, *fault) for fault in _faults(message, body))
    return Verdict([str(body.get("type", "")) for body in bodies], sorted(findings))


def _messages(pieces: Iterable[bytes]) -> Iterator[SseMessage]:
    decoder = SseDecoder()
    for piece in pieces:
        yield from decoder.feed(piece)
    yield from decoder.end()


def _body(message: SseMessage) -> Mapping[str, object]:
    try:
        body: object = json.loads(message.data)
    except (ValueError, RecursionError):
        return _NO_BODY
    return cast("Mapping[str, object]", body) if isinstance(body, dict) else _NO_BODY


def _ending(messages: Sequence[SseMessage], events: int) -> Iterator[Finding]:
    marks = [place for place, message in enumerate(messages) if message.data == _DONE]
    if not marks:
        yield Finding(events, "R3", "the stream has no end marker [DONE]")
    elif marks != [len(messages) - 1]:
        yield Finding(marks[0], "R3", "the end marker [DONE] is not the end")
    if messages and not messages[-1].complete:
        yield Finding(events, "R5", "the stream ends inside an event")


def _faults(message: SseMessage, body: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    if body is _NO_BODY:
        yield "R5", "the data is not a JSON object"
    elif message.event != body.get("type"):
        yield "R5", f"the event is {message.event!r}, and the body's type {body.get('type')!r}"
    if message.data_lines > 1:
        yield "R5", f"{message.data_lines} lines of data"
    if message.had_cr:
        yield "R5", "a line ends with a carriage return"
    if message.has_id:
        yield "R5", "it has an id"
    if message.invalid_utf8:
        yield "R5", "it is not UTF-8"
