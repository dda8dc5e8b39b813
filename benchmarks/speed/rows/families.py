"""The families: what a piece of text, of reasoning and of arguments costs; of arguments, by how much of them came before.

Ours is text to bytes: parser, driver and frames. vLLM's is its parser alone, for its events are measured elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from types import ModuleType
from typing import Final

from interlock.fsm.deltas import Start
from interlock.parsers import Chunk, FamilyParser
from interlock.parsers.families import DEFAULT_REASONING, DISTINCT, ParserSettings, family
from interlock.parsers.families.reference_encoders import WrittenItem, encode
from speed.ours import begin
from speed.outputs import PROSE, REQUEST, Stream
from speed.size import Size
from speed.timing import INTERLOCK, VLLM, Round, Row, Stopwatch

__all__ = ["rows"]

_UNREAD: Final = ("mistral",)
"""The reasoning that vLLM reads with Mistral's own tokenizer alone."""
LETTERS: Final = 4
"""In a piece."""
_MARK: Final = "@@@"
_THEIRS: Final = 12
"""Pieces that are measured at once of vLLM's parsers, some of which take milliseconds for each."""


def rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return the rows."""
    return [row for name in DISTINCT for row in _rows(name, size, peer)]


def _rows(name: str, size: Size, peer: ModuleType | None) -> Iterator[Row]:
    reasoning = DEFAULT_REASONING[name]
    thought = [WrittenItem("reasoning", "Hm.")] if reasoning else []
    before = encode([*thought, WrittenItem("message", "It is so. ")], name, reasoning, thinking=False)
    yield _row(name, "text", Stream(name, reasoning, before), size, peer)
    if reasoning:
        yield _row(name, "reasoning", Stream(name, reasoning, before.partition("Hm.")[0] + "It is so. "), size, peer)
    head, _, _ = encode([WrittenItem("call", f'{{"city":"{_MARK}"}}', "get_weather")], name).partition(_MARK)
    for length in size.arguments:
        begun = Stream(name, None, head + "".join(islice(PROSE * 200, length)))
        yield _row(name, f"after {length:,} characters", begun, size, peer, length)


def _row(name: str, what: str, stream: Stream, size: Size, peer: ModuleType | None, at: int | None = None) -> Row:
    rounds: dict[str, Round] = {INTERLOCK: partial(_ours, stream, size.tokens)}
    if peer is not None and stream.reasoning not in _UNREAD:
        rounds[VLLM] = partial(peer.parse_pieces, stream, _pieces(min(size.tokens, _THEIRS)))
    return Row("families", f"{name}, {what}", "µs/piece", rounds, min(size.repeats, 5), at=at)


def _pieces(count: int) -> list[str]:
    text = PROSE * (count * LETTERS // len(PROSE) + 1)
    return [text[at : at + LETTERS] for at in range(0, count * LETTERS, LETTERS)]


def _ours(stream: Stream, count: int) -> float:
    chunks = [Chunk([1], piece) for piece in _pieces(count)]
    _measured(stream, chunks)  # after vLLM's turn, what ours needs is in no cache
    return _measured(stream, chunks)


def _measured(stream: Stream, chunks: Sequence[Chunk]) -> float:
    read = family(stream.calls, stream.reasoning)
    parse, feed = FamilyParser(read, ParserSettings.from_request(REQUEST), "between").feed, begin().feed
    feed([Start(), *parse(Chunk([1], stream.before))])
    watch = Stopwatch()
    for chunk in watch.steps([], chunks):
        feed(parse(chunk))
    return watch.microseconds / len(chunks)
