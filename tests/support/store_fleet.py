"""Stores of each kind, server processes with one store, and clients that use any of them, even while processes are killed."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import IO

import httpx
import pytest
from attrs import define, field, frozen
from live.stores import BINARIES, PostgresServer


@frozen
class Local:
    """A store without a server."""

    url: str


@contextmanager
def postgres_server(*settings, **others):
    """Start a server of Postgres."""
    if BINARIES is None:
        pytest.skip("there is no postgres")
    with closing(PostgresServer(*settings, **others)) as server:
        yield server


KINDS = {
    "memory": lambda _folder: nullcontext(Local("memory:")),
    "sqlite": lambda folder: nullcontext(Local(f"sqlite:{folder}/store.db")),
    "postgres": lambda _folder, **settings: postgres_server(**settings),
}
"""Each starts an empty store, whose files are in a folder, and yields an object with its `url`."""

SHARED = KINDS.keys() - {"memory"}
"""The kinds that several processes can share."""


BODY = {"model": "interlock-embedded", "background": True}
WORDS = "Say something long about the rivers of Europe, one after another"
AGAIN = 0.05
"""Seconds until a refused client tries again."""


@define(eq=False)
class Server:
    """One server process.

    Args:
        store: The URL of its store.
        prefix: The beginning of its command.
        environment: Variables that it has besides those of the tests.
    """

    store: str
    prefix: tuple = ()
    environment: dict = field(factory=dict)
    url: str = field(default="", init=False)
    process: subprocess.Popen = field(init=False)
    log: IO = field(factory=tempfile.TemporaryFile, init=False)
    """The log of all its runs. A pipe would block them once it is full."""

    def start(self):
        command = [str(Path(sys.executable).with_name("interlock")), "serve", "--port", "0", "--store", self.store]
        command += ["--rate", "60", "--max-streams", "400"]
        environment = {**os.environ, **self.environment}
        self.process = subprocess.Popen([*self.prefix, *command], stderr=self.log, env=environment)  # noqa: S603 - the command of this project
        offset = len(self.logged())
        while not (url := self.logged()[offset:].partition(" at ")[2].partition("\n")[0].strip()):
            assert self.process.poll() is None, self.logged()
            time.sleep(AGAIN)
        self.url = url

    def kill(self):
        self.url = ""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Interrupt the process, and return its log."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)
        with self.log:
            return self.logged()

    def logged(self):
        return os.pread(self.log.fileno(), 2**24, 0).decode()  # `read` would move the position at which the process writes


@define
class Reading:
    """The events of a response that one reader has received, and how often it has resumed."""

    response_id: str
    frames: list = field(factory=list)
    resumed: int = 0


@frozen
class Fleet:
    """Server processes with one store."""

    servers: list
    chance: Random

    def any(self):
        return self.chance.choice([url for server in self.servers if (url := server.url)])

    def ask(self, method, path, **options):
        """Send a request to any server until one answers with 200, and return the body."""
        with httpx.Client(timeout=60) as client:
            while True:
                try:
                    answer = client.request(method, f"{self.any()}/responses{path}", **options)
                except httpx.HTTPError:
                    time.sleep(AGAIN)
                    continue
                if answer.status_code == 200:
                    return answer.json()
                assert answer.status_code == 503, answer.text
                time.sleep(AGAIN)

    def begin(self):
        """Create a background response, and return its id."""
        return self.ask("POST", "", json={**BODY, "input": WORDS})["id"]

    def cancel(self, response_id):
        """Cancel a response, and return its status."""
        return self.ask("POST", f"/{response_id}/cancel")["status"]

    def read(self, response_id, deadline):
        """Read a response to its end; after a disconnection, resume at any server."""
        reading = Reading(response_id)
        with httpx.Client(timeout=60) as client:
            while time.monotonic() < deadline:
                query = {"stream": "true"} | ({"starting_after": len(reading.frames) - 1} if reading.frames else {})
                try:
                    with client.stream("GET", f"{self.any()}/responses/{response_id}", params=query) as answer:
                        if answer.status_code == 200 and self._take(reading, answer):
                            return reading
                except httpx.HTTPError:
                    pass
                reading.resumed += 1
                time.sleep(AGAIN)
        raise AssertionError(f"{response_id}: no end after {len(reading.frames)} events")

    def _take(self, reading, answer):
        rest = b""
        for piece in answer.iter_bytes():
            *whole, rest = (rest + piece).split(b"\n\n")
            for frame in whole:
                if frame == b"data: [DONE]":
                    return True
                if not frame.startswith(b":"):  # a comment breaks a silence
                    reading.frames.append(frame + b"\n\n")
            if self.chance.random() < 0.002:
                return False  # the client disconnects on purpose
        return False


@contextmanager
def fleet_of(processes, chance, **settings):
    """Run server processes with one store, and check at the end that their logs have no traceback."""
    servers = [Server(**settings) for _ in range(processes)]
    with ThreadPoolExecutor(processes) as threads:
        try:
            [*threads.map(Server.start, servers)]
            yield Fleet(servers, chance)
        finally:
            logged = [*threads.map(Server.stop, servers)]
        assert [text for text in logged if "Traceback" in text] == []


REQUEST = {"model": "interlock-embedded", "input": "Say something about the rivers of Europe"}
BACKGROUND = {**REQUEST, "background": True}


@define
class Answer:
    """The answer to a client: the status and the body, or the frames of a stream and the seconds until the first."""

    status: int = 0
    body: object = None
    frames: list = field(factory=list)
    seconds: float = 0.0


@asynccontextmanager
async def clients():
    """Open a client that uses a new connection for each request."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        yield client


async def ask_at_once(urls, count):
    """Request responses from one process at once, then fetch them from all processes; return both answers for each."""
    async with clients() as client:
        created = await asyncio.gather(*(_answer(client, "POST", urls[0], json=REQUEST) for _ in range(count)))
        fetched = await _fetch(client, urls, [answer.body["id"] for answer in created])
    return list(zip(created, fetched, strict=True))


async def create_at_once(urls, count):
    """Create background responses in one process at once."""
    async with clients() as client:
        return await asyncio.gather(*(_answer(client, "POST", urls[0], json=BACKGROUND) for _ in range(count)))


async def stream_at_once(urls, count, readers=2):
    """Create background responses at once, each with readers at other processes.

    Return, for each, the answers to its readers, and the stored response.
    """
    async with clients() as client:

        async def stream(number):
            created = await _answer(client, "POST", urls[number % len(urls)], json=BACKGROUND)
            places = [urls[(number + 1 + reader) % len(urls)] for reader in range(readers)]
            path = f"/{created.body['id']}?stream=true"
            return await asyncio.gather(*(_answer(client, "GET", url, path) for url in places))

        streams = await asyncio.gather(*(stream(number) for number in range(count)))
        names = [answers[0].body["response"]["id"] for answers in streams]
        fetched = await _fetch(client, urls, names)
    return list(zip(streams, fetched, strict=True))


async def first_events(urls, count, rounds):
    """Stream `count` background responses at once in each round; return the seconds until the first event of each."""
    seconds = []
    async with clients() as client:
        for _ in range(rounds):
            body = {**BACKGROUND, "stream": True}
            answers = [_answer(client, "POST", urls[number % len(urls)], json=body) for number in range(count)]
            seconds += [answer.seconds for answer in await asyncio.gather(*answers)]
    return seconds


async def _fetch(client, urls, names):
    """Fetch responses, from the processes in turn."""
    return await asyncio.gather(
        *(_answer(client, "GET", urls[(number + 1) % len(urls)], f"/{name}") for number, name in enumerate(names))
    )


async def _answer(client, method, url, path="", **request):
    answer, began, rest = Answer(), time.perf_counter(), b""
    async with client.stream(method, f"{url}/responses{path}", **request) as received:
        answer.status = received.status_code
        if not received.headers["content-type"].startswith("text/event-stream"):
            await received.aread()
            answer.body = received.json()
            answer.seconds = time.perf_counter() - began
            return answer
        async for piece in received.aiter_bytes():
            answer.seconds = answer.seconds or time.perf_counter() - began
            *whole, rest = (rest + piece).split(b"\n\n")
            answer.frames += [frame + b"\n\n" for frame in whole]
    last = answer.frames[-2].partition(b"data: ")[2]  # before `[DONE]`
    answer.body = httpx.Response(200, content=last).json()
    return answer
