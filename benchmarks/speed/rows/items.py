"""Items: what it costs to open and close one, and to end a response that has many."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from interlock.fsm.deltas import Close, Delta, Open
from speed import ours
from speed.outputs import said
from speed.size import Size
from speed.timing import INTERLOCK, VLLM, Row, each, ending

_REASONING: Sequence[Delta] = [Open("reasoning"), "Points are set.", Close()]
_MESSAGE: Sequence[Delta] = [Open("message", {"phase": "final_answer"}), "All clear.", Close()]


def rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for items in a stream, and one for each number of items at its end."""
    return [_opened(size, peer), *(_ended(size, peer, count) for count in size.items)]


def _ours(count: int) -> list[Sequence[Delta]]:
    return [(_REASONING, _MESSAGE)[index % 2] for index in range(count)]


def _theirs(count: int) -> list[object]:
    said_in_turn = said(reasoning="Points are set."), said(content="All clear.")
    return [said_in_turn[index % 2] for index in range(count)]


def _opened(size: Size, peer: ModuleType | None) -> Row:
    count = max(size.tokens // 10, 2)
    rounds = {INTERLOCK: each(ours.drain_deltas, [], _ours(count))}
    if peer is not None:
        rounds[VLLM] = each(peer.drain_deltas, [], _theirs(count))
    return Row("items", "open, one delta, close", "µs per item", rounds, size.repeats)


def _ended(size: Size, peer: ModuleType | None, count: int) -> Row:
    rounds = {INTERLOCK: ending(ours.drain_deltas, _ours(count))}
    if peer is not None:
        rounds[VLLM] = ending(peer.drain_deltas, _theirs(count))
    name = f"terminal event, {count} item{'s' if count > 1 else ''}"
    return Row("items", name, "µs", rounds, size.repeats, count)
