"""Open Responses' way of saying the same, put into OpenAI's words, so that the rules are written once.

It knows the differences between the two dialects: two names, the nesting of an error, the nulls that Open Responses
refuses. It reports an event that is in the wrong dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from interlock.fsm.oracle.stream_view import Json, Violation, an_object

_IN_OPENAI: Final = {
    "response.reasoning.delta": "response.reasoning_text.delta",
    "response.reasoning.done": "response.reasoning_text.done",
}

_NEVER_NULL: Final = frozenset(
    {
        *("phase", "encrypted_content", "content", "logprobs", "obfuscation"),
        *("temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs", "truncation", "tool_choice"),
        *("parallel_tool_calls", "text", "store", "background", "service_tier"),
    }
)
"""Fields of events, items and responses that may be null for OpenAI and may not for Open Responses."""


def in_openai_words(events: Sequence[Json]) -> tuple[list[Json], list[Violation]]:
    """Translate a stream of Open Responses, and report what that dialect does not say."""
    violations = [Violation("R14", place, wrong) for place, body in enumerate(events) for wrong in _foreign(body)]
    return [_translated(body) for body in events], violations


def _translated(body: Json) -> Json:
    """Translate an event into OpenAI's dialect."""
    name = str(body.get("type"))
    if name in _IN_OPENAI:
        return {**body, "type": _IN_OPENAI[name]}
    if name == "error":
        error = an_object(body.get("error"))
        return {
            "type": "error",
            "sequence_number": body.get("sequence_number"),
            **{field: error.get(field) for field in ("code", "message", "param")},
        }
    return body


def _foreign(body: Json) -> Iterator[str]:
    """Yield what in an event is OpenAI's and not Open Responses'."""
    name = str(body.get("type"))
    if name in _IN_OPENAI.values():
        yield f"Open Responses has no event {name!r}"
    if name == "error" and "error" not in body:
        yield "the fields of an error are not nested"
    for value in (body, an_object(body.get("item")), an_object(body.get("part")), an_object(body.get("response"))):
        for field in _NEVER_NULL & value.keys():
            if value[field] is None:
                yield f"Open Responses allows no null in {field}"
