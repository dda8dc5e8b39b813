"""A turn that ends inside a call: its arguments begin as the model meant them, wherever the turn is cut."""

import json

import orjson
import pytest
from families.properties import cut
from for_each import for_each
from recovery.notation import Item, items, run

from interlock.dialects.chat import ChatTransducer
from interlock.dialects.messages import MessagesTransducer
from interlock.dialects.transducer import EntryWriter
from interlock.events.sse import SseWriter
from interlock.fsm import SequentialIds
from interlock.fsm.deltas import Delta, Finish, Start
from interlock.fsm.driver import ResponseDriver
from interlock.parsers import Chunk, FamilyParser
from interlock.parsers.families import SYNTAXES, ParserSettings, family
from interlock.parsers.families.reference_encoders import WrittenItem, encode

FIRST = '{"s":"a < b, {\\"c\\"} & <b>上海</b>\\nd","n":-51,"o":{"a":[1,null],"k":{"v":"}"}},"t":true}'
SECOND = '{"s":"<","n":0}'
TURN = [
    WrittenItem("reasoning", "The user asks for 1 < 2."),
    WrittenItem("message", "I look it up."),
    WrittenItem("call", FIRST, "f"),
    WrittenItem("call", SECOND, "f"),
    WrittenItem("message", "Done."),
]
PARAMETERS = {
    "s": {"type": "string"},
    "n": {"type": "integer"},
    "o": {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": ["integer", "null"]}},
            "k": {"type": "object", "properties": {"v": {"type": "string"}}},
        },
    },
    "t": {"type": "boolean"},
}
REQUEST = {
    "model": "m",
    "input": "?",
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": PARAMETERS}}],
}
SETTINGS = ParserSettings.from_request(REQUEST)


def deltas(name: str, chunks: list[str], reason: str) -> list[Delta]:
    return run(FamilyParser(family(name, "qwen3"), SETTINGS), [Chunk(text=chunk) for chunk in chunks], reason)


def calls(output: list[Delta]) -> list[Item]:
    return [item for item in items(output) if item.kind == "function_call"]


def is_right(name: str, read: list[Item]) -> bool:
    """Return whether the calls of a cut turn begin as the model meant them, and only the last one is incomplete."""
    meant = [FIRST, SECOND][: len(read)]
    return all(item.ending and item.text == whole for item, whole in zip(read[:-1], meant, strict=False)) and all(
        begins(name, item, whole) for item, whole in zip(read[-1:], meant[-1:], strict=True)
    )


def begins(name: str, item: Item, whole: str) -> bool:
    """Return whether a call is a whole one or, if it is incomplete, begins as one; some models end calls between values."""
    if not item.ending:
        return whole.startswith(item.text)
    if family(name).omits_ends:
        return orjson.loads(item.text).items() <= orjson.loads(whole).items()
    return item.text == whole


@pytest.mark.long
@pytest.mark.parametrize("name", SYNTAXES)
@pytest.mark.parametrize("reason", ["length", "stop"])
def test_the_arguments_of_a_cut_call_begin_as_the_model_meant_them(name: str, reason):
    text = encode(TURN, name, "qwen3")
    for end in range(len(text)):
        whole = deltas(name, [text[:end]], reason)
        assert is_right(name, calls(whole)), text[:end]
        for sizes in ((1,), (3, 1, 7)):
            assert items(deltas(name, cut(text[:end], sizes), reason)) == items(whole), text[:end]


def streamed(output: list[Delta], writer) -> tuple[list, ResponseDriver]:
    driver = ResponseDriver(REQUEST, writer=writer, ids=SequentialIds(), clock=lambda: 7)
    return driver.feed([Start(), *output, Finish()]), driver


def joined(pieces) -> list[str]:
    """Return the texts of each call, joined, from pairs of the place of a call and a text."""
    texts: dict[int, str] = {}
    for place, text in pieces:
        texts[place] = texts.get(place, "") + text
    return [*texts.values()]


def bodies(frames: bytes) -> list[dict]:
    return [json.loads(line.removeprefix(b"data: ")) for line in frames.splitlines() if line.startswith(b"data: {")]


@for_each("name", SYNTAXES)
def test_the_stream_the_answer_and_all_apis_have_the_same_arguments_of_a_cut_call(name: str):
    text = encode(TURN, name, "qwen3")
    for end in range(text.index("上海"), len(text), 37):
        output = deltas(name, cut(text[:end], (5,)), "length")
        expected = [item.text for item in calls(output)]
        frames, driver = streamed(output, SseWriter())
        entries, _ = streamed(output, EntryWriter())
        arguments = [each for each in bodies(b"".join(frames)) if each["type"] == "response.function_call_arguments.delta"]
        tools = [
            each
            for body in bodies(ChatTransducer().encode(entries))
            for choice in body["choices"]
            for each in choice["delta"].get("tool_calls", ())
        ]
        inputs = [body for body in bodies(MessagesTransducer().encode(entries)) if "partial_json" in body.get("delta", ())]
        assert joined((each["output_index"], each["delta"]) for each in arguments) == [*filter(None, expected)]
        assert [item["arguments"] for item in driver.response["output"] if item["type"] == "function_call"] == expected
        assert joined((each["index"], each["function"].get("arguments", "")) for each in tools) == expected
        assert joined((each["index"], each["delta"]["partial_json"]) for each in inputs) == [*filter(None, expected)]
