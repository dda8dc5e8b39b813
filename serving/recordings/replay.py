"""Replaying a recording: the same bytes every time, without a model, a tool or a clock.

It runs what was recorded through a parser and a driver, as a server does what an engine yields, and knows nothing of
how the recording was made or where the result goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

from attrs import frozen

from interlock.events.dialects import OPENAI, Dialect
from interlock.events.items import result_fields
from interlock.events.resource import response_settings
from interlock.events.sse import DONE_FRAME, EventWriter, SseWriter, Writer
from interlock.events.stream import StreamEvent
from interlock.fsm.deltas import Delta, Fail, Finish, FinishReason, Run, Start, Succeed, Usage
from interlock.fsm.driver import ReadyCall, ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.parsers import parser_for
from interlock.parsers.chunk import Parser
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.recordings.recording import RecordedTurn, Recording, ToolResult

T = TypeVar("T")

EPOCH: Final = 1_735_689_600
"""The time that it always is in a replay: the beginning of 2025."""


@frozen
class Step:
    """What happened at once in a replay.

    Args:
        deltas: The deltas that the driver is fed.
        output: What the engine yielded; None if it was not the engine.
        result: What a tool gave; None if it was not a tool.
        ends_turn: Why the model's turn ended; None if it did not end.
    """

    deltas: Sequence[Delta]
    output: EngineOutput | None = None
    result: ToolResult | None = None
    ends_turn: FinishReason | None = None


def replay_frames(recording: Recording, dialect: Dialect = OPENAI) -> Iterator[bytes]:
    """Yield the stream as a client would have seen it, frame by frame, `data: [DONE]` included.

    Args:
        recording: What to replay.
        dialect: What is spoken.
    """
    yield from _run(recording, _driver(recording, SseWriter(dialect)))
    yield DONE_FRAME


def replay_events(recording: Recording) -> Iterator[StreamEvent]:
    """Return the stream's events as objects."""
    return _run(recording, _driver(recording, EventWriter()))


def replay_response(recording: Recording) -> Mapping[str, object]:
    """Return the response that a client would have got without streaming (rule R19)."""
    driver = _driver(recording, EventWriter())
    for _ in _run(recording, driver):
        pass
    return driver.response


def _driver(recording: Recording, writer: Writer[T]) -> ResponseDriver[T]:
    settings = response_settings(recording.request)
    return ResponseDriver(settings, writer=writer, ids=SequentialIds(), clock=lambda: EPOCH)


def replay_steps(recording: Recording, dialect: Dialect = OPENAI) -> Iterator[tuple[Step, Sequence[bytes]]]:
    """Yield what happened, step by step, each with the frames that a client would have seen of it.

    Args:
        recording: What to replay.
        dialect: What is spoken.
    """
    driver = _driver(recording, SseWriter(dialect))
    for step in _steps(recording, driver):
        yield step, driver.feed(step.deltas)


def _run(recording: Recording, driver: ResponseDriver[T]) -> Iterator[T]:
    for step in _steps(recording, driver):
        yield from driver.feed(step.deltas)


def _steps(recording: Recording, driver: ResponseDriver[T]) -> Iterator[Step]:
    """Yield what happens; the driver is to be fed before the next step is asked for."""
    parser = parser_for(recording.format, recording.request)
    yield Step([Start()])
    for turn in recording.turns:
        yield from _model(turn, parser)
        for call, result in zip(driver.ready, turn.results, strict=False):
            yield Step(tool_deltas(call, result), result=result)
    yield Step([Finish()])


def _model(turn: RecordedTurn, parser: Parser) -> Iterator[Step]:
    for output in turn.outputs:
        yield Step(parser.feed(output.chunk), output=output)
    usage = Usage(
        input_tokens=max((output.input_tokens for output in turn.outputs), default=0),
        cached_tokens=max((output.cached_tokens for output in turn.outputs), default=0),
    )
    yield Step(parser.end(turn.finish_reason, usage), ends_turn=turn.finish_reason)


def tool_deltas(call: ReadyCall, result: ToolResult) -> list[Delta]:
    """Return what a tool that had this result tells of a call: that it was started, and how it ended."""
    if result.error is not None:
        return [Run(call.id), Fail(call.id, result.error)]
    return [Run(call.id), Succeed(call.id, result_fields(call.kind, result.output))]
