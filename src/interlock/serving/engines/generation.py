"""An engine's part in one response besides generating: refuse it, resolve its settings, parse output, add fields.

A `HostEngine` gives each response a `Generation`; the responses of a plain `Engine` get a `PlainGeneration`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attrs import define, evolve

from interlock.parsers import Chunk, Format, Parser, parser_for
from interlock.serving.engines.engine import Engine, EngineOutput, Turn
from interlock.serving.requests.api_errors import ApiError, PromptError
from interlock.serving.requests.context_window import truncated
from interlock.serving.requests.create import CreateResponse
from interlock.serving.requests.input_items import Item
from interlock.serving.requests.tool_offer import declare

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection


class Generation(Protocol):
    """An engine's part in one response; by default it refuses, resolves, adds and logs nothing."""

    @property
    def parser(self) -> Parser:
        """Reads the model's output; available once `prepare` has returned."""
        ...

    @property
    def response_id(self) -> str | None:
        """The id of the response, if the engine assigns one."""
        ...

    async def prepare(self, turn: Turn) -> Mapping[str, object]:
        """Validate and render the first turn, and return the settings that the engine resolved, for the response to echo.

        A list of tools or a compaction may still come before that turn.

        Raises:
            ApiError: The engine refuses the request; no response begins.
        """
        del turn
        return {}

    async def admit(self, turn: Turn) -> None:
        """Begin the first turn, and wait until the engine has taken it; `generate` continues it.

        Raises:
            Exception: The engine refuses it; no response begins.
        """
        del turn

    async def count(self, turn: Turn) -> int: ...

    def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Generate one turn; see `Engine.generate`."""
        ...

    def additions(self) -> Mapping[str, object]:
        """Return the fields beyond the API's that the engine adds to the response when it ends."""
        return {}

    def log(self, response: Mapping[str, object]) -> None:
        """Log a response that has ended."""
        del response

    async def close(self) -> None:
        """Abort a generation that is still running, and free its resources."""
        return


@runtime_checkable
class HostEngine(Protocol):
    """An engine inside a server with its own request validation and errors."""

    @property
    def format(self) -> Format: ...

    async def names(self) -> Sequence[str]:
        """Return the model names that requests may have; one is empty if the model is optional."""
        ...

    def read(self, raw: Mapping[str, object]) -> CreateResponse:
        """Validate the body of a request; `ApiError` is raised if it is wrong."""
        ...

    def begin(self, request: CreateResponse, items: Sequence[Item], tenant: str, connection: HTTPConnection | None) -> Generation:
        """Return the generation of one response to a request from `read`."""
        ...


@runtime_checkable
class RemoteEngine(HostEngine, Protocol):
    """A host engine whose models are on other servers."""

    async def require_ready(self) -> None:
        """Require that a server answers; `ApiError` is raised if none does."""
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
    """The generation of a response without output: its prompt is rendered and counted, and its only turn ends at once."""

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        yield EngineOutput(Chunk(), "stop", await self.count(turn))


def begin_generation(
    engine: Engine | HostEngine,
    request: CreateResponse,
    items: Sequence[Item],
    tenant: str = "",
    connection: HTTPConnection | None = None,
) -> Generation:
    """Return the generation of one response; see `HostEngine.begin`."""
    if isinstance(engine, HostEngine):
        return engine.begin(request, items, tenant, connection)
    return PlainGeneration(engine, parser_for(engine.format, {**request.raw, "tools": [*declare(request.tools, items)]}))


async def fitting(generation: Generation, turn: Turn) -> Turn:
    """Return a turn without its oldest items if its prompt is too long and the request has `truncation: auto`.

    If nothing fits, the turn stays as it is, for the engine to refuse it.
    """
    if turn.request.raw.get("truncation") != "auto":
        return turn

    async def fits(items: Sequence[Item]) -> bool:
        try:
            await generation.count(evolve(turn, items=items))
        except (PromptError, ApiError):
            return False
        return True

    return evolve(turn, items=await truncated(turn.items, fits))
