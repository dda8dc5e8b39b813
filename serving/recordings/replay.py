"""Replaying a recording: the same bytes every time, without a model, a tool or a clock.

It runs what was recorded through a parser and a driver, as a server does what an engine yields, and knows nothing of
how the recording was made or where the result goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from interlock.events.dialects import OPENAI, Dialect
from interlock.events.items import result_fields
from interlock.events.resource import response_settings
from interlock.events.sse import DONE_FRAME, Event, EventWriter, SseWriter, Writer
from interlock.fsm.deltas import Delta, Fail, Finish, Run, Start, Succeed, Usage
from interlock.fsm.driver import ReadyCall, ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.parsers import parser_for
from interlock.parsers.chunk import Parser
from interlock.serving.recordings.recording import RecordedTurn, Recording, ToolResult

T = TypeVar("T")

EPOCH: Final = 1_735_689_600
"""The time that it always is in a replay: the beginning of 2025."""


def replay_frames(recording: Recording, dialect: Dialect = OPENAI) -> Iterator[bytes]:
    """Give the stream as a client would have seen it, frame by frame, `data: [DONE]` included.

    Args:
        recording: What to replay.
        dialect: What is spoken.
    """
    yield from _run(recording, _driver(recording, SseWriter(dialect)))
    yield DONE_FRAME


def replay_events(recording: Recording) -> Iterator[Event]:
    """Give the stream's events as objects."""
    return _run(recording, _driver(recording, EventWriter()))


def replay_response(recording: Recording) -> Mapping[str, object]:
    """Give the response that a client would have got without streaming (rule R19)."""
    driver = _driver(recording, EventWriter())
    for _ in _run(recording, driver):
        pass
    return driver.response


def _driver(recording: Recording, writer: Writer[T]) -> ResponseDriver[T]:
    settings = response_settings(recording.request)
    return ResponseDriver(settings, writer=writer, ids=SequentialIds(), clock=lambda: EPOCH)


def _run(recording: Recording, driver: ResponseDriver[T]) -> Iterator[T]:
    parser = parser_for(recording.format, recording.request)
    yield from driver.feed([Start()])
    for turn in recording.turns:
        yield from _model(turn, parser, driver)
        for call, result in zip(driver.ready, turn.results, strict=False):
            yield from driver.feed(tool_deltas(call, result))
    yield from driver.feed([Finish()])


def _model(turn: RecordedTurn, parser: Parser, driver: ResponseDriver[T]) -> Iterator[T]:
    for output in turn.outputs:
        yield from driver.feed(parser.feed(output.chunk))
    usage = Usage(
        input_tokens=max((output.input_tokens for output in turn.outputs), default=0),
        cached_tokens=max((output.cached_tokens for output in turn.outputs), default=0),
    )
    yield from driver.feed(parser.end(turn.finish_reason, usage))


def tool_deltas(call: ReadyCall, result: ToolResult) -> list[Delta]:
    """Give what a tool that had this result tells of a call: that it was started, and how it ended."""
    if result.error is not None:
        return [Run(call.id), Fail(call.id, result.error)]
    return [Run(call.id), Succeed(call.id, result_fields(call.kind, result.output))]
