"""A response ends legally after a fault at any step of its run (rule R4).

The run has reasoning, a preamble, two hosted calls of which one fails, another turn, and an answer.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from attrs import define, field
from for_each import for_each
from live.engines import ANSWER, HOSTED_CALL, REASONING, Gate, ScriptedTools, StagedEngine, step
from one_run import begin_response

from interlock.events.json import as_json
from interlock.events.sse import EventWriter
from interlock.fsm.deltas import Cancel, Fail, Fault, Run, Succeed
from interlock.fsm.driver import SequentialIds
from interlock.parsers.chunk import Chunk
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.requests.api_errors import EngineError
from interlock.serving.requests.create import read_request
from interlock.serving.responses.run import RequestContext
from interlock.serving.responses.sealing import SealingKeys, Seals
from interlock.verify.oracle import check

PREAMBLE = "<|channel|>commentary<|message|>I ask.<|end|><|start|>assistant"


class PanicException(BaseException):
    """Stands in for a panic in Rust, which is not an `Exception`."""


BROKEN = [EngineError("It broke."), RuntimeError("a secret"), PanicException("a secret")]
STRAY = [asyncio.CancelledError(), GeneratorExit(), BaseExceptionGroup("several", [PanicException("a secret")])]
DEADLY = [KeyboardInterrupt(), SystemExit(3), BaseExceptionGroup("several", [KeyboardInterrupt()])]


def pieces(text):
    """Give a turn in steps of two words or so, and its end."""
    words = text.replace("<|", " <|").split(" ")
    joined = [" ".join(words[place : place + 2]).strip() for place in range(0, len(words), 2)]
    return [*(step(piece) for piece in joined if piece), EngineOutput(Chunk(), "stop")]


FIRST = pieces(f"{REASONING}{PREAMBLE}{HOSTED_CALL}<|call|><|start|>assistant{HOSTED_CALL}<|call|>")
SECOND = pieces(f"{REASONING}{ANSWER}<|return|>")
STEPS = [(turn, place) for turn, script in enumerate([FIRST, SECOND]) for place in range(len(script))]


ENDED = {"length": "incomplete", "content_filter": "incomplete", "abort": "cancelled", "error": "failed"}


def deltas_of(call):
    """The first call succeeds and the second fails."""
    yield Run(call.id)
    yield Succeed(call.id, {"output": "42"}) if call.id == "mcp_1" else Fail(call.id, "no")


@define
class FaultyParser:
    """Delegates to another parser, and raises after the last of its calls."""

    parser: object
    last: int
    error: BaseException
    calls: int = field(default=0)

    def _tick(self):
        self.calls += 1
        if self.calls > self.last:
            raise self.error

    def feed(self, chunk):
        self._tick()
        return self.parser.feed(chunk)

    def end(self, reason, usage):
        self._tick()
        return self.parser.end(reason, usage)


class WrappingEngine(StagedEngine):
    """An engine whose parsers can be replaced."""

    def wrap(self, parser):
        return parser

    async def begin(self, *arguments):
        begun = await super().begin(*arguments)
        begun.parser = self.wrap(begun.parser)
        return begun


def begin(first=FIRST, second=SECOND, tell: Callable = deltas_of, summary=None):
    """Return a run of two turns and its engine; with a summary, the conversation is compacted first."""
    managed = {} if summary is None else {"context_management": [{"type": "compaction", "compact_threshold": 1}]}
    request = read_request({"model": "staged", "input": "Hi", **managed})
    engine = WrappingEngine(*([] if summary is None else [summary]), first, second)
    run = begin_response(
        RequestContext(request, request.input, seals=SEALS),
        engine,
        EventWriter(),
        tools=ScriptedTools(tell),
        ids=SequentialIds(),
        clock=lambda: 0,
    )
    return run, engine


SUMMARY = pieces(f"{REASONING}<|channel|>final<|message|>They have met.<|return|>")
SEALS = Seals(SealingKeys.random(), "staged")


async def collected(run):
    return [as_json(event) async for events in run.events() for event in events]


def run_to_end(run):
    """Run to the end, check that the stream is legal, and return the response."""
    events = asyncio.run(collected(run))
    assert check(events) == []
    assert run.driver.response == events[-1]["response"]
    return events[-1]["response"]


def count_deliveries(summary=None):
    """The number of deliveries of an uninterrupted run."""

    async def count():
        run, _ = begin(summary=summary)
        return len([events async for events in run.events()])

    return asyncio.run(count())


DELIVERIES = range(count_deliveries())
EARLY = range(count_deliveries(SUMMARY) - len(DELIVERIES) + 2)
"""The deliveries of a run until its conversation is compacted, and one more."""


def test_a_run_without_faults_completes():
    run, _ = begin()
    response = run_to_end(run)
    assert [(item["type"], item.get("status")) for item in response["output"]] == [
        ("reasoning", "completed"),
        ("message", "completed"),
        ("mcp_call", "completed"),
        ("mcp_call", "failed"),
        ("reasoning", "completed"),
        ("message", "completed"),
    ]
    assert response["status"] == "completed"


@for_each("error", BROKEN, ids=lambda error: type(error).__name__)
@for_each(("turn", "place"), STEPS)
def test_an_engine_error_fails_the_response(turn, place, error):
    scripts = [[*FIRST], [*SECOND]]
    scripts[turn][place:] = [error]
    run, engine = begin(*scripts)
    response = run_to_end(run)
    assert (response["status"], "a secret" in str(response)) == ("failed", False)
    assert engine.closed.is_set()


@pytest.mark.parametrize("error", BROKEN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", range(len(SUMMARY)))
def test_an_engine_error_during_a_summary_fails_the_response(place, error):
    run, engine = begin(summary=[*SUMMARY[:place], error])
    response = run_to_end(run)
    assert (response["status"], "a secret" in str(response)) == ("failed", False)
    assert [(item["type"], item["encrypted_content"]) for item in response["output"]] == [("compaction", "")]
    assert engine.closed.is_set()
    assert len(engine.turns) == 1


@pytest.mark.parametrize("reason", ["length", "content_filter", "abort", "error"])
def test_an_unfinished_summary_fails_the_response(reason):
    run, _ = begin(summary=[*SUMMARY[:-1], EngineOutput(Chunk(), reason)])
    response = run_to_end(run)
    assert (response["status"], response["usage"]["output_tokens"] > 0) == ("failed", True)


@for_each("ending", [Cancel(), Fault("server_error", "The server is shutting down.")], ids=["cancel", "fault"])
@for_each("delivery", EARLY)
def test_an_interruption_during_compaction_ends_the_response(delivery, ending):
    async def interrupted():
        run, engine = begin(summary=SUMMARY)
        events = []
        async for place, batch in enumerated(run.events()):
            if place == delivery:
                run.control.interrupt(ending)
            events.extend(as_json(event) for event in batch)
        return events, engine

    events, engine = asyncio.run(interrupted())
    assert check(events) == []
    assert events[-1]["response"]["status"] == ("cancelled" if isinstance(ending, Cancel) else "failed")
    assert engine.closed.is_set() or not engine.turns


async def enumerated(values):
    place = 0
    async for value in values:
        yield place, value
        place += 1


@pytest.mark.parametrize("error", STRAY, ids=lambda error: type(error).__name__)
def test_a_stray_base_exception_is_a_fault(error):
    run, engine = begin([*FIRST[:4], error])
    assert run_to_end(run)["status"] == "failed"
    assert engine.closed.is_set()


@pytest.mark.parametrize("error", DEADLY, ids=repr)
def test_an_exit_exception_is_raised_again_after_the_response_has_ended(error):
    async def read():
        run, engine = begin([*FIRST[:4], error])
        events, raised = [], None
        try:
            async for batch in run.events():
                events.extend(as_json(event) for event in batch)
        except BaseException as caught:  # noqa: BLE001
            raised = caught
        return events, raised, engine

    events, raised, engine = asyncio.run(read())
    assert check(events) == []
    assert (events[-1]["type"], raised) == ("response.failed", error)
    assert engine.closed.is_set()


@pytest.mark.parametrize("delivery", range(4))
def test_a_task_cancelled_from_outside_stays_cancelled_and_its_run_can_be_concluded(delivery):
    async def cancelled():
        run, _ = begin([*FIRST[:4], Gate()])
        events = []

        async def read():
            async for batch in run.events():
                events.extend(batch)
                if len(events) > delivery:
                    await asyncio.sleep(0)

        task = asyncio.create_task(read())
        while len(events) <= delivery:  # noqa: ASYNC110 - so many events, and no more
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        events.extend(run.run.conclude())
        return task.cancelled(), [as_json(event) for event in events], run.run.conclude()

    was_cancelled, events, rest = asyncio.run(cancelled())
    assert (was_cancelled, check(events), events[-1]["type"], rest) == (True, [], "response.failed", [])


@for_each(("turn", "place"), STEPS)
def test_an_engine_that_stops_without_a_reason_fails_the_response(turn, place):
    scripts = [[*FIRST], [*SECOND]]
    del scripts[turn][place:]
    run, _ = begin(*scripts)
    assert run_to_end(run)["status"] == "failed"


@for_each("reason", ENDED)
@for_each(("turn", "place"), STEPS)
def test_the_finish_reason_of_a_turn_sets_the_status(turn, place, reason):
    scripts = [[*FIRST], [*SECOND]]
    scripts[turn][place:] = [EngineOutput(Chunk(), reason)]
    run, _ = begin(*scripts)
    assert run_to_end(run)["status"] == ENDED[reason]


@pytest.mark.parametrize("error", BROKEN[1:], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("calls", range(len(FIRST) + len(SECOND)))
def test_a_parser_error_fails_the_response(calls, error):
    run, engine = begin()
    engine.wrap = partial(FaultyParser, last=calls, error=error)
    response = run_to_end(run)
    assert (response["status"], "a secret" in str(response)) == ("failed", False)
    assert engine.closed.is_set()


@pytest.mark.parametrize("error", BROKEN[1:], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("broken", ["mcp_1", "mcp_2"])
def test_a_tool_error_fails_the_response(broken, place, error):
    def tell(call):
        deltas = [*deltas_of(call)]
        yield from [*deltas[:place], error] if call.id == broken else deltas

    run, _ = begin(tell=tell)
    response = run_to_end(run)
    assert (response["status"], "a secret" in str(response)) == ("failed", False)


@for_each(("ending", "status"), [(Cancel(), "cancelled"), (Fault("server_error", "The server is shutting down."), "failed")])
@for_each("delivery", DELIVERIES)
def test_an_interruption_at_any_delivery_ends_the_response(delivery, ending, status):
    async def interrupted():
        run, _ = begin()
        deliveries = []
        async for batch in run.events():
            if len(deliveries) == delivery:
                run.control.interrupt(ending)
            deliveries.append([as_json(event) for event in batch])
        return [body for bodies in deliveries for body in bodies]

    events = asyncio.run(interrupted())
    assert check(events) == []
    last = delivery == DELIVERIES[-1]  # by then, the response was complete
    assert events[-1]["response"]["status"] == ("completed" if last else status)


@for_each("delivery", DELIVERIES)
def test_an_abandoned_run_stops_the_engine_and_can_be_concluded(delivery):
    async def leave():
        run, engine = begin()
        stream, events = run.events(), []
        for _ in range(delivery + 1):
            events += await anext(stream)
        await stream.aclose()
        requested = bool(engine.turns)
        events += run.run.conclude()
        return [as_json(event) for event in events], not requested or engine.closed.is_set()

    events, stopped = asyncio.run(leave())
    assert check(events) == []
    assert stopped
