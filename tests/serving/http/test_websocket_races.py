"""Twenty responses at once, each steered, cancelled, answered late or left alone while keep-alives break their silence."""

import asyncio
import json
import threading

import httpx
import pytest
from attrs import define, field
from live.engines import ANSWER, CALL, steps
from live.wire import bodies
from websockets.sync.client import connect

from interlock.events.json import loads
from interlock.serving.engines.engine import Engine
from interlock.serving.engines.prompt import count_prompt
from interlock.serving.requests.normalize import PENDING
from interlock.serving.settings import SocketLimits
from interlock.verify.oracle import check

PATIENCE = 60
COUNT = 20
TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object"}, "async": True}
CREATE = {"type": "response.create", "model": "staged", "tools": [TOOL], "store": False}
ENDS = {"response.completed", "response.incomplete", "response.failed"}
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
        return count_prompt(turn)

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


def called(events):
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
    return sum(each in ENDS for each in types(frames)) == 2 - is_alone


def action(number, frames):
    """The frame that disturbs a response, of which these frames have come; None for one that is left alone."""
    response_id, stream_id = frames[0]["response"]["id"], f"{number}"
    match kind_of(number):
        case "steer":
            return {"type": "response.steer", "previous_response_id": response_id, "input": "steered"}
        case "cancel":
            return {"type": "response.cancel", "stream_id": stream_id}
        case "late":
            return {**CREATE, "stream_id": stream_id, **late_output(response_id, called(frames))}
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
def test_lanes_that_are_steered_cancelled_and_answered_late_at_once_stay_legal_and_lose_nothing(serve, stride, place) -> None:
    engine, lanes, names = Crowd(), {f"{number}": [] for number in range(COUNT)}, {}
    limits = {"keep_alive": 0.02, "socket_limits": SocketLimits(in_flight=2 * COUNT)}
    with serve(engine, **limits) as url, connect(url.replace("http", "ws", 1) + "/v1/responses", open_timeout=PATIENCE) as socket:

        def receive_until(condition):
            while not condition():
                frame = loads(socket.recv(timeout=PATIENCE))
                if frame["type"] == "response.created":
                    names[frame["response"]["id"]] = frame["stream_id"]
                # What is sent back of a response that has left its lane only names the response.
                lanes[frame.pop("stream_id", None) or names[frame["steer"]["previous_response_id"]]].append(frame)

        for number in range(COUNT):
            socket.send(json.dumps({**CREATE, "stream_id": f"{number}", "input": f"{kind_of(number)} {number}"}))
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


def test_background_responses_that_are_cancelled_and_answered_late_at_once_stay_legal(serve) -> None:
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
                        return (await create(**late_output(response_id, called(started))))["status"]
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
