"""Rows, rounds and the stopwatch, which produce a figure."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import median, quantiles
from time import thread_time_ns
from typing import Any, Final, TypeAlias

from attrs import define, frozen

Write: TypeAlias = Callable[[bytes], object]
"""Takes the bytes of a stream."""

Feed: TypeAlias = Callable[[Any], bytes]
"""An open stream: takes an output of an engine, and returns the bytes."""

Drain: TypeAlias = Callable[[Iterable[Any], Write], None]
"""One contender: creates a whole response from steps, and writes its bytes."""

Round: TypeAlias = Callable[[], float]
"""Measures once, and returns the figure in the row's unit."""

INTERLOCK: Final = "interlock"
PLUGIN: Final = "plugin"
"""Interlock as well, but on vLLM's outputs, through the reader of its plugin."""
RESPONSES: Final = "responses"
"""Interlock in the Responses API, beside a row of another API."""
VLLM: Final = "vllm"
FLOOR: Final = "floor"
PEER: Final = "agentic-api"
"""Another gateway, beside ours."""

NANOSECONDS: Final = 1_000
"""Nanoseconds in a microsecond."""


@frozen
class Row:
    """One comparison.

    Args:
        group: What it is about; rows of one group make one table.
        name: What sets it apart in its group.
        unit: Of its figures.
        rounds: By contender.
        repeats: How often each contender is measured.
        at: Where it stands on its group's axis, if the group has one.
        more: Whether more is better.
    """

    group: str
    name: str
    unit: str
    rounds: Mapping[str, Round]
    repeats: int = 9
    at: int | None = None
    more: bool = False


@frozen
class Figure:
    """A measured figure: the median of the rounds, and the quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Figure:
        """Sum up at least one sample."""
        low, _, high = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else (samples[0],) * 3
        return cls(median(samples), low, high)


@define(eq=False)
class Stopwatch:
    """Measures the CPU time between two moments of a source of steps, without a call for the steps in between.

    It adds up what it measures of one source after another; the garbage is collected before the first.
    """

    _started: int = 0
    _measured: int = 0

    def steps(self, before: Iterable[Any], measured: Iterable[Any]) -> Iterator[Any]:
        """Yield steps, and measure from the request for the first of `measured` to the request after the last."""
        return chain(before, self._start(), measured, self._stop())

    def last(self, before: Iterable[Any]) -> Iterator[Any]:
        """Yield steps, and measure the time after the last, until `microseconds` is read."""
        return chain(before, self._start())

    def _start(self) -> Generator[None]:
        if gc.isenabled():
            gc.collect()
            gc.disable()
        self._started = thread_time_ns()
        yield from ()

    def _stop(self) -> Generator[None]:
        self._measured += thread_time_ns() - self._started
        self._started = 0
        yield from ()

    @property
    def microseconds(self) -> float:
        """The measured time; read once, at the end."""
        open_ended = thread_time_ns() - self._started if self._started else 0
        gc.enable()
        return (self._measured + open_ended) / NANOSECONDS


def sink() -> Write:
    """Return a function that discards bytes."""
    return deque[bytes](maxlen=0).append


def each(drain: Drain, before: Sequence[Any], measured: Sequence[Any], *, streams: int = 1) -> Round:
    """Measure the steps of a stream.

    Args:
        drain: The contender.
        before: The steps that come first and are not measured.
        measured: Those that are.
        streams: How many streams of them are made, one after another.

    Returns:
        Gives microseconds for one step.
    """

    def measure() -> float:
        watch = Stopwatch()
        for _ in range(streams):
            drain(watch.steps(before, measured), sink())
        return watch.microseconds / (streams * len(measured))

    return measure


def ending(drain: Drain, before: Sequence[Any]) -> Round:
    """Measure the end of a stream, from its last step to its last byte, in microseconds."""

    def measure() -> float:
        watch = Stopwatch()
        drain(watch.last(before), sink())
        return watch.microseconds

    return measure


def take_turns(row: Row, done: Callable[[], object]) -> dict[str, list[float]]:
    """Measure a row: one round of each contender, then the next round.

    Args:
        row: The row.
        done: Called after each round.
    """
    samples: dict[str, list[float]] = {name: [] for name in row.rounds}
    for _ in range(row.repeats):
        for name, measure in row.rounds.items():
            samples[name].append(measure())
            done()
    return samples
