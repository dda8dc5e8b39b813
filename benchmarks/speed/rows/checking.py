"""`interlock check`: how many events of a stream are judged in a second."""

from __future__ import annotations

from time import thread_time_ns
from types import ModuleType

from interlock.judges.judging import Judge
from speed import ours
from speed.outputs import begun, outputs, prose
from speed.size import Size
from speed.timing import INTERLOCK, Row

_PIECE = 1 << 16
_SECOND = 1e9


def rows(size: Size, peer: ModuleType | None) -> list[Row]:  # noqa: ARG001 - vLLM has nothing of the kind
    """Return one row; the stream is read in the pieces in which a file is."""
    written: list[bytes] = []
    ours.drain_harmony([begun(), *outputs(prose(10 * size.tokens))], written.append)
    stream = b"".join(written)

    def measure() -> float:
        judge, started = Judge(), thread_time_ns()
        for start in range(0, len(stream), _PIECE):
            judge.feed(stream[start : start + _PIECE])
        verdict = judge.end()
        return verdict.events * _SECOND / (thread_time_ns() - started)

    return [Row("check", "events judged", "events per second", {INTERLOCK: measure}, size.repeats, more=True)]
