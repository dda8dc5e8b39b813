"""A minimal server of such streams: `python -m alone.floor RECORDING RATE` in the folder benchmarks/.

The same HTTP server with the same settings, the same engine at the same rate; each step of it is answered with one constant frame
of the usual length. What the other server costs above this one is what requests and events cost.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import orjson
from alone.script import FRAME, MODEL
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.serving.cli.options import read_rules
from interlock.serving.engines.engine import Turn
from interlock.serving.engines.script import ScriptedEngine
from interlock.serving.http.server import listen, serve, url_of
from interlock.serving.requests.create import read_request


def application(engine: ScriptedEngine) -> Starlette:
    """Return the application that writes a constant frame for each step of an engine."""

    async def create(request: Request) -> ASGIApp:
        body: Mapping[str, object] = orjson.loads(await request.body())
        turn = Turn(read_request(body), (), budget=int(str(body.get("max_output_tokens") or sys.maxsize)))

        async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
            async with aclosing(engine.generate(turn)) as outputs:
                async for _ in outputs:
                    await send({"type": "http.response.body", "body": FRAME, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        return answer

    return Starlette(routes=[Route("/v1/responses", create, methods=["POST"])])


def main() -> None:
    """Serve until a signal; the address goes to standard error."""
    engine = ScriptedEngine(read_rules(Path(sys.argv[1])), (MODEL,), rate=float(sys.argv[2]))
    listening = listen("127.0.0.1", 0)
    serve(application(engine), listening, on_ready=lambda: print(url_of(listening), file=sys.stderr, flush=True))


if __name__ == "__main__":
    main()
