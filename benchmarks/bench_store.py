"""The cost of each store per event, per response and per token of a stream, and with many clients at once.

    PYTHONPATH=tests/support python benchmarks/bench_store.py

The figures of events and responses are the wall time of one process, divided by their number. tests/support/store_fleet.py has
the clients. Postgres runs on this machine, and is skipped if it is not installed.

The figures of a token are the CPU time of the process, with the threads of its store. They contain neither the server of the
store nor the HTTP server, which in vLLM needs several times as much; see docs/evidence/performance.md. 32 streams at a time
receive a token every 5 ms, and process it as the plugin in vLLM does: with its parser, the run, the driver and the writer of
frames. Meanwhile one client reads each background response.

The figures go to benchmarks/out/store.json; `benchmarks/write_docs.py` copies them to docs/evidence/performance/stores.md.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from attrs import frozen
from live.stores import BINARIES
from one_run import OneRun, begin_response
from runs import this_run
from speed.ours import chunk_of
from speed.outputs import ANSWER, REQUEST, encode, output, outputs, prose
from store_fleet import ask_at_once, first_events, fleet_of, postgres_server, stream_at_once

from interlock.events.sse import SseWriter
from interlock.parsers import Chunk, Format
from interlock.serving.engines.engine import Engine, EngineOutput, Turn
from interlock.serving.requests.create import read_request
from interlock.serving.responses.archive import Archive, follow
from interlock.serving.responses.background_response import BackgroundRegistry
from interlock.serving.responses.run import RequestContext
from interlock.serving.store import open_store
from interlock.serving.store.response_store import ResponseStore
from interlock.serving.store.values import Lease, StoredResponse

OUT: Final = Path(__file__).parent / "out" / "store.json"
FRAME: Final = b"event: response.output_text.delta\ndata: " + b"x" * 211 + b"\n\n"
"""An event of 254 bytes, the size of a text delta of one token."""

EVENTS: Final = 2_048
BATCH: Final = 32
RESPONSES: Final = 512
ROUNDS: Final = 3
FOREGROUND: Final = 400
STREAMED: Final = 200
FIRST_ROUNDS: Final = 20


def main() -> None:
    """Measure each store, and write the figures."""
    figures: dict[str, dict[str, dict[str, float]]] = {"stores": {}, "streams": {}, "loads": {}}
    for name, url in stores():
        figures["loads"][name] = loaded(url)  # first, because the others leave unfinished responses
        figures["stores"][name] = asyncio.run(measured(url))
        figures["streams"][name] = asyncio.run(streamed(url))
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"run": this_run(), **figures}, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


def stores() -> Iterator[tuple[str, str]]:
    """Start each store in turn, and yield its name in the table and its URL."""
    yield "`memory:`", "memory:"
    with tempfile.TemporaryDirectory() as folder:
        yield "`sqlite:PATH`", f"sqlite:{folder}/normal.db"
        yield "`sqlite:PATH?synchronous=full`", f"sqlite:{folder}/full.db?synchronous=full"
    if BINARIES is None:
        print("skipped Postgres: there is no postgres", file=sys.stderr)
    else:
        with postgres_server("fsync=on") as postgres:
            yield "Postgres", postgres.url


def loaded(url: str) -> dict[str, float]:
    """Return the figures of a server process with many clients at once, in milliseconds."""
    with fleet_of(1, Random(1), store=url) as fleet:  # noqa: S311 - a seed repeats the choices
        urls = [server.url for server in fleet.servers]
        asyncio.run(ask_at_once(urls, 24))  # warms up
        begun = time.perf_counter()
        asyncio.run(ask_at_once(urls, FOREGROUND))
        seconds = time.perf_counter() - begun
        first = sorted(asyncio.run(first_events(urls, 24, FIRST_ROUNDS)))
        streams = asyncio.run(stream_at_once(urls, STREAMED))
        readers = sorted(reader.seconds for both, _ in streams for reader in both)
    figures = {
        f"{FOREGROUND} responses at once, and their `GET`": seconds,
        "first event of 24 at once, median": median(first),
        "first event of 24 at once, p99": first[len(first) * 99 // 100],
        f"first event of {STREAMED} at once with two readers each, p99": readers[len(readers) * 99 // 100],
    }
    return {name: round(1000 * value, 1) for name, value in figures.items()}


async def measured(url: str) -> dict[str, float]:
    """Return the figures of a store, in microseconds."""
    store = open_store(url)
    numbers = iter(range(1_000_000))
    await store.put("", response(next(numbers)))
    figures: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        lease = await enqueued(store, next(numbers))
        note(figures, "event", EVENTS, await took(lambda: appended(store, lease, 0, 1)))  # noqa: B023 - awaited at once
        note(figures, "event of a batch", EVENTS, await took(lambda: appended(store, lease, EVENTS, BATCH)))  # noqa: B023 - likewise
        leases = [await enqueued(store, next(numbers)) for _ in range(BATCH)]
        together = await took(lambda: asyncio.gather(*(appended(store, each, 0, BATCH) for each in leases)))  # noqa: B023 - likewise
        note(figures, "event of a batch, 32 at a time", EVENTS * BATCH, together)
        new = [response(next(numbers)) for _ in range(2 * RESPONSES)]
        note(figures, "response", RESPONSES, await took(lambda: put_all(store, new[:RESPONSES])))  # noqa: B023 - likewise
        shares = [new[RESPONSES + number :: BATCH] for number in range(BATCH)]
        together = await took(lambda: asyncio.gather(*(put_all(store, share) for share in shares)))  # noqa: B023 - likewise
        note(figures, "response, 32 at a time", sum(map(len, shares)), together)
    await store.close()
    return {name: round(median(values), 1) for name, values in figures.items()}


def note(figures: dict[str, list[float]], name: str, count: int, seconds: float) -> None:
    """Add the microseconds that each of `count` took to the figures."""
    figures.setdefault(name, []).append(seconds / count * 1e6)


async def took(work: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds that the work takes."""
    begun = time.perf_counter()
    await work()
    return time.perf_counter() - begun


async def enqueued(store: ResponseStore, number: int) -> Lease:
    """Enqueue a background response."""
    return await store.enqueue("", response(number), "bench")


async def appended(store: ResponseStore, lease: Lease, first: int, batch: int) -> None:
    """Append `EVENTS` events, `batch` at a time."""
    for start in range(first, first + EVENTS, batch):
        await store.append(lease, start, [FRAME] * batch)


async def put_all(store: ResponseStore, responses: list[StoredResponse]) -> None:
    """Store responses one after another."""
    for each in responses:
        await store.put("", each)


def response(number: int) -> StoredResponse:
    """Return a response of the usual size: a question, and an answer of a kilobyte."""
    question = {"id": f"msg_q{number}", "type": "message", "role": "user", "content": f"Question {number}?"}
    content = [{"type": "output_text", "text": "word " * 200, "annotations": []}]
    answer = {"id": f"msg_a{number}", "type": "message", "role": "assistant", "status": "completed", "content": content}
    settings = {"object": "response", "status": "completed", "model": "any", "tools": [], "metadata": {}}
    return StoredResponse({"id": f"resp_{number}", **settings, "output": [answer]}, (question,))


# The cost of a token: not stored, in the foreground, in the background.

STREAMS: Final = 32
TOKENS: Final = 256
WRITE: Final = "the write at its end alone"
"""The name of the figure for the write that only stored foreground streams have."""

PACE: Final = 0.005
"""Seconds between two tokens of a stream."""

HEAD: Final = output(encode(ANSWER))
BODY: Final = outputs(prose(TOKENS))


@frozen
class Paced(Engine):
    """An engine that yields prepared outputs."""

    models: Sequence[str] = ("model",)
    format: Format = "harmony"

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield an output every `PACE` seconds."""
        del turn
        yield EngineOutput(chunk_of(HEAD))
        for step in BODY:
            await asyncio.sleep(PACE)
            yield EngineOutput(chunk_of(step))
        yield EngineOutput(Chunk([]), "stop")


def _run(store: ResponseStore | None) -> OneRun[bytes]:
    """Return the run of a response, which is stored at its end if there is a store."""
    request = read_request({**REQUEST, "stream": True})
    context = RequestContext(request, request.input)
    return begin_response(context, Paced(), SseWriter(), archive=None if store is None else Archive(store))


async def streamed(url: str) -> dict[str, float]:
    """Return the CPU time per token in microseconds, by the name of the figure: medians of rounds."""
    store = open_store(url)
    figures: dict[str, list[float]] = {way: [] for way in (*WAYS, WRITE)}
    ended = await _ended()
    for _ in range(ROUNDS):
        for way, make in WAYS.items():
            figures[way].append(await _cost([make(store) for _ in range(STREAMS)]))
        figures[WRITE].append(await _cost([store.put("", ended) for _ in range(STREAMS)]))
    await store.close()
    return {way: round(median(costs), 2) for way, costs in figures.items()}


async def _cost(responses: Sequence[Coroutine[object, object, None]]) -> float:
    """Return the CPU time per token of responses that are made at once, in microseconds."""
    began = time.process_time()
    await asyncio.gather(*responses)
    return (time.process_time() - began) / (len(responses) * TOKENS) * 1e6


async def _foreground(store: ResponseStore | None) -> None:
    """Create a foreground response, and join its frames."""
    async for frames in _run(store).events():
        b"".join(frames)


async def _ended() -> StoredResponse:
    """Return an ended response."""
    run = _run(None)
    async for _ in run.events():
        pass
    return run.stored


async def _background(store: ResponseStore) -> None:
    """Create a background response, and read it meanwhile."""
    run = _run(None)
    background_registry = BackgroundRegistry(Archive(store))
    queued = await background_registry.begin(run)
    async for frames in follow(store, "", queued.id, owner="reader", poll=1.0):
        b"".join(frames)
    await background_registry.wait(60)


WAYS: Final[Mapping[str, Callable[[ResponseStore], Coroutine[object, object, None]]]] = {
    "not stored": lambda _store: _foreground(None),
    "foreground": _foreground,
    "background": _background,
}


if __name__ == "__main__":
    main()
