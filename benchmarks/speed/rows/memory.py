"""What an open stream holds beyond its text: the driver, the reader, and how they keep what was said."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterable
from types import ModuleType

from speed import ours
from speed.outputs import encoding, output, prose
from speed.size import Size
from speed.timing import INTERLOCK, VLLM, Feed, Round, Row

_STREAMS = 20
_LONGEST = 10_000
"""Tokens above which tracing takes too long for what it tells."""
_KIB = 1024


def rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for each length of output."""
    return [_row(peer, length) for length in size.outputs if length <= _LONGEST]


def _row(peer: ModuleType | None, length: int) -> Row:
    rounds = {INTERLOCK: _held(ours.open_harmony, length)}
    if peer is not None:
        rounds[VLLM] = _held(peer.open_harmony, length)
    return Row("memory", f"after {length:,} tokens", "KiB per stream, beyond its text", rounds, 1, length)


def _held(begin: Callable[[], Feed], length: int) -> Round:
    tokens = prose(length)
    text = len(encoding().decode(tokens).encode())

    def measure() -> float:
        _opened(begin, tokens)  # what a process holds once (the vocabulary's words) is there before
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        streams = [_opened(begin, tokens) for _ in range(_STREAMS)]
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return ((after - before) / len(streams) - text) / _KIB

    return measure


def _opened(begin: Callable[[], Feed], tokens: Iterable[int]) -> Feed:
    feed = begin()
    for token in tokens:
        feed(output([token]))
    return feed
