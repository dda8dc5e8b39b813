"""The response, its usage and errors, and the request that asks for it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, Struct, field

from interlock.events.types.items import InputItem, OutputItem
from interlock.events.types.parts import Maybe, Nullable, Number
from interlock.events.types.tools import AnyFormat, AnyTool, Effort, Size, TextFormat, ToolChoice

ResponseStatus: TypeAlias = Literal["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]
ServiceTier: TypeAlias = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
Summary: TypeAlias = Literal["auto", "concise", "detailed"]

# Usage.


class CacheWriteTokens(Struct, kw_only=True):
    """The tokens that were written to the cache, by how long it keeps them."""

    ttl_12h_tokens: int
    ttl_30m_tokens: int


class InputTokensDetails(Struct, kw_only=True):
    """What of the prompt was cached. openai 2.25 does not know what was written."""

    cached_tokens: int = 0
    cache_write_tokens: Maybe[int] = UNSET
    cache_write_tokens_details: Maybe[CacheWriteTokens] = UNSET


class OutputTokensDetails(Struct, kw_only=True):
    """What of the answer was reasoning."""

    reasoning_tokens: int = 0


class Usage(Struct, kw_only=True):
    """The tokens of a response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


# What went wrong.


class ResponseError(Struct, kw_only=True):
    """Why a response failed. The codes of the API are known; ours are others."""

    code: str
    message: str


class IncompleteDetails(Struct, kw_only=True):
    """Why a response is incomplete."""

    reason: Maybe[Literal["max_output_tokens", "max_messages", "content_filter", "steered"]] = UNSET


# Settings.


class ReasoningSettings(Struct, kw_only=True):
    """How much the model thinks, and how much of that is shown."""

    effort: Nullable[Effort] = None
    summary: Nullable[Summary] = None
    context: Nullable[Literal["auto", "current_turn", "all_turns"]] = UNSET
    generate_summary: Nullable[Summary] = UNSET
    mode: Maybe[str] = UNSET


class TextSettings(Struct, kw_only=True):
    """The form of the answer."""

    format: Maybe[AnyFormat] = field(default_factory=TextFormat)
    verbosity: Nullable[Size] = UNSET


class Conversation(Struct, kw_only=True):
    """The conversation that a response belongs to."""

    id: str


class Response(Struct, kw_only=True):
    """A response: what a request set, what became of it, and its items."""

    id: str
    object: Literal["response"] = "response"
    created_at: Number
    status: Nullable[ResponseStatus] = UNSET
    completed_at: Nullable[Number] = None
    error: Nullable[ResponseError] = None
    incomplete_details: Nullable[IncompleteDetails] = None
    background: Nullable[bool] = False
    conversation: Nullable[Conversation] = UNSET
    frequency_penalty: Maybe[Number] = 0.0
    instructions: Nullable[str | list[InputItem]] = None
    max_output_tokens: Nullable[int] = None
    max_tool_calls: Nullable[int] = None
    metadata: Nullable[dict[str, str]] = field(default_factory=dict[str, str])
    model: str
    parallel_tool_calls: bool = True
    presence_penalty: Maybe[Number] = 0.0
    previous_response_id: Nullable[str] = None
    prompt_cache_key: Nullable[str] = None
    reasoning: Nullable[ReasoningSettings] = field(default_factory=ReasoningSettings)
    safety_identifier: Nullable[str] = None
    service_tier: Nullable[ServiceTier] = "default"
    store: Maybe[bool] = True
    temperature: Nullable[Number] = 1.0
    text: Maybe[TextSettings] = field(default_factory=TextSettings)
    tool_choice: ToolChoice = "auto"
    tools: list[AnyTool] = field(default_factory=list[AnyTool])
    top_logprobs: Nullable[int] = 0
    top_p: Nullable[Number] = 1.0
    truncation: Nullable[Literal["auto", "disabled"]] = "disabled"
    user: Nullable[str] = None
    output: list[OutputItem] = field(default_factory=list[OutputItem])
    usage: Nullable[Usage] = None
