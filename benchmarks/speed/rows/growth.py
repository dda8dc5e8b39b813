"""What a token costs as the output grows: whole answers of harmony of several lengths."""

from __future__ import annotations

from types import ModuleType

from speed import ours
from speed.outputs import begun, outputs, prose
from speed.size import Size
from speed.timing import INTERLOCK, VLLM, Drain, Round, Row, each

_ENOUGH = 10_000
"""Tokens that a round has at least, so that short outputs are measured as well as long ones."""
_FEW = 100
"""Steps that are made beforehand and given again and again: an engine's are new, and so never far from the processor."""


def rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for each length."""
    return [_row(size, peer, length) for length in size.outputs]


def _row(size: Size, peer: ModuleType | None, length: int) -> Row:
    times = max(min(_ENOUGH, size.outputs[-1]) // length, 1)
    rounds = {INTERLOCK: _whole(ours.drain_harmony, length, times)}
    if peer is not None:
        rounds[VLLM] = _whole(peer.drain_harmony, length, times)
    return Row("growth", f"output of {length:,} tokens", "µs per token", rounds, (size.repeats + 1) // 2, length)


def _whole(drain: Drain, length: int, times: int) -> Round:
    """Measure answers from their second token to their last, several times if they are short."""
    some = outputs(prose(min(length, _FEW)))
    one = each(drain, [begun()], some * (length // len(some)))
    return lambda: sum(one() for _ in range(times)) / times
