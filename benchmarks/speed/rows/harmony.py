"""Tokens of harmony after a reasoning of some length: an engine's outputs in, one token each; bytes out."""

from __future__ import annotations

from types import ModuleType

from speed import ours
from speed.outputs import ANALYSIS, ANSWER, NEXT, encode, output, outputs, prose
from speed.size import Size
from speed.timing import INTERLOCK, VLLM, Row, each

_LONG = 10_000
"""Reasoning tokens above which a round takes so long that fewer tokens tell as much."""


def rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Give a row for each length of reasoning."""
    return [_row(size, peer, reasoning) for reasoning in size.reasoning]


def _row(size: Size, peer: ModuleType | None, reasoning: int) -> Row:
    thought = [*encode(ANALYSIS), *prose(reasoning), *encode(NEXT)] if reasoning else []
    before = [output([*thought, *encode(ANSWER), *prose(1)])]
    measured = outputs(prose(size.tokens if reasoning < _LONG else max(size.tokens // 4, 1)))
    rounds = {INTERLOCK: each(ours.drain_harmony, before, measured)}
    if peer is not None:
        rounds[VLLM] = each(peer.drain_harmony, before, measured)
    name = f"after {reasoning:,} reasoning tokens"
    return Row("harmony", name, "µs per token", rounds, size.repeats if reasoning < _LONG else (size.repeats + 1) // 2, reasoning)
