"""Asserts that a stream is legal by the rules of `interlock check`, generates legal streams, and breaks them by rule.

The driver, which also writes real streams, generates one from random deltas of a model, its tools and a server. A mutation breaks
it in one place.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, get_args

import orjson
from attrs import frozen

from interlock.dialects import ApiName
from interlock.events.dialects import DIALECTS, DialectName
from interlock.events.items import ITEMS, ItemKind, examples, required_fields, result_fields
from interlock.events.json import EMPTY, dumps
from interlock.events.settings_echo import response_settings
from interlock.events.sse import DONE_FRAME, SseWriter
from interlock.events.stream import PROGRESS, TERMINAL
from interlock.fsm import deltas
from interlock.fsm.driver import ReadyCall, ResponseDriver, SequentialIds
from interlock.fsm.lifecycles import LIFECYCLES
from interlock.judges import Acceptor, AnyJudge, Finding
from interlock.judges.dialects import find_api, why_no_stream

T = TypeVar("T")

Body: TypeAlias = dict[str, Any]
"""An event as its JSON object."""
Ending: TypeAlias = Literal["completed", "incomplete", "failed", "cancelled"]

KINDS: Final[tuple[ItemKind, ...]] = ("message", *(kind for kind in LIFECYCLES if kind != "message"))
"""All kinds of item, the simplest first."""
ENDINGS: Final[tuple[Ending, ...]] = get_args(Ending)
"""The final statuses of a response, the simplest first."""


class Model(Protocol):
    """An event as a client's package has it, such as `openai`."""

    def model_dump(self, *, by_alias: bool, exclude_unset: bool) -> Mapping[str, object]:
        """Return the fields that the server has sent."""
        ...


AnyBody: TypeAlias = Mapping[str, object] | Model
"""An event as its JSON object, or as the object of a client's package."""

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


def findings(
    events: Iterable[AnyBody],
    *,
    dialect: DialectName = "openai",
    api: ApiName | None = None,
    request: Mapping[str, object] = EMPTY,
) -> list[Finding]:
    """Return the findings of a stream of any API, given the bodies of its events; see `assert_legal`."""
    bodies = [each if isinstance(each, Mapping) else each.model_dump(by_alias=True, exclude_unset=True) for each in events]
    api = api or (find_api(bodies[0]) if bodies else None) or "responses"
    if api != "responses":
        names = [b"event: %s\n" % str(body["type"]).encode() if "type" in body else b"" for body in bodies]
        chunks = [name + b"data: " + dumps(body) + b"\n\n" for name, body in zip(names, bodies, strict=True)]
        return _judged([*chunks, DONE_FRAME] if api == "chat" else chunks, dialect, api, request)
    acceptor = Acceptor(dialect=dialect)
    return [*(finding for body in bodies for finding in acceptor.feed(body)), *acceptor.end()]


def _judged(chunks: Iterable[bytes], dialect: DialectName, api: ApiName | None, request: Mapping[str, object]) -> list[Finding]:
    judge = AnyJudge(api=api, dialect=dialect)
    judge.request(request)
    for chunk in chunks:
        judge.feed(chunk)
    return [*judge.end().findings]


def assert_legal(
    stream: bytes | Iterable[bytes] | Iterable[AnyBody],
    *,
    dialect: DialectName = "openai",
    strict: bool = False,
    api: ApiName | None = None,
    request: Mapping[str, object] = EMPTY,
) -> None:
    """Assert that a stream has no error by the rules of `interlock check`.

    Args:
        stream: The bodies of its events, or what a client's package makes of them; or its bytes, whole or in chunks, to check the
            framing of the events too.
        dialect: The dialect of a stream of the Responses API.
        strict: Also fail on deviations, which are well known, and on what is not judged: unknown events and items.
        api: The API of the stream; by default, the one that its first event shows.
        request: The body of the request that the stream answers, on which some rules of Messages and Chat Completions depend.

    Raises:
        AssertionError: The stream is not legal, and the message lists the findings; or the bytes are no stream, such as the error
            or the whole answer of a server.
        ValueError: There is no such dialect or API.
    """
    entries = [stream] if isinstance(stream, bytes) else [*stream]
    chunks = [entry for entry in entries if isinstance(entry, bytes)]
    if chunks:
        if reason := why_no_stream(b"".join(chunks)):
            raise AssertionError(reason)
        results = _judged(chunks, dialect, api, request)
    else:
        bodies = [entry for entry in entries if not isinstance(entry, bytes)]
        results = findings(bodies, dialect=dialect, api=api, request=request)
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
    written: list[bytes] = []

    def feed(*batch: deltas.Delta) -> None:
        written.extend(driver.feed(batch))

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
    bodies: list[Body] = [orjson.loads(frame[frame.index(b"{") :]) for frame in written]
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
    return [result_fields(kind, "rain"), *examples(kind, ITEMS[kind].tool_result or ())]


def _token(chance: Chance) -> deltas.Delta:
    token = chance.choice(("rain", "é", " "))
    return deltas.Text(token, [{"token": token, "bytes": list(token.encode()), "logprob": -0.5, "top_logprobs": []}])


def _end_part(_chance: Chance) -> deltas.Delta:
    return deltas.EndPart()


_Writer: TypeAlias = Callable[[Chance], deltas.Delta]

_text: Final[_Writer] = methodcaller("text")

_WRITERS: Final[Mapping[ItemKind, tuple[tuple[_Writer, ...], ...]]] = {
    **{
        kind: ((_text, _end_part) if "end_part" in lifecycle.triggers else (_text,),)
        for kind, lifecycle in LIFECYCLES.items()
        if "append" in lifecycle.triggers
    },
    "message": (
        (
            *[_text] * 5,
            _end_part,
            lambda chance: deltas.Annotate(chance.choice(_ANNOTATIONS)),
            lambda chance: deltas.Refusal(chance.text()),
        ),
        (_token, _end_part),  # with log probabilities
    ),
    "reasoning": ((*[_text] * 4, _end_part, lambda chance: deltas.Summary(chance.text())),),
}
"""The deltas that fill an item, by kind. Each item uses one group of them; other kinds have none."""


Apply: TypeAlias = Callable[[Chance, list[Body]], bool]
"""Changes the events of a stream in place; returns False if the change does not apply to them."""

# Items with output text, calls whose input the model writes, calls that the server runs, and the events that start the latter.
_TEXTS: Final[tuple[ItemKind, ...]] = ("message",)
_WRITTEN: Final = tuple(kind for kind, item in ITEMS.items() if len(item.text_path) == 1)
_STARTS: Final = {
    kind: str(effect)
    for kind, lifecycle in LIFECYCLES.items()
    for edge in lifecycle.edges
    for effect in edge.effects
    if edge.trigger == "run" and kind.endswith("_call") and effect.event in PROGRESS.values()
}


@frozen
class Mutation:
    """A way to break a stream, with the item `kinds` and stream `endings` that it applies to."""

    rule: str
    what: str
    apply: Apply
    kinds: Sequence[ItemKind] = KINDS
    endings: Sequence[Ending] = ENDINGS


def renumber(events: Sequence[Body]) -> list[Body]:
    """Renumber events, so that a mutation does not break the numbering too."""
    return [{**body, "sequence_number": number} for number, body in enumerate(events)]


def _places(events: Sequence[Body], *ends: str) -> list[int]:
    """Return the places of the events whose names end with one of the suffixes."""
    return [place for place, body in enumerate(events) if body["type"].endswith(ends)]


def _change(change: Callable[[list[Body], int], None], *ends: str) -> Apply:
    """Change the events at the place of any event whose name ends with one of the suffixes."""

    def apply(chance: Chance, events: list[Body]) -> bool:
        places = _places(events, *ends)
        if places:
            change(events, chance.choice(places))
        return bool(places)

    return apply


def _drop(*ends: str) -> Apply:

    def drop(events: list[Body], place: int) -> None:
        events[:] = renumber([*events[:place], *events[place + 1 :]])

    return _change(drop, *ends)


def _double(*ends: str) -> Apply:

    def double(events: list[Body], place: int) -> None:
        events[:] = renumber([*events[: place + 1], *events[place:]])

    return _change(double, *ends)


def _set(path: str, value: object, *ends: str) -> Apply:
    """Set the field at a dotted path in an event; the value `...` deletes it."""

    def set_field(events: list[Body], place: int) -> None:
        *parents, last = path.split(".")
        holder = events[place]
        for step in parents:
            holder = holder[step]
        if value is ...:
            del holder[last]
        else:
            holder[last] = value

    return _change(set_field, *ends)


def _shift_index(chance: Chance, events: list[Body]) -> bool:
    """Raise the index of the last item, in all its events."""
    indices = sorted({body["output_index"] for body in events if "output_index" in body})
    if not indices:
        return False
    last = indices[-1]
    for body in events:
        if body.get("output_index") == last:
            body["output_index"] = last + chance.randint(1, 3)
    return len({body.get("output_index") for body in events if body.get("output_index", -1) > last}) == 1


def _begin_with_keepalive(_chance: Chance, events: list[Body]) -> bool:
    events[:] = renumber([{"type": "keepalive"}, *events])
    return True


def _lead_with_space(_chance: Chance, events: list[Body]) -> bool:
    """Begin a message with a delta of white space, consistently in all events."""
    place = next(iter(_places(events, "output_text.delta")), None)
    if place is None:
        return False
    part_place = (events[place]["output_index"], events[place]["content_index"])
    events[place:place] = [{**events[place], "delta": " "}]
    for body in events[place:]:
        if (body.get("output_index"), body.get("content_index")) == part_place and "text" in body:
            body["text"] = f" {body['text']}"
        for part in _parts_of(body, *part_place):
            part["text"] = f" {part['text']}"
    events[:] = renumber(events)
    return True


def _parts_of(body: Body, output_index: int, content_index: int) -> Iterator[Body]:
    """Yield each copy of a content part in an event."""
    items: list[Body] = []
    if body.get("output_index") == output_index:
        if "part" in body and body.get("content_index") == content_index:
            yield body["part"]
        items.append(body.get("item", {}))
    if output := body.get("response", {}).get("output"):
        items.append(output[output_index])
    for item in items:
        if content := item.get("content"):
            yield content[content_index]


_END: Final = tuple(sorted(TERMINAL))
_NO_ITEM: Final[Body] = {}


MUTATIONS: Final = (
    Mutation("R1", "response.created is missing", _drop("response.created")),
    Mutation("R1", "response.in_progress is missing", _drop("response.in_progress")),
    Mutation("R1", "response.in_progress comes twice", _double("response.in_progress")),
    Mutation("R2", "a sequence number is missing", _set("sequence_number", ..., "")),
    Mutation("R2", "a sequence number is wrong", _set("sequence_number", 10_000, "")),
    Mutation("R3", "the terminal event is missing", _drop(*_END)),
    Mutation("R3", "the terminal event comes twice", _double(*_END)),
    Mutation("R3", "the final response is still in progress", _set("response.status", "in_progress", *_END)),
    Mutation("R4", "a failed response does not say why", _set("response.error", None, *_END), endings=("failed",)),
    Mutation("R4", "an item is left open", _drop("output_item.done"), endings=("incomplete", "failed", "cancelled")),
    Mutation("R4a", "a keep-alive comes before the response is created", _begin_with_keepalive),
    Mutation("R6", "an output index is skipped", _shift_index),
    Mutation("R7", "an item is never added", _drop("output_item.added")),
    Mutation("R7", "an item is never done", _drop("output_item.done"), endings=("completed",)),
    Mutation("R7", "an event names an item that does not exist", _set("item_id", "msg_nobody", ".delta", ".searching")),
    Mutation("R8", "a part does not end", _drop("content_part.done"), kinds=("message", "reasoning")),
    Mutation("R8", "a part does not begin", _drop("content_part.added"), kinds=("message", "reasoning")),
    Mutation("R8", "a content index is skipped", _set("content_index", 7, "content_part.added"), kinds=_TEXTS),
    Mutation("R9", "a text differs from its deltas", _set("text", "something else", "output_text.done"), kinds=_TEXTS),
    Mutation("R9", "a delta is changed", _set("delta", "something else", ".delta")),
    Mutation("R10", "the input of a call does not end", _drop("arguments.done", "input.done", "code.done"), kinds=_WRITTEN),
    Mutation("R10", "a call has no in_progress event", _drop("call.in_progress"), kinds=[*_STARTS]),
    Mutation("R11", "a tool ends without starting", _drop(*_STARTS.values()), kinds=[*_STARTS]),
    Mutation(
        "R12",
        "the response does not say why it is incomplete",
        _set("response.incomplete_details", {}, "response.incomplete"),
        endings=("incomplete",),
    ),
    Mutation("R13", "there is no usage", _set("response.usage", ..., *_END)),
    Mutation("R13", "the final response has a different output", _set("response.output", [_NO_ITEM], *_END)),
    Mutation("R14", "a field is missing", _set("output_index", ..., "output_item.added", "output_item.done", ".delta")),
    Mutation("R14", "a field has a wrong type", _set("delta", 3, ".delta")),
    Mutation("R14", "an item has a field that belongs to events", _set("item.sequence_number", 3, "output_item.added")),
    Mutation("R14", "an event has an unknown name", _set("type", "response.output_text.deltas", ".delta")),
    Mutation("R15", "there are no logprobs", _set("logprobs", ..., "output_text.delta", "output_text.done"), kinds=_TEXTS),
    Mutation("R18", "a message begins with white space", _lead_with_space, kinds=_TEXTS),
)
RULES: Final = tuple(dict.fromkeys(mutation.rule for mutation in MUTATIONS))
"""The rules that `MUTATIONS` can break."""


class _FirstChoice:
    """Chooses the first option, the lowest number and the same text."""

    def choice(self, options: Sequence[T]) -> T:
        return options[0]

    def randint(self, low: int, high: int) -> int:
        del high
        return low

    def text(self) -> str:
        return "rain"


def break_rule(events: Sequence[Body], rule: str) -> list[Body] | None:
    """Return a legal stream with a change that breaks a rule, always the same one; None if the stream has no place for one."""
    for mutation in MUTATIONS:
        changed = copy.deepcopy([*events])
        if mutation.rule != rule or not mutation.apply(_FirstChoice(), changed):
            continue
        if rule in {finding.rule for finding in findings(changed)}:
            return changed
    return None
