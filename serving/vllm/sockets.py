"""WebSocket mode inside vLLM: each request of a connection becomes a run by way of vLLM's validation, renderer and engine.

It knows how a request goes on from what its lane has said, and what vLLM's refusals are as errors. Frames, lanes and the ends of
connections are `interlock.serving.sockets`; keys are checked by vLLM's own middleware, before a connection is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final, cast

from attrs import evolve, frozen
from pydantic import ValidationError
from starlette.requests import Request as HttpRequest
from starlette.websockets import WebSocket

from interlock.events.dialects import Dialect
from interlock.serving.errors import ApiError, invalid
from interlock.serving.http.intake import is_foreign_page
from interlock.serving.requests.conversation import join
from interlock.serving.requests.refusals import refusal
from interlock.serving.requests.values import members
from interlock.serving.sockets.connection import Begun, Connection, Limits
from interlock.serving.store import StoredResponse
from interlock.serving.vllm.asking import Asked
from interlock.serving.vllm.rendered import RenderedRun
from interlock.serving.vllm.run import REFUSALS, VllmRun, admitted, is_any_of
from interlock.serving.vllm.seams import Router
from interlock.serving.vllm.serving import Hooks
from interlock.serving.vllm.shapes import ErrorResponse

__all__ = ["SocketHost", "serve_socket"]

POLICY_VIOLATION: Final = 1008


async def serve_socket(vllm: Router, hooks: Hooks, dialect: Dialect, socket: WebSocket) -> None:
    """Serve a client in WebSocket mode, unless a page of an origin that vLLM does not allow opened the socket.

    Args:
        vllm: vLLM's module of routes.
        hooks: Of the instance that serves responses.
        dialect: What the client speaks.
        socket: The socket, not accepted yet.
    """
    if is_foreign_page(socket, hooks.origins):
        await socket.close(POLICY_VIOLATION)
        return
    await socket.accept()
    host, limits = SocketHost(vllm, hooks, dialect, socket), Limits()
    share = hooks.socket_memory.share(host.tenant, limits.held_bytes)
    connection = Connection(socket, host, hooks.open_runs, share, limits)
    with hooks.open_sockets.holding(connection):
        await connection.serve()


@frozen(eq=False)
class SocketHost:
    """Makes the responses of one WebSocket connection.

    Args:
        vllm: vLLM's module of routes.
        hooks: Of the instance that serves responses.
        dialect: What the client speaks.
        socket: The connection; vLLM looks at its headers.
    """

    vllm: Router
    hooks: Hooks
    dialect: Dialect
    socket: WebSocket

    @property
    def tenant(self) -> str:
        """Whose the connection is."""
        return self.hooks.tenant(self.socket.headers.get("authorization", ""))

    async def begin(self, body: Mapping[str, object], *, generate: bool, latest: StoredResponse | None) -> Begun:
        """Validate a request as vLLM does and return its run; without `generate`, its prompt is rendered and nothing else."""
        async with AsyncExitStack() as until_begun:
            membership = await self.hooks.membership(body, self.tenant, until_begun)
            theirs, read = await self.hooks.read(body, self.dialect, self.tenant, latest, membership)
            run = await self._valid_run(theirs, evolve(read, generate=generate))
            until_begun.pop_all()
        return Begun(run, lambda: read.stored(run.driver.response))

    async def _valid_run(self, theirs: Mapping[str, object], asked: Asked) -> VllmRun[bytes] | RenderedRun[bytes]:
        """Return the run of a request; what vLLM finds wrong with it becomes an error of the API."""
        join((), asked.items)  # which refuses what answers no call
        try:
            return await self._run(theirs, asked)
        except ValidationError as error:
            raise refusal(error) from None
        except Exception as error:
            if is_any_of(error, REFUSALS):
                raise invalid(None, str(error)) from error
            raise

    async def _run(self, theirs: Mapping[str, object], asked: Asked) -> VllmRun[bytes] | RenderedRun[bytes]:
        request = self.vllm.ResponsesRequest(**theirs)
        request.stream = True
        begun = await self.hooks.begin(asked, request, self._raw_request())
        if isinstance(begun, self.vllm.ErrorResponse):
            raise _refused(begun)
        run = cast("VllmRun[bytes] | RenderedRun[bytes]", begun)
        await admitted(run)
        return run

    def _raw_request(self) -> HttpRequest:
        """Return the connection as the request that vLLM takes priorities, traces and sessions from."""
        return HttpRequest({**self.socket.scope, "type": "http", "method": "POST", "state": {}})


def _refused(refused: ErrorResponse) -> ApiError:
    """Return a refusal of vLLM's as an error."""
    error = members(refused.model_dump(mode="json", by_alias=True)["error"])
    param = error.get("param")
    return ApiError(refused.error.code, str(error.get("message")), str(error.get("type")), str(param) if param else None)
