"""What is true of every text that a model of any family can write; fuzz campaigns use it too.

Each property raises `AssertionError` for a text that the parser treats wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import orjson
from attrs import evolve
from recovery.notation import Item, items, run

from interlock.events.resource import response_settings
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Delta, EndTurn, Finish, FinishReason, Start
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.fsm.oracle import check
from interlock.parsers import Chunk
from interlock.parsers.families import SYNTAXES, FamilyParser, Settings, family
from interlock.parsers.families.brackets import Framing
from interlock.parsers.families.framing import FRAMING

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


READ_AS = Settings.from_request(REQUEST)
WITHOUT_CALLS = evolve(READ_AS, calls=False)
SETTINGS = response_settings(REQUEST)


def deltas(name: str, pieces: Sequence[str], reason: FinishReason = "stop", framing: Framing = FRAMING) -> list[Delta]:
    """Read pieces of text; asserts that no more is held than may be."""
    reader = FamilyParser(family(name, "qwen3"), READ_AS, framing=framing)
    read: list[Delta] = []
    for piece in pieces:
        read += reader.feed(Chunk(text=piece))
        assert len(reader.pending) <= LONGEST_HELD
    return [*read, *run(reader, [], reason)]


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    """Cut a text into pieces of the given sizes, over and over."""
    pieces, start, turn = [], 0, 0
    while start < len(text):
        size = sizes[turn % len(sizes)]
        pieces.append(text[start : start + size])
        start, turn = start + size, turn + 1
    return pieces


def read(
    name: str, text: str, sizes: Sequence[int] = (1 << 20,), reason: FinishReason = "stop", framing: Framing = FRAMING
) -> list[Item]:
    return items(deltas(name, cut(text, sizes), reason, framing))


def holds_of(
    name: str,
    text: str,
    sizes: Sequence[int],
    reason: FinishReason = "stop",
    *,
    streamed: bool = True,
    framing: Framing = FRAMING,
) -> None:
    """All that is true of a text, read at once and in pieces of the given sizes, over and over; of its stream only if asked."""
    whole, told = read(name, text, reason=reason, framing=framing), deltas(name, cut(text, sizes), reason, framing)
    assert items(told) == whole  # in every partition (rule R16)
    keeps_all_words(whole, text)
    reads_as_text_what_is_no_call(name, text, whole, reason)
    if streamed:
        makes_a_legal_stream(told)
    gives_whole_arguments(name, whole)
    says_that_a_call_was_left(told, whole, reason)


def keeps_all_words(read_items: Sequence[Item], text: str) -> None:
    """Every word is in the items once, in its text, its arguments or its name."""
    shown = " ".join(f"{item.fields.get('name', '')} {item.text}" for item in read_items)
    assert sorted(WORD.findall(shown)) == sorted(WORD.findall(text))


def reads_as_text_what_is_no_call(name: str, text: str, read_items: Sequence[Item], reason: FinishReason) -> None:
    """A turn in which no call was found is read as if no calls could be in it, to the letter."""
    if all(item.kind in {"reasoning", "message"} for item in read_items):
        reader = FamilyParser(family(name, "qwen3"), WITHOUT_CALLS)
        assert items(run(reader, [Chunk(text=text)], reason)) == read_items


def makes_a_legal_stream(told: Sequence[Delta]) -> None:
    """The events of the turn are legal by the independent oracle, and their terminal response is the driver's (rule R19)."""
    driver = ResponseDriver(SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 1_700_000_000)
    frames = driver.feed([Start(), *told, Finish()])
    bodies = [orjson.loads(frame.partition(b"\ndata: ")[2]) for frame in frames]
    assert check(bodies) == []
    assert bodies[-1]["response"] == orjson.loads(orjson.dumps(driver.response))


def gives_whole_arguments(name: str, read_items: Sequence[Item]) -> None:
    """Where arguments are keys and values, a call that was closed has a JSON object, however it was written."""
    for item in read_items:
        if item.kind == "function_call" and SYNTAXES[name].style == "keys":
            assert not item.ending or isinstance(orjson.loads(item.text), dict)


def says_that_a_call_was_left(told: Sequence[Delta], read_items: Sequence[Item], reason: FinishReason) -> None:
    """A turn that stopped was cut if its last item is a call that nothing ended; any other turn ended as the engine said."""
    left = bool(read_items) and read_items[-1].kind == "function_call" and not read_items[-1].ending
    assert isinstance(told[-1], EndTurn)
    assert told[-1].reason == ("cut" if left and reason == "stop" else reason)


def vocabulary(name: str) -> list[str]:
    """Every marker of a family, and what its calls are made of."""
    markers = [text for texts in family(name, "qwen3").markers.values() for text in texts]
    return [*dict.fromkeys(markers)]
