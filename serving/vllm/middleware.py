"""What vLLM's own middleware expects of an answer that takes long, around those that `interlock.serving.http.answers` has."""

from __future__ import annotations

from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.serving.faults import panics_as_errors

__all__ = ["LongAnswer"]


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
