"""How much is measured."""

from __future__ import annotations

from typing import Final

from attrs import frozen


@frozen
class Size:
    """The sizes of all rows.

    Args:
        tokens: Steps measured at once.
        repeats: Rounds.
        reasoning: Reasoning tokens that come before those of harmony that are measured.
        outputs: Lengths of outputs, in tokens.
        items: Items of the response that a terminal event shows.
        streams: Open streams.
        arguments: Lengths of arguments of calls, in characters.
    """

    tokens: int
    repeats: int
    reasoning: tuple[int, ...]
    outputs: tuple[int, ...]
    items: tuple[int, ...]
    streams: tuple[int, ...]
    arguments: tuple[int, ...]


FULL: Final = Size(
    tokens=1_000,
    repeats=11,
    reasoning=(0, 5_000, 20_000, 60_000),
    outputs=(100, 1_000, 10_000, 100_000),
    items=(1, 10, 100),
    streams=(1_000, 10_000),
    arguments=(0, 5_000, 20_000),
)

TINY: Final = Size(tokens=3, repeats=1, reasoning=(0, 4), outputs=(2, 3), items=(1, 2), streams=(2,), arguments=(0, 5))
"""For a test: every row once."""
