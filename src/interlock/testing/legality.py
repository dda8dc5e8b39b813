"""Asserts that a stream is legal by the rules of `interlock check`, and generates legal streams.

The driver, which also writes real streams, generates one from random deltas of a model, its tools and a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, get_args

import orjson

from interlock.events.dialects import DIALECTS, DialectName
from interlock.events.items import ITEMS, ItemKind, examples, required_fields, result_fields
from interlock.events.json import dumps
from interlock.events.response_object import response_settings
from interlock.events.sse import DONE_FRAME, SseWriter
from interlock.fsm import deltas
from interlock.fsm.driver import ReadyCall, ResponseDriver, SequentialIds
from interlock.fsm.lifecycles import LIFECYCLES
from interlock.judges import Acceptor, Finding, judge

T = TypeVar("T")

Body: TypeAlias = dict[str, Any]
"""An event as its JSON object."""
Ending: TypeAlias = Literal["completed", "incomplete", "failed", "cancelled"]

KINDS: Final[tuple[ItemKind, ...]] = ("message", *(kind for kind in LIFECYCLES if kind != "message"))
"""All kinds of item, the simplest first."""
ENDINGS: Final[tuple[Ending, ...]] = get_args(Ending)
"""The final statuses of a response, the simplest first."""

_SETTINGS: Final = response_settings({"model": "model", "input": "Hello"})
_NOW: Final = 1_700_000_000
_ANNOTATIONS: Final = (
    {"type": "url_citation", "url": "https://example.com", "title": "Rain", "start_index": 0, "end_index": 1},
    {"type": "file_citation", "file_id": "file_1", "filename": "rain.txt", "index": 0},
)
_OPENINGS: Final[Mapping[ItemKind, tuple[Mapping[str, object], ...]]] = {
    "message": ({"phase": "final_answer"}, {"phase": "commentary"}, {}),
    "reasoning": ({}, {"encrypted_content": "c2VhbGVk"}),
}
"""The alternative fields to open an item with, for kinds that need none; the other kinds use `examples`."""
_ENDS: Final[Mapping[Ending, tuple[deltas.Delta, ...]]] = {
    "completed": (deltas.Finish(),),
    "incomplete": (deltas.EndTurn("length"), deltas.EndTurn("content_filter")),
    "failed": (deltas.Fault("server_error", "It broke."), deltas.EndTurn("error")),
    "cancelled": (deltas.Cancel(), deltas.EndTurn("abort")),
}


def findings(events: Iterable[Mapping[str, object]], *, dialect: DialectName = "openai") -> list[Finding]:
    """Return the findings of a stream, given the bodies of its events."""
    acceptor = Acceptor(dialect=dialect)
    return [*(finding for body in events for finding in acceptor.feed(body)), *acceptor.end()]


def assert_legal(
    stream: bytes | Iterable[bytes] | Iterable[Mapping[str, object]], *, dialect: DialectName = "openai", strict: bool = False
) -> None:
    """Assert that a stream has no error by the rules of `interlock check`.

    Args:
        stream: The bodies of its events; or its bytes, whole or in chunks, to check the framing of the events too.
        dialect: The dialect of the stream.
        strict: Also fail on deviations, which are unusual but well known, and on what is not judged: unknown events and items.

    Raises:
        AssertionError: The stream is not legal; the message lists the findings.
    """
    entries = [stream] if isinstance(stream, bytes) else [*stream]
    chunks = [entry for entry in entries if isinstance(entry, bytes)]
    if chunks:
        results = [*judge(chunks, dialect=dialect).findings]
    else:
        results = findings([entry for entry in entries if not isinstance(entry, bytes)], dialect=dialect)
    failures = [finding for finding in results if strict or finding.severity == "error"]
    if failures:
        raise AssertionError("\n".join(["the stream is not legal:", *map(describe_finding, failures)]))


def describe_finding(finding: Finding) -> str:
    """Return a finding as an indented line."""
    item = f" of {finding.item}" if finding.item else ""
    state = f" ({finding.state})" if finding.state else ""
    expected = f"; expected: {', '.join(finding.expected)}" if finding.expected else ""
    return f"  {finding.rule} at event {finding.event}, {finding.received or 'the end'}{item}{state}: {finding.message}{expected}"


class Chance(Protocol):
    """Makes choices: Hypothesis, or a seeded `random.Random`."""

    def choice(self, options: Sequence[T]) -> T:
        """Choose one of the options; the first is the simplest."""
        ...

    def randint(self, low: int, high: int) -> int:
        """Choose an integer, both bounds included; the lowest is the simplest."""
        ...

    def text(self) -> str:
        """Choose a chunk of text, which may be empty or blank, and contain any characters."""
        ...


def maybe(chance: Chance) -> bool:
    """Choose yes or no; no is the simpler choice."""
    return chance.randint(0, 1) == 1


def stream(
    chance: Chance,
    *,
    kinds: Sequence[ItemKind] = KINDS,
    endings: Sequence[Ending] = ENDINGS,
    min_items: int = 0,
    max_items: int = 4,
    dialect: DialectName = "openai",
) -> list[Body]:
    """Create a legal stream: the bodies of its events, as plain JSON values.

    `min_items` and `max_items` bound the items to open; a blank message, for example, does not appear in the stream.
    """
    driver = ResponseDriver(_SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: _NOW)
    frames: list[bytes] = []

    def feed(*batch: deltas.Delta) -> None:
        frames.extend(driver.feed(batch))

    feed(*((deltas.Enqueue(),) if maybe(chance) else ()), deltas.Start())
    counts = Counter[str]()
    for _ in range(chance.randint(min_items, max_items)):
        kind = chance.choice(kinds)
        for delta in _item(chance, kind):
            feed(delta)
        counts[kind] += 1
        _serve(chance, kind, f"{ITEMS[kind].prefix}_{counts[kind]}", feed)  # its id from `SequentialIds`
        _work(chance, lambda: driver.ready, feed)
    feed(deltas.EndTurn("stop", deltas.Usage(input_tokens=chance.randint(0, 9), output_tokens=chance.randint(0, 9))))
    feed(chance.choice(_ENDS[chance.choice(endings)]))
    bodies: list[Body] = [orjson.loads(frame[frame.index(b"{") :]) for frame in frames]
    return [DIALECTS[dialect].convert(body) for body in bodies] if dialect != "openai" else bodies


def frames(events: Sequence[Body]) -> bytes:
    """Return the bytes of a stream, with the end marker."""
    encoded = [b"event: %b\ndata: %b\n\n" % (str(body.get("type")).encode(), dumps(body)) for body in events]
    return b"".join([*encoded, DONE_FRAME])


def _item(chance: Chance, kind: ItemKind) -> Iterator[deltas.Delta]:
    """Yield the deltas of one item, which may stay open."""
    item = ITEMS[kind]
    yield deltas.Open(kind, chance.choice(_OPENINGS.get(kind) or examples(kind, required_fields(item))))
    if kind in _WRITERS:
        writers = chance.choice(_WRITERS[kind])
        for _ in range(chance.randint(0, 5)):
            yield chance.choice(writers)(chance)
    match chance.randint(0, 3):
        case 1:
            pass  # the next delta closes or truncates it
        case 2:
            yield deltas.Reject("It makes no sense.")
        case _:
            yield deltas.Close(chance.choice(examples(kind, item.known_at_done)) if maybe(chance) else {})


def _work(chance: Chance, ready: Callable[[], list[ReadyCall]], feed: Callable[[deltas.Delta], None]) -> None:
    """Run some of the ready calls concurrently, and end some of those in any order. The driver ends the rest."""
    running = [call for call in ready() if maybe(chance)]
    for call in running:
        feed(deltas.Run(call.id))
    while running:
        call = running.pop(chance.randint(0, len(running) - 1))
        for number in range(chance.randint(0, 2 if "progress" in LIFECYCLES[call.kind].triggers else 0)):
            feed(deltas.Progress(call.id, {"partial_image_b64": f"cGFydA{number}"}))
        match chance.randint(0, 2):
            case 0:
                feed(deltas.Succeed(call.id, chance.choice(_results(call.kind))))
            case 1:
                feed(deltas.Fail(call.id, "It broke."))
            case _:
                pass  # the driver ends it


def _serve(chance: Chance, kind: ItemKind, item_id: str, feed: Callable[[deltas.Delta], None]) -> None:
    """List tools or run shell commands, for the items that the server creates without a call of the model."""
    triggers = LIFECYCLES[kind].triggers
    if "succeed" not in triggers or "run" in triggers:
        return
    for _ in range(chance.randint(0, 2 if "end_output" in triggers else 0)):
        for _ in range(chance.randint(0, 2)):
            feed(deltas.Progress(item_id, {"stdout": chance.text(), "stderr": chance.text()}))
        if maybe(chance):
            feed(deltas.EndOutput(item_id, {"type": "exit", "exit_code": chance.randint(0, 1)}))
    match chance.randint(0, 2):
        case 0:
            feed(deltas.Succeed(item_id, chance.choice(_results(kind))))
        case 1:
            feed(deltas.Fail(item_id, "It broke."))
        case _:
            pass


def _results(kind: ItemKind) -> Sequence[Mapping[str, object]]:
    """Return the alternative results of an item."""
    return [result_fields(kind, "rain"), *examples(kind, ITEMS[kind].tool_result or ())]


def _text(chance: Chance) -> deltas.Delta:
    return chance.text()


def _token(chance: Chance) -> deltas.Delta:
    token = chance.choice(("rain", "é", " "))
    return deltas.Text(token, [{"token": token, "bytes": list(token.encode()), "logprob": -0.5, "top_logprobs": []}])


def _annotation(chance: Chance) -> deltas.Delta:
    return deltas.Annotate(chance.choice(_ANNOTATIONS))


def _refusal(chance: Chance) -> deltas.Delta:
    return deltas.Refusal(chance.text())


def _summary(chance: Chance) -> deltas.Delta:
    return deltas.Summary(chance.text())


def _end_part(_chance: Chance) -> deltas.Delta:
    return deltas.EndPart()


_Writer: TypeAlias = Callable[[Chance], deltas.Delta]

_WRITERS: Final[Mapping[ItemKind, tuple[tuple[_Writer, ...], ...]]] = {
    **{
        kind: ((_text, _end_part) if "end_part" in lifecycle.triggers else (_text,),)
        for kind, lifecycle in LIFECYCLES.items()
        if "append" in lifecycle.triggers
    },
    "message": ((*[_text] * 5, _end_part, _annotation, _refusal), (_token, _end_part)),  # without or with log probabilities
    "reasoning": ((*[_text] * 4, _end_part, _summary),),
}
"""The deltas that fill an item, by kind. Each item uses one group of them; other kinds have none."""
