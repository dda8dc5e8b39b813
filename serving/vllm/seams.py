"""What must be there of an installed vLLM for the plugin to work, and the one place where vLLM is imported.

A release is known by its number, and its seams are then looked at one by one: the names that are replaced or called, with the
parameters that they are called with. So a build that differs from its release is not broken either; vLLM's own route stays.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Final, Protocol, TypeAlias, cast

from pydantic import ValidationError

from interlock.serving.requests.values import elements, is_array, members
from interlock.serving.vllm.shapes import Detokenizer, Dumpable, ErrorResponse, Request

KNOWN: Final = ((0, 26), (0, 33))
"""The first and the last release whose seams are known."""

ROUTER: Final = "vllm.entrypoints.openai.responses.api_router"
SERVING: Final = "vllm.entrypoints.openai.responses.serving"
DETOKENIZER: Final = "vllm.v1.engine.detokenizer"

GENERATOR: Final = (
    "request",
    "sampling_params",
    "result_generator",
    "context",
    "model_name",
    "tokenizer",
    "request_metadata",
    "created_time",
)
"""The parameters of the function that turns vLLM's loop into an answer."""

STREAM: Final = "responses_stream_generator"
BACKGROUND: Final = "_run_background_request_stream"
BACKGROUND_READER: Final = "responses_background_stream_generator"
TOOL_SESSIONS: Final = "_initialize_tool_sessions"
LOGPROBS: Final = "_create_response_logprobs"
MAKE_PARSER: Final = "_make_response_parser"
TEMPLATE_VALUES: Final = "_effective_chat_template_kwargs"
GENERATE: Final = "_generate_with_builtin_tools"
PROMPT_LENGTH: Final = "_extract_prompt_len"
RAISE_IF_ERROR: Final = "_raise_if_error"
TIMED: Final = "request_metrics_cover_all_generation_turns"
"""Says, since 0.32, whether the timings that a context has are those of the whole response."""

MESSAGE: Final = frozenset({"type", "role", "content", "id", "status"})
OUTPUT: Final = frozenset({"type", "call_id", "output", "id", "status"})
TEXT: Final = frozenset({"type", "text"})
"""The fields that plain messages, outputs of functions and parts have at most."""

STATUSES: Final = ("in_progress", "completed", "incomplete")

SEAMS: Final[Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]]] = {
    (SERVING, "OpenAIServingResponses"): {
        "create_responses": ("request", "raw_request"),
        "retrieve_responses": ("response_id", "starting_after", "stream"),
        "cancel_responses": ("response_id",),
        STREAM: GENERATOR,
        BACKGROUND: ("request",),
        BACKGROUND_READER: ("response_id", "starting_after"),
        GENERATE: ("engine_input", "sampling_params", "context"),
        PROMPT_LENGTH: ("prompt",),
        TOOL_SESSIONS: ("request", "context", "exit_stack"),
        LOGPROBS: ("token_ids", "logprobs", "tokenizer", "top_logprobs"),
        MAKE_PARSER: ("request", "tokenizer", "chat_template_kwargs"),
        TEMPLATE_VALUES: ("request",),
        RAISE_IF_ERROR: ("finish_reason", "request_id"),
    },
    ("vllm.entrypoints.openai.responses.context", "HarmonyContext"): {
        "append_output": ("output",),
        "need_builtin_tool_call": (),
        "call_tool": (),
    },
    ("vllm.entrypoints.openai.responses.context", "ParsableContext"): {
        "append_output": ("output",),
        "need_builtin_tool_call": (),
        "call_tool": (),
    },
    ("vllm.entrypoints.openai.responses.context", "SimpleContext"): {
        "append_output": ("output",),
        "need_builtin_tool_call": (),
    },
    (DETOKENIZER, "IncrementalDetokenizer"): {"from_new_request": ("tokenizer", "request")},
    (DETOKENIZER, "BaseIncrementalDetokenizer"): {"decode_next": ("next_token_id",)},
    ("vllm.parser.abstract_parser", "Parser"): {
        "parse_delta": ("delta_text", "delta_token_ids", "request", "prompt_token_ids", "finished"),
    },
    (ROUTER, ""): {
        "create_responses": ("request", "raw_request"),
        "retrieve_responses": ("response_id", "raw_request"),
        "cancel_responses": ("response_id", "raw_request"),
        "load_aware_call": ("func",),
        "with_cancellation": ("handler_func",),
        "validate_json_request": ("raw_request",),
    },
}
"""The callables that must be there, by module and class, each with parameters that it must take."""

Endpoint: TypeAlias = Callable[..., Awaitable[object]]


class Router(Protocol):
    """vLLM's module of routes: its endpoints, and what they are made with."""

    create_responses: Endpoint
    retrieve_responses: Endpoint
    cancel_responses: Endpoint
    ResponsesRequest: type[Request]
    ErrorResponse: type[ErrorResponse]
    load_aware_call: Callable[[Endpoint], Endpoint]
    with_cancellation: Callable[[Endpoint], Endpoint]
    validate_json_request: Callable[..., object]


def router() -> Router:
    """Return vLLM's module of routes.

    Raises:
        ModuleNotFoundError: vLLM is not installed, or has moved it.
    """
    return cast("Router", import_module(ROUTER))


def valid_request(vllm: Router, body: Mapping[str, object]) -> Request:
    """Return a request as vLLM validates it.

    vLLM tries some thirty types on each item that is no model yet, which takes 50 µs. Plain messages and outputs of functions, of
    which an agent sends hundreds, come out of that as they were, so it is shown the other items alone.

    Args:
        vllm: vLLM's module of routes.
        body: Of `POST /v1/responses`.

    Raises:
        RequestValidationError: FastAPI's; vLLM answers it in its own words.
    """
    items = elements(body.get("input"))
    plain = [dict(members(item)) if _is_plain(item) else None for item in items]
    try:
        if any(plain):
            with suppress(ValidationError):  # whose words are to name the places of all items
                others = [item for item, same in zip(items, plain, strict=True) if same is None]
                request = vllm.ResponsesRequest(**{**body, "input": others})
                read = iter(cast("list[object]", request.input))
                request.input = [same or next(read) for same in plain]
                return request
        return vllm.ResponsesRequest(**body)
    except ValidationError as error:
        found = [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False)]
        refuse: Callable[..., Exception] = import_module("fastapi.exceptions").RequestValidationError
        raise refuse(found, body=body) from None


def _is_plain(item: object) -> bool:
    """Return whether an item is a message, or the output of a function, that is text and has the usual fields alone."""
    fields = members(item)
    if not isinstance(fields.get("id", ""), str) or fields.get("status", "completed") not in STATUSES:
        return False
    match fields:
        case {"type": "function_call_output", "call_id": str(), "output": str()}:
            return fields.keys() <= OUTPUT
        case {"role": "assistant", "content": str()}:
            pass
        case {"role": "user" | "system" | "developer", "content": content}:
            if not (isinstance(content, str) or (is_array(content) and all(map(_is_text, content)))):
                return False
        case _:
            return False
    return fields.keys() <= MESSAGE and fields.get("type", "message") == "message"


def _is_text(part: object) -> bool:
    fields = members(part)
    return fields.keys() <= TEXT and fields.get("type") == "input_text" and isinstance(fields.get("text"), str)


def timings() -> Callable[[object, int], Dumpable]:
    """Return the function that makes a response's timings of the engine's and of the number of tokens; it is there since 0.32."""
    made: Callable[[object, int], Dumpable] = import_module(SERVING).build_per_request_timing_metrics
    return made


def detokenizer() -> Callable[[object, object], Detokenizer]:
    """Return the function that makes a detokenizer of a tokenizer and a request."""
    made: Callable[[object, object], Detokenizer] = import_module(DETOKENIZER).IncrementalDetokenizer.from_new_request
    return made


def version() -> str:
    """Return the number of the installed vLLM."""
    return str(import_module("vllm").__version__)


def reads_end_as_text() -> bool:
    """Return whether vLLM's parsers write the token that ends a round into the text, as those of 0.26 do."""
    return _release(version()) == (0, 26)


def obstacle(installed: str) -> str | None:
    """Return why the plugin cannot work with the installed vLLM.

    Args:
        installed: Its number.

    Returns:
        A sentence, or None if nothing is in the way.
    """
    release = _release(installed)
    if release is None or not KNOWN[0] <= release <= KNOWN[1]:
        first, last = (".".join(map(str, each)) for each in KNOWN)
        return f"it knows vLLM {first} to {last}"
    missing = list(_missing())
    return f"this build lacks {', '.join(missing)}" if missing else None


def _release(installed: str) -> tuple[int, int] | None:
    major, _, rest = installed.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _missing() -> Iterator[str]:
    for (module, owner), functions in SEAMS.items():
        try:
            holder: object = import_module(module)
            holder = getattr(holder, owner) if owner else holder
        except (ImportError, AttributeError):
            yield f"{module} {owner}".strip()
            continue
        for name, parameters in functions.items():
            if not _takes(getattr(holder, name, None), parameters):
                yield f"{owner or module}.{name}"


def _takes(function: object, parameters: tuple[str, ...]) -> bool:
    if not callable(function):
        return False
    taken = inspect.signature(function).parameters
    return all(name in taken for name in parameters)
