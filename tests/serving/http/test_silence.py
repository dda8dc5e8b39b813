"""A silence of an engine or a tool is broken, wherever a client waits for events, and changes nothing else."""

import asyncio
import re
from contextlib import contextmanager

import httpx
import pytest
from attrs import frozen
from live.engines import ANSWER, HOSTED_CALL, REASONING, Gate, StagedEngine, step, steps
from live.wire import bodies, without_chance
from one_run import begin_response
from websockets.sync.client import connect

from interlock.events.json import dumps, loads
from interlock.events.sse import EventWriter
from interlock.events.stream import Keepalive
from interlock.fsm.deltas import Run, Succeed
from interlock.serving.http.answers import COMMENT
from interlock.serving.requests.create import read_request
from interlock.serving.responses.context import RequestContext
from interlock.serving.responses.delivery import Delivery
from interlock.serving.tools.tool_runner import NullTools
from interlock.testing import findings
from interlock.verify.oracle import check

SECONDS = 0.02
PATIENCE = 30
REQUEST = {"model": "staged", "input": "Hi"}
OPEN_RESPONSES = {"OpenResponses-Version": "2026-04-24"}


@frozen
class WaitingTools(NullTools):
    """Tools whose one call waits at a gate."""

    gate: Gate

    async def run(self, calls, rejected=()):
        del rejected
        for call in calls:
            yield Run(call.id)
            await self.gate.wait()
            yield Succeed(call.id, {"output": "found"})


def paused(gate):
    """An engine that thinks, waits, and answers."""
    return StagedEngine([step(REASONING), gate, *steps(ANSWER)])


def read_until(pieces, word, count):
    """Read until a word has come some times."""
    received = b""
    while received.count(word) < count:
        received += next(pieces)
    return received


@contextmanager
def posted(url, headers=None, **settings):
    with httpx.stream("POST", f"{url}/v1/responses", json={**REQUEST, "stream": True, **settings}, headers=headers) as answer:
        yield answer.iter_bytes()


def events_in(data):
    """The events of a part of a stream."""
    lines = [line.removeprefix(b"data: ") for line in data.splitlines() if line.startswith(b"data: {")]
    return [*map(loads, lines)]


def names(events):
    return [event["type"] for event in events]


def without_ids(events):
    """The events without what is another in each run."""
    return loads(re.sub(rb'"(rs|msg|resp)_\w+"', rb'"\1"', dumps(without_chance(events))))


def without_silence(events):
    """The events without keep-alives, with the numbers that they would have then."""
    kept = [event for event in events if event["type"] != "keepalive"]
    return without_ids([{**event, "sequence_number": number} for number, event in enumerate(kept)])


def test_a_silence_of_the_engine_adds_events_and_changes_nothing_else(serve) -> None:
    gate = Gate()
    with serve(paused(gate), keep_alive=SECONDS) as url:
        with posted(url) as pieces:
            received = read_until(pieces, b'"type":"keepalive"', 2)
            gate.open()
            events = bodies(received + b"".join(pieces))
        stored = httpx.get(f"{url}/v1/responses/{events[0]['response']['id']}").json()
    assert (check(events), findings(events)) == ([], [])
    at = names(events).index("keepalive")
    assert events[at] == {"type": "keepalive", "sequence_number": at}
    assert stored == events[-1]["response"]
    gate = Gate()
    with serve(paused(gate), keep_alive=0) as url, posted(url) as pieces:
        assert gate.reached.wait(PATIENCE)
        gate.open()
        undisturbed = bodies(b"".join(pieces))
    assert without_silence(events) == without_silence(undisturbed)


def test_a_silence_of_a_tool_is_broken_while_it_runs(serve) -> None:
    gate = Gate()
    engine = StagedEngine(steps(HOSTED_CALL + "<|call|>"), steps(ANSWER))
    with serve(engine, tools=WaitingTools(gate), keep_alive=SECONDS) as url, posted(url) as pieces:
        first = read_until(pieces, b"event: response.mcp_call_arguments.done", 1)
        assert gate.reached.wait(PATIENCE)
        received = first + read_until(pieces, b'"type":"keepalive"', 1)
        gate.open()
        events = bodies(received + b"".join(pieces))
    assert (check(events), findings(events)) == ([], [])
    order = names(events)
    runs = order[order.index("response.mcp_call_arguments.done") : order.index("response.mcp_call.completed")]
    assert "keepalive" in runs


def test_each_lane_of_a_websocket_counts_its_own_silences(serve) -> None:
    gates = {"a": Gate(), "b": Gate()}
    engine = StagedEngine(*([step(REASONING), gate, *steps(ANSWER)] for gate in gates.values()))
    lanes = {"a": [], "b": []}
    with serve(engine, keep_alive=SECONDS) as url, connect(f"{url.replace('http', 'ws', 1)}/v1/responses") as socket:

        def receive_until(found):
            while not found():
                frame = loads(socket.recv(timeout=PATIENCE))
                lanes[frame.pop("stream_id")].append(frame)

        for name, gate in gates.items():
            socket.send(dumps({"type": "response.create", **REQUEST, "stream_id": name}).decode())
            receive_until(gate.reached.is_set)
        receive_until(lambda: all("keepalive" in names(events) for events in lanes.values()))
        for gate in gates.values():
            gate.open()
        receive_until(lambda: all(names(events)[-1] == "response.completed" for events in lanes.values()))
    assert [(check(events), findings(events)) for events in lanes.values()] == [([], []), ([], [])]


def test_a_client_of_open_responses_receives_comments_or_nothing(serve) -> None:
    gates = [Gate(), Gate()]
    engine = StagedEngine(*([step(REASONING), gate, *steps(ANSWER)] for gate in gates))
    frames = []
    with serve(engine, keep_alive=SECONDS) as url:
        socket_url = f"{url.replace('http', 'ws', 1)}/v1/responses"
        with connect(socket_url, additional_headers=OPEN_RESPONSES) as socket:
            socket.send(dumps({"type": "response.create", **REQUEST}).decode())
            assert gates[0].reached.wait(PATIENCE)
            with posted(url, OPEN_RESPONSES) as pieces:
                received = read_until(pieces, COMMENT, 2)
                gates[1].open()
                events = bodies(received + b"".join(pieces), "open_responses")
            gates[0].open()
            while names(frames)[-1:] != ["response.completed"]:
                frames.append(loads(socket.recv(timeout=PATIENCE)))
    assert findings(events, dialect="open_responses") == []
    assert without_ids(events) == without_ids(frames)
    assert "keepalive" not in names(frames)


def test_a_stream_in_the_background_has_comments_and_the_numbers_of_what_is_stored(serve) -> None:
    gate = Gate()
    with serve(paused(gate), keep_alive=SECONDS) as url:
        with posted(url, background=True) as pieces:
            received = read_until(pieces, COMMENT, 2)
            assert gate.reached.wait(PATIENCE)
            events = events_in(received)
            last = events[-1]["sequence_number"]
            one = f"{url}/v1/responses/{events[0]['response']['id']}?stream=true"
            with httpx.stream("GET", f"{one}&starting_after={last}") as answer:
                resumed = answer.iter_bytes()
                head = read_until(resumed, COMMENT, 1)
                gate.open()
                rest = events_in(head + b"".join(resumed))
            events = bodies(received + b"".join(pieces))
        assert bodies(httpx.get(one).content) == events
    assert (check(events), findings(events)) == ([], [])
    assert rest == events[last + 1 :]


def test_nothing_breaks_a_silence_if_the_time_is_zero(serve, monkeypatch) -> None:
    monkeypatch.setattr(Delivery, "keep_alive", None)
    with serve(StagedEngine(steps(ANSWER)), keep_alive=0) as url, posted(url) as pieces:
        assert names(bodies(b"".join(pieces)))[-1] == "response.completed"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
def test_no_ping_comes_if_the_time_is_zero(serve, path) -> None:
    gates = [Gate(), Gate()]
    body = {"model": "staged", "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    received = []
    for keep_alive, gate in zip((0, SECONDS), gates, strict=True):
        with serve(paused(gate), keep_alive=keep_alive) as url, httpx.stream("POST", f"{url}{path}", json=body) as answer:
            pieces = answer.iter_bytes()
            head = read_until(pieces, b"ping" if "messages" in path else COMMENT, 1) if keep_alive else b""
            assert gate.reached.wait(PATIENCE)
            gate.open()
            received.append(head + b"".join(pieces))
    assert [b"ping" in each or COMMENT in each for each in received] == [False, True]


def run_of(*script):
    request = read_request(REQUEST)
    return begin_response(RequestContext(request, request.input), StagedEngine([*script]), EventWriter())


def test_events_wait_for_a_keep_alive_that_is_being_written() -> None:
    gate, order, meanwhile = Gate(), [], []

    async def work():
        pending = run_of(step(REASONING), gate, *steps(ANSWER))

        async def write():
            order.extend(run.break_silence())
            count = len(order)
            gate.open()
            try:
                for _ in range(100):  # the answer is there meanwhile
                    await asyncio.sleep(0)
            finally:
                meanwhile.extend(order[count:])

        async with pending.admitted() as run, run.kept_alive(SECONDS, write):
            async for events in run:
                order.extend(events)

    asyncio.run(work())
    assert any(isinstance(event, Keepalive) for event in order)
    assert [event.sequence_number for event in order] == [*range(len(order))]
    assert meanwhile == []


def test_no_keep_alive_is_written_while_the_caller_writes() -> None:
    async def work():
        pending, is_writing, seen = run_of(step(REASONING), *steps(ANSWER)), asyncio.Event(), []

        async def write():
            seen.append(is_writing.is_set())

        async with pending.admitted() as run, run.kept_alive(SECONDS, write):
            async for _ in run:
                is_writing.set()
                await asyncio.sleep(3 * SECONDS)
                is_writing.clear()
        return seen

    assert True not in asyncio.run(work())
