"""The response: its status, usage, errors and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import UNSET, Struct, field

from interlock.events.items import InputItem, OutputItem
from interlock.events.json import as_json, members
from interlock.events.parts import InputFile, InputImage, InputText, Json, Maybe, Nullable, Number, Outbound
from interlock.events.tools import AnyFormat, AnyTool, Effort, Size, TextFormat, ToolChoice

ResponseStatus: TypeAlias = Literal["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]
ServiceTier: TypeAlias = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
SummaryDetail: TypeAlias = Literal["auto", "concise", "detailed"]

# Usage.


class InputTokensDetails(Struct, kw_only=True):
    """The tokens of the prompt that were read from or written to a cache. openai 2.25 does not have `cache_write_tokens`."""

    cached_tokens: int = 0
    cache_write_tokens: Maybe[int] = UNSET
    cache_write_tokens_details: Maybe[Json] = UNSET


class OutputTokensDetails(Struct, kw_only=True):
    """The tokens of the output that are reasoning."""

    reasoning_tokens: int = 0


class ResponseUsage(Struct, kw_only=True):
    """The tokens of a response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


# Errors.


ERROR_TYPES: Final[Mapping[str, str]] = {
    "rate_limit_exceeded": "rate_limit_exceeded",
    **dict.fromkeys(("invalid_prompt", "context_length_exceeded"), "invalid_request_error"),
}
"""The `type` of an error by its code, as in the HTTP errors of the API; `server_error` for any other."""


class ResponseError(Struct, kw_only=True):
    """Why a response failed. The `openai` package has a closed list of codes; other services have others."""

    code: str
    message: str
    type: Nullable[str] = UNSET
    param: Nullable[str] = UNSET
    misalignment: Nullable[Json] = UNSET

    @classmethod
    def of(cls, code: str, message: str) -> ResponseError:
        """Return an error with the type of its code, which some clients require."""
        return cls(code=code, message=message, type=ERROR_TYPES.get(code, "server_error"))


class IncompleteDetails(Struct, kw_only=True):
    """Why a response is incomplete."""

    reason: Maybe[Literal["max_output_tokens", "max_messages", "content_filter", "steered"]] = UNSET


# Settings.


class ReasoningSettings(Struct, kw_only=True):
    """The reasoning effort, and how much of the reasoning is shown."""

    effort: Nullable[Effort] = None
    summary: Nullable[SummaryDetail] = None
    context: Nullable[Literal["auto", "current_turn", "all_turns"]] = UNSET
    generate_summary: Nullable[SummaryDetail] = UNSET
    mode: Maybe[str] = UNSET


class TextSettings(Struct, kw_only=True):
    """The format of the answer."""

    format: Maybe[AnyFormat] = field(default_factory=TextFormat)
    verbosity: Nullable[Size] = UNSET


class Conversation(Struct, kw_only=True):
    """The conversation that a response belongs to."""

    id: str


class Prompt(Struct, kw_only=True):
    """A stored prompt, and the values of its variables."""

    id: str
    variables: Nullable[dict[str, str | InputText | InputImage | InputFile]] = UNSET
    version: Nullable[str] = UNSET


class AccessPrograms(Struct, kw_only=True):
    """The access programs of a customer."""

    cyber: Outbound[Literal["standard", "daybreak_blue", "daybreak_red"]] = UNSET


class ImageSettings(Struct, kw_only=True):
    """Whether images are compressed before the model sees them; a response never has `auto`."""

    context_compression: Outbound[Literal["auto", "enabled", "disabled"]] = UNSET


class CacheOptions(Struct, kw_only=True):
    """How the prompt is cached. Only a request has `prewarm`."""

    mode: Outbound[Literal["implicit", "explicit"]] = UNSET
    ttl: Outbound[Literal["30m", "12h"]] = UNSET
    comparison_response_id: Nullable[str] = UNSET
    prewarm: Maybe[bool] = UNSET


# Diagnostics of a response.


class InputTransformation(Struct, tag_field="type", tag="reasoning", kw_only=True):
    """A reasoning item of the input that was removed before the model saw it."""

    id: str
    action: Literal["removed"]
    reason: Literal["organization_mismatch", "end_user_mismatch", "model_mismatch", "prefix_mismatch", "turn_boundary"]


class Response(Struct, kw_only=True, gc=False):
    """A response: its settings, its status and its items."""

    id: str
    object: Literal["response"] = "response"
    created_at: Number
    status: Nullable[ResponseStatus] = UNSET
    completed_at: Nullable[Number] = None
    error: Nullable[ResponseError] = None
    incomplete_details: Nullable[IncompleteDetails] = None
    access_programs: Nullable[AccessPrograms] = UNSET
    background: Nullable[bool] = False
    conversation: Nullable[Conversation] = UNSET
    frequency_penalty: Maybe[Number] = 0.0  # the penalties are in Open Responses, but in no release of the `openai` package
    image: Nullable[ImageSettings] = UNSET
    input_transformations: Nullable[list[InputTransformation]] = UNSET
    instructions: Nullable[str | list[InputItem]] = None
    max_output_tokens: Nullable[int] = None
    max_tool_calls: Nullable[int] = None
    metadata: Nullable[dict[str, str]] = {}
    model: str
    moderation: Nullable[Json] = UNSET
    parallel_tool_calls: bool = True
    presence_penalty: Maybe[Number] = 0.0
    previous_response_id: Nullable[str] = None
    prompt: Nullable[Prompt] = UNSET
    prompt_cache_key: Nullable[str] = None
    reasoning: Nullable[ReasoningSettings] = field(default_factory=ReasoningSettings)
    prompt_cache_options: Nullable[CacheOptions] = UNSET
    prompt_cache_diagnostics: Nullable[Json] = UNSET
    prompt_cache_retention: Nullable[Literal["in_memory", "in-memory", "24h"]] = UNSET
    safety_identifier: Nullable[str] = None
    service_tier: Nullable[ServiceTier] = "default"
    store: Maybe[bool] = True
    temperature: Nullable[Number] = 1.0
    text: Maybe[TextSettings] = field(default_factory=TextSettings)
    tool_choice: ToolChoice = "auto"
    tools: list[AnyTool] = []
    top_logprobs: Nullable[int] = 0
    top_p: Nullable[Number] = 1.0
    truncation: Nullable[Literal["auto", "disabled"]] = "disabled"
    user: Nullable[str] = None
    output: list[OutputItem] = []
    tool_usage: Nullable[Json] = UNSET
    usage: Nullable[ResponseUsage] = None
    # Fields that vLLM's route adds to a response that has ended.
    kv_transfer_params: Nullable[Json] = UNSET
    ec_transfer_params: Nullable[Json] = UNSET
    input_messages: Nullable[list[Json]] = UNSET
    output_messages: Nullable[list[Json]] = UNSET
    metrics: Nullable[Json] = UNSET


RUN_FIELDS: Final = frozenset(
    {"id", "object", "created_at", "status", "completed_at", "error", "incomplete_details", "output", "usage"}
)
"""The fields of a response that its run provides; its settings provide all others."""

DEFAULTS: Final = members(as_json(Response(id="", created_at=0, model="")))
"""A response with the default of every field that is not omitted by default."""


class InputTokens(Struct, kw_only=True):
    """The body of the response to `POST /v1/responses/input_tokens`."""

    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int
