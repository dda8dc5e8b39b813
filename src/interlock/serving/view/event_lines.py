"""The lines of JSON that a page of the viewer receives: a stream's events, the findings of the judge, and the machines' steps.

A step is what an event does to the state machine of an item or of the response.

A line is an array whose first entry names it:

| line | further entries |
|---|---|
| `head` | an object: the mode, the machines' diagrams, the rules and deviations, what each event writes, and the stream |
| `lane` | lane, and an object: an item's kind, name, id and index. Lane 0 is the response |
| `step` | the number of a step, and an object: the machine, the edges that may have fired, and the states |
| `e` | lane, wire name, sequence number, step, milliseconds since the start, size in bytes, data |
| `f` | event, and an object: a finding. Events are counted from 0; a finding at the end has the number of events |
| `fix` | a list that alternates events and the numbers of their steps, which later events determined |
| `origin` | event, and an object: the tokens or texts, deltas and framing steps that a recording has before the event |
| `end` | an object: the verdict |

`page` makes the line `head`, and `web` the line `list`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from attrs import define, field

from interlock.events.dialects import OPENAI, Dialect, DialectName
from interlock.events.json import as_text, dumps, members
from interlock.events.sse import DONE_FRAME, SseWriter
from interlock.events.stream import TERMINAL, ItemAdded, ItemDone, wire_name
from interlock.fsm.deltas import Delta, Usage
from interlock.judges import Finding, Judge, JudgedMessage, Step
from interlock.judges.automaton import narrow_steps
from interlock.judges.digests import quote
from interlock.judges.judging import DONE as MARKER
from interlock.parsers import Chunk, HarmonyParser, Routing
from interlock.parsers.harmony_framing import HarmonyTrigger
from interlock.parsers.harmony_vocabulary import vocabulary
from interlock.serving.engines.recordings import Recording, ReplayStep, replay_steps

Line: TypeAlias = Sequence[object]


@define(eq=False)
class ReplaySteps:
    """The distinct steps of a stream, with their numbers."""

    numbers: dict[tuple[object, ...], int] = field(factory=dict["tuple[object, ...]", int], init=False)

    def number(self, step: Step) -> tuple[int, Line | None]:
        """Return the number of a step, and its line if it is new."""
        key = (step.machine, step.fired, step.states, step.possible)
        if key in self.numbers:
            return self.numbers[key], None
        number = self.numbers[key] = len(self.numbers)
        fired = [(edge.source, edge.trigger, edge.dest, not edge.due, edge.silent) for edge in step.fired]
        states = {"states": step.states, "possible": step.possible}
        return number, ("step", number, {"machine": step.machine, "fired": fired, **states})


@define(eq=False)
class _LaneSoFar:
    """An item, or the response, as far as the stream has been read."""

    number: int
    moves: list[tuple[int, Step, int]] = field(factory=list["tuple[int, Step, int]"])
    """The events that moved its machine, each with its step and the step's number; repetitions of a step are left out."""
    named: bool = False
    """Whether no further line `lane` follows, because the event that added the item has made one; the response has none."""
    latest: tuple[Step, int] | None = None
    """The last step, and its number."""


@define(eq=False)
class Trace:
    """Makes the lines of one stream."""

    dialect: DialectName = "openai"
    events: int = field(default=0, init=False)
    _judge: Judge = field(init=False)
    _steps: ReplaySteps = field(factory=ReplaySteps, init=False)
    _lanes: dict[int | None, _LaneSoFar] = field(factory=dict["int | None", _LaneSoFar], init=False)

    def __attrs_post_init__(self) -> None:
        self._judge = Judge(dialect=self.dialect)
        self._lanes[None] = _LaneSoFar(0, named=True)

    def feed(self, chunk: bytes, time: float | None = None) -> Iterator[Line]:
        """Yield the lines of the events that a chunk completes; `time` is its arrival in milliseconds since the start."""
        for judged in self._judge.follow(chunk):
            yield from self._event(judged, time)

    def end(self) -> Iterator[Line]:
        """End the stream, and yield the remaining lines."""
        for judged in self._judge.follow_end():
            yield from self._event(judged, None)
        for lane in self._lanes.values():
            yield from self._settle(lane)
        verdict = self._judge.end()
        for finding in verdict.late:
            event = self.events if finding.event >= verdict.events else finding.event
            yield "f", event, finding_fields(finding)
        status = {"status": verdict.status, "legal": verdict.legal, "readable": verdict.readable, "rules": verdict.rules}
        yield "end", status

    def _event(self, judged: JudgedMessage, time: float | None) -> Iterator[Line]:
        lane = self._lane(judged)
        step = -1
        if judged.step is not None:
            step, line = self._moved(lane, judged.step)
            if line is not None:
                yield line
        body = judged.body
        if not lane.named and body is not None:
            yield from self._describe(lane, body, judged.step.machine if judged.step else "")
        data = judged.message.data
        size = len(data) if data.isascii() else len(data.encode())
        number = None if judged.body is None else judged.body.get("sequence_number")
        type_ = (body or {}).get("type", judged.message.event)
        name = MARKER if data == MARKER else type_ if isinstance(type_, str) else quote(type_)
        yield "e", lane.number, name, number if isinstance(number, int) else None, step, time, size, data
        for finding in judged.findings:
            yield "f", self.events, finding_fields(finding)
        self.events += 1
        if name == wire_name(ItemDone) or name in TERMINAL:
            yield from self._settle(lane)

    def _lane(self, judged: JudgedMessage) -> _LaneSoFar:
        index: object = judged.step.index if judged.step else (judged.body or {}).get("output_index")
        if type(index) is not int:
            return self._lanes[None]
        return self._lanes.setdefault(index, _LaneSoFar(len(self._lanes)))

    def _moved(self, lane: _LaneSoFar, step: Step) -> tuple[int, Line | None]:
        if lane.latest is not None and (lane.latest[0] is step or lane.latest[0] == step):
            return lane.latest[1], None
        number, line = self._steps.number(step)
        lane.latest = (step, number)
        lane.moves.append((self.events, step, number))
        return number, line

    def _settle(self, lane: _LaneSoFar) -> Iterator[Line]:
        """Correct the steps of a lane: its end determines which edges fired."""
        fixes: list[int] = []
        steps = narrow_steps([step for _, step, _ in lane.moves])
        for (event, _, before), step in zip(lane.moves, steps, strict=True):
            number, line = self._steps.number(step)
            if line is not None:
                yield line
            if number != before:
                fixes += event, number
        if fixes:
            yield "fix", fixes
        lane.moves = []

    def _describe(self, lane: _LaneSoFar, body: Mapping[str, object], machine: str) -> Iterator[Line]:
        fields = members(body.get("item"))
        lane.named = body.get("type") == wire_name(ItemAdded)
        about = {
            "kind": as_text(fields.get("type")) or machine,
            "name": as_text(fields.get("name")) or as_text(fields.get("server_label")) or None,
            "id": as_text(fields.get("id")) or as_text(body.get("item_id")) or None,
        }
        index = body.get("output_index")
        yield "lane", lane.number, {**about, "index": index if isinstance(index, int) else None}


def finding_fields(finding: Finding) -> Mapping[str, object]:
    """Return the object of a line `f`."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "deviation": finding.deviation,
        "message": finding.message,
        "expected": finding.expected,
        "line": finding.line,
    }


def recording_lines(recording: Recording, trace: Trace, dialect: Dialect = OPENAI) -> Iterator[Sequence[Line]]:
    """Yield the lines of a replayed recording: one list for each `ReplayStep`, and one for `[DONE]` and the stream's end."""
    origin = _Origin(HarmonyParser(Routing.from_request(recording.request)) if recording.format == "harmony" else None)
    for step, frames in replay_steps(recording, SseWriter(dialect)):
        origin.take(step)
        lines: list[Line] = []
        if frames:
            lines.append(("origin", trace.events, origin.clear()))
        for frame in frames:
            lines += trace.feed(frame)
        yield lines
    yield [*trace.feed(DONE_FRAME), *trace.end()]


@define(eq=False)
class _Origin:
    parser: HarmonyParser | None
    """A second parser, fed token by token to see how each moves harmony's framing; None for other formats."""
    tokens: list[tuple[int, str]] = field(factory=list[tuple[int, str]], init=False)
    framing: list[tuple[str, str, str]] = field(factory=list[tuple[str, str, str]], init=False)
    """The edges of the framing that fired: source, trigger, dest."""
    texts: list[str] = field(factory=list[str], init=False)
    deltas: list[Delta] = field(factory=list[Delta], init=False)

    def take(self, step: ReplayStep) -> None:
        self.deltas += step.deltas
        if step.output is not None:
            chunk = step.output.chunk
            if self.parser is not None:
                for token in chunk.token_ids:
                    before = self.parser.framing
                    self.parser.feed(Chunk((token,)))
                    meaning = vocabulary().read(token)
                    self.tokens.append((token, _token_text(token, meaning)))
                    self.framing.append((before, _trigger(meaning, before, self.parser.framing), self.parser.framing))
            elif chunk.text:
                self.texts.append(chunk.text)
            elif chunk.delta is not None:
                self.texts.append(dumps(chunk.delta).decode())
        elif step.result is not None:
            self.texts.append(step.result.output if step.result.error is None else step.result.error)
        elif step.ends_turn is not None and self.parser is not None:
            before = self.parser.framing
            self.parser.end(step.ends_turn, Usage())
            self.framing.append((before, "finish" if step.ends_turn == "stop" else "cut", self.parser.framing))

    def clear(self) -> dict[str, object]:
        """Return the origin so far, and reset it."""
        origin: dict[str, object] = {"deltas": [*map(repr, self.deltas)]}
        if self.tokens:
            origin["tokens"] = self.tokens
        if self.framing:
            origin["framing"] = self.framing
        if self.texts:
            origin["text"] = "\n".join(self.texts)
        self.tokens, self.framing, self.texts, self.deltas = [], [], [], []
        return origin


def _token_text(token: int, meaning: str | bytes | HarmonyTrigger) -> str:
    match meaning:
        case HarmonyTrigger():
            try:
                return vocabulary().encoding.decode([token], errors="replace")
            except (OverflowError, RuntimeError):
                return f"<|{token}|>"
        case bytes():
            return meaning.decode(errors="backslashreplace")
        case _:
            return meaning


def _trigger(meaning: str | bytes | HarmonyTrigger, before: str, after: str) -> str:
    """Return the trigger of a token. Text outside of content is a word of a header, or prose that begins content."""
    if isinstance(meaning, HarmonyTrigger):
        return meaning.value
    if before == "content":
        return HarmonyTrigger.TEXT.value
    return (HarmonyTrigger.PROSE if after == "content" else HarmonyTrigger.WORD).value


def encode_lines(lines: Iterable[Line]) -> bytes:
    """Return lines as newline-delimited JSON."""
    return b"".join(dumps(line) + b"\n" for line in lines)
