"""The body of a request for a response. A null parameter counts as omitted."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from interlock.events.items import InputItem
from interlock.events.parts import Json
from interlock.events.response_object import (
    AccessPrograms,
    CacheOptions,
    Conversation,
    ImageSettings,
    Prompt,
    ReasoningSettings,
    ServiceTier,
    TextSettings,
)
from interlock.events.tools import AnyTool, ToolChoice


class BackgroundOptions(Struct, kw_only=True):
    """The deadline of a background response."""

    completion_window: Literal["soonest", "2h", "8h"] | None = None
    continuation_id: str | None = None


class ContextManagement(Struct, kw_only=True):
    """When to compact the conversation."""

    type: Literal["compaction"]
    compact_threshold: Annotated[int, Meta(ge=1)] | None = None


ContextManagements: TypeAlias = Annotated[list[ContextManagement], Meta(max_length=16)]


class ModerationMode(Struct, kw_only=True):
    """Whether moderation only scores, or blocks."""

    mode: Literal["score", "block"]


class ModerationPolicy(Struct, kw_only=True):
    """The moderation modes of the input and the output."""

    input: ModerationMode | None = None
    output: ModerationMode | None = None


class ModerationRequest(Struct, kw_only=True):
    """The moderation of a response."""

    model: str
    policy: ModerationPolicy | None = None


class MultiAgent(Struct, kw_only=True):
    """Whether the model may use subagents (beta)."""

    enabled: bool
    max_concurrent_subagents: int | None = None


class StreamOptions(Struct, kw_only=True):
    """Options of the stream."""

    include_obfuscation: bool | None = None


Probability: TypeAlias = Annotated[int, Meta(ge=0, le=1)] | Annotated[float, Meta(ge=0, le=1)]
Penalty: TypeAlias = Annotated[int, Meta(ge=-2, le=2)] | Annotated[float, Meta(ge=-2, le=2)]
Temperature: TypeAlias = Annotated[int, Meta(ge=0, le=2)] | Annotated[float, Meta(ge=0, le=2)]
Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]


Identifier: TypeAlias = Annotated[str, Meta(max_length=4_096)]
"""An id that the client chooses, which may be empty."""


class Parameters(Struct, kw_only=True, frozen=True):
    """The parameters of a request, without its input, tools and tool choice."""

    model: Annotated[str, Meta(min_length=1)]
    access_programs: AccessPrograms | None = None
    background: bool | None = None
    background_options: BackgroundOptions | None = None
    client_metadata: dict[str, Json] | None = None  # Codex sends it
    context_management: ContextManagements | None = None
    conversation: Annotated[str, Meta(min_length=1)] | Conversation | None = None
    frequency_penalty: Penalty | None = None
    image: ImageSettings | None = None
    include: Annotated[list[str], Meta(max_length=1_000)] | None = None
    instructions: Annotated[str, Meta(max_length=4_194_304)] | None = None  # about a million tokens
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=0)] | None = None
    metadata: Metadata | None = None
    moderation: ModerationRequest | None = None
    multi_agent: MultiAgent | None = None
    parallel_tool_calls: bool | None = None
    presence_penalty: Penalty | None = None
    previous_response_id: Annotated[str, Meta(min_length=1)] | None = None
    prompt: Prompt | None = None
    prompt_cache_key: Identifier | None = None
    prompt_cache_options: CacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    reasoning: ReasoningSettings | None = None
    safety_identifier: Identifier | None = None
    service_tier: ServiceTier | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    text: TextSettings | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    top_p: Probability | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: Identifier | None = None


class CreateResponse(Parameters, kw_only=True, frozen=True):
    """The body of `POST /v1/responses`."""

    input: str | list[InputItem] | None = None
    tool_choice: ToolChoice | None = None
    tools: list[AnyTool] | None = None
