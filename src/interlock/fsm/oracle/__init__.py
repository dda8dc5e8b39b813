"""An independent judge of whole streams, written from the rules of a Responses stream and from nothing else.

It knows the rules (R1 to R18, as far as they can be seen in a sequence of event bodies) and the fields of the API.
It knows nothing of the lifecycles, the driver, the event specs or the SDK, and says everything in another way than
they do: regular expressions over the names of an item's events, and equations between values. So a mistake in a
declared lifecycle cannot hide in it. Framing (R5) is not its business, for it sees bodies and no bytes.

    api_fields   the API's fields
    grammar      the order of events
    dialect      Open Responses in OpenAI's words
    stream_view  the stream cut into items
    field_types  fields and their types
    texts        texts, parts and log probabilities
    rules        one function for each rule
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from interlock.fsm.oracle.dialect import in_openai_words
from interlock.fsm.oracle.rules import ANY_SHAPE, SOUND_SHAPE
from interlock.fsm.oracle.field_types import malformed, strays
from interlock.fsm.oracle.stream_view import Stream, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Violation", "check"]


def check(events: Sequence[Mapping[str, object]], *, dialect: Literal["openai", "open_responses"] = "openai") -> list[Violation]:
    """Judge a whole stream.

    A stream with malformed events (a field that is missing or of a wrong type) is judged by its shape, its
    numbering and its opening and end alone, because the other rules have no meaning for it.

    Args:
        events: The bodies of all the events of one response, first to last, as plain JSON values.
        dialect: In which of the two dialects the stream claims to be.

    Returns:
        What is wrong, in no particular order; empty if the stream is legal.
    """
    violations: list[Violation] = []
    if dialect == "open_responses":
        events, violations = in_openai_words(events)
    violations += malformed(events)
    stream = Stream.of(events)
    for rule in ANY_SHAPE:
        violations += rule(stream)
    if not violations or not any(violation.rule == "R14" for violation in violations):
        for rule in SOUND_SHAPE:
            violations += rule(stream)
    return violations + strays(events)
