"""The two dialects of a stream: OpenAI's, which the rest of this package speaks, and Open Responses'.

A dialect is data: other names for some events, where the fields of an error event stand, which nulls it refuses and what a
response object must have. Order and content are the same in both, so nothing here knows what an event means.

Source: the Open Responses specification of 2026-04-24 (its OpenAPI document) and the types of the `openai` package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, cast

from attrs import field, frozen

DialectName = Literal["openai", "open_responses"]
"""What a dialect is called in settings and on the command line."""


@frozen(eq=False)
class Dialect:
    """One way of writing events.

    Args:
        name: What it is called.
        event_names: The events that it names otherwise, from OpenAI's name to its own.
        error_field: The field under which an error event keeps its fields; empty if they stand in the event itself.
        refused_nulls: The fields that it leaves out instead of sending null, by the kind of the object that has them.
            The kind of an object is its `type`, or, if it has none, a dot and the name of the field that holds it.
        required: The fields that an object must have, by its kind, with what stands in for one that is missing, or is
            null where null is refused.
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
        """Return an event, or a response, in this dialect.

        Args:
            body: What OpenAI's dialect says; it is not changed, but parts of it may be shared by what is returned.
        """
        if self is OPENAI:
            return dict(body)
        if body.get("object") == "response":
            return self._object(".response", body)
        said = self._object("", body)
        said["type"] = self.event_name(str(body.get("type")))
        return _nested(said, self.error_field) if said["type"] == "error" and self.error_field else said

    def _object(self, untyped: str, body: Mapping[str, object]) -> dict[str, object]:
        """Return an object: leave out the nulls that are refused, supply what is required.

        Args:
            untyped: Its kind if it has no type.
            body: The object.
        """
        kind = str(body.get("type", untyped))
        refused = self.refused_nulls.get(kind, _NOTHING)
        required = self.required.get(kind, {})
        said = {
            name: self._value(name, value)
            for name, value in body.items()
            if value is not None or (name not in refused and required.get(name) is None)
        }
        return {**required, **said}

    def _value(self, held_by: str, value: object) -> object:
        """Return a value; only what can hold an item, a part or a response is looked into."""
        if held_by not in _LOOKED_INTO:
            return value
        if isinstance(value, Mapping):
            return self._object(f".{held_by}", cast("Mapping[str, object]", value))
        if isinstance(value, Sequence) and not isinstance(value, str):
            entries = cast("Sequence[Mapping[str, object]]", value)
            return [self._object(f".{held_by}", entry) for entry in entries]
        return value


_NOTHING: Final[frozenset[str]] = frozenset()
_LOOKED_INTO: Final = frozenset({"response", "output", "item", "part", "content", "text", "reasoning", "tools"})
"""The fields that hold objects in which the dialects can differ."""

OPENAI: Final = Dialect("openai")
"""The dialect that everything is first said in."""

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
        ".response": {
            "completed_at": None,
            "incomplete_details": None,
            "previous_response_id": None,
            "instructions": None,
            "error": None,
            "tools": [],
            "tool_choice": "auto",
            "truncation": "disabled",
            "parallel_tool_calls": True,
            "text": {"format": {"type": "text"}},
            "top_p": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "top_logprobs": 0,
            "temperature": 1.0,
            "reasoning": None,
            "usage": None,
            "max_output_tokens": None,
            "max_tool_calls": None,
            "store": True,
            "background": False,
            "service_tier": "default",
            "metadata": {},
            "safety_identifier": None,
            "prompt_cache_key": None,
        },
        ".text": {"format": {"type": "text"}},
        ".reasoning": {"effort": None, "summary": None},
        "function": {"description": None, "parameters": None, "strict": None},
    },
)
"""The dialect of the Open Responses specification."""

DIALECTS: Final[Mapping[DialectName, Dialect]] = {dialect.name: dialect for dialect in (OPENAI, OPEN_RESPONSES)}
"""Both dialects by their names."""


def _nested(body: dict[str, object], under: str) -> dict[str, object]:
    """Nest the fields of an error event under one of its fields; the error's own type is its code."""
    code = body.get("code")
    error = {"type": code or "server_error", "code": code, "message": body.get("message"), "param": body.get("param")}
    own = {name: value for name, value in body.items() if name not in error or name == "type"}
    return {**own, under: error}


def to_open_responses(body: Mapping[str, object]) -> dict[str, object]:
    """Return an event, or a response, of OpenAI's dialect in Open Responses'."""
    return OPEN_RESPONSES.convert(body)


def from_open_responses(body: Mapping[str, object]) -> dict[str, object]:
    """Return an event of Open Responses in OpenAI's dialect; what was left out as null stays left out.

    Args:
        body: The event; one that is OpenAI's already is given back as it is.
    """
    said = dict(body)
    name = body.get("type")
    said["type"] = _FROM_OPEN_RESPONSES.get(name, name) if isinstance(name, str) else name
    error = said.get(OPEN_RESPONSES.error_field)
    if said["type"] == "error" and isinstance(error, Mapping):
        del said[OPEN_RESPONSES.error_field]
        fields = cast("Mapping[str, object]", error)
        said.update({name: fields.get(name) for name in ("code", "message", "param")})
    return said


_FROM_OPEN_RESPONSES: Final = {theirs: openai for openai, theirs in OPEN_RESPONSES.event_names.items()}
