"""A scripted upstream server: it answers with the replies and faults of a test, and records its requests."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager, suppress

from attrs import define, field, frozen

from interlock.serving.build import build
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings, UpstreamSettings

CUT = "the connection breaks"
STALL = "nothing more comes"
PATIENCE = 60  # seconds that a client waits for a gateway, which may share its machine with other tests


@frozen
class Reply:
    """One answer: its body in pieces, among them perhaps `CUT` or `STALL`."""

    body: tuple[object, ...] = ()
    status: int = 200
    headers: dict[str, str] = field(factory=lambda: {"content-type": "text/event-stream"})


@frozen
class ReceivedRequest:
    """A request that the upstream received."""

    path: str
    headers: dict[str, str]
    body: object


@define(eq=False)
class ScriptedUpstream:
    """Answers each POST with the next reply, the last again and again; `models` answers GET."""

    replies: list[Reply]
    models: tuple[str, ...] = ("m",)
    listing: Reply | None = None  # in place of the models
    requests: list[ReceivedRequest] = field(factory=list)
    left: int = 0  # clients that disconnected during a reply

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["method"] == "GET":
            self.requests.append(ReceivedRequest(scope["path"], headers, None))
            if self.listing is not None:
                await self._reply(self.listing, receive, send)
                return
            await _send_json(send, {"object": "list", "data": [{"id": name} for name in self.models]})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.requests.append(ReceivedRequest(scope["path"], headers, json.loads(body)))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        await self._reply(reply, receive, send)

    async def _reply(self, reply, receive, send):
        headers = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        for piece in reply.body:
            if piece is CUT:
                raise asyncio.CancelledError  # uvicorn closes the connection without the end of the body
            if piece is STALL:
                while (await receive())["type"] != "http.disconnect":
                    pass
                self.left += 1
                return
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @property
    def bodies(self):
        """The bodies of the POSTs."""
        return [received.body for received in self.requests if received.body is not None]


async def _live(receive, send):
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def _send_json(send, value, status=200):
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


def event(value):
    """The event of a chunk."""
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def stream(*chunks, done=True):
    """A whole stream of chunks."""
    return Reply((*map(event, chunks), *([event(b"[DONE]")] if done else [])))


def failure(status, body, **headers):
    """An error; its body may be text."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kind = "text/html" if isinstance(body, str) else "application/json"
    return Reply((data,), status, {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}})


@contextmanager
def serve_upstream(upstream):
    """Serve an upstream, and yield its URL."""
    with ServerThread(upstream) as url:
        yield url


@contextmanager
def gateway(*replies, models=("m",), listing=None, hosted=(), tools=None, **settings):
    """Serve a gateway in front of an upstream with these replies, and yield the gateway's URL and the upstream."""
    upstream = ScriptedUpstream([*replies], models, listing)
    with serve_upstream(upstream) as url:
        engine = Gateway([upstream_of(UpstreamSettings(url=url, **{"retries": 0, **settings}))], dict.fromkeys(hosted, ""))
        with ServerThread(build(Settings(), engine, tools=tools)) as gateway_url:
            yield gateway_url, upstream


@contextmanager
def serve_bytes(answer):
    """Answer every request over one connection after another with these bytes; yield the URL and the heads of the requests."""
    heads = []

    def work(listener):
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    while received := connection.recv(2**16):
                        heads.append(received.partition(b"\r\n\r\n")[0].decode())
                        connection.sendall(answer)
                        if b"\r\nconnection: close\r\n" in answer:
                            break

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=work, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heads
        listener.shutdown(socket.SHUT_RDWR)
