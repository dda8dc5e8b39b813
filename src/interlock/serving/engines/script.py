"""An engine that replays given turns instead of generating any: what `interlock serve --script` serves.

It knows which turn of a conversation is next, and nothing of what the turns say or of the file that they came from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from attrs import evolve, field, frozen
from attrs.validators import ge

from interlock.parsers import Chunk
from interlock.serving.engines.engine import EngineOutput, Format, Turn
from interlock.serving.engines.prompt import count_prompt, is_answered, is_from_user
from interlock.serving.requests.api_errors import EngineError

__all__ = ["ScriptedEngine", "rounds"]

SCRIPTED: Final = "interlock-script"


@frozen
class ScriptedEngine:
    """An engine that has its turns by heart.

    The first turn answers a user's message; each turn after it, the results of the tools that the turn before has called,
    whoever ran them. A budget cuts a turn that is recorded as tokens.

    Args:
        turns: The outputs of each turn; the last of a turn should have its finish reason, and means `stop` if it has none.
        format: What they are written in.
        models: The names that the engine answers to.
        rate: Tokens per second and turn, or outputs that have no tokens; 0 for as fast as can be.
    """

    turns: Sequence[Sequence[EngineOutput]]
    format: Format = "harmony"
    models: Sequence[str] = (SCRIPTED,)
    rate: float = field(default=0.0, validator=ge(0), kw_only=True)

    async def count(self, turn: Turn) -> int:
        """Return how many tokens of harmony the prompt of a turn would have.

        Args:
            turn: What would be asked.
        """
        return await count_prompt(turn)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Replay the turn that is next.

        Args:
            turn: What is asked; all that counts is how many rounds of tools came since the user spoke last.

        Raises:
            EngineError: The script has no such turn.
        """
        number = turn.index + rounds(turn.items)
        if number >= len(self.turns):
            raise EngineError(f"The script has {len(self.turns)} turns, and turn {number + 1} was asked for.")
        for output in _cut(self.turns[number], turn.budget):
            await asyncio.sleep((len(output.chunk.token_ids) or 1) / self.rate if self.rate else 0)
            yield output


def rounds(items: Sequence[Mapping[str, object]]) -> int:
    """Count how many times the client has answered calls since the user spoke last; answers in a row are one time.

    Args:
        items: The conversation.
    """
    answers = [False]
    for item in items:
        answers = [False] if is_from_user(item) else [*answers, is_answered(item)]
    return sum(after and not before for before, after in pairwise(answers))


def _cut(outputs: Sequence[EngineOutput], budget: int | None) -> list[EngineOutput]:
    """Return a turn within its budget, whose last output says why it ended."""
    kept: list[EngineOutput] = []
    left = budget
    for output in outputs:
        tokens = output.chunk.token_ids
        if left is not None and len(tokens) > left:
            entries = output.chunk.logprobs
            chunk = evolve(output.chunk, token_ids=tokens[:left], logprobs=entries and entries[:left])
            return [*kept, evolve(output, chunk=chunk, finish_reason="length")]
        left = None if left is None else left - len(tokens)
        kept.append(output)
    last = kept.pop() if kept else EngineOutput(Chunk())
    return [*kept, evolve(last, finish_reason=last.finish_reason or "stop")]
