"""The parts of vLLM that the plugin uses: the required names, its classes as protocols, and all imports.

On an unsupported release, or a build that lacks a required name or parameter, vLLM's own route stays in place. Names that are
read with a default, and those in `OPTIONAL`, may be missing; docs/guides/vllm.md says what is lost then.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from copy import copy
from functools import cache, partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final, Protocol, TypeAlias, cast

from attrs import define, frozen
from pydantic import BaseModel, ValidationError

from interlock.events.json import elements, is_array, members
from interlock.fsm.deltas import TokenLogprob

SUPPORTED: Final = ((0, 30), (0, 33))

ROUTER: Final = "vllm.entrypoints.openai.responses.api_router"
SERVING: Final = "vllm.entrypoints.openai.responses.serving"
CONTEXT: Final = "vllm.entrypoints.openai.responses.context"
PARSER: Final = "vllm.parser.abstract_parser"
CLIENT: Final = "vllm.v1.engine.async_llm"
DETOKENIZER: Final = "vllm.v1.engine.detokenizer"
HY_V4: Final = "vllm.tool_parsers.hy_v4_tool_parser"
HY_V4_TOOLS: Final = "_tools_to_plain"
PARSER_METRICS: Final = "vllm.parser.metrics"

GENERATE: Final = "_generate_with_builtin_tools"
STREAM: Final = "responses_stream_generator"

REQUIRED: Final[Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]]] = {
    (SERVING, "OpenAIServingResponses"): {
        "create_responses": ("request", "raw_request"),
        GENERATE: ("request_id", "engine_input", "sampling_params", "context", "priority"),
        STREAM: (
            *("request", "sampling_params", "result_generator", "context", "model_name", "tokenizer", "request_metadata"),
            "created_time",
        ),
        "_validate_generator_input": ("engine_input",),
        "_extract_prompt_len": ("prompt",),
        "_create_response_logprobs": ("token_ids", "logprobs", "tokenizer", "top_logprobs"),
        "_raise_if_error": ("finish_reason", "request_id"),
    },
    (SERVING, ""): {
        "get_max_tokens": ("max_model_len", "max_tokens", "input_length", "default_sampling_params", "override_max_tokens"),
    },
    (DETOKENIZER, "IncrementalDetokenizer"): {"from_new_request": ("tokenizer", "request")},
    (DETOKENIZER, "BaseIncrementalDetokenizer"): {"decode_next": ("next_token_id",)},
    (CONTEXT, "HarmonyContext"): {"response_parser": (), "messages": ()},
    (CONTEXT, "SimpleContext"): {"response_parser": ()},
    ("vllm.sampling_params", "StructuredOutputsParams"): {"structural_tag": ()},
    (PARSER, "Parser"): {
        "parse_delta": ("delta_text", "delta_token_ids", "request", "prompt_token_ids", "finished"),
    },
    (CLIENT, "AsyncLLM"): {"add_request": ("request_id",), "shutdown": ()},
    (ROUTER, ""): {"load_aware_call": ("func",)},
}
"""The required names by module and class (`""` for the module itself), each with the parameters that it must take."""

OPTIONAL: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    (PARSER_METRICS, "record_tool_parser_invocation"): ("is_tool_called", "is_streaming", "request"),
    (SERVING, "build_per_request_timing_metrics"): (),
    (HY_V4, HY_V4_TOOLS): (),
}
"""The names of modules that a build may lack, each with the parameters without which it is not used."""

MESSAGE: Final = frozenset({"type", "role", "content", "id", "status"})
OUTPUT: Final = frozenset({"type", "call_id", "output", "id", "status"})
"""The fields that a plain message and a plain function output may have; `valid_request` does not validate plain items."""

STATUSES: Final = ("in_progress", "completed", "incomplete")

VllmObject: TypeAlias = Any
"""An object of vLLM, whose types differ between releases."""


class Completion(Protocol):
    """One sequence's new output in a `RequestOutput`."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[Mapping[int, VllmObject]] | None
    finish_reason: str | None
    stop_reason: int | str | None
    """The stop token or stop string that ended the output; None for the tokenizer's own end token."""


class Output(Protocol):
    """A `RequestOutput`: one step of the engine, or several merged ones."""

    prompt: str | None
    prompt_token_ids: Sequence[int] | None
    num_cached_tokens: int | None
    num_cache_creation_tokens: int | None
    outputs: Sequence[Completion]
    finished: bool


class DeltaParser(Protocol):
    """A `Parser`: the reasoning and tool parsers of a model in one."""

    parse_delta: Callable[..., object]
    """Returns a `DeltaMessage` for new text and tokens, or None if nothing is certain yet."""
    count_reasoning_tokens: Callable[[Sequence[int]], int]
    is_reasoning_end: Callable[[Sequence[int]], bool]
    """Whether tokens, such as a prompt, end after their reasoning."""


class Request(Protocol):
    """A `ResponsesRequest`."""

    request_id: str
    model: str | None
    instructions: str | None
    stream: bool | None
    store: bool | None
    background: bool | None
    include_reasoning: bool
    parallel_tool_calls: bool | None
    previous_response_id: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    top_logprobs: int | None
    tool_choice: object
    tools: Sequence[VllmObject]


class Sampling(Protocol):
    """`SamplingParams`."""

    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    max_tokens: int | None
    structured_outputs: object
    stop: Sequence[str]
    include_stop_str_in_output: bool
    logprobs: int | None
    detokenize: bool
    skip_special_tokens: bool
    spaces_between_special_tokens: bool
    all_stop_token_ids: AbstractSet[int]
    """The tokens that end a turn, including the model's own once the engine has accepted the request."""


class Tokenizer(Hashable, Protocol):
    """A model's tokenizer."""

    all_special_ids: Sequence[int]
    all_special_tokens: Sequence[str]
    get_added_vocab: Callable[[], Mapping[str, int]]
    convert_tokens_to_ids: Callable[[str], int | None]


class Models(Protocol):
    """`OpenAIServingModels`."""

    base_model_paths: Sequence[VllmObject]
    lora_requests: Mapping[str, object]
    show_available_models: Callable[[], Awaitable[VllmObject]]


class ModelConfig(Protocol):
    """A `ModelConfig`."""

    max_model_len: int


class Serving(Protocol):
    """`OpenAIServingResponses`."""

    use_harmony: bool
    request_logger: VllmObject
    enable_log_outputs: bool
    enable_store: bool
    model_config: ModelConfig
    default_sampling_params: Mapping[str, object]
    tool_server: object
    models: Models
    create_responses: Callable[..., Awaitable[object]]


READ: Final[Mapping[tuple[str, str], type]] = {
    (ROUTER, "ResponsesRequest"): Request,
    ("vllm.sampling_params", "SamplingParams"): Sampling,
    ("vllm.outputs", "RequestOutput"): Output,
    ("vllm.outputs", "CompletionOutput"): Completion,
    ("vllm.tokenizers.protocol", "TokenizerLike"): Tokenizer,
    (PARSER, "Parser"): DeltaParser,
}
"""The classes, by module and name, whose objects the plugin reads; all names of their protocols are required too."""


def response_template(serving: Serving) -> Mapping[str, object] | None:
    """Return the `response_template` of the model's tokenizer; None if it has none."""
    tokenizer = getattr(getattr(serving, "renderer", None), "tokenizer", None)
    settings: Mapping[str, object] = getattr(tokenizer, "init_kwargs", None) or {}
    template = getattr(tokenizer, "response_template", None) or settings.get("response_template")
    return cast("Mapping[str, object]", template) if isinstance(template, Mapping) else None


class EngineClient(Protocol):
    """The API server's client for its engine."""

    add_request: Callable[..., Awaitable[object]]
    shutdown: Callable[..., object]


@define(eq=False)
class VllmCall:
    """A rendered request, and the call that vLLM would make to generate.

    `messages` has the messages of a gpt-oss prompt; `arguments` has the engine's input, adapter, priority and so on.
    """

    request: Request
    sampling: Sampling
    parser: DeltaParser | None
    messages: Sequence[object]
    model: str
    tokenizer: Tokenizer
    arguments: Mapping[str, VllmObject]

    @property
    def prompt(self) -> Sequence[int]:
        """The tokens of the prompt; empty if vLLM has the prompt in another form."""
        ids: Sequence[int] | None = self.arguments["engine_input"].get("prompt_token_ids")
        return ids or ()


class OneTurn:
    """A context of vLLM's loop that keeps the last output and ends the loop after one turn."""

    output: Output
    request_metrics: object = None

    def append_output(self, output: Output) -> None:
        self.output = output

    def need_builtin_tool_call(self) -> bool:
        """Return False: the service runs the tools."""
        return False


VllmSteps: TypeAlias = AsyncGenerator[OneTurn, None]
"""The outputs of one turn, each in the same context."""


def router() -> VllmObject:
    """Return vLLM's module with the routes of `/v1/responses`."""
    return import_module(ROUTER)


def optional(module: str, name: str) -> VllmObject:
    """Return a name in `OPTIONAL`; None if the build lacks it or one of its parameters."""
    with suppress(ImportError):
        holder = import_module(module)
        return getattr(holder, name) if _has(holder, name, OPTIONAL[module, name]) else None
    return None


def xargs_check(client: EngineClient) -> Callable[[Sampling], object] | None:
    """Return the check of `vllm_xargs` by the logits processors of a server; None if the release has it elsewhere."""
    processor: VllmObject = getattr(client, "input_processor", None)
    check: Callable[[Sampling], object] | None = getattr(processor, "validate_logits_processors_params", None)
    return check


def valid_request(body: Mapping[str, object]) -> Request:
    """Validate a request body as vLLM does.

    Plain messages and function outputs skip validation: vLLM spends 50 µs on each and does not change it.

    Raises:
        ValidationError: The request is not valid.
    """
    validate: Callable[..., Request] = router().ResponsesRequest
    items = elements(body.get("input"))
    plain = [dict(members(item)) if _is_plain(item) else None for item in items]
    if any(plain):
        with suppress(ValidationError):  # validating all items gives the errors the right indices
            request: VllmObject = validate(
                **{**body, "input": [item for item, same in zip(items, plain, strict=True) if same is None]}
            )
            validated = iter(request.input)
            request.input = [same or next(validated) for same in plain]
            return cast("Request", request)
    return validate(**body)


def show_hosted(tools: Sequence[VllmObject]) -> None:
    """Make vLLM describe the tool servers that a request names as MCP servers, whose labels are types of tools in vLLM.

    vLLM does so for the labels in `VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS`, and then refuses functions beside them.
    """
    for tool in tools:
        if getattr(tool, "type", "") == "mcp":
            tool.type = tool.server_label


def _is_plain(item: object) -> bool:
    """Return whether an item is a text message or a function's text output, with only the usual fields."""
    fields, names = members(item), MESSAGE
    match fields:
        case {"type": "function_call_output", "call_id": str(), "output": str()}:
            names = OUTPUT
        case {"type": other} if other != "message":
            return False
        case {"role": "assistant" | "user" | "system" | "developer", "content": str()}:
            pass
        case {"role": "user" | "system" | "developer", "content": parts} if is_array(parts) and all(map(_is_text, parts)):
            pass
        case _:
            return False
    usual = isinstance(fields.get("id", ""), str) and fields.get("status", "completed") in STATUSES
    return usual and fields.keys() <= names


def _is_text(part: object) -> bool:
    fields = members(part)
    return fields.keys() <= {"type", "text"} and fields.get("type") == "input_text" and isinstance(fields.get("text"), str)


async def begin_call(serving: Serving, request: Request, connection: object) -> VllmCall | BaseModel:
    """Have vLLM validate and render a request; return the call that would generate, or vLLM's refusal (`ErrorResponse`).

    A copy of `serving` captures the call, so other requests are not affected. `connection` is the Starlette request, if any.
    """
    arguments: dict[str, VllmObject] = {}

    def capture(**named: object) -> None:
        arguments.update(named)

    def hand_over(*positional: VllmObject, **named: VllmObject) -> VllmCall:
        given = _signature(type(serving), STREAM).bind(serving, *positional, **named).arguments
        context = given["context"]
        parser, messages = getattr(context, "response_parser", None), getattr(context, "messages", ())
        return VllmCall(
            given["request"], given["sampling_params"], parser, messages, given["model_name"], given["tokenizer"], arguments
        )

    capturing: VllmObject = copy(serving)
    setattr(capturing, GENERATE, capture)
    setattr(capturing, STREAM, hand_over)
    call: VllmCall | BaseModel = await capturing.create_responses(request, connection)
    return call


@cache
def _signature(owner: type, method: str) -> inspect.Signature:
    return inspect.signature(getattr(owner, method))


def generate(serving: Serving, call: VllmCall, request_id: str, index: int) -> VllmSteps:
    """Generate one turn, with its number from 0, and return its outputs. As in vLLM, later turns precede new requests."""
    options = {
        "request_id": request_id,
        "context": OneTurn(),
        "priority": call.arguments.get("priority", 0) - (index > 0),
        "sampling_params": call.sampling,
    }
    steps: VllmSteps = getattr(serving, GENERATE)(**{**call.arguments, **options})
    return steps


def change_grammar(sampling: Sampling, change: Callable[[str], str]) -> None:
    """Change the grammar that vLLM made of the schemas of tools, if it made one."""
    outputs: VllmObject = sampling.structured_outputs
    if outputs is not None and outputs.structural_tag is not None:
        outputs.structural_tag = change(outputs.structural_tag)


def validation_error(error: ValidationError, body: object) -> Exception:
    """Return the error that FastAPI would raise for an invalid request, which vLLM's handlers answer."""
    errors = [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False)]
    create: Callable[..., Exception] = import_module("fastapi.exceptions").RequestValidationError
    return create(errors, body=body)


def max_tokens(serving: Serving, limit: int | None, prompt: int) -> int:
    """Return how many tokens a turn may have, from its own limit and from the context that a prompt of `prompt` tokens leaves."""
    limited: Callable[..., int] = import_module(SERVING).get_max_tokens
    model = serving.model_config.max_model_len
    return limited(model, limit, prompt, serving.default_sampling_params, getattr(serving, "override_max_tokens", None))


def prompt_length(serving: VllmObject, call: VllmCall) -> int:
    """Return the number of tokens in the prompt of a call."""
    length: int = serving._extract_prompt_len(call.arguments["engine_input"])  # noqa: SLF001 - a required name
    return length


def too_long(serving: VllmObject, engine_input: Mapping[str, object]) -> BaseModel | None:
    """Return vLLM's refusal of a prompt that is longer than the model's context; None if it fits."""
    refusal: BaseModel | None = serving._validate_generator_input(engine_input)  # noqa: SLF001 - a required name
    return refusal


def raise_if_error(serving: VllmObject, output: Output, request_id: str) -> None:
    """Raise vLLM's error if the request failed in the engine."""
    serving._raise_if_error(output.outputs[0].finish_reason, request_id)  # noqa: SLF001 - a required name


def logprobs(serving: VllmObject, call: VllmCall, count: int, output: Output) -> list[TokenLogprob]:
    """Return the log probabilities of an output's tokens in the API's format, each with `count` alternatives."""
    new = output.outputs[0]
    if new.logprobs is None:
        return []
    options = {"token_ids": new.token_ids, "logprobs": new.logprobs, "tokenizer": call.tokenizer, "top_logprobs": count}
    entries: Sequence[VllmObject] = serving._create_response_logprobs(**options)  # noqa: SLF001 - a required name
    return [entry.model_dump() for entry in entries]


def writes_json(parser: DeltaParser | None) -> bool:
    """Return whether vLLM makes a model write a required or named call as JSON without markers; True if that is unknown."""
    return getattr(getattr(parser, "tool_parser", None), "supports_required_and_named", True) is not False


def keep_text(parser: DeltaParser | None) -> None:
    """Make vLLM's parser keep the text of a turn, from which it reads required calls; in 0.32 some parsers do not keep it."""
    state: VllmObject = getattr(parser, "_stream_state", None)
    if getattr(state, "engine_based", False):
        state.engine_based = False


def timings(metrics: object, tokens: int) -> dict[str, object] | None:
    """Return the timings of a response of one turn; None if the build has none."""
    create: Callable[[object, int], BaseModel] | None = optional(SERVING, "build_per_request_timing_metrics")
    return None if create is None else create(metrics, tokens).model_dump(mode="json")


def count_tool_parser(request: Request, *, has_call: bool, streamed: bool) -> None:
    """Count a response in `vllm:tool_call_parser_invocations_total`, where vLLM's own parsers count each delta of a stream."""
    record = optional(PARSER_METRICS, "record_tool_parser_invocation")
    if record is not None:
        record(is_tool_called=has_call, is_streaming=streamed, request=request)


def decoder(call: VllmCall, prompt: Sequence[int]) -> Callable[[int], str]:
    """Return a function that decodes the tokens of a turn one by one, in order: it returns the text that each token adds."""
    sampling = SimpleNamespace(
        stop=None,
        min_tokens=0,
        include_stop_str_in_output=True,
        skip_special_tokens=call.sampling.skip_special_tokens,
        spaces_between_special_tokens=call.sampling.spaces_between_special_tokens,
    )
    request = SimpleNamespace(
        request_id=call.request.request_id, sampling_params=sampling, prompt_token_ids=[*prompt], prompt_embeds=None
    )
    detokenizer: VllmObject = import_module(DETOKENIZER).IncrementalDetokenizer.from_new_request(call.tokenizer, request)

    def decode(token: int) -> str:
        detokenizer.token_ids.append(token)
        text: str = detokenizer.decode_next(token)
        return text

    return decode


def accept_function_tools(tool_parser: object) -> list[Callable[[], None]]:
    """Return the change that lets vLLM's parser `hy_v4` accept the functions of a Responses request; none for other parsers.

    The parser reads them as those of Chat Completions.
    """
    read = optional(HY_V4, HY_V4_TOOLS) if tool_parser == "hy_v4" else None
    return [] if read is None else [partial(setattr, import_module(HY_V4), HY_V4_TOOLS, partial(_read_tools, read))]


def _read_tools(read: Callable[[Sequence[object]], object], tools: Sequence[object] | None) -> object:
    return read([tool if hasattr(tool, "function") else SimpleNamespace(function=tool) for tool in tools or ()])


def tool_urls(serving: Serving) -> Mapping[str, str]:
    """Return the URLs of the MCP servers in `--tool-server`, by the names that the servers report."""
    return getattr(serving.tool_server, "urls", None) or {}


@frozen
class DescribedTools:
    """A tool server of vLLM that also describes, for gpt-oss, the tools that Interlock runs itself."""

    descriptions: Mapping[str, str]
    inner: VllmObject

    def has_tool(self, name: str) -> bool:
        return name in self.descriptions or (self.inner is not None and self.inner.has_tool(name))

    def get_tool_description(self, name: str, allowed_tools: list[str] | None = None) -> VllmObject:
        if name not in self.descriptions:
            return self.inner.get_tool_description(name, allowed_tools)
        namespace: VllmObject = import_module("openai_harmony").ToolNamespaceConfig
        if name == "browser":
            return namespace.browser()
        return namespace(name=name, description=self.descriptions[name], tools=[])


def describe_tools(serving: Serving, descriptions: Mapping[str, str]) -> None:
    """Make a serving object describe tools that Interlock runs itself, by their names in vLLM."""
    if descriptions:
        serving.tool_server = DescribedTools(descriptions, serving.tool_server)


def version() -> str:
    """Return the version of the installed vLLM."""
    return str(import_module("vllm").__version__)


def obstacle(installed: str) -> str | None:
    """Return why the plugin does not work with the installed vLLM, as a clause; None if it works."""
    release = _release(installed)
    if release is None or not SUPPORTED[0] <= release <= SUPPORTED[1]:
        first, last = (".".join(map(str, each)) for each in SUPPORTED)
        return f"it supports vLLM {first} to {last}"
    return _lacks(_missing())


def serving_obstacle(serving: Serving) -> str | None:
    """Return why the plugin does not work with a Responses handler, as a clause; None if it works."""
    protocols = {"": Serving, "models": Models, "model_config": ModelConfig}
    holders = {place: getattr(serving, place, None) if place else serving for place in protocols}
    names = ((place, name) for place, protocol in protocols.items() for name in inspect.get_annotations(protocol))
    return _lacks(
        f"OpenAIServingResponses.{place}{'.' * bool(place)}{name}" for place, name in names if not hasattr(holders[place], name)
    )


def _lacks(missing: Iterable[str]) -> str | None:
    names = ", ".join(missing)
    return f"this build lacks {names}" if names else None


def _release(installed: str) -> tuple[int, int] | None:
    major, _, rest = installed.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _missing() -> Iterator[str]:
    for place in dict.fromkeys((*REQUIRED, *READ)):
        module, owner = place
        try:
            holder: VllmObject = import_module(module)
            holder = getattr(holder, owner) if owner else holder
        except (ImportError, AttributeError):
            yield f"{module} {owner}".strip()
            continue
        read = inspect.get_annotations(READ[place]) if place in READ else {}
        names: Mapping[str, tuple[str, ...]] = {**dict.fromkeys(read, ()), **REQUIRED.get(place, {})}
        yield from (f"{owner or module}.{name}" for name, parameters in names.items() if not _has(holder, name, parameters))


def _has(holder: VllmObject, name: str, parameters: Sequence[str]) -> bool:
    """Return whether a module or class has a name: its own, or an attribute that its objects are declared or made with."""
    value: VllmObject = getattr(holder, name, None)
    if parameters:
        return callable(value) and inspect.signature(value).parameters.keys() >= {*parameters}
    if value is not None or not isinstance(holder, type):
        return value is not None
    return any(name in inspect.get_annotations(base) for base in holder.__mro__) or name in inspect.signature(holder).parameters
