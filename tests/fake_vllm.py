"""What is used of vLLM's classes, in the smallest form that behaves as they do, so that the ordinary tests do without vLLM.

The loop over rounds is vLLM's in shape: outputs are told to the context, the context is asked whether a tool was called, and
runs it. What is generated is a script of texts in harmony, or of deltas of vLLM's parsers.
"""

# ruff: noqa: ARG001, ARG002, ARG003 - the signatures are vLLM's

import asyncio
import contextlib
import sys
from types import MappingProxyType, ModuleType, SimpleNamespace

from attrs import define, evolve, field
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from openai_harmony import Author, Message, Role, TextContent, load_harmony_encoding
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request as HttpRequest

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
    prompt_token_ids: list | None = field(factory=lambda: [1, 2, 3])
    num_cached_tokens: int | None = 1
    num_cache_creation_tokens: int | None = 2
    finished: bool = False
    kv_transfer_params: dict | None = None


def outputs(text, reason="stop", size=1):
    """The outputs of a round that writes this harmony, some tokens at a time."""
    tokens = ENCODING.encode(text, allowed_special="all")
    pieces = [tuple(tokens[start : start + size]) for start in range(0, len(tokens), size)] or [()]
    made = [Output([Completion(token_ids=piece)]) for piece in pieces]
    made[-1].finished, made[-1].outputs[0].finish_reason = True, reason
    return made


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
    include_reasoning: bool = True
    parallel_tool_calls: bool | None = True
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    top_logprobs: int | None = 0
    enable_response_messages: bool = False
    tools: list = []
    previous_response_id: str | None = None
    structured_outputs: dict | None = None
    stop: list = []

    def is_include_output_logprobs(self):
        return bool(self.include)


class Refusal(BaseModel):
    message: str
    code: int


class Refused(BaseModel):
    """`ErrorResponse`."""

    error: Refusal


class Stored(BaseModel):
    """`ResponsesResponse`, which refuses what it does not know."""

    model_config = ConfigDict(extra="allow")
    id: str
    status: str
    output: list


class RecoveringParser:
    """vLLM's own harmony parser: here it makes one message of whatever it is given."""

    def process_chunk(self, token_ids):
        text = ENCODING.decode(list(token_ids))
        self.message = Message.from_role_and_content(Role.ASSISTANT, text)
        return SimpleNamespace(segments=[SimpleNamespace(completed_message=None)])

    def flush(self):
        return [SimpleNamespace(completed_message=self.message)]

    def parse_delta(self, *_output, finished):
        """Say nothing, whatever comes."""


class HarmonyContext:
    """vLLM's context of a model that writes harmony."""

    def __init__(self, request, available=("python", "browser")):
        self._messages = [Message.from_role_and_content(Role.USER, "Hi")]
        self.num_init_messages = 1
        self._tool_sessions = {}
        self.available_tools = list(available)
        self.response_parser = RecoveringParser()
        self.request = request

    @property
    def messages(self):
        return self._messages

    def append_output(self, output):
        raise AssertionError("it costs too much for each token")

    def need_builtin_tool_call(self):
        recipient = self._messages[-1].recipient or ""
        return recipient.partition(".")[0] in self.available_tools

    async def call_tool(self):
        call = self._messages[-1]
        result = await self._tool_sessions[call.recipient.partition(".")[0]].call_tool(call.recipient, call.content[0].text)
        content = TextContent(text=result.content[0].text)
        return [Message(author=Author(role=Role.TOOL, name=call.recipient), content=[content], recipient="assistant")]


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


class Raw(BaseModel):
    """`ResponseRawMessageAndToken`."""

    message: str
    tokens: list


class SimpleContext:
    """vLLM's context of one round."""

    def __init__(self, request, parser=None):
        self.request, self.response_parser = request, parser

    def append_output(self, output):
        assert self.request.enable_response_messages, "nobody reads what it keeps"
        self.input_messages = [Raw(message="Hi", tokens=[1])]
        said = getattr(self, "output_messages", [Raw(message="", tokens=[])])[0].message
        self.output_messages = [Raw(message=said + output.outputs[0].text, tokens=[2])]

    def need_builtin_tool_call(self):
        return False

    async def call_tool(self):
        raise NotImplementedError


class ParsableContext(SimpleContext):
    """vLLM's context of other models with tools: it takes a round as one output."""

    def __init__(self, request, parser=None):
        super().__init__(request, parser)
        self.response_messages, self.available_tools = [], ["python"]
        self._tool_sessions = {}

    def append_output(self, output):
        calls = getattr(self, "calls", ())
        text = output.outputs[0].text
        item = calls[text] if text in calls else SimpleNamespace(type="message", text=text)
        self.response_messages.append(item)

    def need_builtin_tool_call(self):
        return self.response_messages[-1].type == "function_call"

    async def call_tool(self):
        result = await self._tool_sessions["python"].call_tool("python", self.response_messages[-1].arguments)
        return [SimpleNamespace(output=result.content[0].text)]


class Session:
    """A session with an MCP server whose tool says what it is told to say, or raises it."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def call_tool(self, name, arguments):
        self.asked.append((name, arguments))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await asyncio.Event().wait()
        return answer


def result(text, **others):
    return SimpleNamespace(content=[SimpleNamespace(text=text)], **others)


class Models:
    """`OpenAIServingModels`."""

    async def show_available_models(self):
        return SimpleNamespace(data=[SimpleNamespace(id="m"), SimpleNamespace(id="adapter")])


class Serving:
    """`OpenAIServingResponses`, which generates what its script says.

    A script has a list of steps for each round; a step is an output, an exception to raise, or an event to wait for.
    """

    use_harmony = True
    models = Models()
    request_logger = None
    enable_log_outputs = False
    enable_store = True

    def __init__(self, context_type=HarmonyContext, *script, sessions=MappingProxyType({}), parser=None):
        self.context_type, self.script, self.parser = context_type, script, parser
        self.sessions = sessions
        self.response_store, self.response_store_lock, self.msg_store = {}, asyncio.Lock(), {}
        self.aborted, self.prompts, self.limits = False, [], []
        self.tasks = set()
        self.sessions_closed = False
        self.begun = asyncio.Event()

    @classmethod
    def parsed(cls, *arguments, **others):
        """A server of a model that does not write harmony."""
        serving = cls(*arguments, **others)
        serving.use_harmony, serving.calls = False, {}
        return serving

    async def create_responses(self, request, raw_request):
        said = request.input if isinstance(request.input, str) else request.input[-1].get("content")
        if said == "refuse":
            return Refused(error=Refusal(message="It is refused.", code=400))
        if said == "odd":
            return "something else"
        self.context = self.context_type(request, *([self.parser] if self.parser else []))
        self.context.calls = getattr(self, "calls", {})
        sampling = SimpleNamespace(
            temperature=0.5,
            top_p=1.0,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            max_tokens=request.max_output_tokens or 100,
            structured_outputs=request.structured_outputs,
            stop=request.stop,
            logprobs=None,
            detokenize=True,
            include_stop_str_in_output=False,
            skip_special_tokens=True,
            spaces_between_special_tokens=True,
            all_stop_token_ids={0},
        )
        self.sampling = sampling
        loop = self._generate_with_builtin_tools(
            engine_input={"prompt_token_ids": [1, 2, 3]}, sampling_params=sampling, context=self.context
        )
        arguments = (request, sampling, loop, self.context, request.model, TOKENIZER, None)
        if request.background:
            self.tasks.add(asyncio.create_task(self._run_background_request_stream(*arguments, 7)))
            return self.responses_background_stream_generator(request.request_id)
        return self.responses_stream_generator(*arguments)

    def _extract_prompt_len(self, prompt):
        return len(prompt["prompt_token_ids"])

    async def _generate_with_builtin_tools(self, engine_input, sampling_params, context):
        self.begun.set()
        try:
            for steps in self.script:
                self.limits.append(context.request.max_output_tokens)
                for step in steps:
                    if isinstance(step, asyncio.Event):
                        await step.wait()
                        continue
                    if isinstance(step, Exception):
                        raise step
                    context.append_output(evolve(step))
                    yield context
                if not context.need_builtin_tool_call():
                    return
                said = await context.call_tool()
                getattr(context, "_messages", getattr(context, "response_messages", [])).extend(said)
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted = True
            raise

    async def _initialize_tool_sessions(self, request, context, exit_stack):
        if self.sessions is None:
            raise RuntimeError("the tool server is misconfigured")
        context._tool_sessions = {
            name: await exit_stack.enter_async_context(self._opened(session)) for name, session in self.sessions.items()
        }
        exit_stack.push_async_exit(self._close_sessions)

    @contextlib.asynccontextmanager
    async def _opened(self, session):
        if isinstance(session, BaseException):
            raise session
        if isinstance(session, asyncio.Event):
            await session.wait()
        async with contextlib.AsyncExitStack() as stack:
            yield await stack.enter_async_context(session) if hasattr(session, "__aenter__") else session

    async def _close_sessions(self, *_):
        self.sessions_closed = True

    def responses_stream_generator(
        self, request, sampling_params, result_generator, context, model_name, tokenizer, request_metadata, created_time=None
    ):
        return "vLLM's own stream"

    async def _run_background_request_stream(self, request, *args, **kwargs):
        raise NotImplementedError

    def responses_background_stream_generator(self, response_id, starting_after=None):
        raise NotImplementedError

    async def retrieve_responses(self, response_id, starting_after, stream):
        raise NotImplementedError

    async def cancel_responses(self, response_id):
        raise NotImplementedError

    def _create_response_logprobs(self, token_ids, logprobs, tokenizer, top_logprobs):
        return [Logprob(token=text, bytes=list(text.encode()), logprob=value) for text, value in logprobs]

    def _make_response_parser(self, request, tokenizer, chat_template_kwargs):
        return self.parser

    def _raise_if_error(self, finish_reason, request_id):
        if finish_reason == "error":
            raise GenerationError("Internal server error")

    def _effective_chat_template_kwargs(self, request):
        return {}


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
        self.seen = []

    def parse_delta(self, delta_text, delta_token_ids, request, prompt_token_ids=None, *, finished):
        self.seen.append(delta_token_ids)
        delta = self.deltas.pop(0)
        if isinstance(delta, Exception):
            raise delta
        return delta


def same(function):
    """A decorator of vLLM's that does nothing here."""
    return function


async def create_responses(request: Request, raw_request):
    return JSONResponse({"from": "vllm"})


async def retrieve_responses(response_id, raw_request, starting_after=None, *, stream=False):
    return JSONResponse({"from": "vllm"}, 404)


async def cancel_responses(response_id, raw_request):
    return JSONResponse({"from": "vllm"}, 400)


async def validate_json_request(raw_request: HttpRequest):
    pass


def load_aware_call(func):
    return func


def with_cancellation(handler_func):
    return handler_func


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
    router.__dict__.update(
        create_responses=create_responses,
        retrieve_responses=retrieve_responses,
        cancel_responses=cancel_responses,
        validate_json_request=validate_json_request,
        load_aware_call=load_aware_call,
        with_cancellation=with_cancellation,
        ResponsesRequest=Request,
        ErrorResponse=Refused,
    )
    root = ModuleType("vllm")
    root.__version__ = version
    modules = {
        "vllm": root,
        "vllm.entrypoints.openai.responses.api_router": router,
        "vllm.entrypoints.openai.responses.serving": SimpleNamespace(OpenAIServingResponses=Serving),
        "vllm.entrypoints.openai.responses.protocol": SimpleNamespace(ResponsesResponse=Stored),
        "vllm.entrypoints.openai.responses.context": SimpleNamespace(
            HarmonyContext=HarmonyContext, ParsableContext=ParsableContext, SimpleContext=SimpleContext
        ),
        "vllm.parser.abstract_parser": SimpleNamespace(Parser=Parser),
        "vllm.v1.engine.detokenizer": SimpleNamespace(
            IncrementalDetokenizer=IncrementalDetokenizer, BaseIncrementalDetokenizer=IncrementalDetokenizer
        ),
    }
    for name in (
        "vllm.entrypoints",
        "vllm.entrypoints.openai",
        "vllm.entrypoints.openai.responses",
        "vllm.parser",
        "vllm.v1",
        "vllm.v1.engine",
    ):
        modules[name] = ModuleType(name)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules
