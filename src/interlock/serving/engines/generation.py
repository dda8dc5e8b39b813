"""What an engine does for one response: refuse it, resolve its settings, generate, parse output and add fields.

A `ResponseEngine` creates a `Generation` for each response. A plain `Engine` becomes one with `response_engine`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from attrs import define, evolve, field, frozen

from interlock.fsm.deltas import Usage
from interlock.parsers import Chunk, Format, Parser, parser_for
from interlock.serving.engines.engine import AdmittingEngine, Engine, EngineOutput, ModelFacts, Turn
from interlock.serving.engines.shortcut import Shortcut
from interlock.serving.metrics import OTHER
from interlock.serving.requests.api_errors import ApiError, PromptError, no_such_model
from interlock.serving.requests.context_window import truncate
from interlock.serving.requests.create import ResponseRequest, read_request
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.requests.normalize import answer_async_calls

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

TOO_LONG: Final = re.compile(r"\bcontext\b|too long|max_model_len|maximum model length", re.IGNORECASE)
"""Matches a refusal of vLLM, or of an upstream server, that has no code and says that the prompt is too long."""


class Generation(Protocol):
    """What an engine does for one response. The defaults refuse, resolve, add and log nothing."""

    admits: ClassVar[bool] = True
    """Whether `admit` may refuse the first turn or wait."""
    count_waits: ClassVar[bool] = False
    """Whether `count` may wait for another server."""
    least_budget: ClassVar[int] = 1
    """The smallest budget of a turn that the model accepts."""
    no_usage: ClassVar[Usage | None] = Usage()
    """The usage of a turn whose tokens nobody counted: None if the engine does not count them itself."""

    @property
    def parser(self) -> Parser:
        """Parses the model's output; available once `prepare` has returned."""
        ...

    @property
    def response_id(self) -> str | None:
        """The id of the response, if the engine assigns one."""
        ...

    async def prepare(self, turn: Turn) -> Mapping[str, object]:
        """Validate and render the first turn, and return the resolved settings, which the response echoes.

        The server may still list tools or compact the conversation before that turn.

        Raises:
            ApiError: The engine refuses the request; no response begins.
        """
        del turn
        return {}

    async def admit(self, turn: Turn) -> None:
        """Begin the first turn, and wait until the engine accepts it; `generate` continues it.

        Raises:
            Exception: The engine refuses the turn; no response begins.
        """
        del turn

    async def count(self, turn: Turn) -> int:
        """Return the number of tokens in the prompt of a turn.

        Raises:
            PromptError: The prompt exceeds the context window.
            ApiError: The engine refuses the turn, for this or another reason.
        """
        ...

    def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Generate one turn; see `Engine.generate`."""
        ...

    def shorten(self, shortcut: Shortcut[Sequence[Chunk]]) -> None:
        """Allow `generate` to pass chunks before the last output to the shortcut, instead of yielding them."""
        del shortcut

    def additions(self) -> Mapping[str, object]:
        """Return the fields outside the API that the engine adds to the finished response."""
        return {}

    def log(self, response: Mapping[str, object]) -> None:
        """Log a finished response."""
        del response

    async def close(self) -> None:
        """Abort the generation if it still runs, and free its resources."""
        return


class ResponseEngine(ABC):
    """An engine as the service uses it: it validates requests and generates whole responses, perhaps for several models."""

    has_faults: ClassVar[bool] = False
    """Whether it may ask the server to break connections and streams (`interlock.serving.http.script_faults`)."""

    @property
    @abstractmethod
    def format(self) -> Format:
        """The format of the output."""

    @property
    def passes_keys(self) -> bool:
        """Whether another server receives the clients' own keys."""
        return False

    @abstractmethod
    async def names(self) -> Sequence[str]:
        """Return the model names that requests may use, with an empty one if the model is optional."""

    def model_label(self, name: str) -> str:
        """Return a model's name as a label of metrics: `other` unless the configuration or an upstream lists it."""
        del name
        return OTHER

    def facts(self, name: str) -> ModelFacts:
        """Return what the engine knows of a model."""
        del name
        return ModelFacts()

    async def has_tools(self, name: str) -> bool:
        """Return whether the server of a model may run hosted tools itself; raise `ApiError` if no server has the model."""
        del name
        return False

    @abstractmethod
    def read(self, raw: Mapping[str, object]) -> ResponseRequest:
        """Validate a request body; raise `ApiError` if it is invalid."""

    @abstractmethod
    def begin(
        self, request: ResponseRequest, items: Sequence[JsonItem], tenant: str = "", connection: HTTPConnection | None = None
    ) -> Generation:
        """Begin the response to a request that `read` returned."""

    async def require_ready(self) -> None:
        """Raise `ApiError` if no server answers."""
        return

    async def close(self) -> None:
        """Close the connections to other servers."""
        return


@define(eq=False)
class PlainGeneration(Generation):
    """The generation of a plain engine."""

    admits = False
    # A field satisfies the property of the protocol, but pyright wants a property in a subclass.
    engine: Engine | Generation
    parser: Parser  # pyright: ignore[reportIncompatibleMethodOverride] - see above
    response_id: str | None = None  # pyright: ignore[reportIncompatibleMethodOverride] - see above

    async def count(self, turn: Turn) -> int:
        return await self.engine.count(turn)

    def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        return self.engine.generate(turn)


@define(eq=False)
class AdmittedGeneration(PlainGeneration):
    """The generation of a plain engine that may refuse a turn."""

    admits = True
    wait_for: Callable[[Turn], Awaitable[None]] = field(kw_only=True)
    _admitted: Turn | None = field(default=None, init=False)

    async def admit(self, turn: Turn) -> None:
        await self.wait_for(turn)
        self._admitted = turn

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        if self._admitted != turn:
            await self.wait_for(turn)
        async with aclosing(self.engine.generate(turn)) as outputs:
            async for output in outputs:
                yield output


class Rendering(PlainGeneration):
    """Generates a response without output: it counts the prompt's tokens, and the only turn ends at once."""

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        yield EngineOutput(Chunk(), "stop", await self.count(turn))


@define(eq=False)
class Warming(PlainGeneration):
    """Generates a response without output: the engine reads the prompt into its cache, and up to `budget` tokens are unused."""

    budget: int = field(default=1, kw_only=True)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        prompt = cached = written = 0
        async with aclosing(self.engine.generate(evolve(turn, budget=self.budget))) as outputs:
            async for output in outputs:
                prompt, cached = output.input_tokens or prompt, output.cached_tokens or cached
                written = output.cache_write_tokens or written
        yield EngineOutput(Chunk(), "stop", prompt, cached, written)


@frozen(eq=False)
class PlainEngine(ResponseEngine):
    """A plain engine, which has one model and leaves the validation of requests to the server."""

    engine: Engine
    admit: Callable[[Turn], Awaitable[None]] | None = None
    """The method of an `AdmittingEngine`."""

    @property
    def format(self) -> Format:
        return self.engine.format

    async def names(self) -> Sequence[str]:
        return self.engine.models

    def model_label(self, name: str) -> str:
        return name if name in self.engine.models else OTHER

    def facts(self, name: str) -> ModelFacts:
        del name
        facts = getattr(self.engine, "facts", None)
        return facts if isinstance(facts, ModelFacts) else ModelFacts()

    def read(self, raw: Mapping[str, object]) -> ResponseRequest:
        """Validate a request body; raise a 404 for an unknown model."""
        request = read_request(raw)
        if request.model not in self.engine.models:
            raise no_such_model(request.model, self.engine.models)
        return request

    def begin(
        self, request: ResponseRequest, items: Sequence[JsonItem], tenant: str = "", connection: HTTPConnection | None = None
    ) -> Generation:
        del tenant, connection
        parser = parser_for(self.format, request.declare_tools(items))
        if self.admit is None:
            return PlainGeneration(self.engine, parser)
        return AdmittedGeneration(self.engine, parser, wait_for=self.admit)


def response_engine(engine: Engine | ResponseEngine) -> ResponseEngine:
    """Return an engine as the service uses it."""
    if isinstance(engine, ResponseEngine):
        return engine
    return PlainEngine(engine, engine.admit if isinstance(engine, AdmittingEngine) else None)


async def fitting(generation: Generation, turn: Turn) -> Turn:
    """Return a turn whose async calls all have outputs, without its oldest items if it is too long with `truncation: auto`.

    If nothing fits, or the prompt cannot be counted for another reason, nothing is dropped; the engine then refuses the turn.
    """
    items = answer_async_calls(turn.items)
    turn = turn if items is turn.items else evolve(turn, items=items)
    if turn.request.truncation != "auto":
        return turn

    async def fits(items: Sequence[JsonItem]) -> bool:
        try:
            await generation.count(evolve(turn, items=items))
        except PromptError:
            return False
        except ApiError as error:
            return not _is_too_long(error)
        return True

    return evolve(turn, items=await truncate(turn.items, fits))


def _is_too_long(error: ApiError) -> bool:
    """Return whether an error says that a prompt exceeds the context window."""
    if error.code == "context_length_exceeded":
        return True
    return error.code in (None, "invalid_value") and TOO_LONG.search(error.message) is not None
