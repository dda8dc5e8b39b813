"""Sends many requests at once to server processes with one store, for tests and for benchmarks/bench_store.py."""

import asyncio
import time
from contextlib import asynccontextmanager

import httpx
from attrs import define, field

BODY = {"model": "interlock-embedded", "input": "Say something about the rivers of Europe"}
BACKGROUND = {**BODY, "background": True}


@define
class Answer:
    """What a client has received: the status and the body, or the frames of a stream and the seconds until the first."""

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
        created = await asyncio.gather(*(_answer(client, "POST", urls[0], json=BODY) for _ in range(count)))
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
