"""Cutting a recording into other chunks: the same tokens, text and deltas, `n` at a time (rule R16).

It knows what of a chunk may be cut where, and nothing of what it means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import cast

import attrs

from interlock.parsers.chunk import Chunk
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.recordings.recording import RecordedTurn, Recording


def rechunk(recording: Recording, size: int) -> Recording:
    """Return the same recording in chunks of another size.

    Tokens with their log probabilities are merged and cut over a whole turn, and so is text: by token where the log
    probabilities say how, else by character. Deltas of the format `vllm` are never merged, because nobody but their
    parser knows how; the string of one that says a single thing, without log probabilities, is cut.

    Args:
        recording: What to cut.
        size: Tokens, or characters where there are no tokens, of a chunk; at least 1.

    Raises:
        ValueError: If the size is less than 1.
    """
    if size < 1:
        raise ValueError("a chunk holds at least one token")
    return attrs.evolve(recording, turns=tuple(_turn(turn, size) for turn in recording.turns))


def _turn(turn: RecordedTurn, size: int) -> RecordedTurn:
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


def _groups(turn: RecordedTurn) -> Iterator[list[Chunk]]:
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
    logprobs = [token for chunk in chunks for token in chunk.logprobs or ()]
    texts = _texts(text, logprobs)
    for start in range(0, max(len(ids), len(logprobs), len(texts)), size):
        piece = slice(start, start + size)
        yield Chunk(
            token_ids=tuple(ids[piece]),
            text="".join(texts[piece]),
            logprobs=None if first.logprobs is None else tuple(logprobs[piece]),
        )


def _texts(text: str, logprobs: Sequence[Mapping[str, object]]) -> Sequence[str]:
    """Return the text of each token, or characters if the tokens do not rebuild the text."""
    tokens = [str(token.get("token", "")) for token in logprobs]
    return tokens if "".join(tokens) == text else text


def _pieces(text: object, size: int) -> Iterator[str]:
    """Cut a string that may be missing."""
    whole = cast("str | None", text) or ""
    return (whole[start : start + size] for start in range(0, len(whole), size))


def _cut_delta(chunk: Chunk, size: int) -> Iterator[Chunk]:
    """Cut a delta; its tokens, of which only the number counts here, come with the first piece."""
    ids: Sequence[int] = chunk.token_ids
    for delta in _cut_fields(cast("Mapping[str, object]", chunk.delta), size):
        yield Chunk(token_ids=ids, delta=delta)
        ids = ()


def _cut_fields(delta: Mapping[str, object], size: int) -> Iterator[Mapping[str, object]]:
    """Cut the string of a delta; one that says several things is kept whole, because its tokens belong to them all."""
    texts = [name for name in ("reasoning", "content") if delta.get(name)]
    calls = cast("Sequence[Mapping[str, object]] | None", delta.get("tool_calls")) or ()
    if len(texts) + len(calls) != 1:
        yield delta
        return
    for name in texts:
        yield from ({name: piece} for piece in _pieces(delta.get(name), size))
    for call in calls:
        yield from ({"tool_calls": [piece]} for piece in _cut_call(call, size))


def _cut_call(call: Mapping[str, object], size: int) -> Iterator[Mapping[str, object]]:
    """Yield the first piece keeps all that there is beside the arguments; the others continue it by its index."""
    function = cast("Mapping[str, object] | None", call.get("function")) or {}
    first, *rest = [*_pieces(function.get("arguments"), size)] or [""]
    yield {**call, "function": {**function, "arguments": first}}
    for continued in rest:
        yield {"index": call.get("index", 0), "function": {"arguments": continued}}
