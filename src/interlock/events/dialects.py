"""The two dialects of a stream: OpenAI's, which Interlock uses internally, and Open Responses'.

A dialect is data: the event names that differ, the nesting of error events, the nulls that it omits and the fields that it
requires. Both dialects have the same events in the same order.

Source: the Open Responses specification of 2026-04-24 (its OpenAPI document) and the types of the `openai` package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from attrs import field, frozen

from interlock.events.json import is_array, is_object, members
from interlock.events.response_object import DEFAULTS

DialectName = Literal["openai", "open_responses"]
"""The name of a dialect in settings and on the command line."""


@frozen(eq=False)
class Dialect:
    """The wire format of events and responses.

    Args:
        name: The dialect's name.
        event_names: The event names that differ from OpenAI's, keyed by OpenAI's.
        error_field: The field that nests an error event's fields; empty if they are not nested.
        refused_nulls: The fields that are omitted if null, keyed by the kind of their object. The kind of an object is its
            `type`; without one, it is a dot and the name of the field that contains it.
        required: The required fields and their defaults, keyed by kind. A default that is not null also replaces null.
    """

    name: DialectName
    event_names: Mapping[str, str] = field(factory=dict[str, str])
    error_field: str = ""
    refused_nulls: Mapping[str, frozenset[str]] = field(factory=dict[str, frozenset[str]])
    required: Mapping[str, Mapping[str, object]] = field(factory=dict[str, Mapping[str, object]])

    def event_name(self, name: str) -> str:
        """Return the name of an event in this dialect."""
        return self.event_names.get(name, name)

    def convert(self, body: Mapping[str, object]) -> dict[str, object]:
        """Convert an event or a response from OpenAI's dialect; the copy may share objects with `body`."""
        if self is OPENAI:
            return dict(body)
        if body.get("object") == "response":
            return self._object(".response", body)
        event = self._object("", body)
        event["type"] = self.event_name(str(body.get("type")))
        return _nest(event, self.error_field) if event["type"] == "error" and self.error_field else event

    def _object(self, untyped: str, body: Mapping[str, object]) -> dict[str, object]:
        """Convert an object: drop refused nulls and add required fields. `untyped` is its kind if it has no type."""
        kind = str(body.get("type", untyped))
        refused = self.refused_nulls.get(kind, _NOTHING)
        required = self.required.get(kind, {})
        fields = {
            name: self._value(name, value)
            for name, value in body.items()
            if value is not None or (name not in refused and required.get(name) is None)
        }
        return {**required, **fields}

    def _value(self, held_by: str, value: object) -> object:
        """Convert the value of a field if its objects can differ between the dialects."""
        if held_by not in _CONVERTED:
            return value
        if is_object(value):
            return self._object(f".{held_by}", value)
        if is_array(value):
            return [self._object(f".{held_by}", members(entry)) for entry in value]
        return value


_NOTHING: Final[frozenset[str]] = frozenset()
_CONVERTED: Final = frozenset({"response", "output", "item", "part", "content", "text", "reasoning", "tools"})
"""The fields whose objects can differ between the dialects."""

OPENAI: Final = Dialect("openai")
"""The dialect that Interlock uses internally."""

_REQUIRED: Final = (
    *("completed_at", "incomplete_details", "previous_response_id", "instructions", "error", "tools", "tool_choice"),
    *("truncation", "parallel_tool_calls", "text", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs"),
    *("temperature", "reasoning", "usage", "max_output_tokens", "max_tool_calls", "store", "background", "service_tier"),
    *("metadata", "safety_identifier", "prompt_cache_key"),
)
"""The fields of a response that Open Responses requires and that have a default."""

OPEN_RESPONSES: Final = Dialect(
    "open_responses",
    event_names={
        "response.reasoning_text.delta": "response.reasoning.delta",
        "response.reasoning_text.done": "response.reasoning.done",
    },
    error_field="error",
    refused_nulls={
        "message": frozenset({"phase"}),
        "reasoning": frozenset({"content", "encrypted_content"}),
        "output_text": frozenset({"logprobs"}),
        ".text": frozenset({"verbosity"}),
        "response.output_text.delta": frozenset({"logprobs", "obfuscation"}),
        "response.output_text.done": frozenset({"logprobs"}),
        "response.reasoning_text.delta": frozenset({"obfuscation"}),
        "response.reasoning_summary_text.delta": frozenset({"obfuscation"}),
        "response.function_call_arguments.delta": frozenset({"obfuscation"}),
    },
    required={
        ".response": {name: DEFAULTS[name] for name in _REQUIRED} | {"reasoning": None},
        ".text": {"format": {"type": "text"}},
        ".reasoning": {"effort": None, "summary": None},
        "function": {"description": None, "parameters": None, "strict": None},
    },
)
"""The dialect of the Open Responses specification."""

DIALECTS: Final[Mapping[DialectName, Dialect]] = {dialect.name: dialect for dialect in (OPENAI, OPEN_RESPONSES)}
"""Both dialects, by name."""


def _nest(body: dict[str, object], under: str) -> dict[str, object]:
    """Nest the fields of an error event under one field, with its code as the `type`."""
    code = body.get("code")
    error = {"type": code or "server_error", "code": code, "message": body.get("message"), "param": body.get("param")}
    own = {name: value for name, value in body.items() if name not in error or name == "type"}
    return {**own, under: error}


def from_open_responses(body: Mapping[str, object]) -> dict[str, object]:
    """Convert an event from Open Responses' dialect to OpenAI's; omitted nulls stay omitted.

    An event in OpenAI's dialect is returned as an unchanged copy.
    """
    event = dict(body)
    name = body.get("type")
    event["type"] = _FROM_OPEN_RESPONSES.get(name, name) if isinstance(name, str) else name
    error = event.get(OPEN_RESPONSES.error_field)
    if event["type"] == "error" and is_object(error):
        del event[OPEN_RESPONSES.error_field]
        event.update({name: error.get(name) for name in ("code", "message", "param")})
    return event


_FROM_OPEN_RESPONSES: Final = {name: openai_name for openai_name, name in OPEN_RESPONSES.event_names.items()}
