"""Both ends of a gateway's bench, in the folder benchmarks/: `python -m alone.relay upstream RATE`, and `… forward URL`.

The upstream streams chunks of Chat Completions at a rate, and the forwarding proxy passes its bytes on: what a gateway costs
above the proxy is what requests, chunks and events cost. The chunks have an event name, which gateways ignore and clients count.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Final

import httpx2
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from alone.script import MODEL
from interlock.serving.http.server import listen, serve, url_of
from interlock.serving.responses.run import ActiveRuns

TOKENS: Final = 200
NAME: Final = b"event: response.output_text.delta\ndata: "
HEAD: Final = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1_735_689_600, "model": MODEL}


def _chunk(delta: object, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return orjson.dumps({**HEAD, "choices": [choice]}) + b"\n\n"


TOKEN: Final = NAME + _chunk({"content": " word"})
FIRST: Final = b"data: " + _chunk({"role": "assistant", "content": ""})
LAST: Final = b"data: " + _chunk({}, "stop")
USAGE: Final = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":200}}\n\ndata: [DONE]\n\n'


def upstream(rate: float) -> Starlette:
    """Return a server of Chat Completions."""

    async def complete(request: Request) -> Response:
        body = orjson.loads(await request.body())
        tokens = min(TOKENS, body.get("max_completion_tokens") or TOKENS)

        async def chunks() -> AsyncGenerator[bytes, None]:
            yield FIRST
            for _ in range(tokens):
                yield TOKEN
                await asyncio.sleep(1 / rate)
            yield LAST
            yield USAGE

        return StreamingResponse(chunks(), media_type="text/event-stream")

    async def models(_request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL}]})

    return Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"]), Route("/v1/models", models)])


def forward(url: str) -> Starlette:
    """Return a proxy that passes on the bytes of an upstream's answers."""
    client = httpx2.AsyncClient(verify=False, timeout=None, limits=httpx2.Limits(max_connections=None))

    async def create(request: Request) -> Response:
        body = orjson.loads(await request.body())
        chat = {"model": MODEL, "messages": [], "stream": True, "max_completion_tokens": body.get("max_output_tokens")}
        call = client.build_request("POST", f"{url}/v1/chat/completions", content=orjson.dumps(chat))
        answer = await client.send(call, stream=True)

        async def pieces() -> AsyncGenerator[bytes, None]:
            async for piece in answer.aiter_raw():
                yield piece
            await answer.aclose()

        return StreamingResponse(pieces(), media_type="text/event-stream")

    return Starlette(routes=[Route("/v1/responses", create, methods=["POST"])])


def main() -> None:
    """Serve until a signal; the address goes to standard error."""
    kind, argument = sys.argv[1:]
    app = upstream(float(argument)) if kind == "upstream" else forward(argument)
    app.state.active_runs, app.state.open_sockets = ActiveRuns(), ActiveRuns()
    listening = listen("127.0.0.1", 0)
    serve(app, listening, on_ready=lambda: print(url_of(listening), file=sys.stderr, flush=True))


if __name__ == "__main__":
    main()
