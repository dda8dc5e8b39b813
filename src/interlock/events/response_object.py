"""The response, its usage and errors, the request, and the settings that a response echoes from its request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from inspect import isclass
from typing import Annotated, Any, Final, Literal, TypeAlias, cast, get_args

from msgspec import UNSET, Meta, Struct, ValidationError, convert, defstruct, field, to_builtins
from msgspec.structs import fields

from interlock.events.items import InputItem, OutputItem
from interlock.events.json import as_json, as_text, elements, is_array, is_object, members
from interlock.events.parts import InputFile, InputImage, InputText, Json, Maybe, Nullable, Number, Outbound
from interlock.events.shapes import Arm, Hint, arms_of, extra_of
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


class ResponseError(Struct, kw_only=True):
    """Why a response failed. The `openai` package has a closed list of codes; other services have others."""

    code: str
    message: str
    type: Nullable[str] = UNSET
    param: Nullable[str] = UNSET
    misalignment: Nullable[Json] = UNSET


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


# The request. A null parameter counts as omitted.


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


# The settings that a response echoes, with every field that Open Responses' `ResponseResource` requires. A setting that is
# missing, null or invalid gets its default. Tools of unknown types are dropped, so that the response is valid. No request is
# rejected here.

_DEFAULT_SETTINGS: Final = {name: value for name, value in DEFAULTS.items() if name not in RUN_FIELDS}
"""The settings of a response to a request that sets nothing."""

_SETTING_TYPES: Final = {
    each.name: defstruct(each.name, [(each.name, each.type)]) for each in fields(Response) if each.name in _DEFAULT_SETTINGS
}
"""The type of each setting, as a Struct with one field, which msgspec compiles once."""

_USER: Final = re.compile(r"(?<=//)[^/?#\\]*@")
"""Matches the user and the password in a URL."""


def drop_secrets(tool: Mapping[str, object]) -> dict[str, object]:
    """Return a tool without what its type marks as secret, wherever it is nested."""
    return cast("dict[str, object]", _without_secrets(tool, AnyTool)) if as_text(tool.get("type")) in SECRETIVE else dict(tool)


def _without_secrets(value: object, hint: Hint) -> object:
    arms = [*arms_of(hint)]
    if is_array(value):
        entries = next((arm.args[0] for arm in arms if arm.kind is list), Any)
        return [_without_secrets(entry, entries) for entry in value]
    kinds = [*_structs(arms)]
    if not is_object(value) or not kinds:
        return value
    tagged = (kind for kind in kinds if kind.__struct_config__.tag == value.get("type"))
    public: dict[str, object] = dict(value)
    for member in fields(next(tagged, kinds[0])):
        name = member.encode_name
        match extra_of(member.type, "secret"):
            case "value":
                public.pop(name, None)
            case "user" if isinstance(public.get(name), str):
                public[name] = _USER.sub("", str(public[name]))
            case "" if name in public:
                public[name] = _without_secrets(public[name], member.type)
            case _:
                pass
    return public


def _has_secrets(hint: Hint, above: tuple[Hint, ...] = ()) -> bool:
    """Return whether a type marks anything in it as secret; `above` has the types around it, which it may contain."""
    arms = [*arms_of(hint)]
    entries = (arm.args[0] for arm in arms if arm.kind is list)
    inner_fields = ((member.type, (*above, kind)) for kind in _structs(arms) if kind not in above for member in fields(kind))
    return any(_has_secrets(entry, above) for entry in entries) or any(
        extra_of(inner, "secret") or _has_secrets(inner, within) for inner, within in inner_fields
    )


def _structs(arms: Iterable[Arm]) -> Iterator[type[Struct]]:
    return (arm.kind for arm in arms if isclass(arm.kind) and issubclass(arm.kind, Struct))


SECRETIVE: Final = frozenset(kind.__struct_config__.tag for kind in get_args(AnyTool) if _has_secrets(kind))
"""The types of the tools that can have secrets."""


def response_settings(request: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that a response echoes from its request.

    Args:
        request: The validated body of a `POST /v1/responses`.

    Returns:
        Every field that `ResponseResource` requires, except `id`, `object`, `created_at`, `completed_at`, `status`, `output`,
        `usage`, `error` and `incomplete_details`; also `user`, and `conversation` if the request has one. Of the numbers and
        booleans, only `max_output_tokens` and `max_tool_calls` can be null.
    """
    settings = cast("dict[str, object]", to_builtins(_DEFAULT_SETTINGS))
    for name in _DEFAULT_SETTINGS:
        value = request.get(name)
        if value is not None:
            settings |= {name: _tools(value)} if name == "tools" else _fit(name, _complete(name, value))
    conversation = request.get("conversation")
    if conversation is not None:
        settings["conversation"] = {"id": members(conversation).get("id", conversation)}
    return settings


def _fit(name: str, value: object) -> dict[str, object]:
    """Return a setting, converted if necessary (`"false"` to false); nothing if the setting cannot have the value."""
    for strict in (True, False):
        try:
            fitted = convert({name: value}, _SETTING_TYPES[name], strict=strict)
        except ValidationError:
            continue
        return {name: value} if strict else to_builtins(fitted)
    return {}


def _complete(name: str, value: object) -> object:
    """Return a setting with the fields that Open Responses requires; `fast` becomes `priority`."""
    match name:
        case "reasoning":
            return {"effort": None, "summary": None, **_without_nulls(value)}
        case "text":
            present = _without_nulls(value)
            form = members(present.get("format", {"type": "text"}))
            if form.get("type") == "json_schema":
                form = {"description": None, **form, "strict": form.get("strict") is True}
            return {**present, "format": form}
        case "service_tier":
            return "priority" if value == "fast" else value
        case _:
            return value


def _without_nulls(value: object) -> dict[str, object]:
    return {name: inner for name, inner in members(value).items() if inner is not None}


def _tools(value: object) -> list[dict[str, object]]:
    """Return the tools of known types, with the fields that Open Responses requires and without credentials."""
    completed = [{**drop_secrets(tool), **_require(tool)} for tool in map(members, elements(value))]
    return [{**tool, **members(fitted)} for tool in completed for fitted in elements(_fit("tools", [tool]).get("tools"))]


def _require(tool: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that a response requires and this tool lacks."""
    match tool.get("type"):
        case "function":
            required: dict[str, object] = {"description": None, "parameters": None, "strict": None}
        case "namespace":
            required = {"description": "", "tools": []}
        case "code_interpreter":
            required = {"container": {"type": "auto"}}
        case _:
            required = {}
    return {name: value for name, value in required.items() if name not in tool}
