"""vLLM as an engine: each turn is a request that every release can render, and what vLLM makes of it generates exactly one turn.

vLLM validates, renders, resolves sampling parameters and generates; everything else is the service's. A later turn of gpt-oss
goes on from the very tokens of the last one (prompt, output, the tools' messages), so that vLLM's prefix cache holds them; the
templates of other models render the conversation anew. What vLLM refuses is refused in its words before anything is answered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from functools import partial
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

from attrs import define, evolve, field, frozen
from msgspec.structs import replace
from pydantic import ValidationError
from starlette.requests import HTTPConnection, Request

from interlock.events.json import dumps
from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk, Format, Parser, parser_for
from interlock.parsers.families import Family
from interlock.parsers.harmony_vocabulary import Entry
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.harmony_tokens import token_entries, tool_messages, turn_messages
from interlock.serving.engines.vllm import compat
from interlock.serving.engines.vllm.compat import Call, Client, Dumpable, OneTurn, Output, Serving, Steps
from interlock.serving.engines.vllm.readers import Reader, reader, with_written_id
from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError
from interlock.serving.requests.containment import Outcome, is_fault, outcome
from interlock.serving.requests.conversation_bodies import named_conversation
from interlock.serving.requests.create import CreateResponse, read_hosted
from interlock.serving.requests.hosted_tools import LABELS
from interlock.serving.requests.identity import random_id
from interlock.serving.requests.input_items import Item, require_input
from interlock.serving.requests.json_values import elements, members
from interlock.serving.requests.normalize import plain
from interlock.serving.requests.refusals import refusal
from interlock.serving.requests.tool_offer import HostedTools, declare, offer

__all__ = ["Admissions", "Salt", "VllmEngine", "VllmRefusedError"]

logger = logging.getLogger("vllm.interlock")  # below vLLM's own, which has a handler

Salt: TypeAlias = Literal["tenant", "key", "none"]
"""Who shares vLLM's prefix cache: the requests of one API key, those with one `prompt_cache_key` too, or all."""

CLIENTS: Final = frozenset({"VLLMClientError", "VLLMValidationError", "VLLMNotFoundError", "VLLMUnprocessableEntityError"})
"""vLLM's errors, with all that derive from them, that are the client's fault; newer releases derive the others from the first."""

REFUSALS: Final = frozenset({*CLIENTS, "ValueError", "NotImplementedError"})
"""What vLLM raises before a response begins if its request is wrong; its handlers answer it with an error body over HTTP."""

SPOKEN: Final = frozenset({"GenerationError", "EngineDeadError", "EngineGenerateError"})
"""vLLM's errors whose messages are made for clients, with all that derive from them."""

REASONS: Final[Mapping[str, FinishReason]] = {
    "length": "length",
    "repetition": "content_filter",
    "abort": "abort",
    "error": "error",
}
"""vLLM's reasons for the end of a turn; every other one is the model's own end. What cuts repetitions is a filter."""

TIERS: Final = ("auto", "default", "flex", "scale", "priority")
OURS: Final = ("context_management", "conversation", "include", "previous_response_id", "truncation")
"""The parameters that are the service's, and mean nothing to vLLM or something else."""

EFFORTS: Final = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}
"""The efforts that gpt-oss does not know, each with the nearest that it knows."""

SEARCHES: Final = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")
OF_GPT_OSS: Final = {kind: {"type": "web_search_preview"} for kind in SEARCHES} | {
    "code_interpreter": {"type": "code_interpreter"}
}
"""The hosted tools as vLLM's prompt of gpt-oss describes them."""


def _function(name: str, argument: str, description: str) -> dict[str, object]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


PYTHON: Final = _function("python", "code", "Runs Python code and returns what it prints.")
SEARCH: Final = _function("web_search", "query", "Searches the web and returns the pages that were found.")
"""The functions that stand for hosted tools where a model knows functions alone."""

END: Final = object()
"""What follows the last output of a turn."""


@frozen
class VllmRefusedError(ApiError):
    """A request that vLLM refuses.

    Args:
        answer: The refusal as vLLM answers it over HTTP: an exception that its handlers answer, or an answer.
    """

    answer: Exception | Dumpable | None = field(default=None, kw_only=True, repr=False)

    @classmethod
    def of(cls, refused: Dumpable) -> VllmRefusedError:
        """Return a refusal that vLLM has returned."""
        error = members(refused.model_dump(mode="json", by_alias=True)["error"])
        param, status = error.get("param"), error.get("code")
        assert isinstance(status, int)  # noqa: S101 - vLLM's code is a status
        return cls(status, str(error.get("message")), str(error.get("type")), str(param) if param else None, answer=refused)

    @classmethod
    def raised(cls, error: Exception) -> VllmRefusedError:
        """Return a refusal that vLLM has raised."""
        param = getattr(error, "parameter", None)
        return cls(400, str(error), param=param if isinstance(param, str) else None, code="invalid_value", answer=error)


@define(eq=False)
class Admissions:
    """Tells when the engine has taken a request, long before its first token: its client says so."""

    waiting: dict[str, asyncio.Event] = field(factory=dict[str, asyncio.Event], init=False)
    """What is set when the engine takes the request of an id."""

    def watch(self, client: Client) -> None:
        """Look at what the engine's client hands over."""
        add_request = client.add_request

        async def watched(request_id: str, *arguments: object, **options: object) -> object:
            added = await add_request(request_id, *arguments, **options)
            taken = self.waiting.get(request_id.rpartition("_")[0])
            if taken is not None:
                taken.set()
            return added

        client.add_request = watched


@define(eq=False)
class Begun:
    """A turn that vLLM has begun to generate, in a task, so that nobody waits for its first token to know that it is taken.

    vLLM validates the parameters of a generation in the first step of its loop. A grammar is compiled after the engine has taken
    the request, so with one the first output has to be there.
    """

    call: Call
    steps: Steps
    """vLLM's loop."""
    _serving: Serving
    _admissions: Admissions
    _request_id: str
    _taken: asyncio.Event = field(factory=asyncio.Event, init=False)
    """Set when the engine has taken the request, and when the first step is over, whatever came of it."""
    _first: asyncio.Task[Outcome[object]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Begin."""
        if self.call.sampling.structured_outputs is None:
            self._admissions.waiting[self._request_id] = self._taken
        self._first = asyncio.create_task(outcome(self._step()))
        self._first.add_done_callback(self._end_admission)

    async def admitted(self) -> None:
        """Wait until the engine has taken the turn.

        Raises:
            Exception: Why it does not take it, as vLLM says it.
        """
        await self._taken.wait()
        if self._first.done():
            self._first.result().result()

    async def first_step(self) -> object:
        """Return what the first step gives, or `END`; `steps` give the others."""
        return (await self._first).result()

    async def close(self) -> None:
        """Close vLLM's loop, which aborts a request that is still in the engine."""
        self._first.cancel()
        await asyncio.wait([self._first])
        await self.steps.aclose()

    def _end_admission(self, _: object) -> None:
        self._taken.set()
        self._admissions.waiting.pop(self._request_id, None)

    async def _step(self) -> object:
        step = await anext(self.steps, END)
        if isinstance(step, OneTurn) and not step.output.outputs[0].token_ids:
            compat.raise_if_error(self._serving, step.output, self._request_id)
        return step


@frozen(eq=False)
class VllmEngine:
    """The engine of a vLLM server; see `interlock.serving.engines.generation.HostEngine`.

    Args:
        serving: vLLM's instance that serves responses.
        hosted: The hosted tools that can be run.
        family: The family whose models are read with parsers of our own; None where vLLM's are used.
        hide_end: Whether vLLM's parsers must not see the token that ends a turn.
        salt: Who shares the prefix cache.
        admissions: Say when the engine has taken a request.
    """

    serving: Serving
    hosted: AbstractSet[str] = frozenset()
    family: Family | None = None
    hide_end: bool = False
    salt: Salt = "none"
    admissions: Admissions = field(factory=Admissions)

    @property
    def format(self) -> Format:
        """What the output is written in."""
        return "harmony" if self.serving.use_harmony else "vllm"

    async def names(self) -> Sequence[str]:
        """Return the names by which requests may ask for a model; it may be left out."""
        return ["", *(card.id for card in (await self.serving.models.show_available_models()).data)]

    @property
    def tools(self) -> HostedTools:
        """The hosted tools as a prompt describes them."""
        if self.serving.use_harmony:
            return HostedTools(OF_GPT_OSS, frozenset(label for label, kind in LABELS.items() if kind in self.hosted))
        functions = {"code_interpreter": PYTHON, **dict.fromkeys(SEARCHES, SEARCH)}
        return HostedTools({kind: tool for kind, tool in functions.items() if kind.startswith(tuple(self.hosted))})

    def read(self, raw: Mapping[str, object]) -> CreateResponse:
        """Validate all parameters but the input and the tools, which vLLM sees when it renders them."""
        asked = read_hosted(raw)
        conversation = named_conversation(raw)
        require_input(asked.input, continues=conversation is not None or raw.get("previous_response_id") is not None)
        left_out = {name: value for name, value in raw.items() if name not in (*OURS, "tools", "tool_choice")}
        request = self.valid(raw, {**self.known(left_out), "input": "", "previous_response_id": raw.get("previous_response_id")})
        return replace(
            asked,
            model=request.model or "",
            instructions=request.instructions,
            stream=bool(request.stream),
            store=bool(request.store) and self.serving.enable_store,
            background=bool(request.background),
            previous_response_id=request.previous_response_id,
            max_output_tokens=request.max_output_tokens,
            max_tool_calls=request.max_tool_calls,
            parallel_tool_calls=request.parallel_tool_calls is not False,
            include=[name for name in elements(raw.get("include")) if isinstance(name, str)],
            top_logprobs=request.top_logprobs or 0,
        )

    def begin(
        self, request: CreateResponse, items: Sequence[Item], tenant: str, connection: HTTPConnection | None
    ) -> VllmGeneration:
        """Return what generates one response."""
        given = request.raw.get("request_id")
        response_id = given if isinstance(given, str) and given else random_id("resp")
        declared = {**request.raw, "tools": [*declare(request.tools, items)]}
        return VllmGeneration(self, request, tenant, _as_request(connection), response_id, declared)

    def valid(self, raw: Mapping[str, object], body: Mapping[str, object]) -> compat.Request:
        """Return a body as vLLM validates it.

        Raises:
            VllmRefusedError: It is not valid.
        """
        try:
            return compat.valid_request(body)
        except ValidationError as error:
            cause = members(error.errors()[0].get("ctx")).get("error")
            told = VllmRefusedError.raised(cause) if isinstance(cause, Exception) else refusal(error)
            answer = compat.validation_error(error, raw)
            raise VllmRefusedError(told.status, told.message, told.type, told.param, told.code, answer=answer) from None
        except Exception as error:
            if _is_any_of(error, REFUSALS):
                raise VllmRefusedError.raised(error) from error
            raise

    def known(self, body: Mapping[str, object]) -> dict[str, object]:
        """Return a body with the nearest value that vLLM knows for those that it does not."""
        known = dict(body)
        if body.get("service_tier") not in TIERS:
            known.pop("service_tier", None)
        effort = members(body.get("reasoning")).get("effort")
        if self.serving.use_harmony and effort in EFFORTS:
            known["reasoning"] = {**members(body["reasoning"]), "effort": EFFORTS[str(effort)]}
        return known

    def salted(self, raw: Mapping[str, object], tenant: str) -> dict[str, object]:
        """Return the salt of the prefix cache for a request; one of its own counts more."""
        key = raw.get("prompt_cache_key") if self.salt == "key" else None
        if raw.get("cache_salt") is not None or self.salt == "none" or not (tenant or key):
            return {}
        return {"cache_salt": sha256(f"{tenant}\0{key or ''}".encode()).hexdigest()}


@frozen
class Past:
    """A turn of gpt-oss that has ended: the items that it went on from, and the tokens that it wrote."""

    items: Sequence[Item]
    call: Call
    tokens: Sequence[int]

    def replies(self, turn: Turn) -> Sequence[object]:
        """Return the messages of the tools that the turn called; none if the next one is no continuation."""
        is_continuation = turn.items[: len(self.items)] == self.items
        return tool_messages(self.tokens, turn.items[len(self.items) :]) if is_continuation else []


@define(eq=False)
class VllmGeneration:
    """What vLLM generates for one response.

    Args:
        engine: The server's.
        request: What is asked for.
        tenant: Whose it is.
        connection: What it came over; None for what the server asks by itself.
        response_id: Its id, by which vLLM's log knows it.
        declared: The request's body with the tools by which calls are read.
    """

    _engine: VllmEngine
    _request: CreateResponse
    _tenant: str
    _connection: Request | None
    response_id: str
    _declared: Mapping[str, object]
    parser: Parser = field(init=False)
    _reader: Reader | None = field(default=None, init=False)
    """The parser, where it is told of each turn."""
    _rendered: tuple[Turn, Call] | None = field(default=None, init=False)
    """What was rendered last."""
    _begun: Begun | None = field(default=None, init=False)
    """What was begun last."""
    _past: Past | None = field(default=None, init=False)
    _last: Output | None = field(default=None, init=False)
    _metrics: object = field(default=None, init=False)
    _turns: int = field(default=0, init=False)
    _count: int = field(default=0, init=False)
    """Tokens that were generated."""
    _messages: tuple[list[object], list[object]] = field(factory=lambda: ([], []), init=False)
    """What the model was given and what came of it, for a request that wants to see that."""

    @property
    def _serving(self) -> Serving:
        return self._engine.serving

    async def prepare(self, turn: Turn) -> Mapping[str, object]:
        """Have vLLM validate and render the first turn, and return the settings that it resolved."""
        call = await self._call(turn)
        if self._serving.use_harmony:
            self.parser = parser_for("harmony", self._declared)
        else:
            forced = self._request.raw.get("tool_choice") not in (None, "auto", "none")
            types = [str(tool.get("type")) for tool in self._request.tools]
            offered = {kind for kind in self._engine.hosted if any(each.startswith(kind) for each in types)}
            more = {"forced": forced, "hide_end": self._engine.hide_end}
            self.parser = self._reader = reader(self._engine.family, self._declared, call, offered, **more)
        sampling = call.sampling
        return {
            "model": call.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "max_output_tokens": sampling.max_tokens,
            "store": self._request.store,
        }

    async def admit(self, turn: Turn) -> None:
        """Begin the first turn, and wait until the engine has taken it."""
        begun = await self._begin(await self._call(turn))
        try:
            await begun.admitted()
        except Exception as error:
            if _is_any_of(error, REFUSALS):
                raise VllmRefusedError.raised(error) from error
            raise

    async def count(self, turn: Turn) -> int:
        """Return how many tokens the prompt of a turn has."""
        return compat.prompt_length(self._serving, await self._call(turn))

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Generate one turn.

        Raises:
            PromptError: vLLM refuses its prompt.
            EngineError: vLLM says that it failed.
        """
        harmony, shown = self._serving.use_harmony, self._request.raw.get("enable_response_messages")
        tokens: list[int] = []
        texts: list[str] = []
        try:
            call = await self._call(turn)
            begun = await self._begin(call)
            if shown and self._past is not None:
                self._messages[1].extend(self._past.replies(turn))
            self._turns += 1
            entries = self._entries(call) if self._request.wants_logprobs else None
            step = await begun.first_step()
            while isinstance(step, OneTurn):
                self._last = output = step.output
                new = output.outputs[0]
                tokens += new.token_ids
                texts.append(new.text)
                logprobs = None if entries is None else entries(output)
                reason: FinishReason | None = REASONS.get(new.finish_reason or "", "stop") if output.finished else None
                made = EngineOutput(Chunk(new.token_ids, new.text, logprobs, None if harmony else output), reason)
                if len(texts) == 1:
                    self._begin_turn(call, output, made)
                if reason is not None:
                    self._metrics, self._count = step.request_metrics, self._count + len(tokens)
                    self._past = Past(turn.items, call, tokens) if harmony else None
                yield made
                step = await anext(begun.steps, END)
        except ApiError as error:
            raise PromptError(error.message) from error
        except Exception as error:
            if _is_any_of(error, CLIENTS):
                raise PromptError(str(error)) from error
            if _is_any_of(error, SPOKEN):
                raise EngineError(str(error)) from error
            raise
        if shown:
            self._messages[1].extend(turn_messages(tokens) if harmony else [_raw_message("".join(texts), tokens)])

    def _begin_turn(self, call: Call, first: Output, made: EngineOutput) -> None:
        """Note what the prompt has cost, and tell the reader of the turn."""
        made.input_tokens = len(first.prompt_token_ids or ())
        made.cached_tokens = first.num_cached_tokens or 0
        made.cache_write_tokens = first.num_cache_creation_tokens or 0
        if self._reader is not None:
            self._reader.begin(call)
        if self._turns == 1 and self._request.raw.get("enable_response_messages"):
            prompt = _raw_message(first.prompt or "", first.prompt_token_ids or ())
            self._messages[0].extend(call.messages if self._serving.use_harmony else [prompt])

    def additions(self) -> Mapping[str, object]:
        """Return vLLM's own fields; none if one cannot be had, because a response ends whatever happens (rule R4).

        Each is there where vLLM's own response has a value for it: what a transfer of the KV cache or of an encoder's needs, the
        messages in the model's own form, and timings on a server that was started to give them.
        """
        try:
            fields = {name: getattr(self._last, name, None) for name in ("kv_transfer_params", "ec_transfer_params")}
            if self._request.raw.get("enable_response_messages"):
                fields |= zip(("input_messages", "output_messages"), map(_plain_messages, self._messages), strict=True)
            if getattr(self._serving, "enable_per_request_metrics", False) and self._turns == 1:
                fields["metrics"] = compat.timings(self._metrics, self._count)
            return {name: value for name, value in fields.items() if value is not None}
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("%s: the response goes without vLLM's own fields", self.response_id)
            return {}

    def log(self, response: Mapping[str, object]) -> None:
        """Log what was generated, if vLLM was started with `--enable-log-outputs`."""
        log = self._serving.request_logger
        if log is not None and self._serving.enable_log_outputs:
            items, streamed = dumps(response["output"]).decode(), self._request.stream
            log.log_outputs(self.response_id, items, None, finish_reason=str(response["status"]), is_streaming=streamed)

    async def close(self) -> None:
        """Abort what is still being generated."""
        begun, self._begun = self._begun, None
        if begun is not None:
            await begun.close()

    async def _begin(self, call: Call) -> Begun:
        """Begin to generate, unless that was begun already; something else that was begun is left off."""
        if self._begun is None or self._begun.call is not call:
            await self.close()
            request_id = f"{self.response_id}_{self._turns}" if self._turns else self.response_id
            steps: Steps = compat.generate(self._serving, call, request_id, self._turns)
            self._begun = Begun(call, steps, self._serving, self._engine.admissions, request_id)
        return self._begun

    async def _call(self, turn: Turn) -> Call:
        """Return what a turn is generated with; what was rendered last is not rendered again."""
        last = self._rendered
        if last is not None and (last[0].items, last[0].budget, last[0].index) == (turn.items, turn.budget, turn.index):
            return last[1]
        call = self._continued(turn) or await self._render(turn)
        self._rendered = (turn, call)
        return call

    async def _render(self, turn: Turn) -> Call:
        """Have vLLM render a turn.

        Raises:
            VllmRefusedError: vLLM refuses it.
        """
        engine, wanted = self._engine, self._request
        request = engine.valid(wanted.raw, self._body(turn))
        request.request_id = self.response_id
        try:
            call = await compat.begin_call(engine.serving, request, self._connection)
        except Exception as error:
            if _is_any_of(error, REFUSALS):
                raise VllmRefusedError.raised(error) from error
            raise
        if not isinstance(call, Call):
            raise VllmRefusedError.of(call)
        if engine.serving.use_harmony:
            if wanted.wants_logprobs:  # which vLLM refuses there, for its own events cannot carry them
                call.sampling.logprobs = wanted.top_logprobs
            elif not call.sampling.stop:
                call.sampling.detokenize = False  # harmony is read by its tokens, and so their text would be made twice
        return call

    def _body(self, turn: Turn) -> dict[str, object]:
        """Return the body of a request that every release of vLLM can render.

        What vLLM would refuse or lose is put into what it knows: functions, and messages, reasoning, function calls and their
        outputs.
        """
        engine, raw = self._engine, self._request.raw
        harmony = engine.serving.use_harmony
        offered = offer(self._request.tools, raw.get("tool_choice"), turn.items, engine.tools)
        if not turn.index:
            for kind in offered.left_out:
                logger.warning("a tool of the type %s is not offered to the model: no function can stand for it", kind)
        choice = "none" if offered.choice == "auto" and not offered.tools else offered.choice
        if turn.index and choice not in (None, "none"):
            choice = "auto"  # the call that was to be made was made
        items = [*plain(turn.items, pictures=not harmony)]
        if engine.family is not None:
            items = [with_written_id(item, engine.family) for item in items]
        text = raw.get("input")
        refused = self._request.background and not engine.serving.enable_store  # which vLLM says in its own words
        body = {
            **{name: value for name, value in raw.items() if name not in (*OURS, "tools", "tool_choice", "request_id")},
            **engine.salted(raw, self._tenant),
            "input": text if isinstance(text, str) and len(items) == 1 and items[0].get("content") == text else items,
            "include": ["message.output_text.logprobs"] if self._request.wants_logprobs and not harmony else None,
            "max_output_tokens": turn.budget,
            "stream": True,
            "store": refused,
            "background": refused,
        }
        if raw.get("tools") is not None or offered.tools:
            body["tools"] = [*offered.tools]
        if choice is not None:
            body["tool_choice"] = choice
        return engine.known(body)

    def _continued(self, turn: Turn) -> Call | None:
        """Return what a later turn of gpt-oss is generated with; None for one that does not simply go on from the last.

        Raises:
            VllmRefusedError: Its prompt is too long.
        """
        past = self._past
        if past is None or not turn.index or self._request.raw.get("tool_choice") not in (None, "auto", "none"):
            return None
        replies = past.replies(turn)
        if not replies:
            return None
        prompt = [*past.call.prompt, *past.tokens, *compat.rendered(replies)]
        engine_input = {**past.call.arguments["engine_input"], "prompt_token_ids": prompt, "arrival_time": time.time()}
        engine_input.pop("prompt", None)
        refused = compat.too_long(self._serving, engine_input)
        if refused is not None:
            raise VllmRefusedError.of(refused)
        sampling = copy(past.call.sampling)
        sampling.max_tokens = compat.max_tokens(self._serving, turn.budget, len(prompt))
        return evolve(past.call, sampling=sampling, arguments={**past.call.arguments, "engine_input": engine_input})

    def _entries(self, call: Call) -> Callable[[Output], Sequence[Entry]]:
        """Return what gives the log probabilities of an output's tokens, in the API's shape."""
        count = self._request.top_logprobs
        if self._serving.use_harmony:
            return lambda output: token_entries(output.outputs[0].token_ids, output.outputs[0].logprobs or (), count)
        return partial(compat.logprobs, self._serving, call, count)


def _raw_message(text: str, tokens: Sequence[int]) -> dict[str, object]:
    """Return what a model was given or wrote, as vLLM shows it."""
    return {"message": text, "tokens": [*tokens], "type": "raw_message_tokens"}


def _plain_messages(messages: Sequence[Any]) -> list[object]:
    return [message if isinstance(message, dict) else message.to_dict() for message in messages]


def _as_request(connection: HTTPConnection | None) -> Request | None:
    """Return a connection as the request that vLLM takes priorities, traces and sessions from."""
    if connection is None or isinstance(connection, Request):
        return connection
    return Request({**connection.scope, "type": "http", "method": "POST", "state": {}})


def _is_any_of(error: BaseException, names: frozenset[str]) -> bool:
    """Return whether the class of an error has one of these names, since vLLM's own classes may not be importable."""
    return any(kind.__name__ in names for kind in type(error).__mro__)
