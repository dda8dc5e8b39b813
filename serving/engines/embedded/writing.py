"""Spelling what a model says in tokens, of harmony or of a family, and what their log probabilities might have been.

It knows the spelling of messages and nothing of their meaning. What a message says is never read as control tokens. The text of
a family is spelled in the same vocabulary, whose tokens are then no special ones.
"""

from __future__ import annotations

import zlib
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from typing import Final

from interlock.events.json import dumps
from interlock.parsers import Tagged
from interlock.parsers.families import family
from interlock.parsers.families.writing import Said, encode
from interlock.serving.engines.embedded.model import Saying
from interlock.serving.engines.tokens import control, encoded, encoding
from interlock.serving.pace import Pace

__all__ = ["decoder", "logprobs", "pick", "spell", "spell_tagged"]

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
            tokens += [*await _text(" ", pace), *control("<|constrain|>"), *await _text(saying.content_type, pace)]
        tokens += [*control("<|message|>"), *await _text(saying.text, pace), *control(saying.end)]
    return tokens


async def spell_tagged(sayings: Sequence[Saying], named: Tagged) -> list[int]:
    """Spell messages as the text that a model of a family completes a prompt with.

    Args:
        sayings: What it says.
        named: The family.
    """
    thinking = family(named.tool_parser, named.reasoning_parser).starts == "thinking"
    said = [_said(saying) for saying in sayings]
    text = encode(said, named.tool_parser or "hermes", named.reasoning_parser, thinking=thinking)
    return await _text(text, Pace())


def _said(saying: Saying) -> Said:
    """Return what a message of harmony is in a family; a call of free text has a parameter for it."""
    if saying.recipient is None:
        return Said("reasoning" if saying.channel == "analysis" else "message", saying.text)
    name = saying.recipient.removeprefix("functions.")
    key = "code" if name == "python" else "input"
    return Said("call", saying.text if saying.content_type else dumps({key: saying.text}).decode(), name)


def decoder() -> Callable[[Sequence[int]], str]:
    """Return what gives the text of tokens, turn by turn; a character that is not whole comes with its last token."""
    decode = getincrementaldecoder("utf-8")("replace").decode
    return lambda tokens: decode(encoding().decode(tokens, errors="surrogateescape").encode("utf-8", "surrogateescape"))


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
    """Create the log probability of one token, in the API's shape: plausible, and always the same.

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
