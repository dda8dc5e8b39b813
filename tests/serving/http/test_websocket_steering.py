"""Steering over a WebSocket: the input that a client sends while a response runs, until a successor continues with it."""

import asyncio
import json
import threading
from contextlib import contextmanager
from functools import partial
from importlib import import_module

import httpx
import pytest
from attrs import define, field
from live.engines import ANSWER, CALL, HOSTED_CALL, REASONING, Gate, ScriptedTools, StagedEngine, steps
from live.sockets import ENDS, PATIENCE, SocketClient, socket_client
from live.wire import bodies
from openai import OpenAI
from websockets.sync.client import connect

from interlock.events.json import loads
from interlock.fsm.deltas import Run, Succeed
from interlock.serving.engines.engine import Engine
from interlock.serving.engines.prompt import estimate_prompt
from interlock.serving.http.websocket import MOST
from interlock.serving.requests.api_errors import EngineError
from interlock.serving.requests.input_items import PENDING
from interlock.serving.requests.limits import TEXT
from interlock.serving.settings import SocketLimits
from interlock.verify.oracle import check

CREATE = {"type": "response.create", "model": "staged", "input": "Hi", "store": False}
FUNCTION = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
MCP = {"type": "mcp", "server_label": "deep", "server_url": "https://mcp.example", "require_approval": "never"}
MODELS = {
    "response.steer.accepted": "response_steer_accepted_event.ResponseSteerAcceptedEvent",
    "response.steer.pending": "response_steer_pending_event.ResponseSteerPendingEvent",
    "response.steer.failed": "response_steer_failed_event.ResponseSteerFailedEvent",
}


class Client(SocketClient):
    """A client that steers."""

    def begin(self, **fields):
        """Start a response, and return its id."""
        self.send(CREATE, **fields)
        return self.until("response.created")["response"]["id"]

    def steer(self, response_id, steer_input, **fields):
        self.send({"type": "response.steer"}, previous_response_id=response_id, input=steer_input, **fields)

    def streams(self):
        """The frames of each response, without those about steering."""
        streams = []
        for frame in self.frames:
            if not frame["type"].startswith("response.steer."):
                streams += [[]] if frame["type"] == "response.created" else []
                streams[-1].append(frame)
        return streams

    def steering(self):
        """The frames about steering, each valid for the openai package, and with its number."""
        frames = [frame for frame in self.frames if frame["type"].startswith("response.steer.")]
        assert [frame["sequence_number"] for frame in frames] == [*range(len(frames))]
        for frame in frames:
            module, _, name = MODELS[frame["type"]].partition(".")
            try:
                model = getattr(import_module(f"openai.types.responses.{module}"), name)
            except ModuleNotFoundError:  # an older release
                continue
            model.model_validate(frame)
        return frames


client = partial(socket_client, request=CREATE, kind=Client)


def texts(items):
    """The contents of user messages, and the types of other items."""
    return [item["content"] if item.get("role") == "user" else item["type"] for item in items]


def summary(frame):
    """A steering frame without the id of the response and the words of the error."""
    steer = {name: value for name, value in frame["steer"].items() if name != "previous_response_id"}
    return frame["type"].removeprefix("response.steer."), frame.get("error", {}).get("code"), steer.get("input")


@contextmanager
def started(serve, *scripts, settings=None, **fields):
    """A response that waits at the first gate of the first script; gives the engine, the client and the id."""
    engine = StagedEngine(*scripts)
    gate = next(each for each in scripts[0] if isinstance(each, Gate))
    with serve(engine, **(settings or {})) as url, client(url) as socket:
        response_id = socket.begin(**fields)
        assert gate.reached.wait(PATIENCE)
        yield engine, socket, response_id, gate


def test_a_steered_response_ends_after_its_item_and_a_successor_continues(serve) -> None:
    gate = Gate()
    script = [*steps(REASONING)[:-1], gate, *steps(ANSWER)]
    with started(serve, script, steps(ANSWER), instructions="Be kind.", stream_id="a") as (engine, socket, first, _):
        socket.steer(first, "In French")
        accepted = socket.until("response.steer.accepted")
        gate.open()
        parent = socket.until(*ENDS)["response"]
        successor = socket.until(*ENDS)["response"]
    assert accepted["steer"] == {"id": accepted["steer"]["id"], "previous_response_id": first}
    assert accepted["stream_id"] == "a"
    assert (parent["status"], parent["incomplete_details"]) == ("incomplete", {"reason": "steered"})
    assert [item["type"] for item in parent["output"]] == ["reasoning"]
    assert (successor["status"], successor["previous_response_id"], successor["instructions"]) == ("completed", first, "Be kind.")
    assert texts(engine.turns[1].items) == ["Hi", "reasoning", "In French"]
    assert [check(stream) for stream in socket.streams()] == [[], []]
    assert len(socket.steering()) == 1


def test_a_message_is_completed_before_the_successor_starts(serve) -> None:
    gate = Gate()
    script = [*steps(ANSWER)[:5], gate, *steps(ANSWER)[5:]]
    with started(serve, script, steps(ANSWER)) as (engine, socket, first, _):
        for text in ("One", "Two"):
            socket.steer(first, [{"role": "user", "content": text}])
        socket.until("response.steer.accepted")
        socket.until("response.steer.accepted")
        gate.open()
        ends = [socket.until(*ENDS)["response"] for _ in range(2)]
    assert [end["status"] for end in ends] == ["completed", "completed"]
    assert texts(engine.turns[1].items) == ["Hi", "message", "One", "Two"]
    assert ends[1]["previous_response_id"] == ends[0]["id"]


def test_a_successor_can_be_steered_and_runs_before_queued_requests(serve) -> None:
    gates = Gate(), Gate()
    scripts = [[gate, *steps(ANSWER)] for gate in gates]
    with started(serve, *scripts, steps(ANSWER)) as (engine, socket, first, _):
        socket.send(CREATE, input="Queued")
        socket.steer(first, "One")
        socket.until("response.steer.accepted")
        gates[0].open()
        second = socket.until("response.created")["response"]["id"]
        assert gates[1].reached.wait(PATIENCE)
        socket.steer(second, "Two")
        socket.until("response.steer.accepted")
        gates[1].open()
        for _ in range(3):
            socket.until(*ENDS)
    assert [texts(turn.items) for turn in engine.turns] == [["Hi"], ["Hi", "One"], ["Hi", "One", "Two"], ["Queued"]]
    reasons = [stream[-1]["response"]["incomplete_details"] for stream in socket.streams()]
    assert reasons == [{"reason": "steered"}, {"reason": "steered"}, None, None]


@pytest.mark.parametrize("continues", [True, False])
def test_steering_input_waits_for_the_next_request_while_the_client_runs_a_tool(serve, continues) -> None:
    gate = Gate()
    call = steps(CALL + "<|call|>")
    script = [*call[:-3], gate, *call[-3:]]
    with started(serve, script, steps(ANSWER), tools=[FUNCTION]) as (engine, socket, first, _):
        socket.steer(first, "Be quick")
        steer = socket.until("response.steer.accepted")["steer"]
        gate.open()
        parent = socket.until(*ENDS)["response"]
        pending = socket.until("response.steer.pending")
        (call,) = parent["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "b"}
        socket.send(CREATE, **({"previous_response_id": first, "input": [output]} if continues else {}))
        assert socket.until(*ENDS)["response"]["status"] == "completed"
    assert (parent["status"], pending["steer"], pending["reason"]) == ("completed", steer, "waiting_for_required_input")
    assert pending["required_input"] == [{"type": "function_call_output", "call_id": call["call_id"], "name": "look_up"}]
    if continues:
        assert texts(engine.turns[1].items) == ["Hi", "function_call", "Be quick", "function_call_output"]
        assert len(socket.steering()) == 2
    else:
        assert texts(engine.turns[1].items) == ["Hi"]
        assert summary(socket.steering()[2]) == ("failed", "response_not_active", "Be quick")


@pytest.mark.parametrize(("then", "ending"), [("", ("incomplete", {"reason": "steered"})), (ANSWER, ("completed", None))])
def test_steering_input_does_not_wait_for_an_async_tool(serve, then, ending) -> None:
    gate = Gate()
    call = steps(CALL + "<|call|>" + ("<|start|>assistant" + then if then else ""))
    scripts = [*call[:-3], gate, *call[-3:]], steps(ANSWER)
    with started(serve, *scripts, tools=[{**FUNCTION, "async": True}]) as (engine, socket, first, _):
        socket.steer(first, "Be quick")
        socket.until("response.steer.accepted")
        gate.open()
        ends = [socket.until(*ENDS)["response"] for _ in range(2)]
    assert (ends[0]["status"], ends[0]["incomplete_details"]) == ending
    assert (ends[1]["status"], ends[1]["previous_response_id"]) == ("completed", first)
    written = ["message"] if then else []
    assert texts(engine.turns[1].items) == ["Hi", "function_call", "function_call_output", *written, "Be quick"]
    assert len(socket.steering()) == 1


TOO_LONG = "x" * (TEXT.max_length + 1)


@pytest.mark.parametrize("own", ["Go on", 5, TOO_LONG], ids=["text", "number", "too long"])
def test_pending_input_joins_a_continuation_or_is_returned_if_it_is_invalid(serve, own) -> None:
    gate = Gate()
    call = steps(CALL + "<|call|>")
    with started(serve, [*call[:-3], gate, *call[-3:]], steps(ANSWER), tools=[FUNCTION]) as (engine, socket, first, _):
        socket.steer(first, "Be quick")
        socket.until("response.steer.accepted")
        gate.open()
        socket.until("response.steer.pending")
        socket.send(CREATE, previous_response_id=first, input=own)
        end = socket.until(*ENDS)
        if own != "Go on":
            socket.until("response.steer.failed")
    if own != "Go on":
        assert end["error"]["param"].startswith("input")
        assert summary(socket.steering()[2]) == ("failed", "successor_creation_failed", "Be quick")
    else:
        assert end["response"]["status"] == "completed"
        assert texts(engine.turns[1].items) == ["Hi", "function_call", "Be quick", "Go on"]


def test_an_mcp_call_is_completed_before_the_successor_starts(serve) -> None:
    gate = Gate()

    def say(call):
        return [Run(call.id), Succeed(call.id, {"output": "42"})]

    call = steps(HOSTED_CALL + "<|call|>")
    script = [*call[:-3], gate, *call[-3:]]
    tools = {"tools": ScriptedTools(say)}
    with started(serve, script, steps(ANSWER), settings=tools, tools=[MCP]) as (engine, socket, first, _):
        socket.steer(first, "Be quick")
        socket.until("response.steer.accepted")
        gate.open()
        parent, successor = (socket.until(*ENDS)["response"] for _ in range(2))
    assert (parent["incomplete_details"], successor["status"]) == ({"reason": "steered"}, "completed")
    assert [(item["type"], item["status"]) for item in parent["output"]] == [("mcp_call", "completed")]
    assert len(engine.turns) == 2


@pytest.mark.parametrize("end", ["cancel", "fault"])
def test_steering_input_is_returned_if_the_response_does_not_complete(serve, end) -> None:
    gate = Gate()
    script = [*steps(ANSWER)[:5], gate, EngineError("It broke.")]
    with started(serve, script, steps(ANSWER)) as (_, socket, first, _):
        socket.steer(first, "One")
        socket.steer(first, "Two")
        socket.until("response.steer.accepted")
        socket.until("response.steer.accepted")
        if end == "cancel":
            socket.send({"type": "response.cancel"})
        else:
            gate.open()
        socket.until(*ENDS)
        socket.until("response.steer.failed")
        socket.until("response.steer.failed")
        socket.send(CREATE)
        assert socket.until(*ENDS)["type"] == "response.completed"
    returned = socket.steering()[2:]
    assert [*map(summary, returned)] == [("failed", "response_not_active", text) for text in ("One", "Two")]
    assert [frame["steer"]["id"] for frame in returned] == [frame["steer"]["id"] for frame in socket.steering()[:2]]


def test_steering_input_is_returned_if_the_successor_cannot_begin(serve) -> None:
    gate = Gate()
    limits = {"socket_limits": SocketLimits(memory_bytes=3000)}
    script = [*steps(ANSWER)[:5], gate, *steps(" word" * 2000)]
    with started(serve, script, settings=limits) as (engine, socket, first, _):
        socket.steer(first, "One")
        socket.until("response.steer.accepted")
        gate.open()
        socket.until(*ENDS)
        socket.until("response.steer.failed")
    assert summary(socket.steering()[1]) == ("failed", "successor_creation_failed", "One")
    assert (len(engine.turns), len(socket.streams())) == (1, 1)


def test_successors_count_their_memory_once(serve) -> None:
    gates = Gate(), Gate()
    scripts = [[gate, *steps(ANSWER)] for gate in gates]
    limits = {"socket_limits": SocketLimits(memory_bytes=40_000)}
    with started(serve, *scripts, steps(ANSWER), settings=limits, input="x" * 5_000) as (_, socket, first, _):
        response_id = first
        for gate in gates:
            assert gate.reached.wait(PATIENCE)
            socket.steer(response_id, "More")
            socket.until("response.steer.accepted")
            gate.open()
            response_id = socket.until("response.created")["response"]["id"]
        socket.until(*ENDS)
        socket.send(CREATE, input="x" * 39_500)
        error = socket.until(*ENDS)["error"]
    assert error["message"].endswith("would take more than 40000 bytes of memory.")


def test_steering_inputs_stay_in_their_lane_and_order(serve) -> None:
    gates = Gate(), Gate()
    engine = StagedEngine(*([*steps(ANSWER)[:5], gate, *steps(ANSWER)[5:]] for gate in gates), steps(ANSWER))
    with serve(engine) as url, client(url) as socket:
        ids = {name: socket.begin(stream_id=name, input=name) for name in "ab"}
        assert all(gate.reached.wait(PATIENCE) for gate in gates)
        for number in range(MOST + 1):
            for name in "ab":
                socket.steer(ids[name], f"{name}{number}")
        for _ in range(2 * MOST + 2):
            socket.until("response.steer.accepted", "response.steer.failed")
        for gate in gates:
            gate.open()
        for _ in range(4):
            assert socket.until(*ENDS)["type"] == "response.completed"
    for name in "ab":
        events = [frame for frame in socket.steering() if frame["steer"]["previous_response_id"] == ids[name]]
        refused = ("failed", "too_many_pending_steers", f"{name}{MOST}")
        assert [*map(summary, events)] == [*[("accepted", None, None)] * MOST, refused]
        turn = next(turn for turn in engine.turns[2:] if turn.items[0]["content"] == name)
        assert texts(turn.items) == [name, "message", *(f"{name}{number}" for number in range(MOST))]


def test_a_client_that_disconnects_ends_its_steered_response(serve) -> None:
    gate = Gate()
    with started(serve, [*steps(ANSWER)[:5], gate, *steps(ANSWER)], steps(ANSWER)) as (engine, socket, first, _):
        socket.steer(first, "One")
        socket.until("response.steer.accepted")
        socket.socket.close()
        assert engine.closed.wait(PATIENCE)
    assert len(engine.turns) == 1


@pytest.mark.parametrize(
    ("steer_input", "message"),
    [
        (None, "Missing required parameter: 'input'."),
        ("", "Missing required parameter: 'input'."),
        ([], "Missing required parameter: 'input'."),
        (5, "Invalid type for 'input': expected an array, but got an integer instead."),
        ([{"role": "developer", "content": "x"}], "Invalid value for 'input[0].role': it must be 'user'."),
        ([{"role": "user", "content": "x", "id": "msg_1"}], "Unknown parameter: 'input[0].id'."),
        (
            [{"type": "function_call_output", "call_id": "a", "output": "b"}],
            "Invalid value: 'function_call_output'. Supported values are: 'message'.",
        ),
    ],
)
def test_invalid_steering_input_is_returned(url, steer_input, message) -> None:
    with client(url) as socket:
        socket.steer("resp_1", steer_input)
        frame = socket.until("response.steer.failed")
    assert frame["error"] == {"type": "invalid_request_error", "code": "invalid_input", "message": message}
    unused = steer_input if isinstance(steer_input, str | list) else ""
    assert frame["steer"] == {"previous_response_id": "resp_1", "input": unused}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stream_id": "a", "previous_response_id": "resp_1"}, "Unknown parameter: 'stream_id'."),
        ({}, "Missing required parameter: 'previous_response_id'."),
        ({"previous_response_id": 7}, "Missing required parameter: 'previous_response_id'."),
    ],
)
def test_an_invalid_steering_frame_is_refused(url, fields, message) -> None:
    with client(url) as socket:
        socket.send({"type": "response.steer", "input": "x"}, **fields)
        frame = socket.until("response.steer.failed")
    assert (frame["error"]["code"], frame["error"]["message"]) == ("invalid_input", message)


def test_refused_steering_has_a_code_for_the_reason(serve) -> None:
    gate = Gate()
    limited = [{"type": "compaction", "compact_threshold": 100_000}]
    with started(serve, [gate, *steps(ANSWER)], steps(ANSWER), context_management=limited) as (_, socket, first, _):
        socket.steer("resp_1", "x")
        socket.steer(first, "x")
        socket.until("response.steer.failed")
        socket.until("response.steer.failed")
        gate.open()
        socket.until(*ENDS)
        socket.steer(first, "x")
        socket.until("response.steer.failed")
    codes = ["response_not_found", "steering_not_supported", "response_already_completed"]
    assert [frame["error"]["code"] for frame in socket.steering()] == codes


def test_an_expired_connection_steers_no_response(serve) -> None:
    gate = Gate()
    limits = {"socket_limits": SocketLimits(lifetime=0)}
    engine = StagedEngine([gate, *steps(ANSWER)])
    with serve(engine, **limits) as url, client(url) as socket:
        socket.steer("resp_1", "x")
        socket.until("response.steer.failed")
    assert summary(socket.steering()[0]) == ("failed", "response_not_active", "x")


def test_the_openai_package_steers_a_response(serve) -> None:
    gate = Gate()
    kinds = []
    with serve(StagedEngine([*steps(ANSWER)[:5], gate, *steps(ANSWER)[5:]], steps(ANSWER))) as url:
        options = {"base_url": f"{url}/v1", "websocket_base_url": f"{url.replace('http', 'ws', 1)}/v1", "api_key": "none"}
        with OpenAI(**options) as openai, openai.responses.connect() as connection:
            if not hasattr(connection.response, "steer"):
                pytest.skip("this release of the openai package cannot steer")
            connection.response.create(model="staged", input="Hi")
            for event in connection:
                kinds.append(event.type)
                if kinds == ["response.created"]:
                    first_id = event.response.id
                elif event.type == "response.output_item.added" and kinds.count(event.type) == 1:  # so it ends after the gate
                    connection.response.steer(input="In French", previous_response_id=first_id)
                elif event.type == "response.steer.accepted":
                    assert gate.reached.wait(PATIENCE)
                    gate.open()
                elif event.type in ENDS and kinds.count("response.created") == 2:
                    break
    assert [kind for kind in kinds if kind in {"response.created", "response.completed", "response.steer.accepted"}] == [
        "response.created",
        "response.steer.accepted",
        "response.completed",
        "response.created",
        "response.completed",
    ]


# Twenty responses at once, each steered, cancelled, answered late or left alone while keep-alives break their silence


COUNT = 20
TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object"}, "async": True}
CREATE_ASYNC = {"type": "response.create", "model": "staged", "tools": [TOOL], "store": False}
TERMINAL_EVENTS = {"response.completed", "response.incomplete", "response.failed"}
WAITING, REST = steps(ANSWER)[:5], steps(ANSWER)[5:]


@define(eq=False)
class Crowd(Engine):
    """An engine whose first responses write half of an answer, wait for each other and for the test, and write the rest."""

    models = ("staged",)
    format = "harmony"

    reached: threading.Event = field(factory=threading.Event)
    prompts: list = field(factory=list)
    _waiting: int = 0
    _opened: asyncio.Event = field(factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None

    async def count(self, turn):
        return estimate_prompt(turn)

    async def generate(self, turn):
        texts = [item.get("content") or item.get("output") for item in turn.items if item["type"] != "reasoning"]
        self.prompts.append(texts)
        if texts[0].startswith("late") and len(texts) == 1:
            for each in steps(CALL + "<|call|>"):
                yield each
            return
        is_first = not {"steered", "found"}.intersection(map(str, texts))
        for each in WAITING:
            yield each
        if is_first:
            self._loop = asyncio.get_running_loop()
            self._waiting += 1
            if self._waiting == COUNT:
                self.reached.set()
            await self._opened.wait()
        for each in REST:
            yield each

    def open(self):
        self._loop.call_soon_threadsafe(self._opened.set)


def types(frames):
    return [frame["type"] for frame in frames]


def kind_of(number):
    return ("steer", "cancel", "late", "none")[number % 4]


def late_output(response_id, call_id):
    output = {"type": "function_call_output", "call_id": call_id, "output": "found"}
    return {"previous_response_id": response_id, "input": [output]}


def call_id_of(events):
    """The id of the call in a stream."""
    return next(
        each["item"]["call_id"] for each in events if each["type"] == "response.output_item.added" and "call_id" in each["item"]
    )


def streams_of(frames):
    """The frames of each response of a lane, without those about steering."""
    streams = []
    for frame in frames:
        if not frame["type"].startswith("response.steer."):
            streams += [[]] if frame["type"] == "response.created" else []
            streams[-1].append(frame)
    return streams


def is_over(number, frames):
    """Whether a lane has all its frames: those of a successor too, if its input was accepted, or a late output was sent."""
    is_alone = {"steer": "response.steer.failed" in types(frames), "late": False}.get(kind_of(number), True)
    return sum(each in TERMINAL_EVENTS for each in types(frames)) == 2 - is_alone


def action(number, frames):
    """The frame that disturbs a response, given its frames so far; None if it is left alone."""
    response_id, stream_id = frames[0]["response"]["id"], f"{number}"
    match kind_of(number):
        case "steer":
            return {"type": "response.steer", "previous_response_id": response_id, "input": "steered"}
        case "cancel":
            return {"type": "response.cancel", "stream_id": stream_id}
        case "late":
            return {**CREATE_ASYNC, "stream_id": stream_id, **late_output(response_id, call_id_of(frames))}
        case _:
            return None


def judge(number, frames, prompts):
    """Assert that the streams of a lane are legal, and that the model has read what was sent exactly once."""
    streams, kind = streams_of(frames), kind_of(number)
    assert [check(stream) for stream in streams] == [[]] * len(streams)
    statuses = [stream[-1]["response"]["status"] for stream in streams]
    read = [prompt for prompt in prompts if prompt[0] == f"{kind} {number}"]
    found = [(prompt.count(PENDING), prompt.count("found")) for prompt in read]
    assert found == ([(0, 0), (1, 0), (1, 1)] if kind == "late" else [(0, 0)] * len(streams))
    assert sum("steered" in prompt for prompt in read) == (len(streams) - 1 if kind == "steer" else 0)
    assert statuses in ([["cancelled"], ["completed"]] if kind == "cancel" else [["completed"] * len(streams)])


@pytest.mark.parametrize("stride", [1, 7, -1])
@pytest.mark.parametrize("place", [0, COUNT // 2])
def test_lanes_steered_cancelled_and_answered_late_at_once_lose_nothing(serve, stride, place) -> None:
    engine, lanes, names = Crowd(), {f"{number}": [] for number in range(COUNT)}, {}
    limits = {"keep_alive": 0.02, "socket_limits": SocketLimits(in_flight=2 * COUNT)}
    with serve(engine, **limits) as url, connect(url.replace("http", "ws", 1) + "/v1/responses", open_timeout=PATIENCE) as socket:

        def receive_until(condition):
            while not condition():
                frame = loads(socket.recv(timeout=PATIENCE))
                if frame["type"] == "response.created":
                    names[frame["response"]["id"]] = frame["stream_id"]
                # A frame that returns input for an ended response has its id, but no lane.
                lanes[frame.pop("stream_id", None) or names[frame["steer"]["previous_response_id"]]].append(frame)

        for number in range(COUNT):
            socket.send(json.dumps({**CREATE_ASYNC, "stream_id": f"{number}", "input": f"{kind_of(number)} {number}"}))
        receive_until(lambda: engine.reached.is_set() and all("keepalive" in types(each) for each in lanes.values()))
        numbers = [stride * number % COUNT for number in range(COUNT)]
        frames = [frame for number in numbers if (frame := action(number, lanes[f"{number}"])) is not None]
        for index, frame in enumerate(frames):
            if index == place:
                engine.open()
            socket.send(json.dumps(frame))
        receive_until(lambda: all(is_over(int(name), each) for name, each in lanes.items()))
    for name, each in lanes.items():
        judge(int(name), each, engine.prompts)


def test_background_responses_cancelled_and_answered_late_at_once_stay_legal(serve) -> None:
    engine = Crowd()

    async def race(url):
        async with httpx.AsyncClient(base_url=f"{url}/v1", timeout=PATIENCE) as client:

            async def create(**fields):
                answer = await client.post("/responses", json={"model": "staged", "tools": [TOOL], **fields})
                return answer.json()

            async def act(number):
                response_id = first[number]["id"]
                match kind_of(number):
                    case "cancel":
                        return (await client.post(f"/responses/{response_id}/cancel")).json()["status"]
                    case "late":
                        started = bodies((await client.get(f"/responses/{response_id}?stream=true")).content)
                        return (await create(**late_output(response_id, call_id_of(started))))["status"]
                    case _:
                        return "completed"

            async def read(number):
                return bodies((await client.get(f"/responses/{first[number]['id']}?stream=true")).content)

            first = await asyncio.gather(
                *(create(input=f"{kind_of(number)} {number}", background=True) for number in range(COUNT))
            )
            await asyncio.to_thread(engine.reached.wait, PATIENCE)
            reading = asyncio.gather(*map(read, range(COUNT)))
            acting = asyncio.gather(*map(act, range(COUNT)))
            engine.open()
            return await acting, await reading

    with serve(engine, keep_alive=0.02) as url:
        ends, streams = asyncio.run(race(url))
    assert [check(stream) for stream in streams] == [[]] * COUNT
    statuses = [stream[-1]["response"]["status"] for stream in streams]
    for number, (end, status) in enumerate(zip(ends, statuses, strict=True)):
        assert end == "completed" if kind_of(number) != "cancel" else end == status in {"cancelled", "completed"}
