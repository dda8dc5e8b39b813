"""The cost per token of streams that are not stored, in the foreground, and in the background; part of `make bench-store`.

32 streams at a time receive a token every 5 ms, and process it as the plugin in vLLM does: with its parser, the run, the driver
and the writer of frames. One client reads each background response meanwhile. The figures are the CPU time of the process, with
the threads of its store. They contain neither the server of the store nor the HTTP server, which in vLLM needs several times as
much per token; see docs/performance.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from statistics import median
from time import process_time
from typing import Final

from attrs import define, field
from speed.ours import begin, chunk_of, harmony
from speed.outputs import ANSWER, REQUEST, encode, output, outputs, prose

from interlock.fsm.deltas import Delta, Finish, Start, Usage
from interlock.fsm.processes.turns import TurnTrigger
from interlock.parsers import Parser
from interlock.serving.requests.identity import random_id
from interlock.serving.responses.archive import Archive, Tail
from interlock.serving.responses.background_response import BackgroundRegistry
from interlock.serving.responses.conversation_lease import commit_end
from interlock.serving.responses.run import ActiveRuns, Activity, Run
from interlock.serving.store import ResponseStore, StoredResponse, open_store

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


@define(eq=False)
class Streamed(Run[bytes]):
    """A response that is generated from prepared outputs.

    Args:
        store: The store of the ended response, or None if it is not stored.
    """

    store: ResponseStore | None
    _parser: Parser = field(factory=harmony, init=False)

    @property
    def stored(self) -> StoredResponse:
        """The response as it is now, with its input."""
        question = {"id": random_id("msg"), "type": "message", "role": "user", "content": REQUEST["input"]}
        return StoredResponse(self.driver.response, (question,))

    def _prepare(self) -> Activity:
        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            for deltas in ():
                yield deltas

        return Activity(steps(), lambda: TurnTrigger.GO_ON)

    def _generate(self) -> Activity:
        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            yield self._parser.feed(chunk_of(HEAD))
            for step in BODY:
                await asyncio.sleep(PACE)
                yield self._parser.feed(chunk_of(step))
            yield self._parser.end("stop", Usage())

        return Activity(steps(), lambda: TurnTrigger.ANSWER)

    def _run_tools(self) -> Activity:
        raise NotImplementedError

    def _abort_turn(self) -> Sequence[Delta]:
        return self._parser.end("abort", Usage())

    async def _settle(self) -> None:
        if self.store is not None:
            stored = self.stored
            await commit_end(None, stored, partial(self.store.put, "", stored))


async def streamed(url: str) -> dict[str, float]:
    """Return the CPU time per token in microseconds, by the name of the figure: medians of rounds.

    Args:
        url: The URL of the store.
    """
    store = open_store(url)
    figures: dict[str, list[float]] = {way: [] for way in (*WAYS, WRITE)}
    for _ in range(ROUNDS):
        for way, make in WAYS.items():
            figures[way].append(await _cost([make(store) for _ in range(STREAMS)]))
        figures[WRITE].append(await _cost([store.put("", _ended()) for _ in range(STREAMS)]))
    await store.close()
    return {way: round(median(costs), 2) for way, costs in figures.items()}


async def _cost(responses: Sequence[Coroutine[object, object, None]]) -> float:
    """Return the CPU time per token of responses that are made at once, in microseconds."""
    began = process_time()
    await asyncio.gather(*responses)
    return (process_time() - began) / (len(responses) * TOKENS) * 1e6


async def _foreground(store: ResponseStore | None) -> None:
    """Make a foreground response, and join its frames."""
    async for frames in Streamed(begin(), store).events():
        b"".join(frames)


def _ended() -> StoredResponse:
    """Return an ended response."""
    run, parser = Streamed(begin(), None), harmony()
    deltas = [delta for each in (HEAD, *BODY) for delta in parser.feed(chunk_of(each))]
    deltas = [Start(), *deltas, *parser.end("stop", Usage()), Finish()]
    run.driver.feed(deltas)
    return run.stored


async def _background(store: ResponseStore) -> None:
    """Make a background response, and read it meanwhile."""
    run = Streamed(begin(), None)
    background_registry = BackgroundRegistry(Archive(store), ActiveRuns())
    queued = await background_registry.begin("", run)
    async for frames in Tail(store, "", queued.id, "reader").frames():
        b"".join(frames)
    await background_registry.wait(60)


WAYS: Final[Mapping[str, Callable[[ResponseStore], Coroutine[object, object, None]]]] = {
    "not stored": lambda _store: _foreground(None),
    "foreground": _foreground,
    "background": _background,
}
