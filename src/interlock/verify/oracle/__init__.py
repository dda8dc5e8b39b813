"""An independent validator of full streams, written from the rules alone.

It does not import the lifecycles, the driver, the other judges or the SDK. It states the rules of docs/evidence/rules.md as
regular expressions over the names of an item's events and as equations between values, so that it does not repeat an error of the
lifecycles. The types of fields (R14) are those of the events, which a test compares with the SDK's. It checks R1 to R15 and R18,
except framing (R5), because it reads event bodies instead of bytes.

    orders       the order of the events of each kind of item
    grammar      the orders as regular expressions
    stream_view  the stream, split into items
    rules        the rules
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.events.rulebook import Finding
from interlock.verify.oracle.rules import ANY_SHAPE, SOUND_SHAPE, r14_fields
from interlock.verify.oracle.stream_view import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Finding", "check"]


def check(events: Sequence[Mapping[str, object]], *, valid: int = 0) -> list[Finding]:
    """Validate the bodies of all events of one response, in OpenAI's dialect.

    If a field is missing or has a wrong type, only the fields, the numbering, the opening and the ending are checked, because the
    other rules assume valid types. The first `valid` events are known to have valid fields.
    """
    malformed, unknown = r14_fields(events, valid)
    stream = Stream.of(events)
    rules = ANY_SHAPE if malformed else (*ANY_SHAPE, *SOUND_SHAPE)
    return [*malformed, *(finding for rule in rules for finding in rule(stream)), *unknown]
