"""An engine that replays turns instead of generating them: the engine of `interlock serve --script`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise
from typing import Final

from attrs import evolve, field, frozen
from attrs.validators import ge

from interlock.parsers import Chunk, Format
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.prompt import count_prompt, is_answered, is_from_user
from interlock.serving.requests.api_errors import EngineError
from interlock.serving.requests.input_items import Item

SCRIPTED: Final = "interlock-script"


@frozen
class ScriptedEngine:
    """An engine with fixed turns: the first answers a user's message, and each later one the results of tools.

    A budget truncates turns that are recorded as tokens. A turn without a finish reason ends with `stop`. The rate is in tokens
    per second and turn, where an output without tokens counts as one; 0 for no limit.
    """

    turns: Sequence[Sequence[EngineOutput]]
    format: Format = "harmony"
    models: Sequence[str] = (SCRIPTED,)
    rate: float = field(default=0.0, validator=ge(0), kw_only=True)

    async def count(self, turn: Turn) -> int:
        return await count_prompt(turn)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Replay the next turn; its number adds the client's tool rounds after the user's last message to the index."""
        number = turn.index + rounds(turn.items)
        if number >= len(self.turns):
            raise EngineError(f"The script has {len(self.turns)} turns, and turn {number + 1} was requested.")
        for output in _within_budget(self.turns[number], turn.budget):
            await asyncio.sleep((len(output.chunk.token_ids) or 1) / self.rate if self.rate else 0)
            yield output


def rounds(items: Sequence[Item]) -> int:
    """Count how many times the client answered calls after the user's last message; answers in a row count once."""
    answers = [False]
    for item in items:
        answers = [False] if is_from_user(item) else [*answers, is_answered(item)]
    return sum(after and not before for before, after in pairwise(answers))


def _within_budget(outputs: Sequence[EngineOutput], budget: int | None) -> list[EngineOutput]:
    turn: list[EngineOutput] = []
    for output in outputs:
        tokens, entries = output.chunk.token_ids, output.chunk.logprobs
        if budget is not None:
            if len(tokens) > budget:
                chunk = evolve(output.chunk, token_ids=tokens[:budget], logprobs=entries and entries[:budget])
                return [*turn, evolve(output, chunk=chunk, finish_reason="length")]
            budget -= len(tokens)
        turn.append(output)
    last = turn.pop() if turn else EngineOutput(Chunk())
    return [*turn, evolve(last, finish_reason=last.finish_reason or "stop")]
