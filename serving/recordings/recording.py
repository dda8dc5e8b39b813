"""Recordings: what an engine yielded for one request, turn by turn, as JSON lines that can be read, written and re-cut.

It knows the file format and nothing of what the tokens mean; `interlock.serving.recordings.replay` runs one through the machines.
The first line is the header, then come chunks, and after each turn the results of the tools that it called:

```json
{"interlock_recording": 1, "format": "harmony", "request": {"model": "gpt-oss-20b", "input": "What is 2 + 2?"}}
{"token_ids": [200005, 35644], "finish_reason": null, "usage": {"input_tokens": 70, "cached_tokens": 64}}
{"token_ids": [200012], "finish_reason": "stop"}
{"tool_result": {"output": "4", "error": null}}
```

The format `tagged` is the text of a model with its markers: the header then names the family as `tool_parser` and
`reasoning_parser`, each by the name of vLLM's flag, and a chunk has its `text`.

A turn ends with the chunk that has a `finish_reason`, before a tool's result, and at the end of the file; without a
reason it stopped by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar, cast, get_args

from attrs import asdict, field, frozen

from interlock.events.json import loads
from interlock.fsm.acceptor.values import shown
from interlock.fsm.deltas import FinishReason
from interlock.fsm.errors import InterlockError
from interlock.parsers import Chunk, Format, FormatName, Tagged
from interlock.serving.engines.engine import EngineOutput

T = TypeVar("T")

VERSION: Final = 1  # of the format
_DEEPEST: Final = 200

# JSON's types as Python has them, and in words.
_OBJECT: Final[type[dict[str, object]]] = dict
_LIST: Final[type[list[object]]] = list
_WORDS: Final[Mapping[type, str]] = {str: "a string", int: "an integer", list: "a list", dict: "an object"}

_CHUNK_FIELDS: Final = frozenset({"token_ids", "text", "logprobs", "delta", "finish_reason", "usage"})


class RecordingError(InterlockError):
    """A recording that cannot be read, with the place where.

    Args:
        line: The number of the line, from 1.
        message: What is wrong there.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(line, message)
        self.line = line
        self.message = message

    def __str__(self) -> str:
        """Name the line, then what is wrong with it."""
        return f"line {self.line}: {self.message}"


@frozen
class ToolResult:
    """What the tool of a hosted call gave.

    Args:
        output: Its output as plain text.
        error: Why it failed, or None if it succeeded.
    """

    output: str = ""
    error: str | None = None


@frozen
class RecordedTurn:
    """One turn of the model, and the results of the tools that it called, in the order of the calls.

    Args:
        outputs: What the engine yielded; only the last one may have a finish reason.
        results: Empty for a turn that called no hosted tool.
    """

    outputs: tuple[EngineOutput, ...] = ()
    results: tuple[ToolResult, ...] = ()

    @property
    def finish_reason(self) -> FinishReason:
        """Why the turn ended; a turn that does not say so stopped by itself."""
        return (self.outputs[-1].finish_reason if self.outputs else None) or "stop"


@frozen
class Recording:
    """A request and what an engine yielded for it.

    Args:
        format: The form of the chunks.
        request: The body of `POST /v1/responses`.
        turns: In order; a response without tool rounds has one.
    """

    format: Format
    request: Mapping[str, object] = field(factory=dict[str, object])
    turns: tuple[RecordedTurn, ...] = ()


def read(source: Path | Iterable[str | bytes]) -> Recording:
    """Read a recording from a file, or from lines.

    Args:
        source: The file, or its lines, with or without their line ends; empty ones are passed over.

    Raises:
        RecordingError: If it is not a recording, or not a whole one.
        OSError: If the file cannot be read.
    """
    lines = source.read_bytes().splitlines() if isinstance(source, Path) else source
    rest = (_Line.parse(number, line) for number, line in enumerate(lines, 1) if line.strip())
    header = next(rest, _Line(1, {}))
    if "interlock_recording" not in header.fields:
        raise RecordingError(header.number, "no recording: its first line has no interlock_recording")
    if header.fields["interlock_recording"] != VERSION:
        raise RecordingError(header.number, f"the version of the format is not {VERSION}")
    return Recording(
        format=_format(header),
        request=header.get("request", _OBJECT, {}),
        turns=tuple(_turns(rest)),
    )


def write(recording: Recording) -> Iterator[str]:
    """Yield the lines of a recording, each with its line end; `read` gives the same recording back."""
    named = recording.format if isinstance(recording.format, Tagged) else None
    parsers = {} if named is None else {name: said for name, said in asdict(named).items() if said is not None}
    header = {"interlock_recording": VERSION, "format": str(recording.format), **parsers}
    yield _json({**header, "request": dict(recording.request)})
    for turn in recording.turns:
        for output in turn.outputs:
            yield _json(_chunk_fields(output))
        for result in turn.results:
            yield _json({"tool_result": {"output": result.output, "error": result.error}})


def _format(header: _Line) -> Format:
    """Return the format that a header names; only text with markers has a family."""
    name = header.one_of("format", get_args(FormatName))
    parsers = ("tool_parser", "reasoning_parser") if name == "tagged" else ()
    header.allow({"interlock_recording", "format", "request", *parsers})
    if name != "tagged":
        return cast("Format", name)
    from interlock.parsers.families import family  # noqa: PLC0415 - for recordings of this format alone

    tagged = Tagged(*map(header.string, parsers))
    try:
        family(tagged.tool_parser, tagged.reasoning_parser)
    except ValueError as error:
        raise RecordingError(header.number, str(error)) from None
    return tagged


@frozen
class _Line:
    """One line, parsed, that knows its number for what it has to complain about."""

    number: int
    fields: Mapping[str, object]

    @classmethod
    def parse(cls, number: int, line: str | bytes) -> _Line:
        try:
            fields: object = loads(line)
        except (ValueError, RecursionError) as error:
            raise RecordingError(number, f"not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise RecordingError(number, "not a JSON object")
        if _is_deep(cast("dict[str, object]", fields)):
            raise RecordingError(number, f"nested more than {_DEEPEST} levels deep")
        return cls(number, cast("dict[str, object]", fields))

    def within(self, name: str) -> _Line | None:
        """Return the object in a field, or None if it is missing."""
        return _Line(self.number, self.get(name, _OBJECT, {})) if self.fields.get(name) is not None else None

    def string(self, name: str) -> str | None:
        return self.get(name, str, "") if self.fields.get(name) is not None else None

    def allow(self, names: Iterable[str]) -> None:
        if unknown := sorted(self.fields.keys() - set(names)):
            raise RecordingError(self.number, f"unknown field: {', '.join(unknown)}")

    def get(self, name: str, kind: type[T], default: T) -> T:
        value = self.fields.get(name)
        if value is None:
            return default
        # In JSON true is no number, in Python it is.
        if not isinstance(value, kind) or isinstance(value, bool):
            raise RecordingError(self.number, f"{name} has to be {_WORDS[kind]}")
        return value

    def one_of(self, name: str, values: Sequence[str]) -> str:
        value = self.fields.get(name)
        if value not in values:
            raise RecordingError(self.number, f"{name} has to be one of {', '.join(values)}")
        return cast("str", value)

    def count(self, name: str) -> int:
        value = self.get(name, int, 0)
        if value < 0:
            raise RecordingError(self.number, f"{name} is negative")
        return value

    def objects(self, name: str) -> list[Mapping[str, object]]:
        values = self.get(name, _LIST, [])
        if not all(isinstance(value, dict) for value in values):
            raise RecordingError(self.number, f"{name} has to be a list of objects")
        return cast("list[Mapping[str, object]]", values)


def _is_deep(fields: Mapping[str, object]) -> bool:
    """Return whether values are nested too deep to be written again in a response."""
    level: list[object] = [fields]
    for _ in range(_DEEPEST):
        level = [inner for value in level for inner in _within(value)]
    return bool(level)


def _within(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _turns(lines: Iterable[_Line]) -> Iterator[RecordedTurn]:
    outputs: list[EngineOutput] = []
    results: list[ToolResult] = []
    for line in lines:
        if (result := line.within("tool_result")) is not None:
            if not outputs:
                raise RecordingError(line.number, "a tool_result without a turn before it")
            line.allow({"tool_result"})
            results.append(_tool_result(result))
            continue
        if results or (outputs and outputs[-1].finish_reason):
            yield RecordedTurn(tuple(outputs), tuple(results))
            outputs, results = [], []
        outputs.append(_output(line))
    if outputs:
        yield RecordedTurn(tuple(outputs), tuple(results))


def _tool_result(line: _Line) -> ToolResult:
    line.allow({"output", "error"})
    return ToolResult(line.get("output", str, ""), line.string("error"))


def _output(line: _Line) -> EngineOutput:
    line.allow(_CHUNK_FIELDS)
    usage = line.within("usage") or _Line(line.number, {})
    usage.allow({"input_tokens", "cached_tokens"})
    reason = line.one_of("finish_reason", get_args(FinishReason)) if line.fields.get("finish_reason") is not None else None
    return EngineOutput(
        chunk=Chunk(
            token_ids=_token_ids(line),
            text=line.get("text", str, ""),
            logprobs=_logprobs(line),
            delta=_delta(line),
        ),
        finish_reason=cast("FinishReason | None", reason),
        input_tokens=usage.count("input_tokens"),
        cached_tokens=usage.count("cached_tokens"),
    )


def _token_ids(line: _Line) -> tuple[int, ...]:
    ids = line.get("token_ids", _LIST, [])
    for value in ids:
        # Any integer: an id that no vocabulary has is what an engine yielded too, and the parser's to recover from.
        if not isinstance(value, int) or isinstance(value, bool):
            raise RecordingError(line.number, f"token_ids has {shown(value)}, which is no token id")
    return tuple(cast("list[int]", ids))


def _logprobs(line: _Line) -> tuple[Mapping[str, object], ...] | None:
    if line.fields.get("logprobs") is None:
        return None
    logprobs = line.objects("logprobs")
    ids = line.get("token_ids", _LIST, [])
    tokens = len(ids or logprobs)
    if tokens != len(logprobs):
        raise RecordingError(line.number, f"logprobs of {len(logprobs)} tokens beside {tokens} token_ids")
    return tuple(logprobs)


def _delta(line: _Line) -> Mapping[str, object] | None:
    """Check a delta against the shape of vLLM's `DeltaMessage`."""
    delta = line.within("delta")
    if delta is None:
        return None
    delta.allow({"role", "reasoning", "content", "tool_calls"})
    for name in ("role", "reasoning", "content"):
        delta.string(name)
    for fields in delta.objects("tool_calls"):
        call = _Line(line.number, fields)
        call.allow({"index", "id", "type", "function"})
        call.count("index")
        function = call.within("function") or _Line(line.number, {})
        function.allow({"name", "arguments"})
        for place, name in ((call, "id"), (call, "type"), (function, "name"), (function, "arguments")):
            place.string(name)
    return delta.fields


def _chunk_fields(output: EngineOutput) -> dict[str, object]:
    chunk = output.chunk
    usage = {"input_tokens": output.input_tokens, "cached_tokens": output.cached_tokens}
    fields = {
        "token_ids": list(chunk.token_ids),
        "text": chunk.text,
        "delta": chunk.delta,
        "finish_reason": output.finish_reason,
        "usage": {name: count for name, count in usage.items() if count},
    }
    given = {name: value for name, value in fields.items() if value}
    return given if chunk.logprobs is None else {**given, "logprobs": list(chunk.logprobs)}


def _json(fields: Mapping[str, object]) -> str:
    # Escapes keep lone surrogates, which UTF-8 has no bytes for.
    return json.dumps(fields, separators=(", ", ": ")) + "\n"
