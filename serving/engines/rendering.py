"""An engine that renders prompts and generates nothing: for a request that wants no output.

It counts the tokens of the prompt with the engine that it stands for, and its only turn ends at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from attrs import frozen

from interlock.parsers.chunk import Chunk
from interlock.serving.engines.engine import Engine, EngineOutput, Format, Turn

__all__ = ["Rendering"]


@frozen
class Rendering:
    """An engine that generates nothing.

    Args:
        engine: The engine that it stands for.
    """

    engine: Engine

    @property
    def models(self) -> Sequence[str]:
        """The names of the models that can be asked for."""
        return self.engine.models

    @property
    def format(self) -> Format:
        """What the output would be written in."""
        return self.engine.format

    async def count(self, turn: Turn) -> int:
        """Return how many tokens the prompt of a turn has.

        Args:
            turn: What would be asked.
        """
        return await self.engine.count(turn)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield the end of a turn without output.

        Args:
            turn: What would be asked.
        """
        yield EngineOutput(Chunk(), "stop", await self.count(turn))
