"""vLLM as an engine: each turn becomes a request that every supported release can render, and vLLM generates only that turn.

A turn of gpt-oss that adds results of tools continues from the exact tokens of the last one, so that vLLM's prefix cache has
them, if `tool_choice` is `auto` or `none`. For any other turn, vLLM renders the whole conversation.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

from attrs import Factory, define, evolve, field, frozen
from msgspec.structs import replace
from pydantic import BaseModel, ValidationError
from starlette.requests import HTTPConnection, Request

from interlock.embedding import random_id
from interlock.events.json import dumps, elements, is_array, is_object, loads, members
from interlock.fsm.deltas import FinishReason, TokenLogprob
from interlock.parsers import Chunk, Format, parser_for
from interlock.parsers.families import Family
from interlock.parsers.hosted_tools import BUILT_IN, LABELS, SEARCHES
from interlock.serving.engines.engine import Engine, EngineOutput, Generation, Turn
from interlock.serving.engines.harmony_tokens import (
    ENCODED_AT_ONCE,
    encode_replies,
    encode_text,
    encoding,
    token_entries,
    tool_messages,
    turn_messages,
    write_required_call,
)
from interlock.serving.engines.vllm import compat
from interlock.serving.engines.vllm.compat import EngineClient, OneTurn, Output, Sampling, Serving, VllmCall, VllmSteps
from interlock.serving.engines.vllm.readers import FamilyReader, Reader, reader
from interlock.serving.metrics import OTHER
from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError, invalid
from interlock.serving.requests.create import ResponseRequest, read_for_host
from interlock.serving.requests.input_items import JsonItem, normalize, require_input
from interlock.serving.requests.limits import refusal
from interlock.serving.requests.runtime import Outcome, Yielder, is_fault, outcome
from interlock.serving.requests.tool_offer import HostedTools, list_hosted_functions, offer
from interlock.serving.settings import ModelFacts

logger = logging.getLogger("vllm.interlock")  # below vLLM's own, which has a handler


Salt: TypeAlias = Literal["tenant", "key", "none"]
"""Which requests share vLLM's prefix cache: those of one tenant, those of one tenant and `prompt_cache_key`, or all."""

CLIENT_ERRORS: Final = frozenset({"VLLMClientError", "VLLMValidationError", "VLLMNotFoundError", "VLLMUnprocessableEntityError"})
"""vLLM's errors that the client causes; in newer releases the others derive from the first."""

REFUSALS: Final = frozenset({*CLIENT_ERRORS, "ValueError", "NotImplementedError"})
"""The errors that vLLM raises for an invalid request before a response begins; its handlers answer them over HTTP."""

PUBLIC_ERRORS: Final = frozenset({"GenerationError", "EngineDeadError", "EngineGenerateError"})
"""vLLM's errors whose messages are safe to send to clients."""

REASONS: Final[Mapping[str, FinishReason]] = {
    "length": "length",
    "repetition": "content_filter",
    "abort": "abort",
    "error": "error",
}
"""Finish reasons by vLLM's names; every other name means `stop`."""

TIERS: Final = ("auto", "default", "flex", "scale", "priority")
MAX_ID: Final = 256  # characters of a response's id, which stores have in an index
NOT_FORWARDED: Final = frozenset(
    {"context_management", "conversation", "include", "previous_response_id", "tool_choice", "tools", "truncation"}
)
"""The parameters that Interlock interprets itself and does not pass on as they are; some mean something else to vLLM."""

CHECKED: Final = frozenset(
    {
        *("cache_salt", "chat_template_kwargs", "enable_response_messages", "ignore_eos", "include_reasoning"),
        *("include_stop_str_in_output", "repetition_penalty", "seed", "skip_special_tokens", "stop", "top_k"),
    }
)
"""The parameters of vLLM's own that it checks while it renders, or not at all; its engine may refuse the others."""

EFFORTS: Final = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}
"""The reasoning efforts that gpt-oss lacks, each with the nearest one that it has."""

HARMONY_TOOLS: Final = {
    **{kind: {"type": "web_search_preview"} for kind in SEARCHES},
    "code_interpreter": {"type": "code_interpreter"},
}
"""The hosted tools in the types that vLLM renders for gpt-oss, by the types in requests."""

END: Final = object()


@frozen
class VllmRefusedError(ApiError):
    """vLLM refuses a request; `answer` is vLLM's own answer, or an exception for its handlers."""

    answer: Exception | BaseModel | None = field(default=None, kw_only=True, repr=False)

    @classmethod
    def of(cls, answer: BaseModel) -> VllmRefusedError:
        error = members(answer.model_dump(mode="json", by_alias=True)["error"])
        param, status = error.get("param"), error.get("code")
        assert isinstance(status, int)  # noqa: S101 - vLLM's code is a status
        return cls(status, str(error.get("message")), str(error.get("type")), str(param) if param else None, answer=answer)

    @classmethod
    def raised(cls, error: Exception) -> VllmRefusedError:
        param = getattr(error, "parameter", None)
        return cls(400, str(error), param=param if isinstance(param, str) else None, code="invalid_value", answer=error)


@contextmanager
def _refusals() -> Generator[None]:
    """Raise vLLM's refusals as `VllmRefusedError`."""
    try:
        yield
    except Exception as error:
        if _is_any_of(error, REFUSALS):
            raise VllmRefusedError.raised(error) from error
        raise


@define(eq=False)
class Admissions:
    """Watches the engine's client, which shows that the engine has accepted a request long before its first token."""

    waiting: dict[str, asyncio.Event] = field(factory=dict[str, asyncio.Event], init=False)
    check_xargs: Callable[[Sampling], object] | None = field(default=None, init=False)
    """Raises the refusal of `vllm_xargs`, which only logits processors check; None if the release has no such check."""

    def watch(self, client: EngineClient) -> Callable[..., Awaitable[object]]:
        """Return the client's `add_request`, which also reports that the engine has accepted a request."""
        self.check_xargs = compat.xargs_check(client)
        add_request = client.add_request

        async def watched(request_id: str, *arguments: object, **options: object) -> object:
            added = await add_request(request_id, *arguments, **options)
            accepted = self.waiting.get(request_id.rpartition("_")[0])
            if accepted is not None:
                accepted.set()
            return added

        return watched


@define(eq=False)
class GenerationCall:
    """A turn whose first step vLLM generates in a task, so that its admission does not wait for its first token.

    With a grammar, which vLLM compiles after the engine has accepted the request, the admission waits for the first output.
    """

    call: VllmCall
    steps: VllmSteps
    _serving: Serving
    _admissions: Admissions
    _request_id: str
    _accepted: asyncio.Event = field(factory=asyncio.Event, init=False)
    """Set when the engine has accepted the request, or when the first step has ended, even with an error."""
    _first: asyncio.Task[Outcome[object]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        if self.call.sampling.structured_outputs is None:
            self._admissions.waiting[self._request_id] = self._accepted
        self._first = asyncio.create_task(outcome(self._step()))
        self._first.add_done_callback(self._end_admission)

    async def wait_for_admission(self) -> None:
        """Wait until the engine has accepted the turn; raise vLLM's own error if it does not."""
        await self._accepted.wait()
        if self._first.done():
            self._first.result().result()

    async def first_step(self) -> object:
        """Return the first step, or `END`; `steps` yields the others."""
        return (await self._first).result()

    async def close(self) -> None:
        """Close vLLM's loop, which aborts the request if it is still in the engine."""
        self._first.cancel()
        await asyncio.wait([self._first])
        await self.steps.aclose()

    def _end_admission(self, _: object) -> None:
        self._accepted.set()
        self._admissions.waiting.pop(self._request_id, None)

    async def _step(self) -> object:
        step = await anext(self.steps, END)
        if isinstance(step, OneTurn) and not step.output.outputs[0].token_ids:
            compat.raise_if_error(self._serving, step.output, self._request_id)
        return step


@frozen(eq=False)
class VllmEngine(Engine):
    """The engine of a vLLM server.

    `hosted` has the hosted tools and their descriptions; `family` is None for gpt-oss or vLLM's parsers.
    """

    serving: Serving
    hosted: Mapping[str, str] = field(factory=dict[str, str])
    family: Family | None = None
    salt: Salt = "none"
    admissions: Admissions = field(factory=Admissions)
    models: Sequence[str] = field(default=(), init=False)
    """None: see `names`, because a server may load adapters."""
    format: Format = field(
        default=Factory(lambda self: "harmony" if self.serving.use_harmony else "vllm", takes_self=True), init=False
    )

    generate = Engine.generate_alone

    async def names(self) -> Sequence[str]:
        return ["", *(card.id for card in (await self.serving.models.show_available_models()).data)]

    def model_label(self, name: str) -> str:
        models = self.serving.models
        known = [path.name for path in models.base_model_paths]
        return (name or known[0]) if name in ("", *known, *models.lora_requests) else OTHER

    def facts(self, name: str) -> ModelFacts:
        del name
        config = self.serving.model_config
        return ModelFacts(
            window=config.max_model_len,
            efforts=["low", "medium", "high"] if self.serving.use_harmony else None,
            modalities=["text", "image"] if getattr(config, "is_multimodal_model", False) else ["text"],
        )

    @property
    def tools(self) -> HostedTools:
        """The hosted tools in the form that the model's prompt needs."""
        functions = list_hosted_functions(self.hosted)
        if self.serving.use_harmony:
            tools = {kind: tool for kind, tool in HARMONY_TOOLS.items() if kind.startswith((*self.hosted,))}
            labels = frozenset(label for label, kind in LABELS.items() if kind in self.hosted and kind in BUILT_IN)
            return HostedTools({**functions, **tools}, labels)
        return HostedTools(functions)

    def read(self, raw: Mapping[str, object]) -> ResponseRequest:
        request = read_for_host(raw)
        continues = request.conversation_id is not None or raw.get("previous_response_id") is not None
        require_input(request.input, continues=continues)
        kept = {"input": "", "previous_response_id": raw.get("previous_response_id")}
        vllm_request = self.valid(request, self.with_known_values(request.forward(NOT_FORWARDED) | kept))
        return replace(
            request,
            model=vllm_request.model or "",
            instructions=vllm_request.instructions,
            stream=bool(vllm_request.stream),
            store=bool(vllm_request.store) and self.serving.enable_store,
            background=bool(vllm_request.background),
            previous_response_id=vllm_request.previous_response_id,
            max_output_tokens=vllm_request.max_output_tokens,
            max_tool_calls=vllm_request.max_tool_calls,
            parallel_tool_calls=vllm_request.parallel_tool_calls is not False,
            include=[name for name in elements(raw.get("include")) if isinstance(name, str)],
            top_logprobs=vllm_request.top_logprobs or 0,
        )

    async def begin(
        self, request: ResponseRequest, items: Sequence[JsonItem], tenant: str = "", connection: HTTPConnection | None = None
    ) -> VllmGeneration:
        """Return the generation of a response, whose id is the `request_id` of the body if it has one.

        Raises:
            ApiError: 400 for a `request_id` longer than `MAX_ID`.
        """
        requested_id = request.extensions.get("request_id")
        if isinstance(requested_id, str) and len(requested_id) > MAX_ID:
            message = f"Invalid 'request_id': string too long. Expected a string with maximum length {MAX_ID}."
            raise invalid("request_id", message, "string_above_max_length")
        response_id = requested_id if isinstance(requested_id, str) and requested_id else random_id("resp")
        declared = request.declare_tools(items)
        return VllmGeneration(
            parser_for(self.format, declared),
            engine=self,
            response_id=response_id,
            request=request,
            tenant=tenant,
            connection=_as_request(connection),
            declared=declared,
        )

    def valid(self, request: ResponseRequest, body: Mapping[str, object]) -> compat.Request:
        """Validate a body with vLLM, or raise `VllmRefusedError` with an answer about the client's own body."""
        with _refusals():
            try:
                return compat.valid_request(body)
            except ValidationError as error:
                cause = members(error.errors()[0].get("ctx")).get("error")
                api_error = VllmRefusedError.raised(cause) if isinstance(cause, Exception) else refusal(error)
                answer = compat.validation_error(error, request.forward(()))
                raise VllmRefusedError(
                    api_error.status, api_error.message, api_error.type, api_error.param, api_error.code, answer=answer
                ) from None

    def with_known_values(self, body: Mapping[str, object]) -> dict[str, object]:
        """Return a body without values unknown to vLLM: the nearest effort for gpt-oss, and no unknown service tier."""
        result = dict(body)
        if body.get("service_tier") not in TIERS:
            result.pop("service_tier", None)
        effort = members(body.get("reasoning")).get("effort")
        if self.serving.use_harmony and effort in EFFORTS:
            result["reasoning"] = {**members(body["reasoning"]), "effort": EFFORTS[str(effort)]}
        return result

    def cache_salt(self, request: ResponseRequest, tenant: str) -> dict[str, object]:
        """Return a `cache_salt` to add to a request; empty if it has its own or shares the cache with all."""
        key = request.prompt_cache_key if self.salt == "key" else None
        if request.extensions.get("cache_salt") is not None or self.salt == "none" or not (tenant or key):
            return {}
        return {"cache_salt": sha256(f"{tenant}\0{key or ''}".encode()).hexdigest()}


@define(eq=False)
class VllmGeneration(Generation):
    """Generates one response with vLLM, which logs it under the response's id."""

    engine: VllmEngine = field(kw_only=True)  # pyright: ignore[reportIncompatibleVariableOverride] - it is never assigned
    response_id: str = field(kw_only=True)  # pyright: ignore[reportIncompatibleVariableOverride] - likewise
    request: ResponseRequest = field(kw_only=True)
    tenant: str = field(kw_only=True)
    connection: Request | None = field(kw_only=True)
    declared: Mapping[str, object] = field(kw_only=True)
    """The request's body with the tools that calls may name."""
    _reader: Reader | None = field(default=None, init=False)
    _rendered: tuple[Turn, VllmCall] | None = field(default=None, init=False)
    _generating: GenerationCall | None = field(default=None, init=False)
    _previous: tuple[Turn, VllmCall, Sequence[int]] | None = field(default=None, init=False)
    """The last turn of gpt-oss, its call and its output."""
    _prefix: Sequence[int] = field(default=(), init=False)
    """The beginning of a required call of gpt-oss, which its first turn continues if vLLM has no grammar for the call."""
    _output: Output | None = field(default=None, init=False)
    _metrics: object = field(default=None, init=False)
    _turns: int = field(default=0, init=False)
    _tokens: int = field(default=0, init=False)
    _input_messages: list[object] = field(factory=list[object], init=False)
    _output_messages: list[object] = field(factory=list[object], init=False)
    """The messages that the model wrote and those of its tools, for a request with `enable_response_messages`."""

    @property
    def _serving(self) -> Serving:
        return self.engine.serving

    @property
    def _wants_messages(self) -> bool:
        return bool(self.request.extensions.get("enable_response_messages"))

    async def prepare(self, turn: Turn) -> Mapping[str, object]:
        call = await self._call(turn)
        if not self._serving.use_harmony:
            forced = self.request.tool_choice not in ("auto", "none")
            self._reader = reader(self.engine.family, self.declared, call, self.engine.hosted, forced=forced)
            self.parser = self._reader
        sampling = call.sampling
        return {
            "model": call.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "max_output_tokens": sampling.max_tokens,
            "store": self.request.store,
        }

    async def admit(self, turn: Turn) -> None:
        """Begin the first turn and wait until the engine has accepted it, unless the engine can no longer refuse it.

        A stream in the foreground starts before its request reaches the engine, as vLLM's own does, if the request has only
        the API's parameters, those in `CHECKED` and `vllm_xargs`, and no grammar, log probabilities or data-parallel rank.
        """
        call = await self._call(turn)
        with _refusals():
            if self.request.stream and not self.request.background and self._is_accepted(call):
                return
            generating = await self._begin(call)
            await generating.wait_for_admission()

    def _is_accepted(self, call: VllmCall) -> bool:
        """Return whether all parameters of the request are checked, so that the engine accepts it; or raise vLLM's refusal."""
        check, unchecked = self.engine.admissions.check_xargs, self.request.extensions.keys() - CHECKED
        if check is not None and "vllm_xargs" in unchecked:
            check(call.sampling)
            unchecked -= {"vllm_xargs"}
        is_plain = not unchecked and call.arguments.get("data_parallel_rank") is None
        return is_plain and call.sampling.structured_outputs is None and not call.sampling.logprobs

    async def count(self, turn: Turn) -> int:
        return compat.prompt_length(self._serving, await self._call(turn))

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        harmony = self._serving.use_harmony
        tokens: list[int] = []
        texts: list[str] = []
        try:
            call = await self._call(turn)
            generating = await self._begin(call)
            if self._wants_messages:
                self._output_messages.extend(self._replies(turn))
            self._turns += 1
            entries = self._entries(call) if self.request.wants_logprobs else None
            with _refusals():
                step = await generating.first_step()
            while isinstance(step, OneTurn):
                self._output = output = step.output
                new = output.outputs[0]
                tokens += new.token_ids
                texts.append(new.text)
                logprobs = None if entries is None else entries(output)
                reason: FinishReason | None = REASONS.get(new.finish_reason or "", "stop") if output.finished else None
                engine_output = EngineOutput(Chunk(new.token_ids, new.text, logprobs, None if harmony else output), reason)
                if len(texts) == 1:
                    self._begin_turn(call, output)
                    engine_output.input_tokens = len(output.prompt_token_ids or ())
                    engine_output.cached_tokens = output.num_cached_tokens or 0
                    engine_output.cache_write_tokens = output.num_cache_creation_tokens or 0
                if reason is not None:
                    engine_output.stop_sequence = new.stop_reason if isinstance(new.stop_reason, str) else None
                    engine_output.output_tokens = len(tokens)  # the parser would count the prefix too
                    self._metrics, self._tokens = step.request_metrics, self._tokens + len(tokens)
                    self._previous = (turn, call, tokens) if harmony else None
                yield engine_output
                step = await anext(generating.steps, END)
        except ApiError as error:
            raise PromptError(error.message) from error
        except Exception as error:
            if _is_any_of(error, CLIENT_ERRORS):
                raise PromptError(str(error)) from error
            if _is_any_of(error, PUBLIC_ERRORS):
                raise EngineError(str(error)) from error
            raise
        if self._wants_messages:
            self._output_messages.extend(
                turn_messages([*self._prefix, *tokens]) if harmony else [_raw_message("".join(texts), tokens)]
            )

    def _begin_turn(self, call: VllmCall, first: Output) -> None:
        if self._reader is not None:
            self._reader.begin(call)
        if self._prefix:
            self.parser.feed(Chunk(self._prefix))
        if self._turns == 1 and self._wants_messages:
            prompt = _raw_message(first.prompt or "", first.prompt_token_ids or ())
            self._input_messages.extend(call.messages if self._serving.use_harmony else [prompt])

    def additions(self) -> Mapping[str, object]:
        """Return vLLM's own response fields that have a value; none if reading them fails, because the response must end."""
        try:
            fields = {name: getattr(self._output, name, None) for name in ("kv_transfer_params", "ec_transfer_params")}
            if self._wants_messages:
                fields["input_messages"] = _plain_messages(self._input_messages)
                fields["output_messages"] = _plain_messages(self._output_messages)
            if getattr(self._serving, "enable_per_request_metrics", False) and self._turns == 1:
                fields["metrics"] = compat.timings(self._metrics, self._tokens)
            return {name: value for name, value in fields.items() if value is not None}
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("%s: the response is sent without vLLM's own fields", self.response_id)
            return {}

    def log(self, response: Mapping[str, object]) -> None:
        if isinstance(self._reader, FamilyReader) and self._rendered is not None and self.request.tools:
            has_call = any(str(members(item).get("type")).endswith("_call") for item in elements(response["output"]))
            compat.count_tool_parser(self._rendered[1].request, has_call=has_call, streamed=self.request.stream)
        log = self._serving.request_logger
        if log is not None and self._serving.enable_log_outputs:
            items, streamed = dumps(response["output"]).decode(), self.request.stream
            log.log_outputs(self.response_id, items, None, finish_reason=str(response["status"]), is_streaming=streamed)

    async def close(self) -> None:
        generating, self._generating = self._generating, None
        if generating is not None:
            await generating.close()

    async def _begin(self, call: VllmCall) -> GenerationCall:
        """Start to generate a call unless vLLM generates it already; close the generation of any other call."""
        if self._generating is None or self._generating.call is not call:
            await self.close()
            request_id = f"{self.response_id}_{self._turns}" if self._turns else self.response_id
            steps: VllmSteps = compat.generate(self._serving, call, request_id, self._turns)
            self._generating = GenerationCall(call, steps, self._serving, self.engine.admissions, request_id)
        return self._generating

    async def _call(self, turn: Turn) -> VllmCall:
        """Return the call of a turn; a repeated turn is not rendered again."""
        last = self._rendered
        if last is not None and last[0] == turn:
            return last[1]
        call = await self._continued(turn) or await self._render(turn)
        self._rendered = (turn, call)
        return call

    async def _render(self, turn: Turn) -> VllmCall:
        serving = self._serving
        body, texts = self._body(turn), LongTexts(serving.model_config.max_model_len)
        vllm_request = self.engine.valid(self.request, texts.hide(body) if serving.use_harmony else body)
        vllm_request.request_id = self.response_id
        compat.show_hosted(vllm_request.tools)
        with _refusals():
            call = await compat.begin_call(serving, vllm_request, self.connection)
        if not isinstance(call, VllmCall):
            raise VllmRefusedError.of(call)
        if serving.use_harmony:
            compat.change_grammar(call.sampling, texts.reveal_grammar)
            requires = not turn.index and call.sampling.structured_outputs is None and _has_function(body)
            self._prefix = write_required_call(body.get("tool_choice")) if requires else ()
            call = self._with_prompt(call, [*await texts.reveal(call.prompt), *self._prefix], turn)
            if self._wants_messages:
                call = evolve(call, messages=elements(texts.reveal_json(_plain_messages(call.messages))))
            if self.request.wants_logprobs:  # vLLM refuses them with harmony, because its own events cannot carry them
                call.sampling.logprobs = self.request.top_logprobs
            elif not call.sampling.stop:
                call.sampling.detokenize = False  # the harmony parser reads tokens, so vLLM need not decode them
        return call

    def _body(self, turn: Turn) -> dict[str, object]:
        """Return a body of messages, reasoning, function calls and outputs, which every supported release can render."""
        engine, request = self.engine, self.request
        harmony = engine.serving.use_harmony
        tool_offer = offer(request.tools, request.tool_choice, turn.items, engine.tools)
        if not turn.index:
            for kind in tool_offer.left_out:
                logger.warning("a tool of the type %s is not offered to the model: no function can stand for it", kind)
        choice = tool_offer.choice
        has_mcp = any(tool.get("type") == "mcp" for tool in request.tools)  # whose tools may not be listed yet
        if not tool_offer.tools and (choice == "auto" or (choice == "required" and has_mcp)):
            choice = "none"
        if turn.index and choice != "none":
            choice = "auto"  # the first turn made the required call
        items = [*normalize(turn.items, images=not harmony)]
        if engine.family is not None:
            items = [engine.family.with_written_id(item) for item in items]
        forwarded = request.forward({*NOT_FORWARDED, "request_id"})
        text = forwarded.get("input")
        to_refuse = request.background and not engine.serving.enable_store  # vLLM refuses this with its own message
        body = {
            **forwarded,
            **engine.cache_salt(request, self.tenant),
            "input": text if isinstance(text, str) and len(items) == 1 and items[0].get("content") == text else items,
            "include": ["message.output_text.logprobs"] if request.wants_logprobs and not harmony else None,
            "max_output_tokens": turn.budget,
            "stream": True,
            "store": to_refuse,
            "background": to_refuse,
            "tool_choice": choice,
        }
        if tool_offer.tools:
            body["tools"] = [*tool_offer.tools]
        return engine.with_known_values(body)

    async def _continued(self, turn: Turn) -> VllmCall | None:
        """Return the call of a gpt-oss turn that continues the previous turn; None for any other turn."""
        if self._previous is None or not turn.index or self.request.tool_choice not in ("auto", "none"):
            return None
        replies = self._replies(turn)
        if not replies:
            return None
        _, call, tokens = self._previous
        return self._with_prompt(call, [*call.prompt, *tokens, *await encode_replies(replies)], turn)

    def _replies(self, turn: Turn) -> Sequence[object]:
        """Return the messages of the tools that the last turn called, or none if this turn does not continue it."""
        if self._previous is None:
            return ()
        last, _, tokens = self._previous
        is_continuation = turn.items[: len(last.items)] == last.items
        return tool_messages(tokens, turn.items[len(last.items) :]) if is_continuation else ()

    def _with_prompt(self, call: VllmCall, prompt: Sequence[int], turn: Turn) -> VllmCall:
        """Return a call with another prompt of tokens, unless that is too long."""
        if prompt == call.prompt:
            return call
        engine_input = {**call.arguments["engine_input"], "prompt_token_ids": prompt, "arrival_time": time.time()}
        engine_input.pop("prompt", None)
        answer = compat.too_long(self._serving, engine_input)
        if answer is not None:
            raise VllmRefusedError.of(answer)
        sampling = copy(call.sampling)
        sampling.max_tokens = compat.max_tokens(self._serving, turn.budget, len(prompt))
        return evolve(call, sampling=sampling, arguments={**call.arguments, "engine_input": engine_input})

    def _entries(self, call: VllmCall) -> Callable[[Output], Sequence[TokenLogprob]]:
        if self._serving.use_harmony:
            return lambda output: token_entries(output.outputs[0].token_ids, output.outputs[0].logprobs or ())
        return partial(compat.logprobs, self._serving, call, self.request.top_logprobs)


def _has_function(body: Mapping[str, object]) -> bool:
    return any(members(tool).get("type") == "function" for tool in elements(body.get("tools")))


def _raw_message(text: str, tokens: Sequence[int]) -> dict[str, object]:
    return {"message": text, "tokens": [*tokens], "type": "raw_message_tokens"}


def _plain_messages(messages: Sequence[Any]) -> list[object]:
    return [message if isinstance(message, dict) else message.to_dict() for message in messages]


def _as_request(connection: HTTPConnection | None) -> Request | None:
    """Return a connection as the request from which vLLM takes priorities, traces and sessions."""
    if connection is None or isinstance(connection, Request):
        return connection
    return Request({**connection.scope, "type": "http", "method": "POST", "state": {}})


def _is_any_of(error: BaseException, names: frozenset[str]) -> bool:
    """Return whether an error's class, or a base of it, has one of these names; vLLM's own classes may not be importable."""
    return any(kind.__name__ in names for kind in type(error).__mro__)


# The long texts of prompts of gpt-oss.

PARTS: Final = ("instructions", "input", "tools")
"""The parameters of a request with texts of the prompt."""
TEXTS: Final = frozenset({*PARTS, "content", "text", "arguments", "output", "description", "name"})
"""The fields that have them."""

MARK: Final = 0xF0000
"""The first private character; marks consist of some, whose tokens are those of their bytes beside any text."""
EDGE: Final = chr(MARK + 0xFEFE)
"""The character at both ends of a mark."""
MARKS: Final = re.compile(f"{EDGE}..?{EDGE}")
CUT: Final = f"{EDGE}0{EDGE}"
"""The mark of the empty text, which splits a long word of any characters, because the tokenizer encodes digits apart."""
LARGE: Final = 16 * ENCODED_AT_ONCE
"""The characters of a prompt above which even texts longer than `SHORT` get marks, because many together take as long."""
SHORT: Final = 32
WORD: Final = 256
"""The longest name of a call, and the longest word or white space in a string of a tool, that vLLM encodes at once."""
WORDS: Final = re.compile(rf"\S{{{WORD}}}(?=\S)|\s{{{WORD}}}(?=\s)")
TOOL_BYTES: Final = 512 * 1024
"""The most characters of tools, as JSON without their long texts; they are encoded at once, in about 100 ms."""
GAP: Final = re.compile(r"(?<=\S) (?=\S)")
"""A space between words, before which tokens never continue."""


@define(eq=False)
class LongTexts:
    """The long texts of a gpt-oss prompt, encoded slice by slice, because vLLM would block the event loop while it encodes them.

    The time of the tokenizer grows with the square of a word's length. So vLLM renders a short mark in place of each long text,
    and the tokens of the text then replace those of the mark. The other strings of tools, such as property names, get marks
    inside long words, and their size is limited. `most` is the number of tokens at which encoding stops: the prompt is too long.
    """

    most: int
    _texts: dict[str, str] = field(factory=dict[str, str], init=False)
    """The text of each mark."""

    def hide(self, body: Mapping[str, object]) -> dict[str, object]:
        """Return the body of a request with a mark in place of each long text.

        Raises:
            ApiError: The tools are too large without their long texts.
        """
        longest = ENCODED_AT_ONCE if sum(_size(body.get(name), name) for name in PARTS) < LARGE else SHORT
        hidden = {**body, **{name: self._hide(body[name], name, longest) for name in PARTS if name in body}}
        if "tools" in body:
            if len(dumps(hidden["tools"])) > TOOL_BYTES:
                message = (
                    f"The tools are too large: their names and schemas may have {TOOL_BYTES} bytes besides long descriptions."
                )
                raise invalid("tools", message)
            hidden["tools"] = self._split(hidden["tools"])
        return hidden

    async def reveal(self, prompt: Sequence[int]) -> list[int]:
        """Return the tokens of a prompt with the texts in place of the marks; a prompt that is too long ends early."""
        texts = {_packed_mark(mark): text for mark, text in self._texts.items()}
        end, result, start, yielder = re.escape(_packed_mark(EDGE)), list[int](), 0, Yielder()
        for mark in re.finditer(f"(?s){end}.+?{end}", _pack(prompt) if texts else ""):
            if mark[0] in texts:
                result += prompt[start : mark.start()]
                start = mark.end()
                async for tokens in encode_text(texts[mark[0]], yielder):
                    result += tokens
                    if len(result) > self.most:
                        return result
        return [*result, *prompt[start:]]

    def reveal_json(self, value: object) -> object:
        """Return a JSON value with the texts in place of the marks."""
        return loads(MARKS.sub(lambda mark: dumps(self._texts.get(mark[0], mark[0])).decode()[1:-1], dumps(value).decode()))

    def reveal_grammar(self, grammar: str) -> str:
        """Return a grammar that vLLM made of the schemas of tools, as JSON, with the texts in place of the marks."""
        return dumps(self.reveal_json(loads(grammar))).decode() if self._texts else grammar

    def _hide(self, value: object, name: str, longest: int) -> object:
        if is_array(value):
            return [self._hide(each, name, longest) for each in value]
        if is_object(value):
            return {key: self._hide(each, key, longest) for key, each in value.items()}
        if not isinstance(value, str) or name not in TEXTS or len(value) <= (WORD if name == "name" else longest):
            return value
        if name == "description":  # vLLM begins each line with `//`
            return "\n".join(self._mark(line) if len(line) > longest else line for line in value.split("\n"))
        return self._mark(value)

    def _split(self, value: object) -> object:
        """Return a value of a tool with marks inside the long words of all strings, including names of members."""
        if is_array(value):
            return [self._split(each) for each in value]
        if is_object(value):
            return {self._split_text(key): self._split(each) for key, each in value.items()}
        return self._split_text(value) if isinstance(value, str) else value

    def _split_text(self, text: str) -> str:
        result, count = WORDS.subn(rf"\g<0>{CUT}", text)
        if count:
            self._texts[CUT] = ""
        return result

    def _mark(self, text: str) -> str:
        """Return a text with a mark in place of its middle; its ends stay, because their tokens depend on what is beside them."""
        first = GAP.search(text, 0, SHORT)
        start = first.start() if first else 0
        last = [gap.start() for gap in GAP.finditer(text, max(start, len(text) - SHORT))]
        end = last[-1] if last else len(text)
        number = len(self._texts)
        mark = f"{EDGE}{chr(MARK + (number >> 8))}{chr(MARK + (number & 0xFF))}{EDGE}"
        self._texts[mark] = text[start:end]
        return f"{text[:start]}{mark}{text[end:]}"


def _size(value: object, name: str) -> int:
    """Return the number of characters in the texts of a value."""
    if is_array(value):
        return sum(_size(each, name) for each in value)
    if is_object(value):
        return sum(_size(each, key) for key, each in value.items())
    return len(value) if isinstance(value, str) and name in TEXTS else 0


def _packed_mark(mark: str) -> str:
    return _pack(encoding().encode(mark, disallowed_special=()))  # looking for control tokens would take 0.8 ms


def _pack(tokens: Sequence[int]) -> str:
    return "".join(map(chr, tokens))
