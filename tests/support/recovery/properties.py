"""What is true of every sequence of token ids, as functions of the sequence; fuzz campaigns use them too.

Each raises `AssertionError` for a sequence that the parser treats wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import openai_harmony
import orjson
from attrs import frozen
from recovery.notation import encoding, items, run, tokens, words

from interlock.events.response_object import response_settings
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Delta, EndTurn, Finish, FinishReason, Start
from interlock.fsm.driver import ResponseDriver, SequentialIds
from interlock.parsers import Chunk, HarmonyParser, Routing
from interlock.parsers.routing import Route
from interlock.verify.oracle import check

CONTROLS = {
    "start": 200006,
    "channel": 200005,
    "constrain": 200003,
    "message": 200008,
    "end": 200007,
    "call": 200012,
    "return": 200002,
    "endoftext": 199999,
}
REQUEST: dict[str, object] = {
    "model": "m",
    "input": "?",
    "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "patch"}, {"type": "web_search"}],
}
_BY_ID = {number: name for name, number in CONTROLS.items()}
_ENDS = {"start", "channel", "end", "call", "return", "endoftext"}
_MARKERS = {"channel", "constrain", "message"}

_KNOWN = r"(?:assistant|user|system|developer|tool|analysis|commentary|final|json|code|text|to=\s?[^\s{}\[\]()<>\"'=]*)"
_SECTION = re.compile(rf"(?>\s*(?>{_KNOWN}|[\w./:+-]+))*+\s*")  # atomic: it must not try again
_WORD = re.compile(rf"\s*{_KNOWN}")
_FRAGMENT = re.compile(r"[a-z]{0,10}=?")


class EveryCallIsText(Routing):
    """A routing that passes every call's text on as it is, so that texts can be compared."""

    def recipient(self, recipient: str) -> Route | None:
        return Route("mcp_call", {"name": recipient, "server_label": "any"})


@frozen
class Run:
    """Text between two control tokens, and the token after it: its name, or `finish` or `cut` at the end."""

    text: str
    then: str


def runs(ids: Sequence[int], reason: FinishReason) -> Iterator[Run]:
    """Split a turn at the control tokens that mean something; the others divide characters and nothing else."""
    text, data = "", b""
    for number in ids:
        name = _BY_ID.get(number)
        if name is None and 0 <= number < 199998:
            data += encoding().decode([number], errors="surrogateescape").encode(errors="surrogateescape")
            continue
        text, data = text + data.decode(errors="replace"), b""
        if name is not None:
            yield Run(text, name)
            text = ""
    yield Run(text + data.decode(errors="replace"), "finish" if reason == "stop" else "cut")


def parse(ids: Sequence[int], sizes: Sequence[int], reason: FinishReason) -> list[Delta]:
    """Parse a turn in chunks of the given sizes, over and over."""
    chunks, start, turn = [], 0, 0
    while start < len(ids):
        size = sizes[turn % len(sizes)]
        chunks.append(Chunk(ids[start : start + size]))
        start, turn = start + size, turn + 1
    return run(HarmonyParser(EveryCallIsText()), chunks, reason)


def keeps_all_text(ids: Sequence[int], reason: FinishReason = "stop") -> None:
    """The items are well-bracketed, and hold exactly the text outside of headers, in order; control tokens are no text.

    What a header may be is said here a second time, more loosely: words alone before a marker; known words, and one white
    space, before text. Everything else has to be in the items.
    """
    written = "".join(item.text for item in items(parse(ids, [len(ids) or 1], reason)))
    places = {(0, False)}  # how much of what was written is accounted for, and whether text is content now
    for each in runs(ids, reason):
        places = {
            (place + len(kept), ((inside or broken) and each.then not in _ENDS) or each.then == "message")
            for place, inside in places
            for kept, broken in _kept(each, inside=inside)
            if written.startswith(kept, place)
        }
        assert places, (each, written)
    assert any(place == len(written) for place, _ in places), written


def _kept(each: Run, *, inside: bool) -> Iterator[tuple[str, bool]]:
    """Yield each text that the items may have of a run, and whether that means that the header was broken off."""
    if inside or not each.text:
        yield each.text, False
        return
    yield each.text, True
    if each.then in _MARKERS and _SECTION.fullmatch(each.text):
        yield "", False
    if not each.text.strip():
        yield "", False
    end = 0
    while (word := _WORD.match(each.text, end)) is not None:
        end = word.end()
        for rest in {each.text[end:], re.sub(r"^\s", "", each.text[end:])}:
            yield rest, True
            if not rest.strip() or (each.then == "cut" and _FRAGMENT.fullmatch(rest.strip())):
                yield "", False
    if each.then == "cut" and _FRAGMENT.fullmatch(each.text.strip()):
        yield "", False


def makes_a_legal_stream(ids: Sequence[int], reason: FinishReason = "stop") -> None:
    """The events of the turn are legal by the independent oracle, and their terminal response is the driver's (rule R19)."""
    driver = ResponseDriver(response_settings(REQUEST), writer=SseWriter(), ids=SequentialIds(), clock=lambda: 1_700_000_000)
    deltas = run(HarmonyParser(Routing.from_request(REQUEST)), [Chunk(ids)], reason)
    frames = driver.feed([Start(), *deltas, Finish()])
    bodies = [orjson.loads(frame.partition(b"\ndata: ")[2]) for frame in frames if not frame.startswith(b"data: [DONE]")]
    assert check(bodies) == []
    assert bodies[-1]["response"] == orjson.loads(orjson.dumps(driver.response))


def is_the_same_in_every_partition(ids: Sequence[int], sizes: Sequence[int], reason: FinishReason = "stop") -> None:
    """The items and the counts of tokens are those of the turn in one chunk (rule R16)."""
    whole = parse(ids, [len(ids) or 1], reason)
    for partition in (sizes, [1]):
        parts = parse(ids, partition, reason)
        assert items(parts) == items(whole)
        assert parts[-1] == whole[-1]
    assert isinstance(whole[-1], EndTurn)
    assert whole[-1].usage.output_tokens == len(ids)


WELL_FORMED_HEADERS = (
    "<|channel|>analysis",
    "<|channel|>final",
    "<|channel|>commentary",
    "<|channel|>commentary to=functions.f <|constrain|>json",
    "<|channel|>analysis to=python code",
    " to=functions.f<|channel|>commentary json",
    " to=functions.f<|channel|>commentary<|constrain|>json",
    " to=files.read<|channel|>commentary",
)

_KINDS: dict[tuple[str, str | None], tuple[str, dict[str, str]]] = {
    ("analysis", None): ("reasoning", {}),
    ("final", None): ("message", {"phase": "final_answer"}),
    ("commentary", None): ("message", {"phase": "commentary"}),
    ("analysis", "python"): ("code_interpreter_call", {}),
    ("commentary", "functions.f"): ("function_call", {"name": "f"}),
    ("commentary", "files.read"): ("mcp_call", {"name": "read", "server_label": "files"}),
}


def conversation_ids(messages: Sequence[tuple[str, str, str]]) -> list[int]:
    """Encode a well-formed turn: headers, contents and the tokens that end them. It starts after `<|start|>assistant`."""
    ids: list[int] = []
    for header, content, end in messages:
        ids += [
            *(tokens("<|start|>assistant") if ids else []),
            *tokens(header),
            *tokens("<|message|>"),
            *words(content),
            *tokens(end),
        ]
    return ids


def is_read_as_openai_harmony_reads_it(ids: Sequence[int]) -> None:
    """A well-formed turn gives the messages that `openai_harmony`'s own parser gives."""
    oracle = openai_harmony.StreamableParser(encoding(), openai_harmony.Role.ASSISTANT)
    for token in ids:
        oracle.process(token)
    oracle.process_eos()
    expected = [(*_KINDS[str(each.channel), each.recipient], each.content[0].text) for each in oracle.messages]
    deltas = run(HarmonyParser(Routing()), [Chunk(ids)])
    assert [(item.kind, item.fields, item.text) for item in items(deltas)] == expected
