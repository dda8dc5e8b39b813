"""The cost per token of streams that are not stored, in the foreground, and in the background; part of `bench_store.py`.

32 streams at a time receive a token every 5 ms, and process it as the plugin in vLLM does: with its parser, the run, the driver
and the writer of frames. One client reads each background response meanwhile. The figures are the CPU time of the process, with
the threads of its store. They contain neither the server of the store nor the HTTP server, which in vLLM needs several times as
much per token; see docs/evidence/performance.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from statistics import median
from time import process_time
from typing import Final

from attrs import frozen
from one_run import OneRun, begin_response
from speed.ours import chunk_of
from speed.outputs import ANSWER, REQUEST, encode, output, outputs, prose

from interlock.events.sse import SseWriter
from interlock.parsers import Chunk, Format
from interlock.serving.engines.engine import Engine, EngineOutput, Turn
from interlock.serving.requests.create import read_request
from interlock.serving.responses.archive import Archive, follow
from interlock.serving.responses.background_response import BackgroundRegistry
from interlock.serving.responses.run import RequestContext
from interlock.serving.store import open_store
from interlock.serving.store.response_store import ResponseStore
from interlock.serving.store.values import StoredResponse

__all__ = ["streamed"]

STREAMS: Final = 32
TOKENS: Final = 256
WRITE: Final = "the write at its end alone"
"""The name of the figure for the write that only stored foreground streams have."""

PACE: Final = 0.005
"""Seconds between two tokens of a stream."""

ROUNDS: Final = 3
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
    """Return the CPU time per token in microseconds, by the name of the figure: medians of rounds.

    Args:
        url: The URL of the store.
    """
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
    began = process_time()
    await asyncio.gather(*responses)
    return (process_time() - began) / (len(responses) * TOKENS) * 1e6


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
