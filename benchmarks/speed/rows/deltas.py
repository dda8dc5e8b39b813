"""Deltas on an open item: what a parser gave in, bytes out, one delta for each step."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from interlock.fsm.deltas import Delta, Open
from speed import ours
from speed.outputs import said, words
from speed.size import Size
from speed.timing import FLOOR, INTERLOCK, VLLM, Round, Row, each

_KINDS: Mapping[str, tuple[Delta, str]] = {
    "text": (Open("message", {"phase": "final_answer"}), "content"),
    "reasoning": (Open("reasoning"), "reasoning"),
    "function-call arguments": (Open("function_call", {"name": "get_weather"}), "arguments"),
}
"""Our delta that opens the item, and the name of vLLM's field that holds its text."""


def rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for each kind of text, with the floor under all of them."""
    texts = words(size.tokens)
    floor = each(ours.floor, texts[:1], texts)
    return [_row(size, peer, name, texts, floor) for name in _KINDS]


def _row(size: Size, peer: ModuleType | None, name: str, texts: list[str], floor: Round) -> Row:
    opened, field = _KINDS[name]
    rounds = {INTERLOCK: each(ours.drain_deltas, [[opened, texts[0]]], [[text] for text in texts])}
    if peer is not None:
        begun = said(name="get_weather", arguments=texts[0]) if field == "arguments" else said(**{field: texts[0]})
        rounds[VLLM] = each(peer.drain_deltas, [begun], [said(**{field: text}) for text in texts])
    return Row("deltas", name, "µs per delta", {**rounds, FLOOR: floor}, size.repeats)
