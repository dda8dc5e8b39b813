"""What an engine is that stands for another one and changes what that one is asked, or what it gives."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from interlock.serving.engines.engine import Engine, Format, Turn

__all__ = ["Standing"]


@frozen
class Standing:
    """Says of itself what another engine says.

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
        """What the output is written in."""
        return self.engine.format

    async def count(self, turn: Turn) -> int:
        """Return how many tokens the prompt of a turn has.

        Args:
            turn: What would be asked.
        """
        return await self.engine.count(turn)
