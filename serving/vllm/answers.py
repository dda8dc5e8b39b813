"""The answers that a run can be: its stream, the response in one piece, or the stream of one that is made in the background.

They know HTTP and when a client has gone, not how a response is made. All are `StreamingResponse`s, because that is what vLLM's
own middleware expects of an answer that takes long.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from interlock.events.dialects import Dialect
from interlock.events.json import dumps
from interlock.events.sse import CONTENT_TYPE, DONE_FRAME
from interlock.serving.answers import Exchange, KeptAnswer
from interlock.serving.background import Record
from interlock.serving.intake import JSON
from interlock.serving.open_runs import OpenRuns
from interlock.serving.vllm.run import VllmRun

__all__ = ["BackgroundStream", "StreamedRun", "WholeRun"]

HEADERS: Final = {
    "content-type": CONTENT_TYPE,  # said here, because a media type is given a charset
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # read by nginx: every event is passed on at once
}


class Answer(StreamingResponse):
    """What the three answers have in common: what stands in `background` runs when they are over, however they end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        del scope
        try:
            await self.answer(receive, send)
        finally:
            if self.background is not None:
                await self.background()

    async def answer(self, receive: Receive, send: Send) -> None:
        """Send the head and the body."""
        raise NotImplementedError

    async def _begin(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})


class StreamedRun(Answer):
    """Answers with the stream: one write for each step, and never a part of an event (rule R5).

    Args:
        run: What makes the response.
        open_runs: Holds it while it goes on.
    """

    def __init__(self, run: VllmRun[bytes], open_runs: OpenRuns) -> None:
        super().__init__((), headers=HEADERS)
        self._run, self._open_runs = run, open_runs

    async def answer(self, receive: Receive, send: Send) -> None:
        """Send each step's frames when they come; the last with the end marker (rule R3)."""
        await self._begin(send)
        driver = self._run.driver
        async with Exchange(self._run, self._open_runs).events(receive) as events:
            async for frames in events:
                ended = driver.ended
                if ended:
                    frames.append(DONE_FRAME)
                await send({"type": "http.response.body", "body": b"".join(frames), "more_body": not ended})


class WholeRun(Answer):
    """Answers with the response object of the terminal event that a stream would have had (rule R19).

    Args:
        run: What makes the response.
        open_runs: Holds it while it goes on.
        dialect: What its client speaks.
    """

    def __init__(self, run: VllmRun[bytes], open_runs: OpenRuns, dialect: Dialect) -> None:
        super().__init__((), media_type=JSON)
        self._run, self._open_runs, self._dialect = run, open_runs, dialect

    async def answer(self, receive: Receive, send: Send) -> None:
        """Wait for the end of the run, then send the response."""
        async with Exchange(self._run, self._open_runs).events(receive) as events:
            async for _ in events:
                pass
            body = dumps(self._dialect.spoken(self._run.driver.response))
            self.headers["content-length"] = str(len(body))
            await self._begin(send)
            await send({"type": "http.response.body", "body": body})


class BackgroundStream(Answer):
    """Answers with the stream of a response in the background; a reader that goes away does not end it.

    Args:
        record: Its events.
        start: The sequence number of the first event that is wanted.
    """

    def __init__(self, record: Record[VllmRun[bytes]], start: int = 0) -> None:
        super().__init__((), headers=HEADERS)
        self._record, self._start = record, start

    async def answer(self, receive: Receive, send: Send) -> None:
        """Send what is there, and then what comes, until the response or the reader ends."""
        await self._begin(send)
        await KeptAnswer(self._record, self._start).send_body(receive, send)
