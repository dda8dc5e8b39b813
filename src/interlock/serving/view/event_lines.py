"""The lines of JSON that a page of the viewer receives: a stream's events, the findings of the judge, and the machines' steps.

A step is what an event does to the state machine of an item or of the response.

A line is an array whose first entry names it:

| line | further entries |
|---|---|
| `head` | an object: the mode, the machines' diagrams, the rules and deviations, what each event writes, and the streams |
| `lane` | stream, lane, and an object: an item's kind, name, id and index. Lane 0 is the response |
| `step` | the number of a step, and an object: the machine, the edges that may have fired, and the states |
| `e` | stream, lane, wire name, sequence number, step, milliseconds since the start, size in bytes, data |
| `f` | stream, event, and an object: a finding. Events are counted from 0; a finding at the end has the number of events |
| `fix` | stream, and a list that alternates events and the numbers of their steps, which later events determined |
| `origin` | stream, event, and an object: the tokens or texts, deltas and framing steps that a recording has before the event |
| `end` | stream, and an object: the verdict |

`page` makes the line `head`, `comparison` the lines `pairs` and `cover`, and `web` the line `list`.

Redaction hides the texts of a stream behind marks, and shows only listed fields, so that unknown fields cannot leak.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

from attrs import define, field

from interlock.events.dialects import OPENAI, Dialect, DialectName
from interlock.events.json import as_text, dumps, is_array, is_object, members
from interlock.events.sse import DONE_FRAME, SseWriter
from interlock.events.stream import TERMINAL, ItemAdded, ItemDone, wire_name
from interlock.fsm.acceptor import Finding, Judge, JudgedMessage, Step
from interlock.fsm.acceptor.automaton import narrow_steps
from interlock.fsm.acceptor.digests import quote
from interlock.fsm.acceptor.judging import DONE as MARKER
from interlock.fsm.deltas import Delta, Usage
from interlock.parsers import Chunk, HarmonyParser, Routing
from interlock.parsers.harmony_framing import HarmonyTrigger
from interlock.parsers.harmony_vocabulary import vocabulary
from interlock.serving.engines.recordings import Recording, ReplayStep, replay_steps

Line: TypeAlias = Sequence[object]


@define(eq=False)
class ReplaySteps:
    """The distinct steps of all streams of a page, with their numbers."""

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
    """Makes the lines of one stream. `stream` is its number, from 0; all streams of a page share `steps`."""

    stream: int = 0
    steps: ReplaySteps = field(factory=ReplaySteps)
    dialect: DialectName = "openai"
    redact: bool = False
    events: int = field(default=0, init=False)
    _judge: Judge = field(init=False)
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
            yield "f", self.stream, event, finding_fields(finding, redact=self.redact)
        status = verdict.status if not self.redact or str(verdict.status).isidentifier() else MUCH
        rules, legal, readable = verdict.rules, verdict.legal, verdict.readable
        yield "end", self.stream, {"status": status, "legal": legal, "readable": readable, "rules": rules}

    def _event(self, judged: JudgedMessage, time: float | None) -> Iterator[Line]:
        lane = self._lane(judged)
        step = -1
        if judged.step is not None:
            step, line = self._moved(lane, judged.step)
            if line is not None:
                yield line
        body = judged.body
        if self.redact and body is not None:
            body = members(redacted(body))
        if not lane.named and body is not None:
            yield from self._describe(lane, body, judged.step.machine if judged.step else "")
        data = judged.message.data
        size = len(data) if data.isascii() else len(data.encode())
        number = None if judged.body is None else judged.body.get("sequence_number")
        type_ = (body or {}).get("type", judged.message.event)
        name = MARKER if data == MARKER else type_ if isinstance(type_, str) else quote(type_)
        text = data
        if self.redact and data != MARKER:
            text = str(redacted(data)) if body is None else dumps(body).decode()
        yield "e", self.stream, lane.number, name, number if isinstance(number, int) else None, step, time, size, text
        for finding in judged.findings:
            yield "f", self.stream, self.events, finding_fields(finding, redact=self.redact)
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
        number, line = self.steps.number(step)
        lane.latest = (step, number)
        lane.moves.append((self.events, step, number))
        return number, line

    def _settle(self, lane: _LaneSoFar) -> Iterator[Line]:
        """Correct the steps of a lane: its end determines which edges fired."""
        fixes: list[int] = []
        steps = narrow_steps([step for _, step, _ in lane.moves])
        for (event, _, before), step in zip(lane.moves, steps, strict=True):
            number, line = self.steps.number(step)
            if line is not None:
                yield line
            if number != before:
                fixes += event, number
        if fixes:
            yield "fix", self.stream, fixes
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
        yield "lane", self.stream, lane.number, {**about, "index": index if isinstance(index, int) else None}


def finding_fields(finding: Finding, *, redact: bool) -> Mapping[str, object]:
    """Return the object of a line `f`; `redact` hides what its message quotes of the stream."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "deviation": finding.deviation,
        "message": strip_quotes(finding.message) if redact else finding.message,
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
            lines.append(("origin", trace.stream, trace.events, origin.clear(redact=trace.redact)))
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

    def clear(self, *, redact: bool) -> dict[str, object]:
        """Return the origin so far, and reset it."""
        origin: dict[str, object] = {"deltas": [type(delta).__name__ if redact else repr(delta) for delta in self.deltas]}
        if self.tokens:
            origin["tokens"] = [(0, HIDDEN * len(text)) for _, text in self.tokens] if redact else self.tokens
        if self.framing:
            origin["framing"] = self.framing
        if self.texts:
            whole = "\n".join(self.texts)
            origin["text"] = HIDDEN * len(whole) if redact else whole
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


class Leaf(Enum):
    """What to show of a field."""

    WORD = "the value, even a string: an id, kind or state"
    NUMBER = "the value of a number or boolean, but only the length of a string"
    TEXT = "only the length of a string"


LinePlace: TypeAlias = "Leaf | Mapping[str, LinePlace]"
"""What to show of a field, or of each field of an object or of the objects in a list; other fields are hidden."""


def place_of(words: str, numbers: str = "", texts: str = "", **inner: LinePlace) -> LinePlace:
    """Return what to show of an object: the names of the fields of each kind, divided by spaces, and inner objects."""
    leaves = ((words, Leaf.WORD), (numbers, Leaf.NUMBER), (texts, Leaf.TEXT))
    return {**{name: leaf for names, leaf in leaves for name in names.split()}, **inner}


TOP: Final = place_of("", "logprob", "token")
LOGPROB: Final = place_of("", "logprob", "token", top_logprobs=TOP)
ANNOTATION: Final = place_of("type container_id", "index start_index end_index", "title url file_id filename")
PART: Final = place_of("type", "content_index", "text refusal", annotations=ANNOTATION, logprobs=LOGPROB)
ERROR: Final = place_of("type", "", "code message param", content=PART)
OUTPUT: Final = place_of("type", "", "logs url text stdout stderr", outcome=place_of("type", "exit_code"))
TOOL: Final = place_of("type name server_label", "strict defer_loading", "description parameters input_schema annotations format")
ITEM: Final = place_of(
    "type id status role phase call_id name namespace server_label container_id approval_request_id execution",
    "output_index sequence_number",
    "arguments input code result encrypted_content queries revised_prompt fingerprint quality size output_format background",
    content=PART,
    summary=PART,
    action=place_of(
        "type",
        "timeout_ms max_output_length",
        "query queries url pattern command commands env",
        sources=place_of("type", "", "url name"),
    ),
    operation=place_of("type", "", "path diff"),
    output=OUTPUT,
    outputs=OUTPUT,
    results=place_of("", "score", "text filename file_id attributes"),
    tools=TOOL,
    caller=place_of("type", "", "caller_id"),
    error=ERROR,
)
RESPONSE: Final = place_of(
    "id object status model previous_response_id service_tier truncation",
    "created_at completed_at background store parallel_tool_calls temperature top_p top_logprobs "
    "frequency_penalty presence_penalty max_output_tokens max_tool_calls sequence_number",
    "instructions input metadata user safety_identifier prompt_cache_key prompt_cache_retention tool_choice",
    output=ITEM,
    tools=TOOL,
    error=ERROR,
    incomplete_details=place_of("reason"),
    reasoning=place_of("effort", "", "summary"),
    text=place_of("", "", "verbosity", format=place_of("type", "strict", "name schema description")),
    conversation=place_of("id"),
    usage=place_of(
        "",
        "input_tokens output_tokens total_tokens",
        input_tokens_details=place_of("", "cached_tokens cache_write_tokens"),
        output_tokens_details=place_of("", "reasoning_tokens"),
    ),
)
EVENT: Final = place_of(
    "type item_id response_id call_id name",
    "sequence_number output_index content_index summary_index annotation_index command_index partial_image_index",
    "delta text refusal arguments input code diff command obfuscation partial_image_b64 message param",
    annotation=ANNOTATION,
    error=ERROR,
    item=ITEM,
    logprobs=LOGPROB,
    output=OUTPUT,
    part=PART,
    response=RESPONSE,
)

HIDDEN: Final = "•"
MUCH: Final = HIDDEN * 3
"""The mark for values without a length, and for hidden fields."""

_QUOTED: Final = re.compile(r"(?<!\w)'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def redacted(value: object, place: LinePlace = EVENT) -> object:
    """Return a JSON value with a mark for each character of its texts, and without fields that are not listed."""
    match value, place:
        case (None, _) | (str(), Leaf.WORD) | (bool() | int() | float(), Leaf.WORD | Leaf.NUMBER):
            return value
        case str(), _:
            return HIDDEN * len(value)
        case _, Mapping() if is_object(value):
            fields = {name: redacted(inner, place[name]) for name, inner in value.items() if name in place}
            return {**fields, MUCH: len(value) - len(fields)} if len(fields) < len(value) else fields
        case _, Mapping() if is_array(value):
            return [MUCH if is_array(inner) else redacted(inner, place) for inner in value]
        case _:
            return MUCH


def strip_quotes(message: str) -> str:
    """Return the message of a finding without its quotations of the stream."""
    return _QUOTED.sub(f"'{MUCH}'", message)
