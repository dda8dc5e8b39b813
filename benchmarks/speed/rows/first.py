"""The time from the first token to the bytes of the first event that shows it.

It is measured in streams one after another, as in a process that serves: with a single one, most of the time would be the wait
for memory that the collector of garbage, run before, has driven out of the caches.
"""

from __future__ import annotations

from types import ModuleType

from speed import ours
from speed.outputs import ANSWER, encode, output, prose
from speed.size import Size
from speed.timing import INTERLOCK, VLLM, Row, each

_STREAMS = 20


def rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return one row: the header has come, and the first token of the answer comes."""
    before, measured = [output(encode(ANSWER))], [output(prose(1))]
    rounds = {INTERLOCK: each(ours.drain_harmony, before, measured, streams=_STREAMS)}
    if peer is not None:
        rounds[VLLM] = each(peer.drain_harmony, before, measured, streams=_STREAMS)
    return [Row("first event", "first token to its first event", "µs", rounds, size.repeats)]
