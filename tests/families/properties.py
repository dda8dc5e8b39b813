"""What is true of every text that a model of any family can write; fuzz campaigns use it too.

Each property raises `AssertionError` for a text that the parser treats wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import orjson
from recovery.notation import Item, items, run

from interlock.events.resource import response_settings
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Delta, Finish, FinishReason, Start
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.fsm.oracle import check
from interlock.parsers import Chunk
from interlock.parsers.families import SYNTAXES, FamilyParser, Settings, family

REQUEST: dict[str, object] = {
    "model": "m",
    "input": "?",
    "tools": [
        {
            "type": "function",
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {"n": {"type": "integer"}, "o": {"type": "object"}, "s": {"type": "string"}},
            },
        },
        {"type": "function", "name": "g"},
    ],
}
WORD = re.compile(r"w\d+x")
"""A word that occurs once in a text, so that it can be looked for."""

LONGEST_HELD = 4096 + 256

GROUPS = {
    "keys": ["qwen3_coder", "glm45", "minimax_m2", "deepseek_v32", "deepseek_v4"],
    "json": ["kimi_k2", "deepseek_v3", "deepseek_v31", "mistral"],
    "envelope": ["hermes"],
}


def parser(name: str, reasoning: str | None = "qwen3") -> FamilyParser:
    return FamilyParser(family(name, reasoning), Settings.from_request(REQUEST))


def deltas(name: str, pieces: Sequence[str], reason: FinishReason = "stop", reasoning: str | None = "qwen3") -> list[Delta]:
    """Read pieces of text; asserts that no more is held than may be."""
    reader = parser(name, reasoning)
    read: list[Delta] = []
    for piece in pieces:
        read += reader.feed(Chunk(text=piece))
        assert len(reader.held) <= LONGEST_HELD
    return [*read, *run(reader, [], reason)]


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    """Cut a text into pieces of the given sizes, over and over."""
    pieces, start, turn = [], 0, 0
    while start < len(text):
        size = sizes[turn % len(sizes)]
        pieces.append(text[start : start + size])
        start, turn = start + size, turn + 1
    return pieces


def read(name: str, text: str, sizes: Sequence[int] = (1 << 20,), reason: FinishReason = "stop") -> list[Item]:
    return items(deltas(name, cut(text, sizes), reason))


def is_the_same_in_every_partition(name: str, text: str, sizes: Sequence[int], reason: FinishReason = "stop") -> None:
    """The items are those of the text in one piece (rule R16)."""
    whole = read(name, text, reason=reason)
    for partition in (sizes, (1,), (4,)):
        assert read(name, text, partition, reason) == whole


def keeps_all_words(name: str, text: str, reason: FinishReason = "stop") -> None:
    """Every word is in the items once, in its text, its arguments or its name."""
    shown = " ".join(f"{item.fields.get('name', '')} {item.text}" for item in read(name, text, reason=reason))
    assert sorted(WORD.findall(shown)) == sorted(WORD.findall(text))


def makes_a_legal_stream(name: str, text: str, sizes: Sequence[int], reason: FinishReason = "stop") -> None:
    """The events of the turn are legal by the independent oracle, and their terminal response is the driver's (rule R19)."""
    driver = ResponseDriver(response_settings(REQUEST), writer=SseWriter(), ids=SequentialIds(), clock=lambda: 1_700_000_000)
    frames = driver.feed([Start(), *deltas(name, cut(text, sizes), reason), Finish()])
    bodies = [orjson.loads(frame.partition(b"\ndata: ")[2]) for frame in frames]
    assert check(bodies) == []
    assert bodies[-1]["response"] == orjson.loads(orjson.dumps(driver.response))


def gives_whole_arguments(name: str, text: str) -> None:
    """Where arguments are keys and values, a call that was closed has a JSON object, however it was written."""
    for item in read(name, text):
        if item.kind == "function_call" and SYNTAXES[name].style == "keys":
            assert isinstance(orjson.loads(item.text), dict)


def vocabulary(name: str) -> list[str]:
    """Every marker of a family, and what its calls are made of."""
    markers = [text for texts in family(name, "qwen3").markers.values() for text in texts]
    return [*dict.fromkeys(markers)]
