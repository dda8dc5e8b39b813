"""An engine whose prompts are made to fit where a request allows that: `truncation: auto`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from attrs import evolve, frozen

from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.standing import Standing
from interlock.serving.errors import PromptError
from interlock.serving.requests.truncation import truncated, wants_truncation

__all__ = ["Truncating"]


@frozen
class Truncating(Standing):
    """An engine that gets a conversation without the oldest turns, where it is too long and the request lets them go."""

    async def count(self, turn: Turn) -> int:
        """Return how many tokens the prompt of a turn has.

        Args:
            turn: What would be asked.
        """
        return await self.engine.count(await self._fitting(turn))

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield what the engine does of the turn that fits.

        Args:
            turn: What is asked.
        """
        async with aclosing(self.engine.generate(await self._fitting(turn))) as outputs:
            async for output in outputs:
                yield output

    async def _fitting(self, turn: Turn) -> Turn:
        """Return a turn that the engine can take; the turn itself if there is none, for the engine to refuse it."""

        async def fits(items: Sequence[Mapping[str, object]]) -> bool:
            try:
                await self.engine.count(evolve(turn, items=items))
            except PromptError:
                return False
            return True

        return evolve(turn, items=await truncated(turn.items, fits)) if wants_truncation(turn.request.raw) else turn
