"""What stands between vLLM's application and our routes: what its middleware expects of an answer, and how bodies come in."""

from __future__ import annotations

from typing import Final

from attrs import frozen
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.serving.errors import ApiError
from interlock.serving.faults import panics_as_errors
from interlock.serving.http.intake import MAX_BODY_BYTES, decompressed, error_response

__all__ = ["Decompressing", "LongAnswer"]

OURS: Final = "/v1/responses"
CODING: Final = b"content-encoding"
REPLACED: Final = frozenset({CODING, b"content-length"})


class LongAnswer(StreamingResponse):
    """An answer as a response of starlette's, with what is to be done when it is over.

    Args:
        answer: It.
    """

    def __init__(self, answer: ASGIApp) -> None:
        super().__init__(())
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; then run what vLLM has put into `background`, however the answer ended.

        Raises:
            PanicError: Its cause was raised, and is no `Exception`; vLLM answers with an error body.
        """
        try:
            with panics_as_errors():
                await self._answer(scope, receive, send)
        finally:
            if self.background is not None:
                await self.background()


@frozen(eq=False)
class Decompressing:
    """An ASGI middleware that decompresses the bodies of our routes, which FastAPI would read as they come.

    Args:
        app: What is behind it.
        max_bytes: How many bytes a body may have that was compressed.
    """

    app: ASGIApp
    max_bytes: int = MAX_BODY_BYTES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on, a compressed body as it was before; one that cannot be had is answered with an error body."""
        if not _is_compressed(scope):
            await self.app(scope, receive, send)
            return
        try:
            body = b"".join([part async for part in decompressed(Request(scope, receive), self.max_bytes)])
        except ApiError as error:
            await error_response(error)(scope, receive, send)
        except ClientDisconnect:
            return  # nobody reads an answer
        else:
            await self.app(_plain(scope, len(body)), _received(body, receive), send)


def _is_compressed(scope: Scope) -> bool:
    """Return whether a request is one of ours and its body is not as it reads."""
    if scope["type"] != "http" or CODING not in dict(scope["headers"]):
        return False
    path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
    return path == OURS or path.startswith(f"{OURS}/")


def _plain(scope: Scope, size: int) -> Scope:
    """Return a request whose body is not compressed."""
    kept = [(name, value) for name, value in scope["headers"] if name not in REPLACED]
    return {**scope, "headers": [*kept, (b"content-length", b"%d" % size)]}


def _received(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body, and then what comes after it."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Message:
        return first.pop() if first else await receive()

    return give
