"""Two servers of the same recording: `python -m alone.servers interlock|floor RECORDING RATE` in the folder benchmarks/.

Both have the same HTTP server with the same settings, and the same engine at the same rate. The floor answers each step of the
engine with one constant frame of the usual length: what the other server costs above it is what requests and events cost.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

import orjson
from alone.script import FRAME, MODEL
from attrs import frozen
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.parsers import Format
from interlock.serve import Engine, EngineOutput, Settings, Turn, build
from interlock.serving.engines.recordings import read
from interlock.serving.engines.script import limit_tokens, play
from interlock.serving.http.server import listen, serve, url_of
from interlock.serving.requests.create import read_request


@frozen(eq=False)
class Replay(Engine):
    """An engine that repeats the outputs of a recording, at a rate in tokens per second."""

    outputs: Sequence[EngineOutput]
    rate: float
    models: Sequence[str] = (MODEL,)
    format: Format = "harmony"

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield the outputs within the limit of tokens."""
        async for output in play(limit_tokens(self.outputs, turn.budget), self.rate):
            yield output


def floor(engine: Replay) -> Starlette:
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
    which, recording, rate = sys.argv[1:]
    (turn,) = read(Path(recording)).turns
    engine = Replay(turn.outputs, float(rate))
    app = build(Settings(), engine) if which == "interlock" else floor(engine)
    listening = listen("127.0.0.1", 0)
    serve(app, listening, on_ready=lambda: print(url_of(listening), file=sys.stderr, flush=True))


if __name__ == "__main__":
    main()
