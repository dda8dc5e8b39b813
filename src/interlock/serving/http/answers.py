"""The HTTP responses of the API: JSON, errors, event streams, and the stream of a background response.

Streamed or not, a response comes from the same run (rule R19).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from math import ceil
from typing import Any, Final, Generic, TypeVar

from attrs import frozen
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from interlock.events.dialects import Dialect
from interlock.events.json import dumps
from interlock.events.sse import CONTENT_TYPE, DONE_FRAME
from interlock.fsm.deltas import Cancel
from interlock.serving.http.request_body import CODINGS, JSON
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.responses.archive import Tail, store_error
from interlock.serving.responses.run import ActiveRuns, Run

__all__ = [
    "BackgroundStream",
    "JsonResponse",
    "StreamedAnswer",
    "WholeAnswer",
    "answer_error",
    "cancel_on_disconnect",
    "error_response",
    "open_events",
]

T = TypeVar("T")

STREAM_HEADERS: Final = (
    (b"content-type", CONTENT_TYPE.encode()),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # makes nginx pass each event on at once
)

INTERNAL_ERROR: Final = ApiError(500, "The server had an error while processing your request.", "server_error")

ERROR_HEADERS: Final[Mapping[int, dict[str, str]]] = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: {"connection": "close"},  # the rest of the body is not read
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: {"accept": JSON, "accept-encoding": CODINGS},
    HTTPStatus.TOO_MANY_REQUESTS: {"retry-after": "1"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"retry-after": "1"},
}


class JsonResponse(Response):
    """An HTTP response with a JSON body."""

    media_type = JSON

    def render(self, content: object) -> bytes:
        return dumps(content)


def error_response(error: ApiError, headers: dict[str, str] | None = None) -> Response:
    """Return the HTTP response for an API error."""
    return JsonResponse(error.body(), error.status, headers)


def answer_error(request: Request, error: Exception) -> Response:
    """Return the HTTP response for any exception: an OpenAI error body without internals, or nothing if the client has left."""
    match store_error(error):
        case ApiError() as api_error:
            seconds = api_error.retry_after
            headers = ERROR_HEADERS.get(api_error.status) if seconds is None else {"retry-after": f"{ceil(seconds)}"}
            return error_response(api_error, headers)
        case HTTPException(status_code=status, headers=headers):
            target = f"{request.method} {request.url.path}"
            message = f"Invalid URL ({target})" if status == HTTPStatus.NOT_FOUND else f"Not allowed to {target}"
            return error_response(ApiError(status, message), dict(headers or {}))
        case ClientDisconnect():
            return Response(status_code=HTTPStatus.BAD_REQUEST)  # nobody reads it
        case _:
            return error_response(INTERNAL_ERROR)


@asynccontextmanager
async def open_events(run: Run[T], active_runs: ActiveRuns, receive: Receive) -> AsyncGenerator[AsyncGenerator[list[T], None]]:
    """Open the events of a run; if the client disconnects, cancel the run (rule R4)."""

    async def watch() -> None:
        await _disconnect(receive)
        run.interrupt(Cancel())

    watching = asyncio.create_task(watch())
    try:
        with active_runs.track(run):
            async with aclosing(run.events()) as events:
                yield events
    finally:
        watching.cancel()
        await asyncio.wait([watching])


@frozen
class StreamedAnswer:
    """Streams a run's events: one write for each step of the run, never a part of an event (rule R5)."""

    run: Run[bytes]
    active_runs: ActiveRuns

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head at once, then the frames of each step, the last with the end marker (rule R3).

        The end is sent even if this task is cancelled (rule R4); a client that has disconnected does not read it.
        """
        await send({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})
        unsent: Sequence[bytes] = ()
        try:
            async with open_events(self.run, self.active_runs, receive) as events:
                async for frames in events:
                    unsent = frames
                    message = self._message(frames)
                    unsent = ()
                    await send(message)
        finally:
            if rest := [*unsent, *self.run.conclude()]:
                await send(self._message(rest))

    def _message(self, frames: Sequence[bytes]) -> Message:
        """Return the ASGI message for frames; `__call__` sends it, to save a coroutine for each message."""
        ended = self.run.driver.ended
        body = b"".join([*frames, DONE_FRAME] if ended else frames)
        return {"type": "http.response.body", "body": body, "more_body": not ended}


@frozen
class WholeAnswer(Generic[T]):
    """Sends the response object of the terminal event (rule R19), with status 200 even if the response failed."""

    run: Run[T]
    active_runs: ActiveRuns
    dialect: Dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response when the run has ended, before the engine and the tools are closed."""
        async with open_events(self.run, self.active_runs, receive) as events:
            async for _ in events:
                pass
            await JsonResponse(self.dialect.convert(self.run.driver.response))(scope, receive, send)


@frozen
class BackgroundStream:
    """Streams the stored events of a background response, which continues if the client disconnects."""

    tail: Tail

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head at once, then stored and new events until the response ends or the client disconnects."""
        await send({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})
        with suppress(ClientDisconnect):
            await cancel_on_disconnect(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        async with aclosing(self.tail.frames()) as steps:
            async for frames in steps:
                await send({"type": "http.response.body", "body": b"".join(frames), "more_body": True})
        await send({"type": "http.response.body", "body": DONE_FRAME, "more_body": False})


async def cancel_on_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await work on a request whose body was read; if the client disconnects, cancel it and raise `ClientDisconnect`."""
    task, leaving = asyncio.create_task(work), asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait([task, leaving], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        for each in (task, leaving):
            each.cancel()
        await asyncio.wait([task, leaving])


async def _disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
