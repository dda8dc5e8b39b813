"""The independent validator of full streams, for a stream in the dialect of Open Responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from interlock.events.json import members
from interlock.verify.oracle import Finding, JsonObject, check

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
"""The fields that may be null in OpenAI's dialect but not in Open Responses."""


def check_in(dialect: str, events: Sequence[Mapping[str, object]]) -> list[Finding]:
    """Validate the bodies of all events of one response in a dialect."""
    return check(events) if dialect == "openai" else check_open_responses(events)


def check_open_responses(events: Sequence[Mapping[str, object]]) -> list[Finding]:
    """Validate the bodies of all events of one response in the dialect of Open Responses."""
    findings = [Finding("R14", wrong, event=place) for place, body in enumerate(events) for wrong in _foreign(body)]
    return findings + check([_translate(body) for body in events])


def _translate(body: JsonObject) -> JsonObject:
    """Translate an event into OpenAI's dialect."""
    name = str(body.get("type"))
    if name in _IN_OPENAI:
        return {**body, "type": _IN_OPENAI[name]}
    if name == "error":
        error = members(body.get("error"))
        return {
            "type": "error",
            "sequence_number": body.get("sequence_number"),
            **{field: error.get(field) for field in ("code", "message", "param")},
        }
    return body


def _foreign(body: JsonObject) -> Iterator[str]:
    """Yield an event's findings of Open Responses."""
    name = str(body.get("type"))
    if name in _IN_OPENAI.values():
        yield f"Open Responses has no event {name!r}"
    if name == "error" and "error" not in body:
        yield "the fields of an error are not nested"
    for value in (body, members(body.get("item")), members(body.get("part")), members(body.get("response"))):
        for field in _NEVER_NULL & value.keys():
            if value[field] is None:
                yield f"{field} must not be null in Open Responses"
