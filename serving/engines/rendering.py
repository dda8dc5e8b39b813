"""An engine that renders prompts and generates nothing: for a request that wants no output.

It counts the tokens of the prompt with the engine that it stands for, and its only turn ends at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from attrs import frozen

from interlock.parsers.chunk import Chunk
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.standing import Standing

__all__ = ["Rendering"]


@frozen
class Rendering(Standing):
    """An engine that generates nothing."""

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield the end of a turn without output.

        Args:
            turn: What would be asked.
        """
        yield EngineOutput(Chunk(), "stop", await self.count(turn))
