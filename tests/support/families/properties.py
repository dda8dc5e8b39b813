"""Properties of the parser for any text of any family, for tests and fuzz campaigns; a violation raises `AssertionError`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

import orjson
from attrs import evolve
from recovery.notation import Item, items, run

from interlock.events.settings_echo import response_settings
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Delta, EndTurn, Finish, FinishReason, Start
from interlock.fsm.driver import ResponseDriver, SequentialIds
from interlock.parsers import Chunk
from interlock.parsers.families import DISTINCT, SYNTAXES, FamilyParser, ParserSettings, family
from interlock.parsers.families.framing import FRAMING, Framing, Trigger
from interlock.parsers.families.patterns import ANY, beginning_matcher, example, is_wild, wild
from interlock.verify.oracle import check

REQUEST: dict[str, object] = {
    "model": "m",
    "input": "?",
    "tools": [
        {
            "type": "function",
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer"},
                    "o": {"type": "object", "properties": {"a": {"type": "array", "items": {"type": ["integer", "null"]}}}},
                    "s": {"type": "string"},
                },
            },
        },
        {"type": "function", "name": "g"},
    ],
}
WORD = re.compile(r"w\d+x")
"""A word that occurs once in a text."""

LONGEST_HELD = 4096 + 256

GROUPS = {
    style: [name for name in DISTINCT if SYNTAXES[name].style == style]
    for style in dict.fromkeys(SYNTAXES[name].style for name in DISTINCT)
}
"""One family for each syntax, by style."""

READ_AS = ParserSettings.from_request(REQUEST)
WITHOUT_CALLS = evolve(READ_AS, calls=False)
SETTINGS = response_settings(REQUEST)


def deltas(name: str, chunks: Sequence[str], reason: FinishReason = "stop", framing: Framing = FRAMING) -> list[Delta]:
    """Parse chunks of text, and assert that no more is held back than allowed."""
    reader = FamilyParser(family(name, "qwen3"), READ_AS, framing=framing)
    read: list[Delta] = []
    for chunk in chunks:
        read += reader.feed(Chunk(text=chunk))
        assert len(reader.pending) <= LONGEST_HELD
    return [*read, *run(reader, [], reason)]


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    """Cut a text into chunks of these sizes, repeated."""
    chunks, start, turn = [], 0, 0
    while start < len(text):
        size = sizes[turn % len(sizes)]
        chunks.append(text[start : start + size])
        start, turn = start + size, turn + 1
    return chunks


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
    """Check all properties of a text, parsed at once and in chunks of these sizes; of its stream only if `streamed`."""
    whole, output = read(name, text, reason=reason, framing=framing), deltas(name, cut(text, sizes), reason, framing)
    assert items(output) == whole  # in every partition (rule R16)
    keeps_all_words(name, whole, text)
    reads_all_text_if_there_is_no_call(name, text, whole, reason)
    if streamed:
        makes_a_legal_stream(output)
    gives_whole_arguments(name, text, whole)
    ends_an_incomplete_call_as_cut(output, whole, reason)


def keeps_all_words(name: str, read_items: Sequence[Item], text: str) -> None:
    """Every word is in the items once, in a text, arguments or a name, unless it is part of a marker.

    A call that is cut lacks a key without its value, with which the text ends, perhaps but for a last marker.
    A tag that names a member has two in the text; a tag in an array begins an element, whatever its name. A call that is cut also
    lacks the tag that its text ends in.
    """
    text_of_items = " ".join(f"{item.fields.get('name', '')} {item.text}" for item in read_items)
    kept, written = Counter(WORD.findall(text_of_items)), Counter(WORD.findall(text))
    if namespace := re.escape(SYNTAXES[name].notation.namespace):
        _, *in_arrays = re.split(f"{namespace}<(?:a|item)>", text, maxsplit=1)
        tags = [tag for rest in in_arrays for tag in re.findall(f"{namespace}<[^>]*>", rest)]
        if read_items and not read_items[-1].ending:
            tags += re.findall(rf"{namespace}<[^<>\n]*\Z", text)
        assert {*kept} <= {*written} <= {*kept, *WORD.findall(" ".join(tags))}
        return
    begun = begun_marker(name, text)
    markers = [begun, *(match[0] for wildcard in wildcards(name) for match in wildcard.finditer(text))]
    lost = written - kept - Counter(word for marker in markers for word in WORD.findall(marker))
    assert kept <= written
    last = next((marker for marker in marker_texts(name) if text.endswith(marker)), "")
    plain = text.removesuffix(last)
    for wildcard in wildcards(name):
        plain = wildcard.sub(" ", plain)
    ends = [Counter(WORD.findall(end)[-lost.total() :]) for end in (text, text.removesuffix(begun), plain)]
    assert not lost or (not read_items[-1].ending and lost in ends)


def begun_marker(name: str, text: str) -> str:
    """Return the beginning of a marker with a wildcard that a text ends in, or nothing."""
    begins = [beginning_matcher(marker) for marker in wild(marker_texts(name))]
    ends = (text[at:] for at in range(len(text)))
    return next((end for end in ends if any(begin(end) for begin in begins)), "")


def marker_texts(name: str) -> set[str]:
    return {text for texts in family(name, "qwen3").markers.values() for text in texts}


@cache
def wildcards(name: str) -> list[re.Pattern[str]]:
    """Return the patterns of the markers that have wildcards."""
    return [*wild(marker_texts(name)).values()]


def reads_all_text_if_there_is_no_call(name: str, text: str, read_items: Sequence[Item], reason: FinishReason) -> None:
    """A turn without a call is parsed as if calls were disabled."""
    has_orphans = any(orphan.search(text) for orphan in orphans(name))
    if not has_orphans and all(item.kind in {"reasoning", "message"} for item in read_items):
        reader = FamilyParser(family(name, "qwen3"), WITHOUT_CALLS)
        assert items(run(reader, [Chunk(text=text)], reason)) == read_items


@cache
def orphans(name: str) -> list[re.Pattern[str]]:
    """Return a pattern for each marker that a family drops where it matches nothing."""
    markers = SYNTAXES[name].markers.get(Trigger.ORPHAN, ())
    return [*wild(markers).values(), *(re.compile(re.escape(marker)) for marker in markers if ANY not in marker)]


def makes_a_legal_stream(output: Sequence[Delta]) -> None:
    """The events of the turn are legal by the independent oracle, and their terminal response is the driver's (rule R19)."""
    driver = ResponseDriver(SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 1_700_000_000)
    frames = driver.feed([Start(), *output, Finish()])
    bodies = [orjson.loads(frame.partition(b"\ndata: ")[2]) for frame in frames]
    assert check(bodies) == []
    assert bodies[-1]["response"] == orjson.loads(orjson.dumps(driver.response))


def gives_whole_arguments(name: str, text: str, read_items: Sequence[Item]) -> None:
    """Where arguments are keys and values, a closed call has a JSON object, or no JSON, with the marker that broke it.

    JSON in place of keys, or after them, stays as it is in the text between markers, even if it is broken.
    """
    for item in read_items:
        if item.kind == "function_call" and SYNTAXES[name].style == "keys" and item.ending:
            try:
                assert isinstance(orjson.loads(item.text), dict)
            except orjson.JSONDecodeError:
                broken = _without_markers(name, _after_values(item.text))
                as_written = item.text in text or (broken != "" and broken in _without_markers(name, text))
                assert as_written or any(marker.search(item.text) for marker in _breaking(name))


def _without_markers(name: str, text: str) -> str:
    """Return a text without the markers of a family and white space, which strings in JSON have as escapes."""
    return re.sub(r"\\n|\s", "", re.sub("|".join(map(re.escape, sorted(marker_texts(name), key=len, reverse=True))), "", text))


def _after_values(arguments: str) -> str:
    """Return what follows the last value of arguments that are no JSON."""
    for end in range(len(arguments), 0, -1):
        with suppress(orjson.JSONDecodeError):
            orjson.loads(f"{arguments[:end]}}}")
            return arguments[end:]
    return arguments


@cache
def _breaking(name: str) -> list[re.Pattern[str]]:
    """Return the patterns that break arguments: an invalid key, an ambiguous end of a value, or JSON after a value."""
    markers = family(name, "qwen3").markers
    texts = {text.strip() for role in (Trigger.KEY, Trigger.UNVALUE, Trigger.MISSPELLED) for text in markers.get(role, ())}
    plain = [re.compile(re.escape(text)) for text in texts if not is_wild(text)]
    return [*wild(texts).values(), *plain, re.compile(r'[\w"\]}]\s*\{')]


def ends_an_incomplete_call_as_cut(output: Sequence[Delta], read_items: Sequence[Item], reason: FinishReason) -> None:
    """A turn that stopped inside a call ends as `cut`; any other ends with the engine's reason."""
    is_incomplete = bool(read_items) and read_items[-1].kind == "function_call" and not read_items[-1].ending
    assert isinstance(output[-1], EndTurn)
    assert output[-1].reason == ("cut" if is_incomplete and reason == "stop" else reason)


def vocabulary(name: str) -> list[str]:
    """Return every marker of a family; of those with a wildcard, the first of each role."""
    markers: list[str] = []
    for texts in family(name, "qwen3").markers.values():
        plain, wilds = ([text for text in texts if is_wild(text) is wild] for wild in (False, True))
        markers += [*plain, *map(example, wilds[:1] if plain else wilds)]
    return [*dict.fromkeys(markers)]
