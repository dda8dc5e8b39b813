"""The families: what a piece of arguments costs, by how much of them came before.

Ours is text to bytes: parser, driver and frames. vLLM's is its parser alone, for its events are measured elsewhere.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from types import ModuleType
from typing import Final

from interlock.fsm.deltas import Start
from interlock.parsers import Chunk, FamilyParser
from interlock.parsers.families import Settings, family
from interlock.parsers.families.writing import Said, encode
from speed.ours import begin
from speed.outputs import PROSE, REQUEST
from speed.size import Size
from speed.timing import INTERLOCK, VLLM, Round, Row, Stopwatch

__all__ = ["FAMILIES", "rows"]

FAMILIES: Final = ("qwen3_coder", "hermes", "glm45", "minimax_m2", "deepseek_v32", "kimi_k2", "deepseek_v3", "mistral")
LETTERS: Final = 4
"""In a piece."""
_MARK: Final = "@@@"
_THEIRS: Final = 12
"""Pieces that are measured at once of vLLM's parsers, some of which take milliseconds for each."""


def rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return the rows."""
    return [_row(name, length, size, peer) for name in FAMILIES for length in size.arguments]


def _row(name: str, length: int, size: Size, peer: ModuleType | None) -> Row:
    head, _, _ = encode([Said("call", f'{{"city":"{_MARK}"}}', "get_weather")], name).partition(_MARK)
    before = head + "".join(islice(_letters(), length))
    rounds: dict[str, Round] = {INTERLOCK: partial(_ours, name, before, size.tokens)}
    if peer is not None:
        rounds[VLLM] = partial(peer.parse_pieces, name, before, _pieces(min(size.tokens, _THEIRS)))
    return Row("families", f"{name}, after {length:,} characters", "µs/piece", rounds, min(size.repeats, 3), at=length)


def _letters() -> islice[str]:
    return islice(PROSE * 200, None)


def _pieces(count: int) -> list[str]:
    text = PROSE * (count * LETTERS // len(PROSE) + 1)
    return [text[at : at + LETTERS] for at in range(0, count * LETTERS, LETTERS)]


def _ours(name: str, before: str, count: int) -> float:
    parse, feed = FamilyParser(family(name), Settings.from_request(REQUEST)).feed, begin().feed
    feed([Start(), *parse(Chunk([1], before))])
    chunks = [Chunk([1], piece) for piece in _pieces(count)]
    watch = Stopwatch()
    for chunk in watch.steps([], chunks):
        feed(parse(chunk))
    return watch.microseconds / count
