"""Many open streams in one process, each of which gets one token in its turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

from attrs import define, field

from speed import ours
from speed.outputs import output, prose
from speed.size import Size
from speed.timing import INTERLOCK, VLLM, Feed, Row, Stopwatch


def rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for each number of streams."""
    return [_row(size, peer, count) for count in size.streams]


def _row(size: Size, peer: ModuleType | None, count: int) -> Row:
    rounds = {INTERLOCK: _Crowd(ours.open_harmony, count).measure}
    if peer is not None:
        rounds[VLLM] = _Crowd(peer.open_harmony, count).measure
    return Row("open streams", f"{count:,} open streams", "µs per token", rounds, (size.repeats + 1) // 2, count)


@define(eq=False)
class _Crowd:
    """Streams that are open from the first round on."""

    _open: Callable[[], Feed]
    _count: int
    _streams: Sequence[Feed] = field(factory=list[Feed])

    def measure(self) -> float:
        """Feed one token to each stream."""
        if not self._streams:
            self._streams = [self._open() for _ in range(self._count)]
        token, watch = output(prose(1)), Stopwatch()
        for feed in watch.steps((), self._streams):
            feed(token)
        return watch.microseconds / self._count
