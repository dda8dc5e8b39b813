"""The two ends of a gateway, in benchmarks/: `python -m alone.relay upstream API KIND RATE`, and `… forward URL`.

The upstream streams deltas of text or of calls at a rate, in either API. The forwarder passes bytes on and reads none of them: no
gateway can cost less in Python. Each event has the name that clients count.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import orjson

if TYPE_CHECKING:
    from interlock.fsm.deltas import Delta

MODEL: Final = "tiny"
TOKENS: Final = 200
CALL: Final = 8
"""Deltas of a call; an upstream of calls sends one after another."""
STREAM: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END: Final = b"0\r\n\r\n"
CHUNK: Final = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1_735_689_600, "model": MODEL}
PATHS: Final = {"chat": "chat/completions", "responses": "responses"}


def chat(kind: str, tokens: int) -> list[bytes]:
    """Return the steps of a stream of Chat Completions; those with a delta have the name of an event."""

    def event(delta: object, reason: str | None = None, name: bytes = b"") -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return name + b"data: " + orjson.dumps({**CHUNK, "choices": [choice]}) + b"\n\n"

    name = b"event: response.output_text.delta\n"
    steps = [event({"content": " word"}, None, name)] * tokens
    if kind == "calls":
        name, steps = b"event: response.function_call_arguments.delta\n", []
        for index in range(tokens):
            number, place = divmod(index, CALL)
            start = {"id": f"call_{number}", "type": "function"} if place == 0 else {}
            function = {"arguments": ["", '{"text":"', *["word "] * CALL][min(place, 2)] if place < CALL - 1 else '"}'}
            function |= {"name": "write"} if start else {}
            steps.append(event({"tool_calls": [{"index": number, **start, "function": function}]}, None, name))
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":200}}\n\ndata: [DONE]\n\n'
    first = event({"role": "assistant", "content": ""})
    return [first + steps[0], *steps[1:], event({}, "tool_calls" if kind == "calls" else "stop") + usage]


def responses(kind: str, tokens: int) -> list[bytes]:
    """Return the steps of a stream of the Responses API."""
    from interlock import (  # noqa: PLC0415 - the forwarder has only what it needs
        Close,
        EndTurn,
        Finish,
        Open,
        ResponseDriver,
        SequentialIds,
        SseWriter,
        Start,
        response_settings,
    )

    driver = ResponseDriver(response_settings({"model": MODEL}), writer=SseWriter(), ids=SequentialIds(), clock=lambda: 0)
    steps: list[list[Delta]] = [[Start(), *(() if kind == "calls" else [" word"])]]
    for index in range(1, tokens):
        place = (index - 1) % CALL
        text: list[Delta] = (
            [" word"] if kind == "text" else ['{"text":"' if place == 0 else '"}' if place == CALL - 1 else "word "]
        )
        begin: list[Delta] = [Open("function_call", {"name": "write"})] if kind == "calls" and place == 0 else []
        steps.append([*begin, *text, *([Close()] if kind == "calls" and place == CALL - 1 else [])])
    steps.append([EndTurn("stop"), Finish()])
    return [b"".join(driver.feed(step)) for step in steps]


class Upstream(asyncio.Protocol):
    """Answers each request over one connection with a stream, and a request for models with the only one.

    Args:
        api: Which API the streams are of.
        kind: `text` or `calls`.
        rate: Steps of a stream in a second.
    """

    def __init__(self, api: str, kind: str, rate: float) -> None:
        self._steps = {"chat": chat, "responses": responses}[api]
        self._kind, self._rate = kind, rate
        self._received = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a TCP connection
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer a request when its body is complete."""
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        if not found or len(body) < length:
            return
        self._received = b""
        if head.startswith(b"GET"):
            listing = json.dumps({"object": "list", "data": [{"id": MODEL}]}).encode()
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(listing)
            self._transport.write(head + listing)
            return
        request = orjson.loads(body)
        tokens = min(TOKENS, request.get("max_completion_tokens") or request.get("max_output_tokens") or TOKENS)
        self._task = asyncio.create_task(self._stream(self._steps(self._kind, tokens)))

    async def _stream(self, steps: Sequence[bytes]) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        self._transport.write(STREAM)
        for number, step in enumerate(steps):
            await asyncio.sleep(start + number / self._rate - loop.time())
            self._transport.write(b"%x\r\n%b\r\n" % (len(step), step))
        self._transport.write(END)

    def connection_lost(self, _error: Exception | None) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()


class Forwarder(asyncio.Protocol):
    """One side of a connection, whose bytes go to the other side."""

    def __init__(self, upstream: tuple[str, int] | None = None, other: asyncio.Transport | None = None) -> None:
        self._upstream, self._other, self._early = upstream, other, b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the upstream, if this is the client's side."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a TCP connection
        self._transport = transport
        if self._upstream is not None:
            self._task = asyncio.create_task(self._connect(*self._upstream))

    async def _connect(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        self._other, _ = await loop.create_connection(lambda: Forwarder(other=self._transport), host, port)
        self._other.write(self._early)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        if self._other is None:
            self._early += data
        else:
            self._other.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        """Close the other side."""
        if self._other is not None:
            self._other.close()


async def serve(protocol: type[asyncio.Protocol], *arguments: object) -> None:
    """Serve until a signal; the address goes to standard error."""
    server = await asyncio.get_running_loop().create_server(lambda: protocol(*arguments), "127.0.0.1", 0, backlog=2048)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}", file=sys.stderr, flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve the upstream or the forwarder."""
    match sys.argv[1:]:
        case ["upstream", api, kind, rate]:
            asyncio.run(serve(Upstream, api, kind, float(rate)))
        case ["forward", url]:
            place = urlsplit(url)
            asyncio.run(serve(Forwarder, (place.hostname, place.port)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
