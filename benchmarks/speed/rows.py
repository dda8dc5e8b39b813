"""The rows: a section for each group, and how much of each is measured."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import thread_time_ns
from types import ModuleType
from typing import Any, Final

from attrs import define, field, frozen

from interlock.dialects.chat import ChatTransducer
from interlock.dialects.messages import MessagesTransducer
from interlock.dialects.transducer import Transducer
from interlock.fsm.deltas import Close, Delta, Open, Start
from interlock.judges.judging import Judge
from interlock.parsers import Chunk, FamilyParser
from interlock.parsers.families import DEFAULT_REASONING, DISTINCT, ParserSettings, family
from interlock.parsers.families.reference_encoders import WrittenItem
from interlock.parsers.families.reference_encoders import encode as encode_items
from speed import ours
from speed.ours import begin
from speed.outputs import (
    ANALYSIS,
    ANSWER,
    HAS_VLLM,
    NEXT,
    PROSE,
    REQUEST,
    Stream,
    begun,
    encode,
    encoding,
    output,
    outputs,
    prose,
    said,
    words,
)
from speed.timing import FLOOR, INTERLOCK, PLUGIN, RESPONSES, VLLM, Drain, Feed, Round, Row, Stopwatch, each, ending


@frozen
class Size:
    """The sizes of all rows.

    Args:
        tokens: Steps measured at once.
        repeats: Rounds.
        reasoning: Reasoning tokens that come before those of harmony that are measured.
        outputs: Lengths of outputs, in tokens.
        items: Items of the response that a terminal event shows.
        streams: Open streams.
        arguments: Lengths of arguments of calls, in characters.
    """

    tokens: int
    repeats: int
    reasoning: tuple[int, ...]
    outputs: tuple[int, ...]
    items: tuple[int, ...]
    streams: tuple[int, ...]
    arguments: tuple[int, ...]


FULL: Final = Size(
    tokens=1_000,
    repeats=11,
    reasoning=(0, 5_000, 20_000, 60_000),
    outputs=(100, 1_000, 10_000, 100_000),
    items=(1, 10, 100),
    streams=(1_000, 10_000),
    arguments=(0, 5_000, 20_000),
)

TINY: Final = Size(tokens=3, repeats=1, reasoning=(0, 4), outputs=(2, 3), items=(1, 2), streams=(2,), arguments=(0, 5))
"""For a test: every row once."""


# Deltas on an open item: deltas of a parser in, bytes out, one delta for each step.


_KINDS: Mapping[str, tuple[Delta, str]] = {
    "text": (Open("message", {"phase": "final_answer"}), "content"),
    "reasoning": (Open("reasoning"), "reasoning"),
    "function-call arguments": (Open("function_call", {"name": "get_weather"}), "arguments"),
}
"""Our delta that opens the item, and the name of vLLM's field that holds its text."""


def deltas_rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for each kind of text, with the floor under all of them."""
    texts = words(size.tokens)
    floor = each(ours.floor, texts[:1], texts)
    return [_row(size, peer, name, texts, floor) for name in _KINDS]


def _row(size: Size, peer: ModuleType | None, name: str, texts: list[str], floor: Round) -> Row:
    opened, member = _KINDS[name]
    rounds = {INTERLOCK: each(ours.drain_deltas, [[opened, texts[0]]], [[text] for text in texts])}
    if peer is not None:
        first = said(name="get_weather", arguments=texts[0]) if member == "arguments" else said(**{member: texts[0]})
        rounds[VLLM] = each(peer.drain_deltas, [first], [said(**{member: text}) for text in texts])
    return Row("deltas", name, "µs per delta", {**rounds, FLOOR: floor}, size.repeats)


# A text delta in Messages and Chat Completions, beside the same one in the Responses API.


_DIALECTS: Mapping[str, Callable[[], Transducer[Any, Any]]] = {
    "Messages": MessagesTransducer,
    "Chat Completions": ChatTransducer,
}


def dialects_rows(size: Size, peer: ModuleType | None) -> list[Row]:
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


# Tokens of harmony after a reasoning of some length: one token for each step in, bytes out.
#
# A step is a chunk for Interlock, and a `RequestOutput` for vLLM and for Interlock's plugin, which is measured beside.


_LONG = 10_000
"""The number of reasoning tokens above which fewer rounds are run, because one takes long."""


def harmony_rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for each length of reasoning."""
    return [_harmony_row(size, peer, reasoning) for reasoning in size.reasoning]


def _harmony_row(size: Size, peer: ModuleType | None, reasoning: int) -> Row:
    first, tokens = _harmony_tokens(size, reasoning)
    before, measured = [output(first)], outputs(tokens)
    rounds = {
        INTERLOCK: each(ours.drain_chunks, [Chunk(first)], [Chunk([token]) for token in tokens]),
        PLUGIN: each(ours.drain_harmony, before, measured),
    }
    if peer is not None:
        rounds[VLLM] = each(peer.drain_harmony, before, measured)
    name = f"after {reasoning:,} reasoning tokens"
    return Row("harmony", name, "µs per token", rounds, size.repeats if reasoning < _LONG else (size.repeats + 1) // 2, reasoning)


def _harmony_tokens(size: Size, reasoning: int) -> tuple[list[int], list[int]]:
    """Return the tokens before the measured ones, and the measured ones."""
    thought = [*encode(ANALYSIS), *prose(reasoning), *encode(NEXT)] if reasoning else []
    return [*thought, *encode(ANSWER), *prose(1)], prose(size.tokens)


# A stream of a model like qwen3: outputs from which a parser of vLLM reads reasoning, content and a call, in that order.


def parsed_rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return one row; the cost of the parser itself, which both share, is left out."""
    messages, told = _parsed(size)
    steps = [output([1], text) for text in told]
    rounds = {INTERLOCK: each(ours.drain_parsed(messages, told), [], steps)}
    if peer is not None:
        rounds[VLLM] = each(peer.drain_parsed(messages), [], steps)
    return [Row("parse_delta", "reasoning, content, one call", "µs per token", rounds, size.repeats)]


def _parsed(size: Size) -> tuple[list[Any], list[str]]:
    """Return the messages of the parser, and the text of each step."""
    texts = words(size.tokens)
    messages = [
        *(said(reasoning=text) for text in texts),
        *(said(content=text) for text in texts),
        said(name="get_weather", arguments=""),
        *(said(arguments=text) for text in texts),
    ]
    return messages, [*texts, *texts, "", *texts]


# The same streams through vLLM's serving class, and through that of examples/vllm_events.py, up to the bytes of vLLM's route.


def embedded_rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for each context of vLLM's; without vLLM, there is none."""
    if peer is None:
        return []
    messages, told = _parsed(size)
    steps = [output([1], text) for text in told]
    parsed = {
        INTERLOCK: each(peer.drain_parsed(messages, peer.EventServing), [], steps),
        VLLM: each(peer.drain_parsed(messages), [], steps),
    }
    return [
        Row("embedded", "reasoning, content, one call", "µs per token", parsed, size.repeats),
        *(_embedded_harmony(size, peer, reasoning) for reasoning in size.reasoning if reasoning <= 2 * _LONG),
    ]


def _embedded_harmony(size: Size, peer: ModuleType, reasoning: int) -> Row:
    first, tokens = _harmony_tokens(size, reasoning)
    before, measured = [output(first)], outputs(tokens)
    rounds = {
        INTERLOCK: each(partial(peer.drain_harmony, kind=peer.EventServing), before, measured),
        VLLM: each(peer.drain_harmony, before, measured),
    }
    name = f"gpt-oss, after {reasoning:,} reasoning tokens"
    return Row("embedded", name, "µs per token", rounds, size.repeats if reasoning < _LONG else (size.repeats + 1) // 2)


# The families: the cost of a chunk of text, of reasoning and of arguments; for arguments, by their length so far.
#
# Ours is text to bytes: parser, driver and frames. vLLM's is its parser alone, for its events are measured elsewhere.


LETTERS: Final = 4
"""Characters in a chunk."""
_MARK: Final = "@@@"
_THEIRS: Final = 12
"""The chunks in a round of vLLM's parsers, some of which take milliseconds for each."""


def families_rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return the rows."""
    return [row for name in DISTINCT for row in _rows(name, size, peer)]


def _rows(name: str, size: Size, peer: ModuleType | None) -> Iterator[Row]:
    reasoning = DEFAULT_REASONING[name]
    thought = [WrittenItem("reasoning", "Hm.")] if reasoning else []
    before = encode_items([*thought, WrittenItem("message", "It is so. ")], name, reasoning, thinking=False)
    yield _families_row(name, "text", Stream(name, reasoning, before), size, peer)
    if reasoning:
        yield _families_row(name, "reasoning", Stream(name, reasoning, before.partition("Hm.")[0] + "It is so. "), size, peer)
    head, _, _ = encode_items([WrittenItem("call", f'{{"city":"{_MARK}"}}', "get_weather")], name).partition(_MARK)
    for length in size.arguments:
        stream = Stream(name, None, head + "".join(islice(PROSE * 200, length)))
        yield _families_row(name, f"after {length:,} characters", stream, size, peer, length)


def _families_row(name: str, what: str, stream: Stream, size: Size, peer: ModuleType | None, at: int | None = None) -> Row:
    rounds: dict[str, Round] = {INTERLOCK: partial(_ours, stream, size.tokens)}
    if peer is not None and peer.has_parsers(stream):
        rounds[VLLM] = partial(peer.parse_pieces, stream, _pieces(min(size.tokens, _THEIRS)))
    return Row("families", f"{name}, {what}", "µs/piece", rounds, min(size.repeats, 5), at=at)


def _pieces(count: int) -> list[str]:
    text = PROSE * (count * LETTERS // len(PROSE) + 1)
    return [text[at : at + LETTERS] for at in range(0, count * LETTERS, LETTERS)]


def _ours(stream: Stream, count: int) -> float:
    chunks = [Chunk([1], piece) for piece in _pieces(count)]
    _measured(stream, chunks)  # after vLLM's round, the caches have nothing of ours
    return _measured(stream, chunks)


def _measured(stream: Stream, chunks: Sequence[Chunk]) -> float:
    read = family(stream.calls, stream.reasoning)
    parse, feed = FamilyParser(read, ParserSettings.from_request(REQUEST), "between").feed, begin().feed
    feed([Start(), *parse(Chunk([1], stream.before))])
    watch = Stopwatch()
    for chunk in watch.steps([], chunks):
        feed(parse(chunk))
    return watch.microseconds / len(chunks)


# Items: the cost of opening and closing one, and of ending a response with many.


_REASONING: Sequence[Delta] = [Open("reasoning"), "Points are set.", Close()]
_MESSAGE: Sequence[Delta] = [Open("message", {"phase": "final_answer"}), "All clear.", Close()]


def items_rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for items in a stream, and one for each number of items at its end."""
    return [_opened(size, peer), *(_ended(size, peer, count) for count in size.items)]


def _items_ours(count: int) -> list[Sequence[Delta]]:
    return [(_REASONING, _MESSAGE)[index % 2] for index in range(count)]


def _theirs(count: int) -> list[object]:
    said_in_turn = said(reasoning="Points are set."), said(content="All clear.")
    return [said_in_turn[index % 2] for index in range(count)]


def _opened(size: Size, peer: ModuleType | None) -> Row:
    count = max(size.tokens // 10, 2)
    rounds = {INTERLOCK: each(ours.drain_deltas, [], _items_ours(count))}
    if peer is not None:
        rounds[VLLM] = each(peer.drain_deltas, [], _theirs(count))
    return Row("items", "open, one delta, close", "µs per item", rounds, size.repeats)


def _ended(size: Size, peer: ModuleType | None, count: int) -> Row:
    rounds = {INTERLOCK: ending(ours.drain_deltas, _items_ours(count))}
    if peer is not None:
        rounds[VLLM] = ending(peer.drain_deltas, _theirs(count))
    name = f"terminal event, {count} item{'s' if count > 1 else ''}"
    return Row("items", name, "µs", rounds, size.repeats, count)


# The time from the first token to the bytes of the first event that shows it.
#
# It is measured in streams one after another, as in a process that serves: with a single one, most of the time would be the wait
# for memory that the collector of garbage, run before, has driven out of the caches.


_STREAMS = 20


def first_rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return one row: the header has come, and the first token of the answer comes."""
    before, measured = [output(encode(ANSWER))], [output(prose(1))]
    rounds = {INTERLOCK: each(ours.drain_harmony, before, measured, streams=_STREAMS)}
    if peer is not None:
        rounds[VLLM] = each(peer.drain_harmony, before, measured, streams=_STREAMS)
    return [Row("first event", "first token to its first event", "µs", rounds, size.repeats)]


# What a token costs as the output grows: whole answers of harmony of several lengths.


_ENOUGH = 10_000
"""The least number of tokens in a round, so that short outputs are measured as precisely as long ones."""
_FEW = 100
"""The prepared steps, used repeatedly: those of an engine are new, and so always in a cache."""


def growth_rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for each length."""
    return [_growth_row(size, peer, length) for length in size.outputs]


def _growth_row(size: Size, peer: ModuleType | None, length: int) -> Row:
    times = max(min(_ENOUGH, size.outputs[-1]) // length, 1)
    rounds = {INTERLOCK: _whole(ours.drain_harmony, length, times)}
    if peer is not None:
        rounds[VLLM] = _whole(peer.drain_harmony, length, times)
    return Row("growth", f"output of {length:,} tokens", "µs per token", rounds, (size.repeats + 1) // 2, length)


def _whole(drain: Drain, length: int, times: int) -> Round:
    """Measure answers from their second token to their last, several times if they are short."""
    some = outputs(prose(min(length, _FEW)))
    one = each(drain, [begun()], some * (length // len(some)))
    return lambda: sum(one() for _ in range(times)) / times


# Many open streams in one process, each of which gets one token in its turn.


def crowd_rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for each number of streams."""
    return [_crowd_row(size, peer, count) for count in size.streams]


def _crowd_row(size: Size, peer: ModuleType | None, count: int) -> Row:
    rounds = {INTERLOCK: _Crowd(ours.open_harmony, count).measure}
    if peer is not None:
        rounds[VLLM] = _Crowd(peer.open_harmony, count).measure
    return Row("open streams", f"{count:,} open streams", "µs per token", rounds, (size.repeats + 1) // 2, count)


@define(eq=False)
class _Crowd:
    """Streams that are open from the first round on."""

    _open: Callable[[], Feed]
    _count: int
    _streams: Sequence[Feed] = field(factory=list[Feed])

    def measure(self) -> float:
        """Feed one token to each stream."""
        if not self._streams:
            self._streams = [self._open() for _ in range(self._count)]
        token, watch = output(prose(1)), Stopwatch()
        for feed in watch.steps((), self._streams):
            feed(token)
        return watch.microseconds / self._count


# The memory of an open stream besides its text: the driver, the reader, and their stored output.


_MEMORY_STREAMS = 20
_LONGEST = 10_000
"""The number of tokens above which tracing takes too long."""
_KIB = 1024


def memory_rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return a row for each length of output."""
    return [_memory_row(peer, length) for length in size.outputs if length <= _LONGEST]


def _memory_row(peer: ModuleType | None, length: int) -> Row:
    rounds = {INTERLOCK: _held(ours.open_harmony, length)}
    if peer is not None:
        rounds[VLLM] = _held(peer.open_harmony, length)
    return Row("memory", f"after {length:,} tokens", "KiB per stream, beyond its text", rounds, 1, length)


def _held(open_stream: Callable[[], Feed], length: int) -> Round:
    tokens = prose(length)
    text = len(encoding().decode(tokens).encode())

    def measure() -> float:
        _memory_opened(open_stream, tokens)  # so that the memory of the process (the vocabulary) exists before
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        streams = [_memory_opened(open_stream, tokens) for _ in range(_MEMORY_STREAMS)]
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return ((after - before) / len(streams) - text) / _KIB

    return measure


def _memory_opened(open_stream: Callable[[], Feed], tokens: Iterable[int]) -> Feed:
    feed = open_stream()
    for token in tokens:
        feed(output([token]))
    return feed


# `interlock check`: how many events of a stream are judged in a second.


_PIECE = 1 << 16
_SECOND = 1e9


def checking_rows(size: Size, peer: ModuleType | None) -> list[Row]:  # noqa: ARG001 - vLLM has nothing of the kind
    """Return one row; the stream is read in the pieces in which a file is."""
    written: list[bytes] = []
    ours.drain_harmony([begun(), *outputs(prose(10 * size.tokens))], written.append)
    stream = b"".join(written)

    def measure() -> float:
        judge, started = Judge(), thread_time_ns()
        for start in range(0, len(stream), _PIECE):
            judge.feed(stream[start : start + _PIECE])
        verdict = judge.end()
        return verdict.events * _SECOND / (thread_time_ns() - started)

    return [Row("check", "events judged", "events per second", {INTERLOCK: measure}, size.repeats, more=True)]


# The start of the command, beside an interpreter that does nothing: CPU time of a whole process.


_ROOT = Path(__file__).parents[2]
_COMMANDS = {
    "--help": ("--help",),
    "check": ("check", f"{_ROOT / 'examples' / 'streams' / 'message.sse'}"),
    "diagram": ("diagram", "message"),
    "replay of text": ("replay", f"{_ROOT / 'examples' / 'recordings' / 'text.jsonl'}"),
    "replay of harmony": ("replay", f"{_ROOT / 'examples' / 'recordings' / 'answer.jsonl'}"),
}
_MILLISECONDS = 1_000  # in a second


def start_rows(size: Size, peer: ModuleType | None) -> list[Row]:  # noqa: ARG001 - vLLM has nothing of the kind
    """Return a row for each command."""
    floor = _process("-c", "pass")
    return [
        Row("start", f"interlock {name}", "ms", {INTERLOCK: _process("-m", "interlock", *arguments), FLOOR: floor}, size.repeats)
        for name, arguments in _COMMANDS.items()
    ]


def _process(*arguments: str) -> Round:
    """Return a round that runs Python once, and measures its CPU time."""

    def measure() -> float:
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command
        after = getrusage(RUSAGE_CHILDREN)
        return _MILLISECONDS * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)

    return measure


GROUPS: Final[Mapping[str, Callable[[Size, ModuleType | None], Iterable[Row]]]] = {
    "deltas": deltas_rows,
    "dialects": dialects_rows,
    "harmony": harmony_rows,
    "parse_delta": parsed_rows,
    "embedded": embedded_rows,
    "families": families_rows,
    "items": items_rows,
    "first event": first_rows,
    "growth": growth_rows,
    "open streams": crowd_rows,
    "memory": memory_rows,
    "check": checking_rows,
    "start": start_rows,
}
"""The rows of each group."""


def rows_of(size: Size, groups: Iterable[str] = GROUPS) -> list[Row]:
    """Return the rows of groups; without vLLM, the contender is missing from them, and so are rows of vLLM's code alone."""
    peer: ModuleType | None = import_module("speed.theirs") if HAS_VLLM else None
    return [row for group in groups for row in GROUPS[group](size, peer)]
