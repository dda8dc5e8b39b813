"""Spelling what a model says in harmony tokens, and what their log probabilities might have been.

It knows harmony's spelling of messages and nothing of their meaning. What a message says is never read as control tokens.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from interlock.serving.engines.embedded.model import Saying
from interlock.serving.engines.tokens import Pace, control, encoded, encoding

__all__ = ["logprobs", "pick", "spell"]

ORDINARY: Final = 199_000
"""Ids below this one are text; the control tokens are above."""

LIKELY: Final = 0.7
"""The largest distance from 0 of a chosen token's log probability; each further alternative is about that much less likely."""


async def spell(sayings: Sequence[Saying]) -> list[int]:
    """Return messages as the model's completion of a prompt, which ends with the beginning of the first one.

    Args:
        sayings: The messages.
    """
    tokens: list[int] = []
    pace = Pace()
    for index, saying in enumerate(sayings):
        recipient = f" to={saying.recipient}" if saying.recipient else ""
        tokens += control("<|start|>assistant<|channel|>" if index else "<|channel|>")
        tokens += await _text(f"{saying.channel}{recipient}", pace)
        if saying.content_type:
            tokens += await _text(" ", pace) + control("<|constrain|>") + await _text(saying.content_type, pace)
        tokens += control("<|message|>") + await _text(saying.text, pace) + control(saying.end)
    return tokens


async def _text(text: str, pace: Pace) -> list[int]:
    return [token async for tokens in encoded(text, pace) for token in tokens]


def pick(seed: int, index: int, count: int) -> int:
    """Pick one of a count of things, evenly and always the same one.

    Args:
        seed: Of the whole run.
        index: Of this choice in the run.
        count: How many things there are.
    """
    return zlib.crc32(index.to_bytes(8, "little"), seed) % count


def logprobs(token: int, index: int, alternatives: int, seed: int) -> dict[str, object]:
    """Make the log probability of one token, in the API's shape: plausible, and always the same.

    Args:
        token: The token that was chosen.
        index: Its place in the output.
        alternatives: How many of the likeliest tokens are listed, the chosen one among them.
        seed: Of the whole run.
    """
    likely = -LIKELY * pick(seed, index, 1_000) / 1_000
    others = [pick(seed, index + place * ORDINARY, ORDINARY) for place in range(1, alternatives)]
    listed = [token, *others][:alternatives]
    top = [_entry(other, likely - LIKELY * place) for place, other in enumerate(listed)]
    return {**_entry(token, likely), "top_logprobs": top}


def _entry(token: int, logprob: float) -> dict[str, object]:
    raw = encoding().decode([token], errors="surrogateescape").encode("utf-8", "surrogateescape")
    return {"token": raw.decode("utf-8", "replace"), "bytes": list(raw), "logprob": round(logprob, 4)}
