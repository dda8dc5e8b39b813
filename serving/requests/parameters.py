"""The parameters of `POST /v1/responses`, each with what it may be: the shape of a request as one model.

It knows every parameter by itself; rules that tie two of them together are in `interlock.serving.requests.create`. What the
model does not name passes unread.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, Tag
from pydantic_core import PydanticCustomError

from interlock.serving.requests.items import Input
from interlock.serving.requests.shapes import Identifier, LongText, Name, Object, Shape, Some, Texts, by_type, text_or
from interlock.serving.requests.tools import ToolChoice, Tools
from interlock.serving.requests.values import is_object

__all__ = ["NOT_SERVED", "ConversationOrId", "Metadata", "Parameters", "id_of"]

NOT_SERVED: Final = "unsupported_parameter"
"""The kind of error of a parameter that would change the prompt, and that is not served here."""

LEAST_TOKENS: Final = 16
"""What `max_output_tokens` is at least, in OpenAI's API."""


def _refuse(value: object) -> object:
    if value is not None:
        raise PydanticCustomError(NOT_SERVED, "")
    return value


LONGEST_INSTRUCTIONS: Final = 4_194_304
"""Characters of the instructions, which every event with a response repeats: as many as a context window of a million tokens."""

MOST_PAIRS: Final = 16


def _refuse_many(value: object) -> object:
    """Refuse too many pairs before each of them is checked."""
    if is_object(value) and len(value) > MOST_PAIRS:
        raise PydanticCustomError("too_long", "", {"max_length": MOST_PAIRS})
    return value


NotServed: TypeAlias = Annotated[Any, AfterValidator(_refuse)]
Penalty: TypeAlias = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
Metadata: TypeAlias = Annotated[
    dict[Annotated[str, StringConstraints(max_length=64)], Annotated[str, StringConstraints(max_length=512)]],
    BeforeValidator(_refuse_many),
]
Summary: TypeAlias = Literal["auto", "concise", "detailed"]


class Reasoning(Shape):
    """How much the model thinks, and how much of that is shown."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Summary | None = None
    generate_summary: Summary | None = None


class PlainFormat(Shape):
    """An answer as text, or as any JSON object."""


class SchemaFormat(Shape):
    """An answer by a JSON schema."""

    name: Name
    json_schema: Annotated[Object, Field(alias="schema")]
    description: LongText | None = None
    strict: bool | None = None


FORMATS: Final = {"text": "<plain>", "json_object": "<plain>", "json_schema": "<schema>"}

Format: TypeAlias = Annotated[Annotated[PlainFormat, Tag("<plain>")] | Annotated[SchemaFormat, Tag("<schema>")], by_type(FORMATS)]


class Conversation(Shape):
    """The conversation that a response belongs to, as an object."""

    id: Some


ConversationOrId: TypeAlias = Annotated[
    Annotated[Some, Tag("<text>")] | Annotated[Conversation, Tag("<object>")], text_or("<object>")
]


def id_of(given: str | Conversation | None) -> str | None:
    """Return the id of the conversation that a parameter names, in either form."""
    return given.id if isinstance(given, Conversation) else given


class Text(Shape):
    """The form of the answer."""

    format: Format | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ContextManagement(Shape):
    """When the conversation is compacted."""

    type: Literal["compaction"]
    compact_threshold: Annotated[int, Field(ge=1)] | None = None


class StreamOptions(Shape):
    """How the stream is sent."""

    include_obfuscation: bool | None = None


ContextManagements: TypeAlias = Annotated[list[ContextManagement], Field(fail_fast=True, max_length=16)]


class Parameters(Shape):
    """What each parameter may be; null always means that it is not given."""

    model: Some
    input: Input | None = None
    background: bool | None = None
    client_metadata: Object | None = None
    context_management: ContextManagements | None = None
    conversation: ConversationOrId | None = None
    frequency_penalty: Penalty | None = None
    include: Texts | None = None
    instructions: Annotated[str, StringConstraints(max_length=LONGEST_INSTRUCTIONS)] | None = None
    max_output_tokens: Annotated[int, Field(ge=LEAST_TOKENS)] | None = None
    max_tool_calls: Annotated[int, Field(ge=0)] | None = None
    metadata: Metadata | None = None
    parallel_tool_calls: bool | None = None
    presence_penalty: Penalty | None = None
    previous_response_id: Some | None = None
    prompt: NotServed = None
    prompt_cache_key: Identifier | None = None
    prompt_cache_retention: Identifier | None = None
    reasoning: Reasoning | None = None
    safety_identifier: Identifier | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    text: Text | None = None
    tool_choice: ToolChoice | None = None
    tools: Tools | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: Identifier | None = None
