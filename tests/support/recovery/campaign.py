"""A long run of the properties of the harmony parser, over random turns.

Each property is a function that raises `AssertionError` for a sequence that the parser treats wrongly. Of ten turns one is
well-formed, and is compared with `openai_harmony`'s parser; the others are random or mutated. A turn that breaks a property is
shrunk by dropping tokens and printed; the exit status is then 1.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random

import openai_harmony
import orjson
from attrs import frozen
from campaigns import any_seed, fault, log, options, shrink
from recovery.cases import CASES
from recovery.notation import encoding, items, run, tokens, words

from interlock.events.settings_echo import response_settings
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
    """A routing that keeps the text of every call unchanged, so that texts can be compared."""

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
    places = {(0, False)}  # how much of the written text is matched, and whether text is content now
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


_CONTROLS = list(CONTROLS.values())
_ODD = [-1, 2**40, 300_000, 201_088, 200_013, 199_998, 127, 128]
_HEADERS = [
    "assistant",
    "final",
    "analysis",
    "commentary",
    " to=functions.f",
    " to=python",
    " to=patch",
    "to=browser.search",
    "user",
]
_WORDS = [
    *_HEADERS,
    " json",
    "json",
    " code",
    "to",
    "=",
    "{}",
    '{"query":"a"}',
    '{"input":"',
    "Hello",
    " world",
    "\n",
    " ",
    "é😀",
    "漢字",
]


def random_turn(rng: Random) -> list[int]:
    """Return control tokens, words of headers and contents, parts of characters and random ids, in any order."""
    ids: list[int] = []
    for _ in range(rng.randint(0, 16)):
        match rng.choices(["control", "word", "odd", "any"], [9, 8, 1, 2])[0]:
            case "control":
                ids.append(rng.choice(_CONTROLS))
            case "word":
                ids += words(rng.choice(_WORDS))
            case "odd":
                ids.append(rng.choice(_ODD))
            case _:
                ids.append(rng.randrange(199_998))
    return ids


def mutated_turn(rng: Random) -> list[int]:
    """Return two recovery cases, one after the other, with a few tokens dropped, doubled, moved or replaced."""
    ids = [*rng.choice(CASES).ids, *rng.choice(CASES).ids]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(ids) + 1)
        match rng.choice(["drop", "double", "move", "replace"]):
            case "drop":
                del ids[at : at + 1]
            case "double":
                ids[at:at] = ids[at : at + 1]
            case "move":
                ids.insert(rng.randrange(len(ids) + 1), ids.pop(at - 1) if ids else 0)
            case _:
                ids[at : at + 1] = [rng.choice([rng.choice(_CONTROLS), rng.choice(_ODD), rng.randrange(199_998)])]
    return ids


def random_character(rng: Random) -> str:
    """Return a character of ASCII, of the rest of the first plane, or beyond."""
    return chr(rng.choice([rng.randrange(32, 127), rng.randrange(0xD800), 0x1F600]))


def well_formed_turn(rng: Random) -> list[int]:
    """Return a turn of a few messages with random text."""
    ends = ["<|end|>", "<|call|>", "<|return|>"]
    texts = ["".join(random_character(rng) for _ in range(rng.randint(0, 20))) for _ in range(rng.randint(1, 4))]
    return conversation_ids([(rng.choice(WELL_FORMED_HEADERS), text, rng.choice(ends)) for text in texts])


def broken(ids: Sequence[int], *, sizes: Sequence[int], reason: FinishReason, as_openai_harmony: bool) -> str:
    """Return which property a turn breaks, empty if none."""
    try:
        if as_openai_harmony:
            is_read_as_openai_harmony_reads_it(ids)
        keeps_all_text(ids, reason)
        is_the_same_in_every_partition(ids, sizes, reason)
        makes_a_legal_stream(ids, reason)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the campaign looks for
        return fault(error)
    return ""


def main(sequences: int, seed: int) -> int:
    """Run the campaign, and return the exit status."""
    rng, started = Random(seed), time.monotonic()  # noqa: S311 - repeatable, not secret
    for number in range(1, sequences + 1):
        well_formed = number % 10 == 0
        ids = well_formed_turn(rng) if well_formed else rng.choice([random_turn, mutated_turn])(rng)
        reason: FinishReason = rng.choice(["stop", "length"])
        sizes = [rng.randint(1, 5) for _ in range(3)]
        breaks = partial(broken, sizes=sizes, reason=reason, as_openai_harmony=well_formed)
        if breaks(ids):
            least = ids if well_formed else shrink(ids, lambda parts, breaks=breaks: not breaks(parts))
            log(f"seed {seed}, sequence {number}, harmony: {least}, {reason}, in chunks of {sizes}\n{breaks(least)}")
            return 1
        if number % 50_000 == 0 or number == sequences:
            log(f"{number} sequences, seed {seed}, {time.monotonic() - started:.0f} s: no property broken")
    return 0


if __name__ == "__main__":
    sys.exit(main(**options(__doc__, sequences=1_000_000, seed=any_seed())))
