"""The embedded engine: a deterministic stand-in model that runs anywhere, so that clients can be written and tested.

It writes real harmony tokens, or text with the markers of a family, in chunks of varying size and at a settable rate, which
then take the same path as a real model's.
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
from interlock.serving.engines.embedded.model import messages_for
from interlock.serving.engines.embedded.spelling import decoder, logprobs, pick, spell, spell_tagged
from interlock.serving.engines.embedded.tool_calls import user_text
from interlock.serving.engines.engine import EngineOutput, Format, Turn
from interlock.serving.engines.harmony_encoding import encoding
from interlock.serving.engines.prompt import count_prompt

__all__ = ["MODEL", "EmbeddedEngine"]

MODEL: Final = "interlock-embedded"
"""The name of the stand-in model."""

LARGEST: Final = 6
"""Tokens of a chunk at most; as with speculative decoding, chunks cross the borders of messages and characters."""


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
        """The format of the output."""
        return self.family or "harmony"

    async def count(self, turn: Turn) -> int:
        """Return how many tokens the prompt of a turn has."""
        return await count_prompt(turn)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield the model's messages; a budget cuts them with the finish reason `length`.

        Raises:
            PromptError: The prompt is longer than the context window, or a JSON schema cannot be filled.
        """
        prompt = await count_prompt(turn)
        messages = messages_for(turn)
        tokens = await (spell(messages) if self.family is None else spell_tagged(messages, self.family))
        is_whole = turn.budget is None or len(tokens) <= turn.budget
        tokens = tokens[: turn.budget]
        seed = zlib.crc32(f"{turn.index} {prompt} {user_text(turn)}".encode())
        start = asyncio.get_running_loop().time()
        decode = None if self.family is None else decoder()
        for first, end in _chunks(len(tokens), seed):
            await self._wait(start, end)
            reason: FinishReason | None = None if end < len(tokens) else "stop" if is_whole else "length"
            chunk = Chunk(tokens[first:end], decode(tokens[first:end]) if decode else "")
            if turn.request.wants_logprobs:
                count = turn.request.top_logprobs
                chunk.logprobs = [logprobs(tokens[index], index, count, seed) for index in range(first, end)]
            yield EngineOutput(chunk, reason, prompt)

    async def _wait(self, start: float, count: int) -> None:
        """Wait until so many tokens are due, and let other tasks run in any case."""
        due = start + count / self.rate if self.rate else start
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))


def _chunks(count: int, seed: int) -> Iterator[tuple[int, int]]:
    """Cut a count of tokens into chunks: the first token of each, and the one after its last."""
    start = 0
    while start < count:
        end = min(count, start + 1 + pick(seed, start, LARGEST))
        yield start, end
        start = end
