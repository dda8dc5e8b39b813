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
from interlock.serving.engines.prompt import count_prompt, is_client_output, is_from_user
from interlock.serving.requests.api_errors import EngineError
from interlock.serving.requests.input_items import JsonItem

SCRIPTED: Final = "interlock-script"


@frozen
class ScriptedEngine:
    """An engine with fixed turns: the first answers a user's message, and each later one the results of tools.

    A budget truncates turns that are recorded with token ids. A turn without a finish reason ends with `stop`. The rate is in
    tokens per second and turn, where an output without tokens counts as one; 0 for no limit.
    """

    turns: Sequence[Sequence[EngineOutput]]
    format: Format = "harmony"
    models: Sequence[str] = (SCRIPTED,)
    rate: float = field(default=0.0, validator=ge(0), kw_only=True)

    async def count(self, turn: Turn) -> int:
        return await count_prompt(turn)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Replay the turn whose number is the index plus the client's tool rounds since the user's last message.

        Raises:
            EngineError: The script has no turn with that number.
        """
        number = turn.index + rounds(turn.items)
        if number >= len(self.turns):
            raise EngineError(f"The script has {len(self.turns)} turns, and turn {number + 1} was requested.")
        for output in _within_budget(self.turns[number], turn.budget):
            await asyncio.sleep((len(output.chunk.token_ids) or 1) / self.rate if self.rate else 0)
            yield output


def rounds(items: Sequence[JsonItem]) -> int:
    """Count how many times the client sent tool outputs after the user's last message; outputs in a row count once.

    The output of a call that is still pending counts only before another output: the turn after it was of an earlier response.
    """
    outputs = [False]
    ends = (index for index, item in enumerate(items, 1) if is_from_user(item) or (is_client_output(item) and not _pends(item)))
    for item in items[: max(ends, default=0)]:
        outputs = [False] if is_from_user(item) else [*outputs, is_client_output(item)]
    return sum(after and not before for before, after in pairwise(outputs))


def _pends(item: JsonItem) -> bool:
    return item.get("status") == "in_progress"


def _within_budget(outputs: Sequence[EngineOutput], budget: int | None) -> list[EngineOutput]:
    turn: list[EngineOutput] = []
    for output in outputs:
        if budget is not None:
            if len(output.chunk.token_ids) > budget:
                return [*turn, evolve(output, chunk=_truncate(output.chunk, budget), finish_reason="length")]
            budget -= len(output.chunk.token_ids)
        turn.append(output)
    last = turn.pop() if turn else EngineOutput(Chunk())
    return [*turn, evolve(last, finish_reason=last.finish_reason or "stop")]


def _truncate(chunk: Chunk, count: int) -> Chunk:
    """Return the first tokens of a chunk with their text, which is estimated without log probabilities; a delta stays whole."""
    entries = chunk.logprobs
    texts = [str(entry.get("token", "")) for entry in entries or ()]
    is_exact = "".join(texts) == chunk.text
    text = "".join(texts[:count]) if is_exact else chunk.text[: len(chunk.text) * count // len(chunk.token_ids)]
    return Chunk(chunk.token_ids[:count], text, entries and entries[:count], chunk.delta if count else None)
