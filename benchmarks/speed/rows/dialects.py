"""A text delta in Messages and Chat Completions, beside the same one in the Responses API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from interlock.dialects.chat import ChatTransducer
from interlock.dialects.messages import MessagesTransducer
from interlock.dialects.transducer import Transducer
from interlock.fsm.deltas import Open
from speed import ours
from speed.outputs import words
from speed.size import Size
from speed.timing import FLOOR, INTERLOCK, RESPONSES, Row, each

_DIALECTS: Mapping[str, Callable[[], Transducer[Any, Any]]] = {
    "Messages": MessagesTransducer,
    "Chat Completions": ChatTransducer,
}


def rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for each API, with the floor under both."""
    del peer
    texts = words(size.tokens)
    before, measured = [[Open("message", {"phase": "final_answer"}), texts[0]]], [[text] for text in texts]
    beside = {RESPONSES: each(ours.drain_deltas, before, measured), FLOOR: each(ours.floor, texts[:1], texts)}
    return [
        Row(
            "dialects",
            name,
            "µs per delta",
            {INTERLOCK: each(partial(ours.drain_transduced, transducer), before, measured), **beside},
            10 * size.repeats,  # because the two differ by little
        )
        for name, transducer in _DIALECTS.items()
    ]
