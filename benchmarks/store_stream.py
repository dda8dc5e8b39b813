"""What the stream of a response costs a token: stored nowhere, in the foreground, in the background; part of `make bench-store`.

32 streams at a time get what an engine yields, a token every 5 ms each, and do with it what the plugin in vLLM does: its reader,
the run, the driver and the writer of frames. A response in the background is read by one client while it is made. The figures are
CPU time of the process, with the threads of its store; that of Redis is not in them. The server around the streams is not in them
either: in vLLM its process needs several times as much for a token, see docs/performance.md.
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
"""What a stream in the foreground has beside one that is not stored."""

PACE: Final = 0.005
"""Seconds between two tokens of a stream."""

ROUNDS: Final = 3
HEAD: Final = output(encode(ANSWER))
BODY: Final = outputs(prose(TOKENS))


@define(eq=False)
class Streamed(Run[bytes]):
    """A response of outputs that were prepared.

    Args:
        store: Where it is put at its end; None if it is not.
    """

    store: ResponseStore | None
    _parser: Parser = field(factory=harmony, init=False)

    @property
    def stored(self) -> StoredResponse:
        """The response as it is now, with the question that it answers."""
        question = {"id": random_id("msg"), "type": "message", "role": "user", "content": REQUEST["input"]}
        return StoredResponse(self.driver.response, (question,))

    def _prepare(self) -> Activity:
        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            for told in ():
                yield told

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
    """Return what a token costs, in microseconds of CPU time: for each way, the middle of rounds that were taken in turn.

    Args:
        url: The store.
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
    """Return what a token costs where so many responses are made at a time."""
    began = process_time()
    await asyncio.gather(*responses)
    return (process_time() - began) / (len(responses) * TOKENS) * 1e6


async def _foreground(store: ResponseStore | None) -> None:
    """Make a response, and write its frames."""
    async for frames in Streamed(begin(), store).events():
        b"".join(frames)


def _ended() -> StoredResponse:
    """Return a response that has ended."""
    run, parser = Streamed(begin(), None), harmony()
    deltas = [delta for each in (HEAD, *BODY) for delta in parser.feed(chunk_of(each))]
    deltas = [Start(), *deltas, *parser.end("stop", Usage()), Finish()]
    run.driver.feed(deltas)
    return run.stored


async def _background(store: ResponseStore) -> None:
    """Make a response, and read it meanwhile."""
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
