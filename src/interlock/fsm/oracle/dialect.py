"""Translation of Open Responses to OpenAI's dialect.

They differ in two event names, the nesting of an error's fields, and fields that may not be null in Open Responses.
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
"""The fields that may be null in OpenAI's dialect and not in Open Responses."""


def in_openai_words(events: Sequence[Json]) -> tuple[list[Json], list[Violation]]:
    """Translate a stream of Open Responses, and report what this dialect does not allow."""
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
    """Yield what Open Responses does not allow in an event."""
    name = str(body.get("type"))
    if name in _IN_OPENAI.values():
        yield f"Open Responses has no event {name!r}"
    if name == "error" and "error" not in body:
        yield "the fields of an error are not nested"
    for value in (body, an_object(body.get("item")), an_object(body.get("part")), an_object(body.get("response"))):
        for field in _NEVER_NULL & value.keys():
            if value[field] is None:
                yield f"Open Responses allows no null in {field}"
