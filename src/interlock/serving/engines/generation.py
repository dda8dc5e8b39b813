"""What an engine does for one response, beyond generating: it may refuse, resolve settings, read its model and add fields.

A plain `Engine` only generates; its responses get a `PlainGeneration`. A `HostEngine` gives each response a `Generation` itself.
So the service knows one kind. Nothing here knows the stream that is made of the output.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attrs import define, evolve

from interlock.parsers import Chunk, Parser, parser_for
from interlock.serving.engines.engine import Engine, EngineOutput, Format, Turn
from interlock.serving.requests.api_errors import ApiError, PromptError
from interlock.serving.requests.context_window import truncated
from interlock.serving.requests.create import CreateResponse
from interlock.serving.requests.tool_offer import declare

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

__all__ = ["Generation", "HostEngine", "PlainGeneration", "Rendering", "begin_generation", "fitting"]


class Generation(Protocol):
    """What an engine does for one response."""

    @property
    def parser(self) -> Parser:
        """Reads what the model writes; there once `prepare` has returned."""
        ...

    @property
    def response_id(self) -> str | None:
        """The id of the response, if the engine gives it one."""
        ...

    async def prepare(self, turn: Turn) -> Mapping[str, object]:
        """Validate and render the first turn, and return the settings that the engine resolved, for the response to echo.

        Args:
            turn: What will be asked, unless lists of tools or a compaction come before it.

        Raises:
            ApiError: The engine refuses the request; no response begins.
        """
        ...

    async def admit(self, turn: Turn) -> None:
        """Begin the first turn, and wait until the engine has taken it; `generate` goes on with it.

        Raises:
            Exception: The engine refuses it; no response begins.
        """
        ...

    async def count(self, turn: Turn) -> int:
        """Return how many tokens the prompt of a turn has; see `Engine.count`."""
        ...

    def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Generate one turn; see `Engine.generate`."""
        ...

    def additions(self) -> Mapping[str, object]:
        """Return what the engine adds to the response when it ends, beyond the API's fields."""
        ...

    def log(self, response: Mapping[str, object]) -> None:
        """Log a response that has ended."""
        ...

    async def close(self) -> None:
        """Abort what is still being generated, and free what it held."""
        ...


@runtime_checkable
class HostEngine(Protocol):
    """An engine inside of a server that has its own words for requests and their refusals, and for its models."""

    @property
    def format(self) -> Format:
        """What the output is written in."""
        ...

    async def names(self) -> Sequence[str]:
        """Return the names by which requests may ask for a model; an empty one if it may be left out."""
        ...

    def read(self, raw: Mapping[str, object]) -> CreateResponse:
        """Validate the body of a request.

        Raises:
            ApiError: The request is wrong.
        """
        ...

    def begin(
        self, request: CreateResponse, items: Sequence[Mapping[str, object]], tenant: str, connection: HTTPConnection | None
    ) -> Generation:
        """Return what generates one response.

        Args:
            request: From `read`.
            items: The conversation, which may bring tools.
            tenant: Whose it is.
            connection: What it came over, with its headers; None for what the server asks by itself.
        """
        ...


@define(eq=False)
class PlainGeneration:
    """The generation of a plain engine, which refuses and resolves nothing.

    Args:
        engine: Generates the turns.
        parser: Of the engine's format.
    """

    engine: Engine | Generation
    parser: Parser
    response_id: str | None = None

    async def prepare(self, turn: Turn) -> Mapping[str, object]:
        """Resolve nothing."""
        del turn
        return {}

    async def admit(self, turn: Turn) -> None:
        """Return at once: a plain engine takes every request."""
        del turn

    async def count(self, turn: Turn) -> int:
        """Return how many tokens the prompt of a turn has."""
        return await self.engine.count(turn)

    def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Generate one turn."""
        return self.engine.generate(turn)

    def additions(self) -> Mapping[str, object]:
        """Add nothing."""
        return {}

    def log(self, response: Mapping[str, object]) -> None:
        """Log nothing."""
        del response

    async def close(self) -> None:
        """Hold nothing."""


class Rendering(PlainGeneration):
    """The generation of a response without output: its prompt is rendered and counted, and its only turn ends at once."""

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield the end of a turn without output."""
        yield EngineOutput(Chunk(), "stop", await self.count(turn))


def begin_generation(
    engine: Engine | HostEngine,
    request: CreateResponse,
    items: Sequence[Mapping[str, object]],
    tenant: str = "",
    connection: HTTPConnection | None = None,
) -> Generation:
    """Return what generates one response; see `HostEngine.begin`."""
    if isinstance(engine, HostEngine):
        return engine.begin(request, items, tenant, connection)
    return PlainGeneration(engine, parser_for(engine.format, {**request.raw, "tools": [*declare(request.tools, items)]}))


async def fitting(generation: Generation, turn: Turn) -> Turn:
    """Return a turn without its oldest items if the request allows that and the prompt is too long (`truncation: auto`).

    Args:
        generation: Counts the tokens of prompts.
        turn: Returned as it is if nothing fits, for the engine to refuse it.
    """
    if turn.request.raw.get("truncation") != "auto":
        return turn

    async def fits(items: Sequence[Mapping[str, object]]) -> bool:
        try:
            await generation.count(evolve(turn, items=items))
        except (PromptError, ApiError):
            return False
        return True

    return evolve(turn, items=await truncated(turn.items, fits))
