"""A chunk of engine output and the two methods that every parser has.

A chunk is what one step of an engine yields for one request, in the form in which recordings keep it too. Chunk boundaries mean
nothing: any partition of the same tokens gives the same items (rule R16).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import define

from interlock.fsm.deltas import Delta, FinishReason, Usage


@define
class Chunk:
    """What an engine yields in one step. Do not change it; it is not frozen only because that would take three times as long.

    Args:
        token_ids: The new token ids, in order.
        text: The new text, for formats that are parsed as text; harmony ignores it.
        logprobs: One object for each new token, in the API's shape (`token`, `bytes`, `logprob`, `top_logprobs`), or None.
        delta: For the format `vllm`: an object or mapping of the shape of vLLM's `DeltaMessage` (`reasoning`, `content`,
            `tool_calls`), or None.
    """

    token_ids: Sequence[int] = ()
    text: str = ""
    logprobs: Sequence[Mapping[str, object]] | None = None
    delta: object | None = None


class Parser(Protocol):
    """Turns what a model wrote in one format into deltas; one instance for each response, all its turns included."""

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas that a chunk makes certain; never raise, whatever the model wrote (rule R17)."""
        ...

    def end(self, reason: FinishReason, usage: Usage) -> list[Delta]:
        """End the turn and return what was held back and, last, `EndTurn`; the parser is then ready for another turn.

        Args:
            reason: Why the turn ended.
            usage: What the engine counted of this turn; `reasoning_tokens`, and `output_tokens` where the engine gives
                none (0), are the parser's own counts.
        """
        ...
