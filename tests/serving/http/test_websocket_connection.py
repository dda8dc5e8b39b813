"""WebSocket mode over real sockets: lanes, limits, continuation, and every way to end a connection."""

import asyncio
import gc
import json
import threading
import time
from functools import partial

import httpx
import pytest
from anyio import ClosedResourceError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from live.engines import ANSWER, CALL, REASONING, Gate, StagedEngine, step, steps
from live.sockets import ENDS, PATIENCE, socket_client
from openai import AsyncOpenAI, OpenAI
from starlette.websockets import WebSocket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.server import ServerProtocol
from websockets.sync.client import connect

from interlock.events.dialects import OPENAI
from interlock.fsm.deltas import Cancel
from interlock.fsm.table import Machine
from interlock.serving.build import build
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.http.bounded_protocol import BoundedProtocol
from interlock.serving.http.server import ServerThread
from interlock.serving.http.websocket import (
    EVICTED,
    CachedResponse,
    ConnectionMemory,
    CreateFrame,
    Lane,
    SocketConnection,
    SocketMemory,
)
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.responses.active_runs import ActiveRuns
from interlock.serving.settings import Settings, SocketLimits
from interlock.serving.store.sqlite import MemoryStore
from interlock.serving.store.values import StoredResponse
from interlock.verify.oracle import check

ASK = {"type": "response.create", "model": MODEL, "input": "Hi"}
STAGED = {**ASK, "model": "staged"}


client = partial(socket_client, request=ASK)


def sdk_options(url):
    return {"base_url": f"{url}/v1", "websocket_base_url": f"{url.replace('http', 'ws', 1)}/v1", "api_key": "none"}


def error_of(frames):
    (frame,) = frames
    assert frame["type"] == "error"
    assert [*frame["error"]] == ["message", "type", "param", "code"]
    return frame["status"], frame["error"]["param"], frame["error"]["code"]


def closing_code(socket):
    with pytest.raises(ConnectionClosed) as closed:
        socket.receive()
    return closed.value.rcvd.code


def test_a_turn_is_a_legal_stream_with_one_event_per_frame(url) -> None:
    with client(url) as socket:
        frames = socket.ask(stream=False)
    assert check(frames) == []
    assert frames[-1]["type"] == "response.completed"
    assert all("stream_id" not in frame for frame in frames)


def test_a_turn_continues_the_latest_unstored_response_of_its_connection(url) -> None:
    missing = (400, "previous_response_id", "previous_response_not_found")
    with client(url) as socket:
        first = socket.ask(store=False)[-1]["response"]
        second = socket.ask(store=False, previous_response_id=first["id"])[-1]["response"]
        assert (second["status"], second["previous_response_id"]) == ("completed", first["id"])
        assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
        assert error_of(socket.ask(store=False, previous_response_id=first["id"])) == missing
    with client(url) as another:
        assert error_of(another.ask(previous_response_id=second["id"])) == missing
        assert another.ask()[-1]["type"] == "response.completed"


def test_a_continuation_that_fails_evicts_its_previous_response(url) -> None:
    answer = {"type": "function_call_output", "call_id": "call_nobody", "output": "1"}
    with client(url) as socket:
        first = socket.ask(store=False)[-1]["response"]["id"]
        refused = error_of(socket.ask(store=False, previous_response_id=first, input=[answer]))
        assert refused[:2] == (400, "input")
        error = error_of(socket.ask(store=False, previous_response_id=first))
        assert error[2] == "previous_response_not_found"


def test_a_refused_request_that_continues_nothing_evicts_no_response(url) -> None:
    with client(url) as socket:
        first = socket.ask(store=False)[-1]["response"]["id"]
        assert error_of(socket.ask(model="nobody"))[2] == "model_not_found"
        assert socket.ask(store=False, previous_response_id=first)[-1]["type"] == "response.completed"


def test_a_request_with_generate_false_has_an_id_and_no_output(url) -> None:
    with client(url) as socket:
        frames = socket.ask(generate=False, store=False)
        assert [frame["type"] for frame in frames] == ["response.created", "response.in_progress", "response.completed"]
        warm = frames[-1]["response"]
        assert (warm["output"], warm["usage"]["output_tokens"]) == ([], 0)
        assert warm["usage"]["input_tokens"] > 0
        assert socket.ask(previous_response_id=warm["id"])[-1]["response"]["output"] != []


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (b"\x00", (400, None, "invalid_value")),
        ("{", (400, None, "invalid_json")),
        ("[]", (400, None, "invalid_json")),
        ('"\\ud800"', (400, None, "invalid_json")),
        ({"type": "response.append"}, (400, "type", "invalid_value")),
        ({}, (400, "type", "invalid_value")),
        ({**ASK, "background": True}, (400, "background", "unsupported_parameter")),
        ({**ASK, "generate": "no"}, (400, "generate", "invalid_type")),
        ({**ASK, "stream_id": ""}, (400, "stream_id", "invalid_stream_id")),
        ({**ASK, "stream_id": "a b"}, (400, "stream_id", "invalid_stream_id")),
        ({**ASK, "stream_id": "x" * 257}, (400, "stream_id", "invalid_stream_id")),
        ({**ASK, "stream_id": 7}, (400, "stream_id", "invalid_stream_id")),
        ({"type": "response.create"}, (400, "model", "missing_required_parameter")),
    ],
    ids=repr,
)
def test_an_invalid_frame_gets_an_error_and_the_socket_stays_open(url, frame, error) -> None:
    with client(url) as socket:
        socket.send(frame)
        assert error_of(socket.turn()) == error
        assert socket.ask()[-1]["type"] == "response.completed"


def test_lanes_run_concurrently_and_each_in_order(serve) -> None:
    gate = Gate()
    engine = StagedEngine([gate, *steps(ANSWER)], steps(ANSWER))
    with serve(engine) as url, client(url) as socket:
        socket.send(STAGED, stream_id="slow")
        assert gate.reached.wait(PATIENCE)
        socket.send(STAGED, stream_id="slow", metadata={"turn": "2"})
        socket.send(STAGED, stream_id="other-1.x_Y")
        (first,) = socket.ends(1)
        assert (first["type"], first["stream_id"]) == ("response.completed", "other-1.x_Y")
        gate.open()
        ends = socket.ends(2)
    assert [(end["stream_id"], end["response"]["metadata"]) for end in ends] == [("slow", {}), ("slow", {"turn": "2"})]


def test_limits_refuse_one_request_and_leave_the_others(serve) -> None:
    gate = Gate()
    engine = StagedEngine([gate, *steps(ANSWER)], steps(ANSWER))
    with serve(engine, socket_limits=SocketLimits(in_flight=2, lanes=1)) as url, client(url) as socket:
        socket.send(STAGED, stream_id="a")
        assert gate.reached.wait(PATIENCE)
        socket.send(STAGED, stream_id="b")
        refused = socket.turn()[-1]
        assert (refused["stream_id"], refused["error"]["code"]) == ("b", "websocket_stream_limit_reached")
        socket.send(STAGED, stream_id="a")
        socket.send(STAGED)
        assert error_of(socket.turn())[2] == "websocket_stream_limit_reached"
        gate.open()
        assert [end["stream_id"] for end in socket.ends(2)] == ["a", "a"]


def test_a_processed_frame_is_ignored(url) -> None:
    with client(url) as socket:
        socket.send({"type": "response.processed", "response_id": "resp_1"})
        assert socket.ask()[-1]["type"] == "response.completed"


@pytest.mark.parametrize("kind", ["response.processed", "response.append", "session.update", None])
@pytest.mark.parametrize("stream_id", [None, "a"])
def test_unexpected_frames_do_not_fail_the_request_in_flight(serve, kind, stream_id) -> None:
    gate = Gate()
    with serve(StagedEngine([gate, *steps(ANSWER)])) as url, client(url) as socket:
        socket.send(STAGED)
        assert gate.reached.wait(PATIENCE)
        socket.send({"type": kind, "stream_id": stream_id, "input": []})
        socket.send({"type": "response.steer"})
        frames = [socket.receive()]
        while frames[-1]["type"] != "response.steer.failed":
            frames.append(socket.receive())
        gate.open()
        frames = [*frames[:-1], *socket.turn()]
        assert (check(frames), frames[-1]["type"]) == ([], "response.completed")
        assert socket.ask(STAGED)[-1]["type"] == "response.completed"


def test_the_memory_of_websocket_requests_is_bounded(serve) -> None:
    gate = Gate()
    engine = StagedEngine([gate, *steps(ANSWER)], steps(ANSWER))
    with serve(engine, socket_limits=SocketLimits(memory_bytes=2000)) as url, client(url) as socket:
        socket.send(STAGED)
        assert gate.reached.wait(PATIENCE)
        socket.send(STAGED, input="x" * 1500)
        refused = socket.turn()[-1]["error"]
        assert refused["code"] == "websocket_stream_limit_reached"
        assert refused["message"] == "The WebSocket requests of this server would take more than 2000 bytes of memory."
        gate.open()
        assert socket.turn()[-1]["type"] == "response.completed"


def test_the_least_recently_used_response_is_evicted_and_the_error_says_so(serve) -> None:
    with serve(EmbeddedEngine(), socket_limits=SocketLimits(memory_bytes=60_000)) as url, client(url) as socket:
        first, second, third = (
            socket.ask(store=False, generate=False, input="x" * 20_000, stream_id=name)[-1]["response"]["id"] for name in "abc"
        )
        evicted = socket.ask(store=False, generate=False, previous_response_id=first, stream_id="a")[-1]
        assert evicted["error"] == {
            "message": f"Previous response with id '{first}' not found. {EVICTED}",
            "type": "invalid_request_error",
            "param": "previous_response_id",
            "code": "previous_response_not_found",
        }
        for name, response in (("b", second), ("c", third)):
            going_on = socket.ask(store=False, generate=False, previous_response_id=response, stream_id=name)[-1]
            assert going_on["response"]["previous_response_id"] == response


def test_a_stored_response_is_continued_although_its_lane_evicted_it(serve) -> None:
    with serve(EmbeddedEngine(), socket_limits=SocketLimits(memory_bytes=10_000)) as url, client(url) as socket:
        first = socket.ask(generate=False, input="x" * 8_000)[-1]["response"]["id"]
        assert socket.ask(generate=False, previous_response_id=first)[-1]["type"] == "response.completed"


def test_a_closed_connection_leaves_nothing_in_memory() -> None:
    frames = [{**ASK, "store": False, "stream_id": name, "input": "Hello"} for name in "ab"]

    def leave():
        kinds = (SocketConnection, Lane, CreateFrame, StoredResponse, BoundedProtocol, ServerProtocol, WebSocket, Machine)
        return [each for each in gc.get_objects() if isinstance(each, kinds)]

    gc.collect()
    before = len(leave())
    gc.disable()
    try:
        app = build(Settings(), EmbeddedEngine())
        with ServerThread(app) as url, client(url) as socket:
            for frame in frames:
                assert socket.ask(frame)[-1]["type"] == "response.completed"
        api = app.routes[0].endpoint.__self__
        assert (len(leave()), api.socket_memory.used) == (before, 0)
    finally:
        gc.enable()


def test_a_request_can_be_cancelled_and_the_lane_goes_on(serve) -> None:
    engine = StagedEngine([*steps(REASONING)[:-1], Gate()], steps(ANSWER))
    with serve(engine) as url, client(url) as socket:
        socket.send({"type": "response.cancel"})  # nothing is generated: nothing happens
        socket.send(STAGED)
        while socket.receive()["type"] != "response.reasoning_text.delta":
            pass
        socket.send({"type": "response.cancel"})
        cancelled = socket.turn()[-1]
        assert (cancelled["type"], cancelled["response"]["status"]) == ("response.incomplete", "cancelled")
        assert socket.ask(STAGED)[-1]["type"] == "response.completed"


def test_a_client_that_disconnects_cancels_running_and_waiting_requests(serve) -> None:
    gate = Gate()
    engine = StagedEngine([*steps(REASONING)[:-1], gate])
    with serve(engine) as url:
        with client(url) as socket:
            socket.send(STAGED)
            socket.send(STAGED)
            assert gate.reached.wait(PATIENCE)
        assert engine.closed.wait(PATIENCE)
        assert len(engine.turns) == 1


def test_a_call_of_a_tool_is_answered_in_the_next_turn(serve) -> None:
    tool = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
    with serve(StagedEngine(steps(CALL), steps(ANSWER))) as url, client(url) as socket:
        called = socket.ask(STAGED, tools=[tool], store=False)[-1]["response"]
        (call,) = called["output"]
        answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "1"}
        ended = socket.ask(STAGED, input=[answer], previous_response_id=called["id"], store=False)[-1]
        assert ended["type"] == "response.completed"


def test_an_engine_that_fails_fails_its_response_and_evicts_the_latest(serve) -> None:
    engine = StagedEngine(steps(ANSWER), [RuntimeError("broken")], steps(ANSWER))
    with serve(engine) as url, client(url) as socket:
        first = socket.ask(STAGED, store=False)[-1]["response"]["id"]
        failed = socket.ask(STAGED, store=False, previous_response_id=first)
        assert check(failed) == []
        assert failed[-1]["type"] == "response.failed"
        for error in (first, failed[-1]["response"]["id"]):
            assert error_of(socket.ask(STAGED, previous_response_id=error))[2] == "previous_response_not_found"


def test_a_server_error_is_one_error_and_the_socket_stays_open(serve) -> None:
    class Broken(MemoryStore):
        async def get(self, _tenant, response_id):
            raise RuntimeError(response_id)

    with serve(EmbeddedEngine(), store=Broken()) as url, client(url) as socket:
        assert error_of(socket.ask(previous_response_id="resp_1")) == (500, None, None)
        assert socket.ask()[-1]["type"] == "response.completed"


def test_a_write_to_a_closed_socket_leaves_no_traceback(caplog) -> None:
    class Broken:
        active_runs = ActiveRuns()

        async def read(self, body, _yielder):
            raise RuntimeError(body)

    frames = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": json.dumps({**ASK, "model": []})}]
    sent = []

    async def receive():
        return frames.pop(0) if frames else {"type": "websocket.disconnect", "code": 1006}

    async def send(message):
        sent.append(message["type"])
        if message["type"] != "websocket.accept":
            raise ClosedResourceError

    async def serve():
        socket = WebSocket({"type": "websocket"}, receive, send)
        await socket.accept()
        await SocketConnection(socket, Broken(), OPENAI, ConnectionMemory(SocketMemory(10_000)), SocketLimits(), 0).serve()
        gc.collect()

    with caplog.at_level("ERROR", "asyncio"):
        asyncio.run(serve())
    assert sent == ["websocket.accept", "websocket.send"]
    assert [record.name for record in caplog.records] == ["interlock.serving.http.websocket"]


def test_an_expired_connection_finishes_its_response_and_closes(serve) -> None:
    gate = Gate()
    engine = StagedEngine([gate, *steps(ANSWER)])
    with serve(engine, socket_limits=SocketLimits(lifetime=3)) as url, client(url) as socket:
        socket.send(STAGED, stream_id="runs")
        assert gate.reached.wait(PATIENCE)
        codes = []
        while codes[-1:] != ["websocket_connection_limit_reached"]:
            codes.append(socket.ask(model="nobody")[-1]["error"]["code"])
        assert set(codes[:-1]) <= {"model_not_found"}
        assert socket.ask(model="nobody")[-1]["error"]["code"] == "websocket_connection_limit_reached"
        gate.open()
        assert socket.turn()[-1]["type"] == "response.completed"
        assert closing_code(socket) == 1000


def test_a_shutdown_fails_requests_and_closes_sockets_with_code_1012() -> None:
    gate = Gate()
    server = ServerThread(build(Settings(), StagedEngine([gate])))
    with server as url, client(url) as socket, client(url) as idle:
        socket.send(STAGED)
        assert gate.reached.wait(PATIENCE)
        socket.send(STAGED)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        ends = [(end["type"], end["response"]["error"]["message"]) for end in socket.ends(2)]
        assert ends == [("response.failed", "The server is shutting down.")] * 2
        assert [closing_code(each) for each in (socket, idle)] == [1012, 1012]
        stopping.join()


def test_a_drain_completes_running_requests_and_fails_new_ones() -> None:
    gate = Gate()
    server = ServerThread(build(Settings(drain=600), StagedEngine([gate, step(ANSWER, "stop")])))
    with server as url, client(url) as socket, client(url) as idle:
        socket.send(STAGED)
        assert gate.reached.wait(PATIENCE)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        while httpx.get(f"{url}/ready").status_code == 200:
            time.sleep(0.01)
        idle.send(STAGED)
        (failed,) = idle.ends(1)
        gate.open()
        (completed,) = socket.ends(1)
        assert [end["type"] for end in (failed, completed)] == ["response.failed", "response.completed"]
        assert failed["response"]["error"]["message"] == "The server is shutting down."
        assert [closing_code(each) for each in (socket, idle)] == [1012, 1012]
        stopping.join()


def test_queued_requests_fail_legally_at_a_shutdown() -> None:
    gate = Gate()

    server = ServerThread(build(Settings(), StagedEngine([gate])))
    with server as url, client(url) as socket:
        socket.send(ASK, model="staged")
        running = socket.receive()["response"]["id"]
        assert gate.reached.wait(PATIENCE)
        socket.send(ASK, model="staged", previous_response_id=running)
        socket.send(ASK, model="staged", input=7)
        socket.send(ASK, stream_id="side", model="nobody")
        assert error_of(socket.turn()[-1:])[2] == "model_not_found"
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        turns = [socket.turn() for _ in range(3)]
        assert [turn[-1]["type"] for turn in turns] == ["response.failed", "response.failed", "error"]
        assert check(turns[1]) == []
        assert error_of(turns[2])[:2] == (400, "input")
        assert closing_code(socket) == 1012
        stopping.join()


def test_a_websocket_handshake_needs_the_key(serve) -> None:
    with serve(EmbeddedEngine(), api_key=["right"]) as url:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            with pytest.raises(InvalidStatus) as refused, client(url, additional_headers=headers):
                pass
            assert refused.value.response.status_code == 401
        with client(url, additional_headers={"Authorization": "Bearer right"}) as socket:
            assert socket.ask()[-1]["type"] == "response.completed"


def test_a_websocket_from_a_foreign_origin_is_refused(serve) -> None:
    with serve(EmbeddedEngine(), cors_origin=["https://ours.example"]) as url:
        for origin in ("https://foreign.example", "null", "http://["):
            with pytest.raises(InvalidStatus) as refused, client(url, origin=origin):
                pass
            assert refused.value.response.status_code == 403
        for origin in ("https://ours.example", url):
            with client(url, origin=origin) as socket:
                assert socket.ask()[-1]["type"] == "response.completed"


def test_a_path_without_websockets_is_not_found(url, caplog) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(url.replace("http", "ws", 1) + "/v1/nothing"):
        pass
    assert refused.value.response.status_code == 404
    message = json.loads(refused.value.response.body)["error"]["message"]
    assert message.startswith("Invalid URL (WEBSOCKET /v1/nothing). This server serves /v1/responses, ")
    assert [record.getMessage() for record in caplog.records if record.name == "uvicorn.error"] == []


def test_the_openai_package_connects(url) -> None:
    sdk = OpenAI(**sdk_options(url))
    with sdk.responses.connect() as connection:
        connection.response.create(model=MODEL, input="Hi", store=False)
        (end,) = (event for event in connection if event.type in ENDS and connection.close() is None)
    assert (end.type, end.response.status) == ("response.completed", "completed")


def test_the_openai_package_connects_asynchronously(url) -> None:
    async def end():
        async with (
            AsyncOpenAI(**sdk_options(url)) as sdk,
            sdk.responses.connect() as connection,
        ):
            await connection.response.create(model=MODEL, input="Hi")
            async for event in connection:
                if event.type in ENDS:
                    return event.type
        return None

    assert asyncio.run(end()) == "response.completed"


FRAMES = st.tuples(
    st.sampled_from([None, "a", "b", "c"]),
    st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("response.create"), "input": st.sampled_from(["Hi", "", 7]), "generate": st.booleans()}
        ),
        st.just({"type": "response.cancel"}),
        st.just({"type": "nothing"}),
    ),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FRAMES, min_size=1, max_size=12))
def test_each_request_gets_one_stream_or_one_error(url, frames) -> None:
    streams, ended, errors = {}, [], 0
    with client(url) as socket:
        for lane, frame in frames:
            socket.send({"model": MODEL, **frame} | ({} if lane is None else {"stream_id": lane}))
        while len(ended) + errors < sum(frame["type"] == "response.create" for _, frame in frames):
            frame = socket.receive()
            lane = frame.pop("stream_id", None)
            if frame["type"] == "error":
                errors += frame["error"]["param"] != "type"  # an unknown frame gets one only while no request is in flight
                continue
            streams.setdefault(lane, []).append(frame)
            if frame["type"] in ENDS:
                ended.append(streams.pop(lane))
    assert streams == {}
    assert [check(stream) for stream in ended] == [[]] * len(ended)


# A lane, under every order of its events


class Run:
    """Records its interruptions."""

    def __init__(self):
        self.interruptions = []

    def interrupt(self, ending):
        self.interruptions.append(ending)


class Host:
    """Plays a connection: it begins and ends a request when the test says so."""

    def __init__(self):
        self.started = []
        self.lane = Lane("a")

    def start(self, request):
        self.started += [] if request is None else [request]

    def ask(self, number):
        self.start(self.lane.submit(CreateFrame("a", {"number": number}, generate=True, size=1)))

    def end(self):
        self.start(self.lane.end())

    def begin(self):
        self.run = Run()
        self.lane.interrupt = self.run.interrupt


def numbers(host):
    return [request.body["number"] for request in host.started]


def test_requests_run_one_after_another_in_their_order() -> None:
    host = Host()
    for number in range(3):
        host.ask(number)
    assert (numbers(host), host.lane.in_flight) == ([0], 3)
    host.begin()
    host.end()
    assert (numbers(host), host.lane.in_flight) == ([0, 1], 2)
    host.end()  # it was refused, and never began
    host.begin()
    host.end()
    assert (numbers(host), host.lane.in_flight) == ([0, 1, 2], 0)


def test_a_cancel_and_a_close_interrupt_the_current_run() -> None:
    host = Host()
    host.lane.cancel()
    host.ask(0)
    host.ask(1)
    host.begin()
    host.lane.cancel()
    host.lane.close()
    assert host.run.interruptions == [Cancel(), Cancel()]
    host.end()
    assert (numbers(host), host.lane.in_flight) == ([0], 0)


def test_cancelling_a_refused_request_does_nothing() -> None:
    host = Host()
    host.ask(0)
    host.lane.cancel()
    host.end()
    assert (numbers(host), host.lane.in_flight) == ([0], 0)


@given(st.lists(st.sampled_from(["ask", "begin", "end", "cancel"])))
def test_no_order_of_events_loses_a_request_or_runs_two_at_once(happenings) -> None:
    host, requests, running, started = Host(), 0, 0, False
    for happening in happenings:
        match happening:
            case "ask":
                host.ask(requests)
                requests += 1
            case "begin" if running and not started:
                host.begin()
                started = True
            case "end" if running:
                host.end()
                started = False
            case "cancel":
                host.lane.cancel()
            case _:
                pass
        ended = len(host.started) - (1 if host.lane.in_flight else 0)
        running = len(host.started) - ended
        assert numbers(host) == list(range(len(host.started)))
        assert host.lane.in_flight == requests - ended


# The memory of connections: which responses are evicted, and when


def response(number):
    item = {"id": f"msg_{number}", "type": "message", "content": "x" * 1000}
    return StoredResponse({"id": f"resp_{number}", "output": [item]}, (item,))


def cached(*places):
    """Return the numbers of the responses that are cached; each place is a connection, a lane and a number."""
    return [number for connection, lane, number in places if connection.take(lane, f"resp_{number}")[0] is not None]


def test_a_response_is_taken_once_and_unchanged() -> None:
    memory = SocketMemory(10**6)
    first = ConnectionMemory(memory)
    first.store("a", response(1))
    assert first.take("b", "resp_1") == first.take("a", "resp_2") == (None, 0)
    taken, size = first.take("a", "resp_1")
    assert (taken, first.take("a", "resp_1")) == (response(1), (None, 0))
    assert memory.used == size > 1000
    first.release(size)
    assert memory.used == 0


@pytest.mark.parametrize(("room", "remaining"), [(3, [1, 2, 3]), (2, [2, 3]), (1, [3]), (0, [])])
def test_the_least_recently_used_response_of_any_connection_is_evicted(room, remaining) -> None:
    limit = room * CachedResponse.of(response(1)).size
    memory = SocketMemory(limit)
    first, second = ConnectionMemory(memory), ConnectionMemory(memory)
    places = [(first, "a", 1), (first, "b", 2), (second, "a", 3)]
    for owner, lane, number in places:
        owner.store(lane, response(number))
    assert memory.used <= limit
    assert cached(*places) == remaining


def test_a_request_evicts_responses_and_is_refused_if_no_response_is_left() -> None:
    memory = SocketMemory(3000)
    first, other = ConnectionMemory(memory), ConnectionMemory(memory)
    first.store("a", response(1))
    other.reserve(2500)
    assert cached((first, "a", 1)) == []
    with pytest.raises(ApiError) as refused:
        first.reserve(501)
    message = "The WebSocket requests of this server would take more than 3000 bytes of memory."
    assert (refused.value.message, refused.value.code) == (message, "websocket_stream_limit_reached")
    assert memory.used == 2500


def test_a_connection_that_ends_releases_its_memory() -> None:
    memory = SocketMemory(10**6)
    first, other = ConnectionMemory(memory), ConnectionMemory(memory)
    for each in (first, other):
        each.reserve(100)
        each.store(None, response(1))
        each.store(None, response(2))
    first.close([None, "unused"])
    assert cached((first, None, 2), (other, None, 2)) == [2]
    other.close([None])
    assert (memory.used, memory.responses) == (0, {})
