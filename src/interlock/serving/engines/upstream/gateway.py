"""The gateway as an engine: each turn calls an upstream server, and a translator speaks that server's API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from attrs import Factory, define, evolve, field
from msgspec.structs import replace

from interlock.parsers import Chunk, Format
from interlock.serving import metrics, traces
from interlock.serving.engines.engine import Engine, EngineOutput, Generation, Turn
from interlock.serving.engines.shortcut import Shortcut
from interlock.serving.engines.upstream.translator import Translator, UpstreamCall, translator_of
from interlock.serving.engines.upstream.upstream_client import DISCONNECTED, STALLED, UNREACHABLE, EventStream, Upstream
from interlock.serving.engines.upstream.upstreams import UNKNOWN, ModelList, fault_of
from interlock.serving.metrics import OTHER
from interlock.serving.requests.api_errors import LISTING, MAX_NAME, ApiError, engine_error, known_models, no_such_model
from interlock.serving.requests.api_keys import authorization_of
from interlock.serving.requests.create import ResponseRequest, read_request
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.requests.logs import log_with
from interlock.serving.settings import ModelFacts

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

LEAST: Final = 16
"""The smallest `max_output_tokens` that OpenAI's service accepts."""

PATIENCE: Final = 2.0
"""Seconds for which a request waits for the first answer of an upstream if others have answered."""

STEP: Final = 64
"""The most chunks that are parsed and sent in one go, before other streams have their turn."""

UNANSWERED: Final = "cancelled_unanswered"
"""The type of the error of a call that ends, mostly because its client leaves, before the upstream has sent anything."""

LOST_CODES: Final = (DISCONNECTED, STALLED)
"""The error codes of a lost connection, which does no harm to a turn that has finished."""


@define(eq=False)
class Gateway(Engine):
    """An engine whose models are on other servers; `hosted` has the types of the tools that it runs, and their descriptions."""

    upstreams: Sequence[Upstream]
    hosted: Mapping[str, str] = field(factory=dict[str, str])
    models: Sequence[str] = field(default=(), init=False)
    """None: see `names`, because upstreams list them."""
    format: Format = field(default=Factory(lambda self: self.upstreams[0].family or "chat", takes_self=True), init=False)
    _lists: Sequence[ModelList] = field(
        default=Factory(lambda self: [ModelList(each) for each in self.upstreams], takes_self=True), init=False
    )

    generate = Engine.generate_alone

    @property
    def passes_keys(self) -> bool:
        return any(upstream.settings.pass_key for upstream in self.upstreams)

    async def names(self) -> Sequence[str]:
        await self._wait_for_lists()
        return [*dict.fromkeys(name for each in reversed(self._lists) for name in each.served)]

    def model_label(self, name: str) -> str:
        return name if any(name in each.served for each in self._lists) else OTHER

    def facts(self, name: str) -> ModelFacts:
        """Return what the configuration says of a model, and else the first upstream that lists it."""
        facts = ModelFacts()
        for listed in self._lists:
            upstream = listed.upstream
            model = upstream.settings.aliases.get(name, name)
            facts = facts.fill_from(upstream.settings.facts.get(model, ModelFacts()))
            facts = facts.fill_from(listed.facts.get(model, ModelFacts()))
            facts = facts.fill_from(ModelFacts(modalities=translator_of(upstream).modalities))
        return facts

    async def has_tools(self, name: str) -> bool:
        """Return whether a model's upstream receives tools that the gateway does not run; raise `ApiError` as `find` does."""
        upstream, _ = await self.find(name)
        return translator_of(upstream).passes_tools

    def read(self, raw: Mapping[str, object]) -> ResponseRequest:
        """Validate the body of a request, but leave a positive `max_output_tokens` below OpenAI's minimum to the upstream.

        Raises:
            ApiError: 400 for an invalid body.
        """
        limit = raw.get("max_output_tokens")
        if type(limit) is not int or not 0 < limit < LEAST:
            return read_request(raw)
        return replace(read_request({**raw, "max_output_tokens": LEAST}), raw=raw, max_output_tokens=limit)

    async def begin(
        self, request: ResponseRequest, items: Sequence[JsonItem], tenant: str = "", connection: HTTPConnection | None = None
    ) -> UpstreamGeneration:
        """Begin a response at the upstream of its model.

        Raises:
            ApiError: No upstream has the model; see `find`.
        """
        del tenant
        upstream, model = await self.find(request.model)
        log_with(upstream=upstream.url)
        authorization = authorization_of(connection.headers) if connection is not None and upstream.settings.pass_key else None
        declared, limit = request.declare_tools(items), await self._limit(upstream, request)
        call = UpstreamCall(upstream, model, request, declared, self.hosted, authorization, limit)
        translator = translator_of(upstream).of(call)
        return UpstreamGeneration(translator.parser, engine=self, model=request.model, translator=translator)

    async def require_ready(self) -> None:
        """Raise `ApiError` if every upstream is down."""
        await self._wait_for_lists()
        if all(each.is_down for each in self._lists):
            raise fault_of(self._lists)

    async def close(self) -> None:
        for listed in self._lists:
            listed.close()
            await listed.upstream.close()

    async def find(self, name: str) -> tuple[Upstream, str]:
        """Return a model's upstream and its name there; a single upstream without configured models receives every name.

        Raises:
            ApiError: No upstream has the model, or the one that lists it, or may list it, is down.
        """
        for upstream in self.upstreams:
            if name in upstream.settings.aliases:
                return upstream, upstream.settings.aliases[name]
            if name in upstream.settings.models:
                return upstream, name
        if len(self.upstreams) == 1 and not self.upstreams[0].settings.models:
            return self.upstreams[0], name
        await self._wait_for_lists()
        attempts = [attempt for each in self._lists if (attempt := each.refresh()) is not None]
        if attempts and not any(name in each.names for each in self._lists):
            await asyncio.wait(attempts)  # the model may be new
        lists = [each for each in self._lists if not each.upstream.settings.models]
        known = [each for each in lists if name in each.names]
        for listed in known:
            if not listed.is_down:
                return listed.upstream, name
        if faults := known or [each for each in lists if each.fault is not None and not each.names]:
            log_with(upstream=", ".join(each.upstream.url for each in faults))
            raise evolve(fault_of(faults), message=f"The model '{name[:MAX_NAME]}' is not available.")
        raise no_such_model(name, await self.names())

    async def check(self, upstream: Upstream) -> None:
        """Find out whether an upstream is down, so that the next request goes to another one with its model, if there is one."""
        attempt = self._lists[self.upstreams.index(upstream)].check()
        can_replace = len(self.upstreams) > 1 and not upstream.settings.models
        if attempt is not None and can_replace:
            await asyncio.wait([attempt], timeout=PATIENCE)

    async def _limit(self, upstream: Upstream, request: ResponseRequest) -> str:
        """Return an upstream's field for a limit of tokens: in Chat, the first list of models may have to say it."""
        listed = self._lists[self.upstreams.index(upstream)]
        asks = upstream.settings.api == "chat" and request.max_output_tokens is not None and listed.fault is UNKNOWN
        attempt = listed.refresh()  # also for the names of models in metrics
        if asks and attempt is not None:
            await asyncio.wait([attempt], timeout=PATIENCE)
        return listed.limit

    async def _wait_for_lists(self) -> None:
        """Wait for the first answer of all upstreams, and `PATIENCE` seconds longer for the first one of each other."""
        attempts = [(each, attempt) for each in self._lists if (attempt := each.refresh()) is not None and each.fault is UNKNOWN]
        if len(attempts) == len(self._lists):
            await asyncio.wait([attempt for _, attempt in attempts], return_when=asyncio.FIRST_COMPLETED)
        if attempts:
            patience = max(each.started_at for each, _ in attempts) + PATIENCE - asyncio.get_running_loop().time()
            await asyncio.wait([attempt for _, attempt in attempts], timeout=max(patience, 0))


@define(eq=False)
class ObservedCall:
    """Adds a call of an upstream to the metrics and the traces; `span` is open until `end`."""

    _attributes: traces.Attributes
    span: traces.Span
    _started_at: float = field(factory=monotonic, init=False)

    @classmethod
    def begin(cls, translator: Translator, model: str) -> ObservedCall:
        """Return a call that begins now; `model` is a label."""
        address, port = translator.call.upstream.address
        attributes: traces.Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": translator.provider,
            "gen_ai.request.model": model,
            "server.address": address,
            "server.port": port,
        }
        return cls(attributes, traces.start(f"chat {model}", "CLIENT", attributes))

    def end(self, outcome: EngineOutput | ApiError | str) -> None:
        """End the call with its last output, or with an error, or its type."""
        labels = [str(value) for value in self._attributes.values()]
        error_type = ""
        if isinstance(outcome, EngineOutput):
            usage = {"input": outcome.input_tokens, "output": outcome.output_tokens}
            for kind, tokens in usage.items():
                if tokens:
                    metrics.observe("gen_ai_client_token_usage", tokens, *labels, kind)
            self.span.set({f"gen_ai.usage.{kind}_tokens": tokens for kind, tokens in usage.items()})
            self.span.set({"gen_ai.response.finish_reasons": [str(outcome.finish_reason)]})
        else:
            error_type = outcome if isinstance(outcome, str) else metrics.known_code(outcome.code, f"{outcome.status}")
            self.span.fail(error_type)
        metrics.observe("gen_ai_client_operation_duration_seconds", monotonic() - self._started_at, *labels, error_type)
        self.span.end()


@define(eq=False)
class UpstreamGeneration(Generation):
    """The generation of one response, turn by turn, by the upstream of its model."""

    engine: Gateway = field(kw_only=True)  # pyright: ignore[reportIncompatibleVariableOverride] - it is never assigned
    model: str = field(kw_only=True)
    translator: Translator = field(kw_only=True)
    encrypts = True
    no_usage = None
    _stream: tuple[Turn, EventStream] | None = field(default=None, init=False)
    _observed: ObservedCall | None = field(default=None, init=False)
    _shortcut: Shortcut[Any] | None = field(default=None, init=False)

    async def admit(self, turn: Turn) -> None:
        await self._begin(turn)

    async def count(self, turn: Turn) -> int:
        return await self.translator.count(turn)

    async def count_locally(self, turn: Turn) -> int:
        return await self.translator.count_locally(turn)

    def shorten(self, shortcut: Shortcut[Any]) -> None:
        self._shortcut = shortcut

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        try:
            stream, translator = await self._begin(turn), self.translator
            if self._shortcut is not None:
                self._shortcut.connect(stream, translator)
            has_ended = False
            with stream.redact_keys():
                try:
                    while not has_ended and (events := await stream.next_events()) is not None:
                        chunks: list[Chunk] = []
                        try:
                            has_ended = translator.read_all(events, chunks)
                        finally:  # what came before a malformed event counts
                            for start in range(0, len(chunks), STEP):
                                if start:
                                    await asyncio.sleep(0)
                                yield EngineOutput(chunks[start], more=chunks[start + 1 : start + STEP])
                    await stream.drain()
                except ApiError as error:
                    if error.code not in LOST_CODES or translator.finish_reason is None:
                        raise
                output = translator.end()
                self._end_observed(output)
                yield output
        except ApiError as error:
            self._end_observed(error)
            raise engine_error(error) from error
        finally:
            await self.close()

    async def close(self) -> None:
        stream, self._stream = self._stream, None
        self._end_observed("cancelled" if stream is not None and stream[1].has_begun else UNANSWERED)
        if stream is not None:
            await stream[1].close()

    def _end_observed(self, outcome: EngineOutput | ApiError | str) -> None:
        observed, self._observed = self._observed, None
        if observed is not None:
            observed.end(outcome)

    async def _begin(self, turn: Turn) -> EventStream:
        """Begin the call for a turn, unless it is in progress, and wait for the head of its answer."""
        if self._stream is not None and self._stream[0] == turn:
            return self._stream[1]
        await self.close()
        translator = self.translator
        self._observed = observed = ObservedCall.begin(translator, self.engine.model_label(self.model))
        stream = await translator.stream(turn)
        observed.span.inject(stream.headers)
        try:
            with stream.redact_keys():
                await stream.open()
        except ApiError as error:
            self._end_observed(error)
            if error.code == UNREACHABLE:
                await self.engine.check(translator.call.upstream)
            names = await self.engine.names() if error.status == HTTPStatus.NOT_FOUND else ()
            if not names or self.model in names:
                raise
            own, _, _ = error.message.partition(LISTING)  # an upstream that is Interlock has listed its names
            raise evolve(error, message=own + known_models(names)) from error
        self._stream = turn, stream
        return stream
