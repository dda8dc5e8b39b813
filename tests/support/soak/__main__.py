"""Soak a server.

Clients of every kind come and go, and every stream is judged. Once a second, the script reads the server's memory, its
allocations, its tasks, its file descriptors and the size of its store. It reports the slope of each in the second half, in which
all caches and stores are full, with a confidence interval of 95 %. The exit status is 1 if one of them certainly grows faster
than its bound.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import sqrt
from pathlib import Path
from random import Random
from statistics import fmean, linear_regression

import httpx
from attrs import define, field, frozen
from campaigns import any_seed, options
from live.watched import descriptors_of, memory_of
from soak.server import BREAK, CHATTER
from websockets.asyncio.client import connect

from interlock.testing import assert_legal

BLOCKS = 12
"""The number of means that replace a series: consecutive readings are alike, but means of long stretches nearly independent."""

CERTAINTY = 2.228
"""Student's t for 10 degrees of freedom, two-sided 95 %."""


@frozen
class Trend:
    """A line through a series.

    Args:
        level: Its mean.
        slope: Of the line, in units an hour.
        margin: The error of the slope, to either side, with 95 % certainty.
    """

    level: float
    slope: float
    margin: float

    @property
    def bound(self) -> float:
        """The slope with which it would be half as large again after a day."""
        return self.level / 2 / 24

    @property
    def grows(self) -> bool:
        """Whether the slope is beyond the bound for certain."""
        return self.slope - self.margin > self.bound


def trend(times: Sequence[float], values: Sequence[float]) -> Trend:
    """Return the line through a series.

    Args:
        times: Seconds, growing; at least 12 of them.
        values: What was read then.
    """
    hours = _blocks([time / 3600 for time in times])
    means = _blocks(values)
    slope, intercept = linear_regression(hours, means)
    middle = fmean(hours)
    residue = sum((mean - intercept - slope * hour) ** 2 for hour, mean in zip(hours, means, strict=True))
    spread = sum((hour - middle) ** 2 for hour in hours)
    return Trend(fmean(values), slope, CERTAINTY * sqrt(residue / (BLOCKS - 2) / spread))


def _blocks(values: Sequence[float]) -> list[float]:
    """Return the means of twelve stretches of nearly one length."""
    bounds = [round(len(values) * block / BLOCKS) for block in range(BLOCKS + 1)]
    return [fmean(values[start:end]) for start, end in pairwise(bounds)]


MODEL = "interlock-embedded"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ENDS = ("response.completed", "response.incomplete", "response.failed")
PATIENCE = 120


@frozen
class Place:
    """A server, and the random source of the requests to it.

    Args:
        url: Its URL.
        client: The HTTP client.
        chance: The random source.
    """

    url: str
    client: httpx.AsyncClient
    chance: Random

    def body(self, words: str = "Tell me about trains", **fields: object) -> dict[str, object]:
        """Return the body of a request."""
        return {"model": MODEL, "input": f"{words} {self.chance.randrange(10**9)}", **fields}

    async def post(self, body: Mapping[str, object]) -> dict[str, object]:
        """Send a request that is answered in one piece, and return the response."""
        answer = await self.client.post(f"{self.url}/v1/responses", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def stream(self, body: Mapping[str, object]) -> dict[str, object]:
        """Send a request, judge its stream, and return the response of its end."""
        answer = await self.client.post(f"{self.url}/v1/responses", json={**body, "stream": True})
        return _judged(answer)


def _judged(answer: httpx.Response) -> dict[str, object]:
    assert answer.status_code == 200, answer.text
    assert_legal(answer.content, strict=True)
    return dict(json.loads(answer.content.split(b"\ndata: ")[-2].partition(b"\n")[0])["response"])


async def stream_a_response(at: Place) -> None:
    """Request a stream, stored or not."""
    response = await at.stream(at.body(store=at.chance.random() < 0.5))
    assert response["status"] == "completed"


async def ask_without_streaming(at: Place) -> None:
    """Request a response without streaming."""
    assert (await at.post(at.body(store=False)))["status"] == "completed"


async def continue_responses(at: Place) -> None:
    """Continue from response to response, and delete the last one."""
    previous: object = None
    for _ in range(4):
        response = await at.stream(at.body(previous_response_id=previous))
        previous = response["id"]
    answer = await at.client.delete(f"{at.url}/v1/responses/{previous}")
    assert answer.json()["deleted"] is True


async def call_a_function(at: Place) -> None:
    """Let the model call a function, and send its result."""
    called = await at.stream(at.body("Get the weather of: Berlin", tools=[WEATHER]))
    output = called["output"]
    assert isinstance(output, list)
    (call,) = [item for item in output if item["type"] == "function_call"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    answered = await at.stream({"model": MODEL, "input": [result], "tools": [WEATHER], "previous_response_id": called["id"]})
    assert answered["status"] == "completed"


async def disconnect(at: Place) -> None:
    """Disconnect in the middle of a stream."""
    body = at.body("Tell a long story about trains " * 20, stream=True, store=False)
    async with at.client.stream("POST", f"{at.url}/v1/responses", json=body) as answer:
        pieces = answer.aiter_raw()
        for _ in range(at.chance.randrange(4)):
            await anext(pieces, None)


async def read_slowly(at: Place) -> None:
    """Read a long stream at a kilobyte a second, and then either disconnect or read the rest."""
    words = f"{at.chance.randrange(10**9)} Tell a story, and {CHATTER}"
    body = {"model": MODEL, "input": words, "stream": True, "store": at.chance.random() < 0.5}
    async with at.client.stream("POST", f"{at.url}/v1/responses", json=body) as answer:
        pieces, read = answer.aiter_raw(1024), bytearray()
        for _ in range(3):
            read += await anext(pieces)
            await asyncio.sleep(1)
        if at.chance.random() < 0.5:
            return
        async for piece in pieces:
            read += piece
    assert_legal(bytes(read), strict=True)


async def break_the_engine(at: Place) -> None:
    """Make the engine fail; the response fails legally."""
    response = await at.stream({"model": MODEL, "input": f"Hello and {BREAK}", "store": False})
    assert (response["status"], response["error"]) == (
        "failed",
        {"code": "server_error", "message": "It was told to break.", "type": "server_error"},
    )


async def read_a_background_response(at: Place) -> None:
    """Begin a background response, read its whole stream, and then a part of it again."""
    background = await at.post(at.body(background=True))
    url = f"{at.url}/v1/responses/{background['id']}"
    whole = await at.client.get(url, params={"stream": "true"})
    assert _judged(whole)["status"] == "completed"
    rest = await at.client.get(url, params={"stream": "true", "starting_after": "3"})
    assert whole.content.endswith(rest.content)


async def cancel_a_background_response(at: Place) -> None:
    """Begin a background response, and cancel it."""
    background = await at.post(at.body("Tell a long story about trains " * 20, background=True))
    answer = await at.client.post(f"{at.url}/v1/responses/{background['id']}/cancel")
    assert answer.json()["status"] in {"cancelled", "completed"}, answer.text


async def send_an_invalid_request(at: Place) -> None:
    """Send an invalid request."""
    sent = at.chance.choice((b"{", b"[]", b'{"model": 1}', b'{"model": "interlock-embedded"}', b"\xff"))
    headers = {"content-type": "application/json"}
    answer = await at.client.post(f"{at.url}/v1/responses", content=sent, headers=headers)
    assert [*answer.json()["error"]] == ["message", "type", "param", "code"]
    assert answer.status_code == 400


async def use_two_lanes(at: Place) -> None:
    """Run requests in two lanes of one WebSocket, and disconnect while another request begins."""
    async with connect(at.url.replace("http", "ws", 1) + "/v1/responses", open_timeout=PATIENCE) as socket:
        for _ in range(2):
            for lane in ("a", "b"):
                await socket.send(json.dumps({"type": "response.create", "stream_id": lane, **at.body(store=False)}))
        frames = {"a": [dict[str, object]()][:0], "b": [dict[str, object]()][:0]}
        ended = 0
        while ended < 4:
            frame = json.loads(await socket.recv())
            frames[frame.pop("stream_id")].append(frame)
            ended += frame["type"] in ENDS
        for received in frames.values():
            last = [place for place, frame in enumerate(received, 1) if frame["type"] in ENDS]
            for start, end in zip([0, *last], last, strict=False):
                assert_legal(received[start:end], strict=True)
        await socket.send(json.dumps({"type": "response.create", **at.body()}))


VISITS: tuple[tuple[Callable[[Place], Awaitable[None]], int], ...] = (
    (stream_a_response, 6),
    (ask_without_streaming, 2),
    (continue_responses, 2),
    (call_a_function, 3),
    (disconnect, 4),
    (read_slowly, 2),
    (break_the_engine, 2),
    (read_a_background_response, 3),
    (cancel_a_background_response, 2),
    (send_an_invalid_request, 2),
    (use_two_lanes, 2),
)
"""The visits of clients, each with its weight."""


AT_ONCE = 6
"""The number of concurrent clients."""


@define
class Readings:
    """The figures of a server over time.

    Args:
        pid: The number of its process.
        times: Seconds since it began, of each reading.
        series: The values of each figure, by name.
    """

    pid: int
    times: list[float] = field(factory=list[float])
    series: dict[str, list[float]] = field(factory=dict[str, list[float]])

    async def record(self, at: Place) -> None:
        """Read once a second."""
        began = time.monotonic()
        while True:
            figures = (await at.client.get(f"{at.url}/figures")).json()
            self.times.append(time.monotonic() - began)
            read = {"memory, KiB": memory_of(self.pid) / 1024, "file descriptors": descriptors_of(self.pid), **figures}
            for name, value in read.items():
                self.series.setdefault(name, []).append(value)
            await asyncio.sleep(1)

    def report(self) -> tuple[list[str], bool]:
        """Return a line for each figure, and whether one of them grows."""
        half = len(self.times) // 2
        trends = {name: trend(self.times[half:], values[half:]) for name, values in self.series.items()}
        lines = [
            f"{name}: {each.level:,.0f}, {each.slope:+,.1f} ± {each.margin:,.1f} an hour, of {each.bound:+,.1f}"
            for name, each in trends.items()
        ]
        return lines, any(each.grows for each in trends.values())


async def soak(url: str, pid: int, seconds: float, seed: int) -> tuple[Counter[str], Readings]:
    """Send clients to a server for some time.

    Args:
        url: The server's.
        pid: The number of its process.
        seconds: How long.
        seed: Of the chance that decides what they do.

    Returns:
        The number of visits of each client, and the figures of the server meanwhile.

    Raises:
        ExceptionGroup: A client received a wrong answer.
    """
    end = time.monotonic() + seconds
    done, readings = Counter[str](), Readings(pid)
    visits, weights = zip(*VISITS, strict=True)
    chance = [Random(f"{seed}-{number}") for number in range(AT_ONCE)]  # noqa: S311 - what is asked can be asked again

    async def visit(at: Place) -> None:
        while time.monotonic() < end:
            (chosen,) = at.chance.choices(visits, weights)
            await chosen(at)
            done[chosen.__name__] += 1

    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        reading = asyncio.create_task(readings.record(Place(url, client, chance[0])))
        try:
            async with asyncio.TaskGroup() as group:
                for each in chance:
                    group.create_task(visit(Place(url, client, each)))
        finally:
            reading.cancel()
            await asyncio.wait([reading])
    return done, readings


@contextmanager
def soaked_server() -> Generator[tuple[str, int]]:
    """Start the server to be soaked; yield its URL and the number of its process."""
    command, place = [sys.executable, "-m", "soak.server"], Path(__file__).parents[1]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


def main(minutes: float, seed: int) -> int:
    """Soak for some minutes; return the exit status."""
    with soaked_server() as (url, pid):
        done, readings = asyncio.run(soak(url, pid, minutes * 60, seed))
    lines, grows = readings.report()
    sys.stdout.write("\n".join([f"{done.total():,} visits, seed {seed}: {dict(done)}", *lines, ""]))
    return int(grows)


if __name__ == "__main__":
    sys.exit(main(**options(__doc__, minutes=5.0, seed=any_seed())))
