"""Whether a stream is legal, for assertions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from interlock.events.dialects import DialectName
from interlock.fsm.acceptor import Acceptor, Finding, judge


def findings(events: Iterable[Mapping[str, object]], *, dialect: DialectName = "openai") -> list[Finding]:
    """Return what is wrong with a stream.

    Args:
        events: The bodies of its events.
        dialect: The dialect of the stream.
    """
    acceptor = Acceptor(dialect=dialect)
    return [*(found for body in events for found in acceptor.feed(body)), *acceptor.end()]


def assert_legal(
    stream: bytes | Iterable[bytes] | Iterable[Mapping[str, object]], *, dialect: DialectName = "openai", strict: bool = True
) -> None:
    """Assert that a stream breaks no rule.

    Args:
        stream: The bodies of its events; or its bytes, whole or in pieces, and then its framing is judged too.
        dialect: The dialect of the stream.
        strict: Whether a deviation, which every client that was tried copes with, breaks a rule too.

    Raises:
        AssertionError: It breaks one. The message has a line for each finding.
    """
    given = [stream] if isinstance(stream, bytes) else list(stream)
    if given and all(isinstance(piece, bytes) for piece in given):
        found = [one.finding for one in judge(cast("list[bytes]", given), dialect=dialect).reported]
    else:
        found = findings(cast("list[Mapping[str, object]]", given), dialect=dialect)
    if not strict:
        found = [one for one in found if one.severity == "error"]
    if found:
        raise AssertionError("\n".join(["the stream is not legal:", *map(_line, found)]))


def _line(found: Finding) -> str:
    about = f" of {found.item}" if found.item else ""
    expected = f"; expected: {', '.join(found.expected)}" if found.expected else ""
    state = f" ({found.state})" if found.state else ""
    return f"  {found.rule} at event {found.event}, {found.came or 'the end'}{about}{state}: {found.message}{expected}"
