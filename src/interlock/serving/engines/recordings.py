"""Reads, writes, rechunks and replays recordings: JSON lines of an engine's outputs for one request, turn by turn.

```json
{"interlock_recording": 1, "format": "harmony", "request": {"model": "gpt-oss-20b", "input": "What is 2 + 2?"}}
{"token_ids": [200005, 35644], "finish_reason": null, "usage": {"input_tokens": 70, "cached_tokens": 64}}
{"token_ids": [200012], "finish_reason": "stop"}
{"tool_result": {"output": "4", "error": null}}
```

In the format `tagged`, chunks have `text`, and the header has a `tool_parser`, a `reasoning_parser` or both, named as for vLLM,
and perhaps `starts`: whether prompts end inside reasoning (`thinking`) or outside of it (`between`). A turn ends with a
`finish_reason`, before the results of its tools, or at the end of the file; the default reason is `stop`. Beside the reason,
`stop_sequence` has the stop string that ended the turn, if the engine names it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
from attrs import asdict, evolve, field, frozen
from msgspec import Meta, Struct

from interlock.events.dialects import OPENAI, Dialect
from interlock.events.items import result_fields
from interlock.events.json import as_json, as_text, elements, is_array, is_object, loads, members
from interlock.events.settings_echo import response_settings
from interlock.events.sse import DONE_FRAME, EventWriter, SseWriter, Writer
from interlock.events.stream import StreamEvent
from interlock.fsm.deltas import Delta, Fail, Finish, FinishReason, Run, Start, Succeed, TokenLogprob, Usage
from interlock.fsm.driver import ReadyCall, ResponseDriver, SequentialIds
from interlock.fsm.table import InterlockError
from interlock.parsers import Chunk, Format, FormatName, Tagged, parser_for
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.engines.pages import action_fields

T = TypeVar("T")

FORMAT_VERSION: Final = 1

_DEEPEST: Final = 200
"""The most levels of nested values; more could not be encoded again in a response."""

EPOCH: Final = 1_735_689_600
"""The time of every replay: the beginning of 2025."""


@frozen
class RecordingError(InterlockError):
    """A recording is invalid; `line` is the number of the invalid line, from 1."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


@frozen
class ToolResult:
    """The plain text that the tool of a hosted call returned, or its error; `error` is None if the tool succeeded."""

    output: str = ""
    error: str | None = None


@frozen
class RecordedTurn:
    """The outputs of one turn, and the results of its hosted calls in order; only the last output may have a finish reason."""

    outputs: tuple[EngineOutput, ...] = ()
    results: tuple[ToolResult, ...] = ()

    @property
    def finish_reason(self) -> FinishReason:
        """The reason why the turn ended, by default `stop`."""
        return (self.outputs[-1].finish_reason if self.outputs else None) or "stop"


@frozen
class Recording:
    """The body of a request, the turns of its response, and the format of their chunks."""

    format: Format
    request: Mapping[str, object] = field(factory=dict[str, object])
    turns: tuple[RecordedTurn, ...] = ()


class _RecordedFields(Struct, forbid_unknown_fields=True):
    """A JSON object of the file; a member that is null counts as missing."""


class _RecordedHeader(_RecordedFields):
    interlock_recording: int
    format: FormatName
    request: dict[str, object] | None = None
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    starts: Literal["thinking", "between"] | None = None
    special: dict[str, int] | None = None


_Count: TypeAlias = Annotated[int, Meta(ge=0)] | None


class _RecordedUsage(_RecordedFields):
    input_tokens: _Count = None
    cached_tokens: _Count = None
    cache_write_tokens: _Count = None


class _RecordedFunction(_RecordedFields):
    name: str | None = None
    arguments: str | None = None


class _RecordedToolCall(_RecordedFields):
    index: _Count = None
    id: str | None = None
    type: str | None = None
    function: _RecordedFunction | None = None


class _RecordedDelta(_RecordedFields):
    role: str | None = None
    reasoning: str | None = None
    content: str | None = None
    tool_calls: list[_RecordedToolCall] | None = None


class _RecordedChunk(_RecordedFields):
    token_ids: tuple[int, ...] | None = None
    """Any integers: an engine may yield an id that the vocabulary lacks, and the parser recovers from it."""
    text: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    delta: _RecordedDelta | None = None
    finish_reason: FinishReason | None = None
    stop_sequence: str | None = None
    usage: _RecordedUsage | None = None


class _RecordedResult(_RecordedFields):
    output: str | None = None
    error: str | None = None


class _RecordedToolResult(_RecordedFields):
    tool_result: _RecordedResult


@frozen
class _RecordedLine:
    number: int
    fields: Mapping[str, object]

    @classmethod
    def parse(cls, number: int, line: str | bytes) -> _RecordedLine:
        try:
            fields: object = loads(line)
        except (ValueError, RecursionError) as error:
            raise RecordingError(number, f"not JSON: {error}") from None
        if not is_object(fields):
            raise RecordingError(number, "not a JSON object")
        if _is_deep(fields):
            raise RecordingError(number, f"nested more than {_DEEPEST} levels deep")
        return cls(number, fields)

    def read_as(self, kind: type[T]) -> T:
        try:
            return msgspec.convert(self.fields, kind)
        except msgspec.ValidationError as error:
            raise RecordingError(self.number, str(error)) from None
        except UnicodeEncodeError:
            raise RecordingError(self.number, "a lone surrogate in a field's name, or in a value with fixed choices") from None


def _is_deep(value: object, levels: int = _DEEPEST) -> bool:
    if is_object(value):
        value = [*value.values()]
    return is_array(value) and (levels == 0 or any(_is_deep(inner, levels - 1) for inner in value))


def read(source: Path | Iterable[str | bytes]) -> Recording:
    """Read a recording from a file, or from lines with or without their line ends; empty lines are skipped.

    Raises:
        RecordingError: The recording is invalid.
        OSError: The file cannot be read.
    """
    lines = source.read_bytes().splitlines() if isinstance(source, Path) else source
    rest = (_RecordedLine.parse(number, line) for number, line in enumerate(lines, 1) if line.strip())
    line = next(rest, _RecordedLine(1, {}))
    if "interlock_recording" not in line.fields:
        raise RecordingError(line.number, "not a recording: its first line has no interlock_recording")
    if line.fields["interlock_recording"] != FORMAT_VERSION:
        raise RecordingError(line.number, f"not version {FORMAT_VERSION} of the format, the only known one")
    header = line.read_as(_RecordedHeader)
    return Recording(_format(header, line.number), header.request or {}, tuple(_turns(rest)))


def _format(header: _RecordedHeader, number: int) -> Format:
    tagged = Tagged(header.tool_parser, header.reasoning_parser, header.starts, special=header.special or {})
    if header.format != "tagged":
        if tagged != Tagged():
            raise RecordingError(number, f"the format {header.format} has no tool_parser, reasoning_parser, starts or special")
        return header.format
    from interlock.parsers.families import family  # noqa: PLC0415 - only this format needs it

    try:
        family(tagged.tool_parser, tagged.reasoning_parser)
    except ValueError as error:
        raise RecordingError(number, str(error)) from None
    return tagged


def _turns(lines: Iterable[_RecordedLine]) -> Iterator[RecordedTurn]:
    outputs: list[EngineOutput] = []
    results: list[ToolResult] = []
    for line in lines:
        if line.fields.get("tool_result") is not None:
            if not outputs:
                raise RecordingError(line.number, "a tool_result without a turn before it")
            result = line.read_as(_RecordedToolResult).tool_result
            results.append(ToolResult(result.output or "", result.error))
            continue
        if results or (outputs and outputs[-1].finish_reason):
            yield RecordedTurn(tuple(outputs), tuple(results))
            outputs, results = [], []
        outputs.append(_output(line))
    if outputs:
        yield RecordedTurn(tuple(outputs), tuple(results))


def _output(line: _RecordedLine) -> EngineOutput:
    fields = line.read_as(_RecordedChunk)
    ids, logprobs, usage = fields.token_ids or (), fields.logprobs, fields.usage or _RecordedUsage()
    if ids and logprobs is not None and len(ids) != len(logprobs):
        raise RecordingError(line.number, f"{len(logprobs)} logprobs for {len(ids)} token_ids")
    chunk = Chunk(ids, fields.text, logprobs, line.fields.get("delta"))
    counts = (usage.input_tokens or 0, usage.cached_tokens or 0, usage.cache_write_tokens or 0)
    return EngineOutput(chunk, fields.finish_reason, *counts, stop_sequence=fields.stop_sequence)


def write(recording: Recording) -> Iterator[str]:
    """Yield the lines of a recording, each with its line end."""
    tagged = asdict(recording.format) if isinstance(recording.format, Tagged) else {}
    fields = {name: value for name, value in tagged.items() if value}
    header = {"interlock_recording": FORMAT_VERSION, "format": str(recording.format), **fields}
    yield _json({**header, "request": dict(recording.request)})
    for turn in recording.turns:
        for output in turn.outputs:
            yield _json(_chunk_fields(output))
        for result in turn.results:
            yield _json({"tool_result": asdict(result)})


def _chunk_fields(output: EngineOutput) -> dict[str, object]:
    chunk = output.chunk
    usage = {name: getattr(output, name) for name in _RecordedUsage.__struct_fields__}
    values = {
        "token_ids": list(chunk.token_ids),
        "text": chunk.text,
        "delta": chunk.delta,
        "finish_reason": output.finish_reason,
        "stop_sequence": output.stop_sequence,
        "usage": {name: count for name, count in usage.items() if count},
    }
    fields = {name: value for name, value in values.items() if value or (name == "text" and value == "" and chunk.token_ids)}
    return fields if chunk.logprobs is None else {**fields, "logprobs": list(chunk.logprobs)}


def _json(fields: Mapping[str, object]) -> str:
    # Escapes keep lone surrogates, which UTF-8 cannot encode.
    return json.dumps(fields, separators=(", ", ": ")) + "\n"


def rechunk(recording: Recording, size: int) -> Recording:
    """Return the same recording in chunks of `size` tokens, or characters where there are no tokens.

    A turn's chunks are merged and divided, by token if it has tokens or log probabilities. Parsed deltas are never merged,
    because only their parser knows how; a delta with one string and without log probabilities is divided.

    Raises:
        ValueError: The size is less than 1.
    """
    if size < 1:
        raise ValueError("the size must be at least 1")
    turns: list[RecordedTurn] = []
    for turn in recording.turns:
        usage = _usage(turn)
        chunks = _chunks(turn, size) or [Chunk()]
        counts = (usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens)
        outputs = [EngineOutput(chunk, None, *counts) for chunk in chunks]
        outputs[-1].finish_reason = turn.finish_reason
        outputs[-1].stop_sequence = turn.outputs[-1].stop_sequence if turn.outputs else None
        turns.append(evolve(turn, outputs=tuple(outputs)))
    return evolve(recording, turns=tuple(turns))


def _chunks(turn: RecordedTurn, size: int) -> list[Chunk]:
    """Return a turn's chunks, merged and divided; a chunk with log probabilities never merges with one without."""
    chunks: list[Chunk] = []
    for (is_delta, has_logprobs), group in groupby(
        (output.chunk for output in turn.outputs), key=lambda chunk: (chunk.delta is not None, chunk.logprobs is not None)
    ):
        if not is_delta:
            chunks += _divide([*group], size)
        elif has_logprobs:
            chunks += group
        else:
            chunks += (part for chunk in group for part in _divide_delta(chunk, size))
    return chunks


def _divide(chunks: Sequence[Chunk], size: int) -> Iterator[Chunk]:
    text = "".join(chunk.text or "" for chunk in chunks)
    has_text = any(chunk.text is not None for chunk in chunks)
    ids = [token for chunk in chunks for token in chunk.token_ids]
    logprobs = [entry for chunk in chunks for entry in chunk.logprobs or ()]
    tokens = [str(entry.get("token", "")) for entry in logprobs]
    texts = tokens if "".join(tokens) == text else text
    for start in range(0, max(len(ids), len(logprobs), len(texts)), size):
        part = slice(start, start + size)
        spoken = "".join(texts[part]) if has_text else None
        yield Chunk(tuple(ids[part]), spoken, None if chunks[0].logprobs is None else tuple(logprobs[part]))


def _divide_delta(chunk: Chunk, size: int) -> list[Chunk]:
    """Divide a delta with one string, whose tokens stay with the first part; several strings share tokens and stay together."""
    delta = members(chunk.delta)
    texts = [name for name in ("reasoning", "content") if delta.get(name)]
    calls = [members(call) for call in elements(delta.get("tool_calls"))]
    if len(texts) + len(calls) != 1:
        return [chunk]
    if texts:
        parts: list[object] = [{texts[0]: text} for text in _slices(as_text(delta[texts[0]]), size)]
    else:
        call = calls[0]
        function = members(call.get("function"))
        first, *rest = _slices(as_text(function.get("arguments")), size) or [""]
        parts = [{"tool_calls": [{**call, "function": {**function, "arguments": first}}]}]
        parts += ({"tool_calls": [{"index": call.get("index", 0), "function": {"arguments": text}}]} for text in rest)
    return [Chunk(() if place else chunk.token_ids, delta=part) for place, part in enumerate(parts)]


def _slices(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@frozen
class ReplayStep:
    """The deltas of one step of a replay, and their source: an engine's output, a tool's result or the end of a turn."""

    deltas: Sequence[Delta]
    output: EngineOutput | None = None
    result: ToolResult | None = None
    ends_turn: FinishReason | None = None


def replay_frames(recording: Recording, dialect: Dialect = OPENAI) -> Iterator[bytes]:
    """Yield the stream as a client would receive it, frame by frame, with `data: [DONE]`; it is the same every time."""
    for _, frames in replay_steps(recording, SseWriter(dialect)):
        yield from frames
    yield DONE_FRAME


def replay_events(recording: Recording) -> Iterator[StreamEvent]:
    """Yield the stream's events as objects."""
    for _, events in replay_steps(recording, EventWriter()):
        yield from events


def replay_response(recording: Recording) -> Mapping[str, object]:
    """Return the response that a client would receive without streaming: that of the last event (rule R19)."""
    *_, last = replay_events(recording)
    return members(members(as_json(last)).get("response"))


def replay_steps(recording: Recording, writer: Writer[T]) -> Iterator[tuple[ReplayStep, Sequence[T]]]:
    """Yield the steps of a replay, each with its events as `writer` writes them."""
    settings = response_settings(recording.request)
    driver = ResponseDriver(settings, writer=writer, ids=SequentialIds(), clock=lambda: EPOCH)

    def fed(step: ReplayStep) -> tuple[ReplayStep, Sequence[T]]:
        return step, driver.feed(step.deltas)

    parser = parser_for(recording.format, recording.request)
    yield fed(ReplayStep([Start()]))
    for turn in recording.turns:
        for output in turn.outputs:
            yield fed(ReplayStep(parser.feed(output.chunk), output=output))
        yield fed(ReplayStep(parser.end(turn.finish_reason, _usage(turn)), ends_turn=turn.finish_reason))
        for call, result in zip(driver.ready, turn.results, strict=False):
            yield fed(ReplayStep(tool_deltas(call, result), result=result))
    yield fed(ReplayStep([Finish()]))


def _usage(turn: RecordedTurn) -> Usage:
    """Return the token counts of a turn's prompt: the largest in any of its outputs."""
    return Usage(
        input_tokens=max((output.input_tokens for output in turn.outputs), default=0),
        cached_tokens=max((output.cached_tokens for output in turn.outputs), default=0),
        cache_write_tokens=max((output.cache_write_tokens for output in turn.outputs), default=0),
    )


def tool_deltas(call: ReadyCall, result: ToolResult) -> list[Delta]:
    """Return the deltas of a call whose tool returned this result."""
    if result.error is not None:
        return [Run(call.id), Fail(call.id, result.error)]
    fields = result_fields(call.kind, result.output) or action_fields(members(call.fields.get("action")), result.output)
    return [Run(call.id), Succeed(call.id, fields)]
