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

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias

from attrs import define, evolve, field, frozen

from interlock.dialects import ApiName
from interlock.events.dialects import DialectName
from interlock.events.items import ITEMS
from interlock.events.json import EMPTY, as_text, dumps, elements, members
from interlock.events.stream import TERMINAL, ItemAdded, ItemDone, wire_name
from interlock.judges import DIALECT_JUDGES, AnyJudge, Finding, JudgedMessage
from interlock.judges.automaton import Automaton, AutomatonNode, TablePosition, Transition, name_position
from interlock.judges.chat import ChatJudge
from interlock.judges.digests import quote
from interlock.judges.judging import DONE
from interlock.parsers.item_writers import PAGE_BY_NUMBER

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
    """Makes the lines of one stream of any API, which its beginning shows.

    `dialect` is for the Responses API, and `request` is the one that the stream answers; empty if it is unknown.
    """

    dialect: DialectName = "openai"
    request: Mapping[str, object] = EMPTY
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
        self._judge.request(self.request)

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
            yield "f", event, _finding_fields(finding)
        status = {"status": verdict.status, "legal": verdict.legal, "readable": self.events > 0, "rules": verdict.rules}
        yield "end", status

    def _event(self, judged: JudgedMessage, time: float | None) -> Iterator[Line]:
        place = _place_of(self._judge.api, judged)
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
            yield "f", self.events, _finding_fields(finding)
        self.events += 1
        if place.name in _ENDS and judged.transition is not None:
            yield from self._settle(judged.transition.index)

    def _number(self, step: Step) -> tuple[int, Line | None]:
        """Return the number of a step, and its line if it is new."""
        key = (step.machine, step.fired, step.states, step.possible, step.state)
        if key in self._numbers:
            return self._numbers[key], None
        number = self._numbers[key] = len(self._numbers)
        fired = [(edge.source, edge.trigger, edge.dest, not edge.due, edge.silent) for edge in step.fired]
        return number, (
            "step",
            number,
            {"machine": step.machine, "fired": fired, "states": step.states, "possible": step.possible, "state": step.state},
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


def _finding_fields(finding: Finding) -> Mapping[str, object]:
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


@frozen
class FiredEdge:
    """An edge that may have emitted an event."""

    source: str
    trigger: str
    dest: str
    begins: bool = True  # the event is the first that the edge emits
    due: tuple[str, ...] = ()  # the names of its later events
    settled: bool = True  # `dest` may be reached now: `due` has only deltas, which are optional
    silent: tuple[tuple[str, str, str], ...] = ()  # the edges before this one that need no event: source, trigger, dest

    def may_follow(self, before: FiredEdge) -> bool:
        """Return whether this edge can explain an event after `before` explains the previous one."""
        if self.begins:
            return before.settled and before.dest == (self.silent[0][0] if self.silent else self.source)
        same = (self.source, self.trigger, self.dest) == (before.source, before.trigger, before.dest)
        return same and len(self.due) < len(before.due)


@frozen
class Step:
    """The effect of an event on a machine: the edges that may have emitted it, and the states after it.

    If no edge may have emitted it, the states are those before it, in which it was not allowed, as in a finding. The machine is a
    lifecycle or a transducer; it has no name for an item of unknown kind. It may be in the `states` or leaving them, or in the
    `possible` states, to which edges lead that need no event. `state` names the `states`, and `index` is the `output_index`.
    """

    machine: str
    index: int | None
    fired: tuple[FiredEdge, ...] = ()
    states: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()
    state: str = ""

    def narrow(self, keep: Callable[[FiredEdge], bool]) -> Step:
        """Return the step with only the edges that `keep` accepts; unchanged if it accepts none."""
        fired = tuple(filter(keep, self.fired))
        if not fired or fired == self.fired:
            return self
        at = dict.fromkeys(edge.source if edge.due else edge.dest for edge in fired)
        names = dict.fromkeys(name_position(edge.source, is_left=True) if edge.due else edge.dest for edge in fired)
        possible = tuple(name for name in self.possible if name not in at)
        return evolve(self, fired=fired, states=tuple(at), possible=possible, state=" or ".join(names))


def explain(transition: Transition) -> Step:
    """Return the step of a transition."""
    if transition.automaton is None:
        return Step("", transition.index)
    step = evolve(_explain(transition.automaton, transition.before, transition.event, transition.after), index=transition.index)
    if transition.status is None:
        return step
    # The status in `done` decides between the edges that end an item.
    return step.narrow(lambda edge: edge.dest == transition.status)


@cache  # for each automaton, there are a few dozen transitions
def _explain(automaton: Automaton, before: AutomatonNode, event: str, after: AutomatonNode) -> Step:
    fired = tuple(_fire(automaton, before, event))
    if not fired:
        positions = automaton.in_order(before.positions)
        at = dict.fromkeys(one.state for one in positions if not one.due or not before.states)
        return Step(automaton.name, None, states=tuple(at), state=before.state)
    certain = [one for one in automaton.in_order(after.positions) if _is_certain(automaton, one, after.positions)]
    at = dict.fromkeys(position.state for position in certain)
    possible = tuple(name for name in automaton.edges if name in after.states and name not in at)
    names = dict.fromkeys(position.name for position in certain)
    return Step(automaton.name, None, fired, tuple(at), possible, " or ".join(names))


def _is_certain(automaton: Automaton, position: TablePosition, positions: Iterable[TablePosition]) -> bool:
    """Return whether no other position reaches this one without an event."""
    return not any(position in automaton.closure([other]) for other in positions if other != position)


def _fire(automaton: Automaton, node: AutomatonNode, event: str) -> Iterator[FiredEdge]:
    """Yield the edges of the table, without observed ones, that may emit an event at a node."""
    positions = automaton.in_order(node.positions)
    starts = (one.state for one in positions if not one.due and _is_certain(automaton, one, node.positions))
    paths = _silent_paths(automaton, starts)
    for position in positions:
        for edge, due in automaton.edges_at(position):
            rest = next((rest for name, rest in automaton.next_events(due) if name == event), None)
            if edge.trigger and rest is not None:
                begins = not position.due
                path = paths.get(edge.source, ()) if begins else ()
                is_settled = automaton.is_optional(rest)
                yield FiredEdge(edge.source, edge.trigger, edge.dest, begins, tuple(rest), is_settled, path)


def _silent_paths(automaton: Automaton, starts: Iterable[str]) -> Mapping[str, tuple[tuple[str, str, str], ...]]:
    """Return the shortest path to each state that edges reach without an event."""
    paths: dict[str, tuple[tuple[str, str, str], ...]] = dict.fromkeys(starts, ())
    waiting = list(paths)
    for state in waiting:  # the list grows during the loop
        for edge in automaton.edges[state]:
            if edge.dest not in paths and automaton.is_optional(edge.effects):
                paths[edge.dest] = (*paths[state], (state, edge.trigger, edge.dest))
                waiting.append(edge.dest)
    return paths


def narrow_steps(steps: Sequence[Step]) -> Sequence[Step]:
    """Remove from each step of a lifecycle the edges that contradict the steps after and before it.

    If exactly one edge of a step began with an earlier event, remove the others.
    """
    narrowed: list[Step] = []
    next_edges: tuple[FiredEdge, ...] = ()
    for step in reversed(steps):
        agreeing = step.narrow(_followed(next_edges)) if next_edges else step
        narrowed.append(_prefer_continuing(agreeing))
        next_edges = narrowed[-1].fired
    narrowed.reverse()
    for at in range(1, len(narrowed)):
        if before := narrowed[at - 1].fired:
            narrowed[at] = _prefer_continuing(narrowed[at].narrow(_follows(before)))
    return narrowed


def _prefer_continuing(step: Step) -> Step:
    edges = [edge for edge in step.fired if not edge.begins]
    return step.narrow(edges.__contains__) if len(edges) == 1 else step


def _followed(next_edges: tuple[FiredEdge, ...]) -> Callable[[FiredEdge], bool]:
    return lambda edge: any(one.may_follow(edge) for one in next_edges)


def _follows(before: tuple[FiredEdge, ...]) -> Callable[[FiredEdge], bool]:
    return lambda edge: any(edge.may_follow(one) for one in before)


_SEARCHES: Final = frozenset(kind for kind, item in ITEMS.items() if {"action", "queries"} & {*item.__struct_fields__})
"""The kinds whose items may say only at their end what they look for or do."""


@frozen
class _Place:
    """Where the page shows an event: its name there, and its lane; None is that of the response, message or completion.

    `about` has the kind, name, id and index of the lane, if the event says anything of it; `begins` is whether nothing later can
    say more.
    """

    name: str
    lane: Hashable = None
    about: Mapping[str, object] | None = None
    begins: bool = True


def _place_of(api: ApiName | None, judged: JudgedMessage) -> _Place:
    body = judged.body
    if judged.message.data == DONE:
        return _Place(DONE)
    if body is None:
        return _Place(judged.message.event)
    match api:
        case "messages":
            return _message_place(body)
        case "chat":
            return _chunk_place(body)
        case "responses" | None:
            return _item_place(judged, body)
        case _:  # an API whose page shows one lane
            return _Place(DIALECT_JUDGES[api].name_event(body))


def _about(kind: str, name: object, id_: object, index: object = None) -> Mapping[str, object]:
    return {
        "kind": kind,
        "name": as_text(name) or None,
        "id": as_text(id_) or None,
        "index": index if isinstance(index, int) else None,
    }


def _item_place(judged: JudgedMessage, body: Mapping[str, object]) -> _Place:
    type_ = body.get("type", judged.message.event)
    name = type_ if isinstance(type_, str) else quote(type_)
    transition = judged.transition
    index = transition.index if transition else body.get("output_index")
    if type(index) is not int:
        return _Place(name)
    item = members(body.get("item"))
    kind = as_text(item.get("type")) or (transition.automaton.name if transition and transition.automaton else "")
    called = as_text(item.get("name")) or as_text(item.get("server_label")) or _searched(item)
    about = _about(kind, called, as_text(item.get("id")) or body.get("item_id"), body.get("output_index"))
    is_known = kind not in _SEARCHES or (called and not called.startswith(PAGE_BY_NUMBER))
    return _Place(name, index, about, begins=type_ == wire_name(ItemAdded) and bool(is_known))


def _searched(item: Mapping[str, object]) -> str:
    """Return what a search looks for: a query, a pattern in a page, or a page."""
    action, queries = members(item.get("action")), elements(item.get("queries"))
    return next((text for text in map(as_text, (*map(action.get, ("query", "pattern", "url")), *queries)) if text), "")


def _message_place(body: Mapping[str, object]) -> _Place:
    name, index = as_text(body.get("type")), body.get("index")
    lane = index if name.startswith("content_block_") and type(index) is int else None
    if name == "content_block_start":
        block = members(body.get("content_block"))
        id_ = as_text(block.get("id")) or block.get("tool_use_id")
        return _Place(name, lane, _about(as_text(block.get("type")), block.get("name"), id_, lane))
    if name == "message_start":
        message = members(body.get("message"))
        return _Place(name, lane, _about("message", message.get("model"), message.get("id")))
    return _Place(name, lane)


def _chunk_place(body: Mapping[str, object]) -> _Place:
    choice = members(next(iter(elements(body.get("choices"))), None))
    index = choice.get("index")
    at = index if isinstance(index, int) else 0
    match ChatJudge.name_event(body):
        case "delta.role":
            return _Place("delta.role", None, _about("completion", body.get("model"), body.get("id")))
        case "start call" | "delta.tool_calls" as name:
            call = members(elements(members(choice.get("delta")).get("tool_calls"))[0])
            about = _about("tool_call", members(call.get("function")).get("name"), call.get("id"))
            return _Place("delta.tool_calls", (at, "call", quote(call.get("index"))), about if name == "start call" else None)
        case "delta.content" | "delta.refusal" | "delta.reasoning" as name:
            kind = name.removeprefix("delta.")
            return _Place(name, (at, kind), _about(kind, None if at == 0 else f"choice {at}", None))
        case name:
            return _Place(name or as_text(body.get("object")) or "chunk")
