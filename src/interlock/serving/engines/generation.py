"""What an engine does for one response: refuse it, resolve its settings, generate, parse output and add fields.

A `HostEngine` creates a `Generation` for each response; for a plain `Engine`, each response gets a `PlainGeneration`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, runtime_checkable

from attrs import define, evolve

from interlock.fsm.deltas import Usage
from interlock.parsers import Chunk, Format, Parser, parser_for
from interlock.serving.engines.engine import Engine, EngineOutput, Turn
from interlock.serving.requests.api_errors import ApiError, PromptError
from interlock.serving.requests.context_window import truncated
from interlock.serving.requests.create import CreateResponse
from interlock.serving.requests.input_items import Item
from interlock.serving.requests.tool_offer import declare

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

TOO_LONG: Final = re.compile(r"\bcontext\b|too long|max_model_len|maximum model length", re.IGNORECASE)
"""Matches a refusal of vLLM, or of an upstream server, that has no code and says that the prompt is too long."""


class Generation(Protocol):
    """What an engine does for one response. The defaults refuse, resolve, add and log nothing."""

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

    def additions(self) -> Mapping[str, object]:
        """Return the fields outside the API that the engine adds to the finished response."""
        return {}

    def log(self, response: Mapping[str, object]) -> None:
        """Log a finished response."""
        del response

    async def close(self) -> None:
        """Abort the generation if it still runs, and free its resources."""
        return


@runtime_checkable
class HostEngine(Protocol):
    """An engine that validates requests itself and may have several models: vLLM, or a gateway."""

    @property
    def format(self) -> Format: ...

    async def names(self) -> Sequence[str]:
        """Return the model names that requests may use, with an empty one if the model is optional."""
        ...

    def read(self, raw: Mapping[str, object]) -> CreateResponse:
        """Validate a request body; raise `ApiError` if it is invalid."""
        ...

    def begin(self, request: CreateResponse, items: Sequence[Item], tenant: str, connection: HTTPConnection | None) -> Generation:
        """Begin the response to a request that `read` returned."""
        ...


@runtime_checkable
class RemoteEngine(HostEngine, Protocol):
    """A host engine whose models are on other servers."""

    @property
    def passes_keys(self) -> bool:
        """Whether a server receives the clients' own keys."""
        ...

    async def require_ready(self) -> None:
        """Raise `ApiError` if no server answers."""
        ...

    async def close(self) -> None:
        """Close the connections to the servers."""
        ...


@define(eq=False)
class PlainGeneration(Generation):
    """The generation of a plain engine."""

    # A field satisfies the property of the protocol, but pyright wants a property in a subclass.
    engine: Engine | Generation
    parser: Parser  # pyright: ignore[reportIncompatibleMethodOverride] - see above
    response_id: str | None = None  # pyright: ignore[reportIncompatibleMethodOverride] - see above

    async def count(self, turn: Turn) -> int:
        return await self.engine.count(turn)

    def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        return self.engine.generate(turn)


class Rendering(PlainGeneration):
    """Generates a response without output: it counts the prompt's tokens, and the only turn ends at once."""

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        yield EngineOutput(Chunk(), "stop", await self.count(turn))


def begin_generation(
    engine: Engine | HostEngine,
    request: CreateResponse,
    items: Sequence[Item],
    tenant: str = "",
    connection: HTTPConnection | None = None,
) -> Generation:
    """Begin one response on an engine; see `HostEngine.begin`."""
    if isinstance(engine, HostEngine):
        return engine.begin(request, items, tenant, connection)
    return PlainGeneration(engine, parser_for(engine.format, {**request.raw, "tools": [*declare(request.tools, items)]}))


async def fitting(generation: Generation, turn: Turn) -> Turn:
    """Drop the oldest items of a turn if its prompt is too long and the request has `truncation: auto`.

    If nothing fits, or the prompt cannot be counted for another reason, return the turn unchanged; the engine then refuses it.
    """
    if turn.request.raw.get("truncation") != "auto":
        return turn

    async def fits(items: Sequence[Item]) -> bool:
        try:
            await generation.count(evolve(turn, items=items))
        except PromptError:
            return False
        except ApiError as error:
            return not _is_too_long(error)
        return True

    return evolve(turn, items=await truncated(turn.items, fits))


def _is_too_long(error: ApiError) -> bool:
    """Return whether an error says that a prompt exceeds the context window."""
    if error.code == "context_length_exceeded":
        return True
    return error.code in (None, "invalid_value") and TOO_LONG.search(error.message) is not None
