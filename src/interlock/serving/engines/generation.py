"""What the server adds to the generation of an engine: a prompt that fits, and responses without output."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from attrs import define, evolve, field

from interlock.parsers import Chunk
from interlock.serving.engines.engine import EngineOutput, Generation, Turn
from interlock.serving.requests.api_errors import ApiError, PromptError
from interlock.serving.requests.input_items import JsonItem, truncate

TOO_LONG: Final = re.compile(r"\bcontext\b|too long|max_model_len|maximum model length", re.IGNORECASE)
"""Matches a refusal of vLLM, or of an upstream server, that has no code and says that the prompt is too long."""

WARMING: Final = 16
"""The budget of a turn whose output nobody reads: the smallest one that OpenAI's service accepts."""


@define(eq=False)
class Silence(Generation):
    """A response without output: the engine counts the prompt, or if it `warms`, reads it into its cache."""

    generation: Generation = field(kw_only=True)
    warms: bool = field(kw_only=True)

    async def admit(self, turn: Turn) -> None:
        pass

    async def start(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        return self.generate(turn)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield the only output, which ends the turn; warming ends at the first output that has counted the prompt."""
        counts = EngineOutput(Chunk(), "stop")
        if not self.warms:
            counts.input_tokens = await self.generation.count(turn)
            yield counts
            return
        async with aclosing(await self.generation.start(evolve(turn, budget=WARMING))) as outputs:
            async for output in outputs:
                if output.input_tokens:
                    counts = EngineOutput(Chunk(), "stop", output.input_tokens, output.cached_tokens, output.cache_write_tokens)
                    break
        yield counts


async def prepare_later(generation: Generation, turn: Turn) -> tuple[Turn, Mapping[str, object]]:
    """Prepare a turn that is generated later: its prompt is counted, which may wait for another server, only if it is refused.

    Raises:
        ApiError: The engine refuses the turn, and nothing of it may be dropped.
    """
    try:
        return turn, await generation.prepare(turn)
    except ApiError as error:
        if turn.request.truncation != "auto" or not _is_too_long(error):
            raise
    turn = await fitting(generation, turn)
    return turn, await generation.prepare(turn)


async def fitting(generation: Generation, turn: Turn) -> Turn:
    """Return a turn without its oldest items if it is too long with `truncation: auto`.

    If nothing fits, or the prompt cannot be counted for another reason, nothing is dropped; the engine then refuses the turn.
    """
    if turn.request.truncation != "auto":
        return turn

    async def fits(items: Sequence[JsonItem]) -> bool:
        try:
            await generation.count(evolve(turn, items=items))
        except PromptError:
            return False
        except ApiError as error:
            return not _is_too_long(error)
        return True

    return evolve(turn, items=await truncate(turn.items, fits))


def _is_too_long(error: ApiError) -> bool:
    """Return whether an error says that a prompt exceeds the context window."""
    if error.code == "context_length_exceeded":
        return True
    return error.code in (None, "invalid_value") and TOO_LONG.search(error.message) is not None
