"""Tokens of harmony after a reasoning of some length: one token for each step in, bytes out.

A step is a chunk for us and a `RequestOutput` for vLLM; for our plugin, which is measured beside, it is that too.
"""

from __future__ import annotations

from types import ModuleType

from interlock.parsers import Chunk
from speed import ours
from speed.outputs import ANALYSIS, ANSWER, NEXT, encode, output, outputs, prose
from speed.size import Size
from speed.timing import INTERLOCK, PLUGIN, VLLM, Row, each

_LONG = 10_000
"""Reasoning tokens above which a round takes so long that fewer rounds have to do."""


def rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for each length of reasoning."""
    return [_row(size, peer, reasoning) for reasoning in size.reasoning]


def _row(size: Size, peer: ModuleType | None, reasoning: int) -> Row:
    thought = [*encode(ANALYSIS), *prose(reasoning), *encode(NEXT)] if reasoning else []
    begun, tokens = [*thought, *encode(ANSWER), *prose(1)], prose(size.tokens)
    before, measured = [output(begun)], outputs(tokens)
    rounds = {
        INTERLOCK: each(ours.drain_chunks, [Chunk(begun)], [Chunk([token]) for token in tokens]),
        PLUGIN: each(ours.drain_harmony, before, measured),
    }
    if peer is not None:
        rounds[VLLM] = each(peer.drain_harmony, before, measured)
    name = f"after {reasoning:,} reasoning tokens"
    return Row("harmony", name, "µs per token", rounds, size.repeats if reasoning < _LONG else (size.repeats + 1) // 2, reasoning)
