"""The embedded engine: a deterministic stand-in model that runs anywhere, so that clients can be written and tested.

It writes real harmony tokens, or text with the markers of a family, in pieces of varying size and at a settable rate, which
then take the same path as a real model's. What it says is in `interlock.serving.engines.embedded.model`; this module knows
pieces, rates and budgets.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Final

from attrs import field, frozen
from attrs.validators import ge

from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk, Tagged
from interlock.serving.engines.embedded.choosing import READ, user_text
from interlock.serving.engines.embedded.model import speak
from interlock.serving.engines.embedded.writing import decoder, logprobs, pick, spell, spell_tagged
from interlock.serving.engines.engine import EngineOutput, Format, Turn
from interlock.serving.engines.prompt import count_prompt
from interlock.serving.engines.tokens import encoding

__all__ = ["MODEL", "EmbeddedEngine"]

MODEL: Final = "interlock-embedded"
"""The name of the stand-in model."""

LARGEST: Final = 6
"""Tokens that a piece has at most; as with speculative decoding, pieces cross the borders of messages and characters."""


@frozen
class EmbeddedEngine:
    """An engine without a model.

    Args:
        models: The names that it answers to.
        rate: Tokens per second and turn; 0 for as fast as they can be written.
        family: The family whose format it writes; None for harmony.
    """

    models: Sequence[str] = (MODEL,)
    rate: float = field(default=0.0, validator=ge(0))
    family: Tagged | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Load the vocabulary before the first request needs it."""
        encoding()

    @property
    def format(self) -> Format:
        """What the output is written in."""
        return self.family or "harmony"

    async def count(self, turn: Turn) -> int:
        """Return how many tokens the prompt of a turn has.

        Args:
            turn: What would be asked.
        """
        return await count_prompt(turn)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield what `speak` says; a budget cuts it with the finish reason `length`.

        Args:
            turn: What is asked.

        Raises:
            PromptError: The prompt is longer than the context window.
        """
        prompt = await count_prompt(turn)
        said = speak(turn)
        tokens = await (spell(said) if self.family is None else spell_tagged(said, self.family))
        whole = turn.budget is None or len(tokens) <= turn.budget
        tokens = tokens[: turn.budget]
        seed = _seed(turn, prompt)
        began = asyncio.get_running_loop().time()
        decode = None if self.family is None else decoder()
        for start, end in _pieces(len(tokens), seed):
            await self._wait(began, end)
            reason: FinishReason | None = None if end < len(tokens) else "stop" if whole else "length"
            chunk = _chunk(turn, tokens[start:end], start, seed)
            chunk.text = "" if decode is None else decode(chunk.token_ids)
            yield EngineOutput(chunk, reason, prompt)

    async def _wait(self, began: float, count: int) -> None:
        """Wait until so many tokens are due, and let other tasks run in any case."""
        due = began + count / self.rate if self.rate else began
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))


def _chunk(turn: Turn, tokens: list[int], start: int, seed: int) -> Chunk:
    if not turn.request.wants_logprobs:
        return Chunk(tokens)
    count = turn.request.top_logprobs
    return Chunk(tokens, logprobs=[logprobs(token, start + at, count, seed) for at, token in enumerate(tokens)])


def _pieces(count: int, seed: int) -> Iterator[tuple[int, int]]:
    """Cut a count of tokens into pieces: where each begins and ends."""
    start = 0
    while start < count:
        end = min(count, start + 1 + pick(seed, start, LARGEST))
        yield start, end
        start = end


def _seed(turn: Turn, prompt: int) -> int:
    """Return a number that is the same for the same prompt and turn, streamed or not."""
    return zlib.crc32(f"{turn.index} {prompt} {user_text(turn)[:READ]}".encode())
