"""What an engine is to the service: something that is asked for one turn of a model, and yields its output in steps.

The protocol knows nothing of HTTP, events or items. An engine knows nothing of the stream that is made of its output,
and the service nothing of where the output comes from; the engine's format says which parser reads it. An engine that does more
than that for a response is a `HostEngine` (`interlock.serving.engines.generation`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import define, field, frozen

from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk, Format

if TYPE_CHECKING:  # the command reads recordings without what validates requests
    from interlock.serving.requests.create import CreateResponse

__all__ = ["Engine", "EngineOutput", "Format", "Turn"]


@define
class EngineOutput:
    """One step of an engine for one request. Do not change it; a frozen class would take three times as long to make.

    Args:
        chunk: What it yielded.
        finish_reason: Why the turn ended, on its last step; None on the others.
        input_tokens: Tokens of the turn's prompt; any step may say it, and 0 says nothing.
        cached_tokens: Those of them that came from a prefix cache.
        cache_write_tokens: Those of them that were written to it.
    """

    chunk: Chunk
    finish_reason: FinishReason | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0


@frozen
class Turn:
    """What an engine is asked for: the next turn of a response.

    Args:
        request: The request that the response answers.
        items: The conversation so far, as input items: what came before the request, its input, and this response's
            earlier items with the results of their tools.
        budget: How many tokens the turn may have, at least 1, or None if the request sets no limit.
        index: How many turns of this response came before, from 0.
    """

    request: CreateResponse
    items: Sequence[Mapping[str, object]]
    budget: int | None = None
    index: int = field(default=0, kw_only=True)


class Engine(Protocol):
    """A source of model output."""

    @property
    def models(self) -> Sequence[str]:
        """The names of the models that can be asked for; the first is the one that is served."""
        ...

    @property
    def format(self) -> Format:
        """What the output is written in."""
        ...

    async def count(self, turn: Turn) -> int:
        """Return how many tokens the prompt of a turn has.

        Args:
            turn: What would be asked.
        """
        ...

    def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Generate one turn, step by step; the last step has a finish reason.

        Closing the generator (`aclose`) aborts the generation and frees what it held.

        Args:
            turn: What is asked.

        Raises:
            EngineError: The engine cannot go on; what was yielded before stands.
        """
        ...
