"""Keep-alives during a silence of an engine or a tool, clients that do not read, and padded deltas."""

import asyncio
import json
import re
import socket
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
from attrs import frozen
from live.engines import ANSWER, CALL, HOSTED_CALL, REASONING, Gate, StagedEngine, step, steps
from live.sockets import socket_client
from live.wire import bodies, without_chance
from one_run import begin_response
from websockets.sync.client import connect

from interlock.events.json import dumps, loads
from interlock.events.sse import EventWriter
from interlock.events.stream import EVENTS, Keepalive
from interlock.fsm.deltas import Run, Succeed
from interlock.serving.build import build
from interlock.serving.http.answers import COMMENT
from interlock.serving.http.server import ServerThread
from interlock.serving.requests.create import read_request
from interlock.serving.responses.run import Delivery, RequestContext
from interlock.serving.settings import Settings
from interlock.serving.tools.hosting import NullTools
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
    """Read until a word has come `count` times."""
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
    """The events without ids and times, which differ in each run."""
    return loads(re.sub(rb'"(rs|msg|resp)_\w+"', rb'"\1"', dumps(without_chance(events))))


def without_silence(events):
    """The events without keep-alives, with the numbers that they would have then."""
    kept = [event for event in events if event["type"] != "keepalive"]
    return without_ids([{**event, "sequence_number": number} for number, event in enumerate(kept)])


def test_keep_alives_during_an_engine_silence_change_no_other_event(serve) -> None:
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


def test_keep_alives_break_the_silence_of_a_running_tool(serve) -> None:
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


def test_each_lane_of_a_websocket_has_its_own_keep_alives(serve) -> None:
    gates = {"a": Gate(), "b": Gate()}
    engine = StagedEngine(*([step(REASONING), gate, *steps(ANSWER)] for gate in gates.values()))
    lanes = {"a": [], "b": []}
    with serve(engine, keep_alive=SECONDS) as url, connect(f"{url.replace('http', 'ws', 1)}/v1/responses") as websocket:

        def receive_until(found):
            while not found():
                frame = loads(websocket.recv(timeout=PATIENCE))
                lanes[frame.pop("stream_id")].append(frame)

        for name, gate in gates.items():
            websocket.send(dumps({"type": "response.create", **REQUEST, "stream_id": name}).decode())
            receive_until(gate.reached.is_set)
        receive_until(lambda: all("keepalive" in names(events) for events in lanes.values()))
        for gate in gates.values():
            gate.open()
        receive_until(lambda: all(names(events)[-1] == "response.completed" for events in lanes.values()))
    assert [(check(events), findings(events)) for events in lanes.values()] == [([], []), ([], [])]


def test_open_responses_clients_receive_comments_over_http_and_nothing_over_websockets(serve) -> None:
    gates = [Gate(), Gate()]
    engine = StagedEngine(*([step(REASONING), gate, *steps(ANSWER)] for gate in gates))
    frames = []
    with serve(engine, keep_alive=SECONDS) as url:
        socket_url = f"{url.replace('http', 'ws', 1)}/v1/responses"
        with connect(socket_url, additional_headers=OPEN_RESPONSES) as websocket:
            websocket.send(dumps({"type": "response.create", **REQUEST}).decode())
            assert gates[0].reached.wait(PATIENCE)
            with posted(url, OPEN_RESPONSES) as pieces:
                received = read_until(pieces, COMMENT, 2)
                gates[1].open()
                events = bodies(received + b"".join(pieces), "open_responses")
            gates[0].open()
            while names(frames)[-1:] != ["response.completed"]:
                frames.append(loads(websocket.recv(timeout=PATIENCE)))
    assert findings(events, dialect="open_responses") == []
    assert without_ids(events) == without_ids(frames)
    assert "keepalive" not in names(frames)


def test_background_streams_have_comments_that_take_no_sequence_numbers(serve) -> None:
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


def test_a_keep_alive_time_of_zero_disables_keep_alives(serve, monkeypatch) -> None:
    monkeypatch.setattr(Delivery, "keep_alive", None)
    with serve(StagedEngine(steps(ANSWER)), keep_alive=0) as url, posted(url) as pieces:
        assert names(bodies(b"".join(pieces)))[-1] == "response.completed"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
def test_a_keep_alive_time_of_zero_disables_pings_and_comments(serve, path) -> None:
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
                for _ in range(100):  # the answer is ready by now
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


# A client that does not read pauses its engine after a bounded amount of output; sockets and their buffers are real


WORDS = " a word of an answer" * 40
STEPS = 1_500
MIB = 2**20
STREAMED = {"model": "staged", "input": "Hi", "stream": True}


def talkative():
    """An engine that yields 1.2 MB as fast as the server takes it."""
    return StagedEngine([step(ANSWER), *[step(WORDS)] * STEPS, step("", "stop")])


def reader(url):
    """A connected socket with the smallest receive buffer."""
    place = urlsplit(url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect((place.hostname, place.port))
    return connection


@contextmanager
def unread(url, **fields):
    """A requested stream of which nothing is read."""
    content = json.dumps({**STREAMED, **fields}).encode()
    with reader(url) as connection:
        head = "POST /v1/responses HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n"
        connection.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        yield connection


def rest(connection, received=b""):
    """Read the rest of the stream, and return its events."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB)
    pieces = [received]
    while piece := connection.recv(2**20):
        pieces.append(piece)
    chunks, at, stream = b"".join(pieces).partition(b"\r\n\r\n")[2], 0, bytearray()
    while size := int(chunks[at : (end := chunks.index(b"\r\n", at))], 16):
        stream += chunks[end + 2 : end + 2 + size]
        at = end + 2 + size + 2
    return bodies(bytes(stream))


def is_paused(engine, url, client):
    """Whether the engine yields nothing while the server answers other requests."""
    before = engine.yielded
    for _ in range(20):
        assert client.get(f"{url}/health").status_code == 200
    return engine.yielded == before


def bytes_until_paused(engine, url):
    """Wait until the engine is paused, and return the bytes of text that it has yielded."""
    with httpx.Client() as client:
        while not (engine.yielded > 1 and is_paused(engine, url, client)):
            pass
    return engine.yielded * len(WORDS)


def test_an_unread_stream_pauses_the_engine_and_is_complete_when_read() -> None:
    engine = talkative()
    with ServerThread(build(Settings(), engine)) as url, unread(url, store=False) as connection:
        assert bytes_until_paused(engine, url) < MIB
        events = rest(connection)
    assert (events[-1]["type"], engine.yielded) == ("response.completed", STEPS + 2)


def test_an_unread_websocket_pauses_the_engine_and_is_complete_when_read() -> None:
    engine = talkative()
    options = {"compression": None, "max_size": None, "max_queue": 1, "close_timeout": 60}
    with (
        ServerThread(build(Settings(), engine)) as url,
        connect(url.replace("http", "ws", 1) + "/v1/responses", sock=reader(url), **options) as websocket,
    ):
        websocket.send(json.dumps({"type": "response.create", **STREAMED, "store": False}))
        assert bytes_until_paused(engine, url) < MIB
        events = [json.loads(websocket.recv())]
        while events[-1]["type"] != "response.completed":
            events.append(json.loads(websocket.recv()))
    assert (check(events), engine.yielded) == ([], STEPS + 2)


def test_a_client_that_disconnects_without_reading_ends_its_run() -> None:
    engine = talkative()
    app = build(Settings(), engine)
    with ServerThread(app) as url:
        with unread(url, store=False):
            assert bytes_until_paused(engine, url) < MIB
        assert engine.closed.wait(60)
    assert (engine.yielded < STEPS, len(app.api.service.active_runs)) == (True, 0)


def test_an_unread_background_stream_does_not_delay_its_response() -> None:
    engine = talkative()
    with ServerThread(build(Settings(), engine)) as url, unread(url, background=True) as connection, httpx.Client() as client:
        received = b""
        while (named := re.search(rb'"id":"(resp_\w+)"', received)) is None:
            received += connection.recv(1024)
        place = f"{url}/v1/responses/{named[1].decode()}"
        while (response := client.get(place).json())["status"] != "completed":
            assert response["status"] in {"queued", "in_progress"}
        events = rest(connection, received)
    assert events[-1]["response"] == response


# Streams with padded deltas


TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
PADDED = {**STREAMED, "tools": [TOOL], "stream_options": {"include_obfuscation": True}}


def over_http(url, request):
    return bodies(httpx.post(f"{url}/v1/responses", json=request).content)


def over_socket(url, request):
    with socket_client(url, request) as websocket:
        return websocket.ask()


@pytest.mark.parametrize("ask", [over_http, over_socket])
def test_deltas_are_padded_to_blocks_and_otherwise_unchanged(serve, ask):
    with serve(StagedEngine(steps(f"{REASONING}{ANSWER}"))) as url:
        padded, plain = ask(url, PADDED), ask(url, {**PADDED, "stream_options": {}})
    assert check(padded) == []
    deltas = [event for event in padded if event["type"].endswith(".delta")]
    assert len(deltas) > 4
    assert {(len(event["delta"]) + len(event["obfuscation"])) % 16 for event in deltas} == {0}
    assert len({event["obfuscation"] for event in deltas if len(event["delta"]) % 16}) > 1
    assert not any("obfuscation" in event for event in plain)
    assert [(event["type"], event["sequence_number"], event.get("delta")) for event in padded] == [
        (event["type"], event["sequence_number"], event.get("delta")) for event in plain
    ]


def test_the_arguments_of_calls_are_padded(serve):
    with serve(StagedEngine(steps(CALL))) as url:
        padded = over_http(url, PADDED)
    deltas = [event for event in padded if event["type"] == "response.function_call_arguments.delta"]
    assert deltas
    assert {(len(event["delta"]) + len(event["obfuscation"])) % 16 for event in deltas} == {0}


def test_every_event_with_padding_has_a_delta():
    fields = [event.__struct_fields__ for event in EVENTS.values() if "obfuscation" in event.__struct_fields__]
    assert len(fields) > 8
    assert all("delta" in each for each in fields)
