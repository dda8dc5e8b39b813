"""Minimal versions of the vLLM classes that Interlock uses, so that the ordinary tests need no vLLM.

What is generated is a script of texts in harmony, or of deltas of vLLM's parsers.
"""

# ruff: noqa: ARG001, ARG002, ARG003 - the signatures are vLLM's

import asyncio
import contextlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Literal

import httpx
from attrs import define, evolve, field
from fastapi import FastAPI
from openai_harmony import Message, Role, load_harmony_encoding
from pydantic import BaseModel, ConfigDict

from interlock.serving.engines.vllm import compat
from interlock.serving.engines.vllm.plugin import InterlockPlugin

TOKENIZER = SimpleNamespace(all_special_ids=[0])
ENCODING = load_harmony_encoding("HarmonyGptOss")


@define
class Completion:
    text: str = ""
    token_ids: tuple = ()
    logprobs: object = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@define
class Output:
    outputs: list
    prompt: str | None = "Hi"
    prompt_token_ids: list | None = field(factory=lambda: [1, 2, 3])
    num_cached_tokens: int | None = 1
    num_cache_creation_tokens: int | None = 2
    finished: bool = False
    kv_transfer_params: dict | None = None


def outputs(text, reason="stop", size=1):
    """The outputs of a round that writes this harmony, some tokens at a time."""
    tokens = ENCODING.encode(text, allowed_special="all")
    pieces = [tuple(tokens[start : start + size]) for start in range(0, len(tokens), size)] or [()]
    results = [Output([Completion(token_ids=piece)]) for piece in pieces]
    results[-1].finished, results[-1].outputs[0].finish_reason = True, reason
    return results


class Mcp(BaseModel):
    """A tool that is an MCP server."""

    type: Literal["mcp"]
    server_label: str
    allowed_tools: list | dict | None = None


class StructuredOutputs(BaseModel):
    """`StructuredOutputsParams`."""

    structural_tag: str | None = None


class Request(BaseModel):
    """`ResponsesRequest`."""

    model_config = ConfigDict(extra="allow")
    request_id: str = "resp_1"
    input: str | list[dict]
    model: str = "m"
    stream: bool | None = False
    store: bool | None = True
    background: bool | None = False
    include: list | None = None
    instructions: str | None = None
    include_reasoning: bool = True
    parallel_tool_calls: bool | None = True
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    top_logprobs: int | None = 0
    enable_response_messages: bool = False
    tools: list[Mcp | dict] = []
    tool_choice: object = "auto"
    previous_response_id: str | None = None
    structured_outputs: StructuredOutputs | None = None
    stop: list = []

    def is_include_output_logprobs(self):
        return bool(self.include)


class Refusal(BaseModel):
    message: str
    code: int


class Refused(BaseModel):
    """`ErrorResponse`."""

    error: Refusal


class HarmonyContext:
    """vLLM's context of a model that writes harmony."""

    response_parser: object = None
    messages: list

    def __init__(self, request, parser=None):
        self.request, self.response_parser = request, parser
        self.messages = [Message.from_role_and_content(Role.USER, "Hi")]


class IncrementalDetokenizer:
    """vLLM's class of this name: a token is a letter's number, and 0 is a control token."""

    @classmethod
    def from_new_request(cls, tokenizer, request):
        return cls()

    def __init__(self):
        self.token_ids = []

    def decode_next(self, next_token_id):
        assert self.token_ids[-1] == next_token_id
        return chr(next_token_id) if next_token_id else "<|end|>"


class SimpleContext(HarmonyContext):
    """vLLM's context of any other model."""


class ModelCard(BaseModel):
    id: str
    max_model_len: int | None = None


class ModelList(BaseModel):
    object: str = "list"
    data: list[ModelCard] = [ModelCard(id="m", max_model_len=4096), ModelCard(id="adapter")]


class Models:
    """`OpenAIServingModels`."""

    base_model_paths = (SimpleNamespace(name="m"),)
    lora_requests = ()

    async def show_available_models(self):
        return ModelList()


class Serving:
    """`OpenAIServingResponses`, which generates what its script says.

    A script has a list of steps for each turn, the last of which is repeated; a step is an output, an exception to raise, or an
    event to wait for. What it is asked is in lists, which a shallow copy of it shares.
    """

    use_harmony = True
    models = Models()
    request_logger = None
    enable_log_outputs = False
    enable_store = True
    override_max_tokens = None

    def __init__(self, context_type=HarmonyContext, *script, parser=None, urls=None, engine=None):
        self.context_type, self.script, self.parser = context_type, script, parser
        self.tool_server = None if urls is None else SimpleNamespace(urls=urls)
        self.model_config, self.default_sampling_params = SimpleNamespace(max_model_len=4096), {}
        self.requests, self.turns = [], []
        self.engine = engine

    @classmethod
    def parsed(cls, *arguments, **fields):
        """A server of a model that does not write harmony."""
        serving = cls(*arguments, **fields)
        serving.use_harmony = False
        return serving

    async def create_responses(self, request, raw_request):
        prompt = request.input if isinstance(request.input, str) else request.input[-1].get("content")
        if prompt == "refuse" or (request.background and not self.enable_store):
            return Refused(error=Refusal(message="It is refused.", code=400))
        self.requests.append(request)
        sampling = SimpleNamespace(
            temperature=0.5,
            top_p=1.0,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            max_tokens=request.max_output_tokens or 100,
            structured_outputs=request.structured_outputs,
            stop=request.stop,
            logprobs=request.top_logprobs if request.is_include_output_logprobs() else None,
            detokenize=True,
            include_stop_str_in_output=False,
            skip_special_tokens=True,
            spaces_between_special_tokens=True,
            all_stop_token_ids={0},
        )
        prompt = prompt_of(request)
        too_long = self._validate_generator_input({"prompt_token_ids": prompt})
        if too_long is not None:
            return too_long
        context = self.context_type(request, self.parser)
        loop = self._generate_with_builtin_tools(
            request_id=request.request_id,
            engine_input={"prompt_token_ids": prompt, "cache_salt": getattr(request, "cache_salt", None)},
            sampling_params=sampling,
            context=context,
            priority=3,
        )
        named = {"context": context, "tokenizer": TOKENIZER, "model_name": request.model}  # vLLM passes them by position
        return self.responses_stream_generator(request, sampling, loop, request_metadata=None, **named)

    def _validate_generator_input(self, engine_input):
        if len(engine_input["prompt_token_ids"]) < self.model_config.max_model_len:
            return None
        return Refused(error=Refusal(message="The prompt is too long.", code=400))

    def _extract_prompt_len(self, prompt):
        return len(prompt["prompt_token_ids"])

    async def _generate_with_builtin_tools(self, request_id, engine_input, sampling_params, context, priority):
        number = len(self.turns)
        self.turns.append(SimpleNamespace(id=request_id, input=engine_input, sampling=sampling_params, priority=priority))
        if self.engine is not None:
            await self.engine.add_request(f"{request_id}_0", engine_input)
        for step in self.script[min(number, len(self.script) - 1)]:
            if isinstance(step, asyncio.Event):
                await step.wait()
                continue
            if isinstance(step, BaseException):
                raise step
            context.append_output(evolve(step))
            yield context
        assert not context.need_builtin_tool_call()

    def responses_stream_generator(
        self, request, sampling_params, result_generator, context, model_name, tokenizer, request_metadata, created_time=None
    ):
        return "vLLM's own stream"

    def _create_response_logprobs(self, token_ids, logprobs, tokenizer, top_logprobs):
        return [Logprob(token=text, bytes=list(text.encode()), logprob=value) for text, value in logprobs]

    def _raise_if_error(self, finish_reason, request_id):
        if finish_reason == "error":
            raise GenerationError("Internal server error")


def prompt_of(request):
    """Three tokens for any input, or one for each of many words."""
    prompt = request.input if isinstance(request.input, str) else str([item.get("content") for item in request.input])
    return list(range(1, max(3, len(prompt.split()) - 200) + 1))


class Engine:
    """`AsyncLLM`, vLLM's way to its engine."""

    def __init__(self):
        self.prompts = []

    async def add_request(self, request_id, prompt):
        self.prompts.append(request_id)
        return request_id

    def shutdown(self, timeout):
        return timeout


class GenerationError(Exception):
    """vLLM's class of this name."""


class Logprob(BaseModel):
    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: list = []


class Parser:
    """vLLM's parser, which gives the deltas of a script."""

    def __init__(self, *deltas):
        self.deltas = list(deltas)

    def parse_delta(self, delta_text, delta_token_ids, request, prompt_token_ids=None, *, finished):
        delta = self.deltas.pop(0)
        if isinstance(delta, Exception):
            raise delta
        return delta

    def count_reasoning_tokens(self, token_ids):
        del token_ids
        return 0

    def is_reasoning_end(self, token_ids):
        del token_ids
        return False


def get_max_tokens(max_model_len, max_tokens, input_length, default_sampling_params, override_max_tokens):
    return min(max_model_len - input_length, max_tokens or max_model_len)


def count(*, is_tool_called, is_streaming, request):
    """Count nothing."""


def timings(metrics, tokens):
    return Timings(time_to_first_token_ms=1.0, tokens=tokens)


class Timings(BaseModel):
    time_to_first_token_ms: float
    tokens: int


def load_aware_call(func):
    return func


def application():
    """vLLM's application with its own route."""
    app = FastAPI()

    @app.post("/v1/responses")
    async def core():
        return {"from": "vllm"}

    return app


def install(monkeypatch, version="0.32.0+cpu"):
    """Have a vLLM of some version installed for the time of a test."""
    router = ModuleType("vllm.entrypoints.openai.responses.api_router")
    router.__dict__.update(load_aware_call=load_aware_call, ResponsesRequest=Request, ErrorResponse=Refused)
    root = ModuleType("vllm")
    root.__version__ = version
    modules = {
        "vllm": root,
        "vllm.entrypoints.openai.responses.api_router": router,
        "vllm.entrypoints.openai.responses.serving": SimpleNamespace(
            OpenAIServingResponses=Serving, get_max_tokens=get_max_tokens, build_per_request_timing_metrics=timings
        ),
        "vllm.entrypoints.openai.responses.context": SimpleNamespace(HarmonyContext=HarmonyContext, SimpleContext=SimpleContext),
        "vllm.outputs": SimpleNamespace(RequestOutput=Output, CompletionOutput=Completion),
        "vllm.sampling_params": SimpleNamespace(SamplingParams=compat.Sampling, StructuredOutputsParams=StructuredOutputs),
        "vllm.tokenizers.protocol": SimpleNamespace(TokenizerLike=compat.Tokenizer),
        "vllm.parser.metrics": SimpleNamespace(record_tool_parser_invocation=count),
        "vllm.parser.abstract_parser": SimpleNamespace(Parser=Parser),
        "vllm.v1.engine.async_llm": SimpleNamespace(AsyncLLM=Engine),
        "vllm.v1.engine.detokenizer": SimpleNamespace(
            IncrementalDetokenizer=IncrementalDetokenizer, BaseIncrementalDetokenizer=IncrementalDetokenizer
        ),
    }
    for name in (
        "vllm.entrypoints",
        "vllm.entrypoints.openai",
        "vllm.entrypoints.openai.responses",
        "vllm.parser",
        "vllm.tokenizers",
        "vllm.v1",
        "vllm.v1.engine",
    ):
        modules[name] = ModuleType(name)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules


ANSWER = "<|channel|>final<|message|>Hello there.<|return|>"
BODY = {"model": "m", "input": "Hi", "request_id": "resp_1"}


@contextlib.asynccontextmanager
async def client_of(serving, engine=None, args=None, handlers=None):
    """A client of it."""
    plugin, app = InterlockPlugin(), application()
    plugin.attach_router(app)
    for error, handle in (handlers or {}).items():
        app.exception_handler(error)(handle)
    app.middleware_stack = app.build_middleware_stack()  # as in vLLM, before its state
    app.state.openai_serving_responses = serving
    await plugin.init_state(engine, app.state, args)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://vllm") as client:
        client.app, client.plugin = app, plugin
        yield client
