"""Assertions on streams, with the rules of `interlock check`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from interlock.events.dialects import DialectName
from interlock.fsm.acceptor import Acceptor, Finding, judge


def findings(events: Iterable[Mapping[str, object]], *, dialect: DialectName = "openai") -> list[Finding]:
    """Return the findings of a stream, given the bodies of its events."""
    acceptor = Acceptor(dialect=dialect)
    return [*(finding for body in events for finding in acceptor.feed(body)), *acceptor.end()]


def assert_legal(
    stream: bytes | Iterable[bytes] | Iterable[Mapping[str, object]], *, dialect: DialectName = "openai", strict: bool = False
) -> None:
    """Assert that a stream has no error by the rules of `interlock check`.

    Args:
        stream: The bodies of its events; or its bytes, whole or in chunks, to check the framing of the events too.
        dialect: The dialect of the stream.
        strict: Also fail on deviations, which every tested client accepts, and on what is not judged: unknown events and items.

    Raises:
        AssertionError: The stream is not legal; the message lists what is wrong.
    """
    chunks = [stream] if isinstance(stream, bytes) else list(stream)
    if chunks and all(isinstance(chunk, bytes) for chunk in chunks):
        results = [reported.finding for reported in judge(cast("list[bytes]", chunks), dialect=dialect).reported]
    else:
        results = findings(cast("list[Mapping[str, object]]", chunks), dialect=dialect)
    failures = [finding for finding in results if strict or finding.severity == "error"]
    if failures:
        raise AssertionError("\n".join(["the stream is not legal:", *map(_line, failures)]))


def _line(finding: Finding) -> str:
    item = f" of {finding.item}" if finding.item else ""
    state = f" ({finding.state})" if finding.state else ""
    expected = f"; expected: {', '.join(finding.expected)}" if finding.expected else ""
    return f"  {finding.rule} at event {finding.event}, {finding.received or 'the end'}{item}{state}: {finding.message}{expected}"
