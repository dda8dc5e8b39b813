"""The rows: a module for each group, whose `rows` gives them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from speed.outputs import HAS_VLLM
from speed.rows import checking, crowd, deltas, dialects, families, first, growth, harmony, items, memory, parsed, start
from speed.size import Size
from speed.timing import Row


def every_row(size: Size) -> list[Row]:
    """Return all rows; without vLLM, the contender is missing from them.

    Args:
        size: How much is measured.
    """
    peer: ModuleType | None = import_module("speed.theirs") if HAS_VLLM else None
    groups = deltas, dialects, harmony, parsed, families, items, first, growth, crowd, memory, checking, start
    return [row for group in groups for row in group.rows(size, peer)]
