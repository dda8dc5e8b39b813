"""An independent validator of full streams, written from the rules alone.

It does not import the lifecycles, the driver, the event types or the SDK. It states the rules of docs/rules.md as regular
expressions over the names of an item's events and as equations between values, so that it does not repeat an error of the
lifecycles. It checks R1 to R15 and R18, except framing (R5), because it reads event bodies instead of bytes.

    api          the fields and the order of the events of each kind of item
    grammar      the order as regular expressions
    stream_view  the stream, split into items
    rules        the rules
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.verify.oracle.rules import ANY_SHAPE, SOUND_SHAPE, r14_malformed, r14_strays
from interlock.verify.oracle.stream_view import Stream, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Violation", "check"]


def check(events: Sequence[Mapping[str, object]]) -> list[Violation]:
    """Validate the bodies of all events of one response, in OpenAI's dialect.

    If a field is missing or has a wrong type, only the fields, the numbering, the opening and the ending are checked, because the
    other rules assume valid types.
    """
    violations = r14_malformed(events)
    stream = Stream.of(events)
    for rule in ANY_SHAPE:
        violations += rule(stream)
    if not any(violation.rule == "R14" for violation in violations):
        for rule in SOUND_SHAPE:
            violations += rule(stream)
    return violations + r14_strays(events)
