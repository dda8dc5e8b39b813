"""The model's messages as tokens, of harmony or of a family's text, with log probabilities.

Control tokens in the text of a message are text. A family's text is spelled in harmony's vocabulary too, markers included.
"""

from __future__ import annotations

import zlib
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from typing import Final, Literal

from attrs import frozen

from interlock.events.json import dumps
from interlock.parsers import Tagged
from interlock.parsers.families import family
from interlock.parsers.families.reference_encoders import Said, encode
from interlock.serving.engines.harmony_encoding import control, encoded, encoding
from interlock.serving.requests.yielder import Yielder

__all__ = ["Message", "decoder", "logprobs", "pick", "spell", "spell_tagged"]

ORDINARY: Final = 199_000
"""Ids below this one are text; the control tokens are above."""

LIKELY: Final = 0.7
"""The largest distance from 0 of a chosen token's log probability; each further alternative is about that much less likely."""


@frozen
class Message:
    """One message of the model, in harmony's terms.

    Args:
        channel: `analysis`, `commentary` or `final`.
        text: Its content.
        recipient: The tool that it calls, or None.
        is_json: Whether the content is declared as JSON.
    """

    channel: Literal["analysis", "commentary", "final"]
    text: str
    recipient: str | None = None
    is_json: bool = False


async def spell(messages: Sequence[Message]) -> list[int]:
    """Return messages as the model's completion of a prompt, which ends with the beginning of the first one."""
    tokens: list[int] = []
    yielder = Yielder()
    for index, message in enumerate(messages):
        recipient = f" to={message.recipient}" if message.recipient else ""
        tokens += control("<|start|>assistant<|channel|>" if index else "<|channel|>")
        tokens += await _text(f"{message.channel}{recipient}", yielder)
        if message.is_json:
            tokens += [*await _text(" ", yielder), *control("<|constrain|>"), *await _text("json", yielder)]
        end = "<|end|>" if index < len(messages) - 1 else "<|call|>" if message.recipient else "<|return|>"
        tokens += [*control("<|message|>"), *await _text(message.text, yielder), *control(end)]
    return tokens


async def spell_tagged(messages: Sequence[Message], tagged: Tagged) -> list[int]:
    """Return messages as the text with which a model of a family completes a prompt."""
    thinking = family(tagged.tool_parser, tagged.reasoning_parser).starts == "thinking"
    items = [_in_a_family(message) for message in messages]
    return await _text(encode(items, tagged.tool_parser or "hermes", tagged.reasoning_parser, thinking=thinking), Yielder())


def _in_a_family(message: Message) -> Said:
    """Return a message as a family has it; a call of free text has a parameter for the text."""
    if message.recipient is None:
        return Said("reasoning" if message.channel == "analysis" else "message", message.text)
    name = message.recipient.removeprefix("functions.")
    key = "code" if name == "python" else "input"
    return Said("call", message.text if message.is_json else dumps({key: message.text}).decode(), name)


def decoder() -> Callable[[Sequence[int]], str]:
    """Return a function that decodes tokens chunk by chunk; a character comes with the last token of its bytes."""
    decode = getincrementaldecoder("utf-8")("replace").decode
    return lambda tokens: decode(_bytes(tokens))


def _bytes(tokens: Sequence[int]) -> bytes:
    return encoding().decode(tokens, errors="surrogateescape").encode("utf-8", "surrogateescape")


async def _text(text: str, yielder: Yielder) -> list[int]:
    return [token async for tokens in encoded(text, yielder) for token in tokens]


def pick(seed: int, index: int, count: int) -> int:
    """Return a number below `count` for the choice `index` of a run, evenly distributed and always the same."""
    return zlib.crc32(index.to_bytes(8, "little"), seed) % count


def logprobs(token: int, index: int, alternatives: int, seed: int) -> dict[str, object]:
    """Return the log probability of a token in the API's shape: plausible, and always the same.

    Args:
        token: The token that was chosen.
        index: Its place in the output.
        alternatives: How many of the likeliest tokens are listed, the chosen one among them.
        seed: Of the whole run.
    """
    likely = -LIKELY * pick(seed, index, 1_000) / 1_000
    others = [pick(seed, index + place * ORDINARY, ORDINARY) for place in range(1, alternatives)]
    top = [_entry(other, likely - LIKELY * place) for place, other in enumerate([token, *others][:alternatives])]
    return {**_entry(token, likely), "top_logprobs": top}


def _entry(token: int, logprob: float) -> dict[str, object]:
    raw = _bytes([token])
    return {"token": raw.decode("utf-8", "replace"), "bytes": list(raw), "logprob": round(logprob, 4)}
