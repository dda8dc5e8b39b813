"""The embedded engine, which writes a stand-in model's messages as a real model would: in harmony or a model family's format."""

from __future__ import annotations

import asyncio
import zlib
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from attrs import field, frozen
from attrs.validators import ge

from interlock.events.json import dumps
from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk, Format, Tagged
from interlock.parsers.families import family
from interlock.parsers.families.reference_encoders import WrittenItem, encode
from interlock.serving.engines.embedded.model import Message, turn_messages, user_text
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.harmony_tokens import encode_framing, encode_text, encoding, token_bytes, token_entry
from interlock.serving.engines.prompt import count_prompt
from interlock.serving.requests.yielder import Yielder

MODEL: Final = "interlock-embedded"

LARGEST: Final = 6
"""The most tokens in a chunk; as with speculative decoding, a chunk can span messages and split characters."""

ORDINARY: Final = 199_000
"""All token ids below this one are text; control tokens have higher ids."""

LIKELY: Final = 0.7
"""The lower bound of a chosen token's log probability, negated, and the step from each alternative to the next."""


@frozen
class EmbeddedEngine:
    """An engine without a model, which writes harmony or the format of a `family`, `rate` tokens per second (0 for no limit)."""

    models: Sequence[str] = (MODEL,)
    rate: float = field(default=0.0, validator=ge(0))
    family: Tagged | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        encoding()  # loads the vocabulary before the first request needs it

    @property
    def format(self) -> Format:
        return self.family or "harmony"

    async def count(self, turn: Turn) -> int:
        return await count_prompt(turn)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        prompt = await count_prompt(turn)
        messages = turn_messages(turn)
        tokens = await (_harmony(messages) if self.family is None else _tagged(messages, self.family))
        is_whole = turn.budget is None or len(tokens) <= turn.budget
        tokens = tokens[: turn.budget]
        seed = zlib.crc32(f"{turn.index} {prompt} {user_text(turn)}".encode())
        start = asyncio.get_running_loop().time()
        decode = getincrementaldecoder("utf-8")("replace").decode
        end = 0
        while end < len(tokens):
            first, end = end, min(len(tokens), end + 1 + _pick(seed, end, LARGEST))
            due = start + end / self.rate if self.rate else start
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))  # lets other tasks run, even without a delay
            reason: FinishReason | None = None if end < len(tokens) else "stop" if is_whole else "length"
            chunk = Chunk(tokens[first:end], "" if self.family is None else decode(token_bytes(tokens[first:end])))
            if turn.request.wants_logprobs:
                count = turn.request.top_logprobs
                chunk.logprobs = [_logprobs(tokens[index], index, count, seed) for index in range(first, end)]
            yield EngineOutput(chunk, reason, prompt)


async def _harmony(messages: Sequence[Message]) -> list[int]:
    """Return the tokens of messages; the prompt already ends with the first one's `<|start|>assistant`."""
    tokens: list[int] = []
    yielder = Yielder()
    for index, message in enumerate(messages):
        recipient = f" to={message.recipient}" if message.recipient else ""
        tokens += encode_framing("<|start|>assistant<|channel|>" if index else "<|channel|>")
        tokens += await _text(f"{message.channel}{recipient}", yielder)
        if message.is_json:
            tokens += encode_framing(" <|constrain|>json")
        end = "<|end|>" if index < len(messages) - 1 else "<|call|>" if message.recipient else "<|return|>"
        tokens += [*encode_framing("<|message|>"), *await _text(message.text, yielder), *encode_framing(end)]
    return tokens


async def _tagged(messages: Sequence[Message], tagged: Tagged) -> list[int]:
    thinking = family(tagged.tool_parser, tagged.reasoning_parser).starts == "thinking"
    items = [_in_family(message) for message in messages]
    return await _text(encode(items, tagged.tool_parser or "hermes", tagged.reasoning_parser, thinking=thinking), Yielder())


def _in_family(message: Message) -> WrittenItem:
    """Convert a message to an item of a family; the free text of a call becomes one argument."""
    if message.recipient is None:
        return WrittenItem("reasoning" if message.channel == "analysis" else "message", message.text)
    name = message.recipient.removeprefix("functions.")
    key = "code" if name == "python" else "input"
    return WrittenItem("call", message.text if message.is_json else dumps({key: message.text}).decode(), name)


async def _text(text: str, yielder: Yielder) -> list[int]:
    return [token async for tokens in encode_text(text, yielder) for token in tokens]


def _pick(seed: int, index: int, count: int) -> int:
    """Return an evenly distributed number below `count`, the same for the same seed and index."""
    return zlib.crc32(index.to_bytes(8, "little"), seed) % count


def _logprobs(token: int, index: int, alternatives: int, seed: int) -> dict[str, object]:
    likely = -LIKELY * _pick(seed, index, 1_000) / 1_000
    tokens = [token, *(_pick(seed, index + place * ORDINARY, ORDINARY) for place in range(1, alternatives))][:alternatives]
    top = [token_entry(other, round(likely - LIKELY * place, 4)) for place, other in enumerate(tokens)]
    return {**token_entry(token, round(likely, 4)), "top_logprobs": top}
