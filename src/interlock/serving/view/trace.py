"""The lines of JSON that a page of the viewer receives: a stream's events, the findings of the judge, and the machines' steps.

A step is what an event does to a state machine: of an item or of the response, or in Messages and Chat Completions of the whole
stream. A lane is the response or an item; in these APIs the message or a block of it, or a text or a call of a choice.

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

`page` makes the line `head`, `recordings` the lines `origin`, and `web` the line `list`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import define, field, frozen

from interlock.events.dialects import DialectName
from interlock.events.json import dumps
from interlock.events.stream import TERMINAL, ItemDone, wire_name
from interlock.judges import AnyJudge, Finding, JudgedMessage
from interlock.serving.view.places import place_of
from interlock.serving.view.steps import Step, explain, narrow_steps

Line: TypeAlias = Sequence[object]

_ENDS: Final = frozenset({wire_name(ItemDone), *TERMINAL, "content_block_stop"})
"""The events that determine which edges the earlier ones fired."""


@frozen
class _Move:
    """An event that moved a machine: its number, its lane, the step, and the number of the step."""

    event: int
    lane: int
    step: Step
    number: int


@define(eq=False)
class Trace:
    """Makes the lines of one stream of any API, which its beginning shows; `dialect` is for the Responses API."""

    dialect: DialectName = "openai"
    events: int = field(default=0, init=False)
    _judge: AnyJudge = field(init=False)
    _numbers: dict[tuple[object, ...], int] = field(factory=dict["tuple[object, ...]", int], init=False)
    """The distinct steps so far, with their numbers."""
    _lanes: dict[Hashable, int] = field(factory=lambda: {None: 0}, init=False)
    _described: set[int] = field(factory=set[int], init=False)
    """The lanes of which no further line `lane` follows."""
    _latest: dict[int | None, _Move] = field(factory=dict["int | None", _Move], init=False)
    """The last move of each machine, by the index of its item."""
    _moves: dict[int | None, list[_Move]] = field(factory=dict["int | None", list[_Move]], init=False)
    """The moves of each machine that later events may narrow; repetitions of a step are left out."""

    def __attrs_post_init__(self) -> None:
        self._judge = AnyJudge(dialect=self.dialect)

    def feed(self, chunk: bytes, time: float | None = None) -> Iterator[Line]:
        """Yield the lines of the events that a chunk completes; `time` is its arrival in milliseconds since the start."""
        for judged in self._judge.follow(chunk):
            yield from self._event(judged, time)

    def end(self) -> Iterator[Line]:
        """End the stream, and yield the remaining lines: corrections, findings and the verdict."""
        for judged in self._judge.follow_end():
            yield from self._event(judged, None)
        for machine in [*self._moves]:
            yield from self._settle(machine)
        verdict = self._judge.end()
        for finding in verdict.end_findings:
            event = self.events if finding.event >= verdict.events else finding.event
            yield "f", event, finding_fields(finding)
        status = {"status": verdict.status, "legal": verdict.legal, "readable": verdict.readable, "rules": verdict.rules}
        yield "end", status

    def _event(self, judged: JudgedMessage, time: float | None) -> Iterator[Line]:
        place = place_of(self._judge.api, judged)
        lane = self._lanes.setdefault(place.lane, len(self._lanes))
        step = -1
        if judged.transition is not None:
            step, line = self._moved(lane, explain(judged.transition))
            if line is not None:
                yield line
        if place.about is not None and lane not in self._described:
            if place.begins:
                self._described.add(lane)
            yield "lane", lane, place.about
        data = judged.message.data
        size = len(data) if data.isascii() else len(data.encode())
        number = None if judged.body is None else judged.body.get("sequence_number")
        yield "e", lane, place.name, number if isinstance(number, int) else None, step, time, size, data
        for finding in judged.findings:
            yield "f", self.events, finding_fields(finding)
        self.events += 1
        if place.name in _ENDS and judged.transition is not None:
            yield from self._settle(judged.transition.index)

    def _number(self, step: Step) -> tuple[int, Line | None]:
        """Return the number of a step, and its line if it is new."""
        key = (step.machine, step.fired, step.states, step.possible)
        if key in self._numbers:
            return self._numbers[key], None
        number = self._numbers[key] = len(self._numbers)
        fired = [(edge.source, edge.trigger, edge.dest, not edge.due, edge.silent) for edge in step.fired]
        return number, (
            "step",
            number,
            {"machine": step.machine, "fired": fired, "states": step.states, "possible": step.possible},
        )

    def _moved(self, lane: int, step: Step) -> tuple[int, Line | None]:
        latest = self._latest.get(step.index)
        if latest is not None and latest.lane == lane and (latest.step is step or latest.step == step):
            return latest.number, None
        number, line = self._number(step)
        move = self._latest[step.index] = _Move(self.events, lane, step, number)
        self._moves.setdefault(step.index, []).append(move)
        return number, line

    def _settle(self, machine: int | None) -> Iterator[Line]:
        """Correct the steps of a machine. The page corrects the later events of the lane with the same step, too."""
        fixes: list[int] = []
        shown: dict[int, tuple[int, int]] = {}
        moves = self._moves.pop(machine, [])
        for move, step in zip(moves, narrow_steps([move.step for move in moves]), strict=True):
            number, line = self._number(step)
            if line is not None:
                yield line
            before, after = shown.get(move.lane, (-1, -1))
            if number != (after if move.number == before else move.number):
                fixes += move.event, number
            shown[move.lane] = move.number, number
        if fixes:
            yield "fix", fixes


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


def encode_lines(lines: Iterable[Line]) -> bytes:
    """Return lines as newline-delimited JSON."""
    return b"".join(dumps(line) + b"\n" for line in lines)
