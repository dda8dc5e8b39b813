"""Cutting a recording into other chunks: the same tokens, text and deltas, `n` at a time (rule R16).

It knows what of a chunk may be cut where, and nothing of what it means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import TypeVar, cast

import attrs

from interlock.parsers.chunk import Chunk
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.recording import Recording, Turn

T = TypeVar("T")


def rechunk(recording: Recording, size: int) -> Recording:
    """Give the same recording in chunks of another size.

    Tokens with their log probabilities are merged and cut over a whole turn, and so is text: by token where the log
    probabilities say how, else by character. Deltas of the format `vllm` are never merged, because nobody but their
    parser knows how; their strings are cut, those with log probabilities excepted.

    Args:
        recording: What to cut.
        size: Tokens, or characters where there are no tokens, of a chunk; at least 1.

    Raises:
        ValueError: If the size is less than 1.
    """
    if size < 1:
        raise ValueError("a chunk holds at least one token")
    return attrs.evolve(recording, turns=tuple(_turn(turn, size) for turn in recording.turns))


def _turn(turn: Turn, size: int) -> Turn:
    chunks = [piece for group in _groups(turn) for piece in _cut(group, size)] or [Chunk()]
    last = len(chunks) - 1
    usage = max(turn.outputs, key=lambda output: output.input_tokens)
    outputs = [
        EngineOutput(
            chunk=chunk,
            finish_reason=turn.finish_reason if place == last else None,
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cached_tokens,
        )
        for place, chunk in enumerate(chunks)
    ]
    return attrs.evolve(turn, outputs=tuple(outputs))


def _groups(turn: Turn) -> Iterator[list[Chunk]]:
    """What may be merged: neighbours that are not deltas and all have log probabilities, or all have none."""
    for (_, whole), group in groupby(
        (output.chunk for output in turn.outputs),
        key=lambda chunk: (chunk.logprobs is None, chunk.delta is not None),
    ):
        chunks = list(group)
        yield from ([chunk] for chunk in chunks) if whole else [chunks]


def _cut(chunks: Sequence[Chunk], size: int) -> Iterator[Chunk]:
    first = chunks[0]
    if first.delta is not None:
        yield from [first] if first.logprobs is not None else _cut_delta(first, size)
        return
    text = "".join(chunk.text for chunk in chunks)
    ids = [token for chunk in chunks for token in chunk.token_ids]
    if first.logprobs is None:
        for some_ids, some_text in zip_longest(_pieces(ids, size), _pieces(text, size)):
            yield Chunk(token_ids=tuple(some_ids or ()), text=some_text or "")
        return
    logprobs = [token for chunk in chunks for token in chunk.logprobs or ()]
    texts = _texts(text, logprobs)
    for some_ids, some_logprobs, some_texts in zip_longest(*(_pieces(each, size) for each in (ids, logprobs, texts))):
        yield Chunk(tuple(some_ids or ()), "".join(some_texts or ()), tuple(some_logprobs or ()))


def _texts(text: str, logprobs: Sequence[Mapping[str, object]]) -> Sequence[str]:
    """The text of each token, or characters if the tokens do not rebuild the text."""
    tokens = [str(token.get("token", "")) for token in logprobs]
    return tokens if "".join(tokens) == text else text


def _pieces(sequence: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (sequence[start : start + size] for start in range(0, len(sequence), size))


def _cut_delta(chunk: Chunk, size: int) -> Iterator[Chunk]:
    """Cut the strings of a delta; its tokens, of which only the number counts here, come with the first piece."""
    ids: Sequence[int] = chunk.token_ids
    for delta in _cut_fields(cast("Mapping[str, object]", chunk.delta), size):
        yield Chunk(token_ids=ids, delta=delta)
        ids = ()
    if ids:
        yield Chunk(token_ids=ids)


def _cut_fields(delta: Mapping[str, object], size: int) -> Iterator[Mapping[str, object]]:
    for name in ("reasoning", "content"):
        for piece in _pieces(cast("str | None", delta.get(name)) or "", size):
            yield {name: piece}
    for call in cast("Sequence[Mapping[str, object]] | None", delta.get("tool_calls")) or ():
        for piece in _cut_call(call, size):
            yield {"tool_calls": [piece]}


def _cut_call(call: Mapping[str, object], size: int) -> Iterator[Mapping[str, object]]:
    """The first piece keeps all that there is beside the arguments; the others continue it by its index."""
    function = cast("Mapping[str, object] | None", call.get("function")) or {}
    first, *rest = [*_pieces(cast("str | None", function.get("arguments")) or "", size)] or [""]
    yield {**call, "function": {**function, "arguments": first}}
    for piece in rest:
        yield {"index": call.get("index", 0), "function": {"arguments": piece}}
