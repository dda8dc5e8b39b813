"""Keeps the tests of a script apart, spoils answers as its steps say, and serves the requests and the script of each test.

The events of an answer are its server-sent events, or the frames of a WebSocket.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from attrs import define, field, frozen
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.events.json import as_text, dumps, loads, members, parse
from interlock.events.sse import CONTENT_TYPE, DONE_FRAME, SseDecoder
from interlock.events.stream import TERMINAL
from interlock.fsm.deltas import Cancel
from interlock.fsm.table import InterlockError
from interlock.serving.engines.script import (
    CONNECTION,
    MOCKED,
    ScriptedConnection,
    ScriptedEngine,
    ScriptedRequest,
    ScriptStep,
    read_rules,
)
from interlock.serving.http.answers import JsonResponse, error_response, speaks_messages
from interlock.serving.requests.api_errors import ApiError, placed
from interlock.serving.requests.api_keys import Keys, authorization_of
from interlock.serving.requests.body import read_body
from interlock.serving.requests.runtime import Yielder
from interlock.serving.responses.active_runs import NotBegunError

REQUESTS: Final = "/interlock/requests"
SCRIPT: Final = "/interlock/script"
FRAME_FIELDS: Final = ("type", "stream_id", "generate")
"""The fields of a frame that are not of its request."""
STEERING: Final = "response.steer."
"""Begins the types of the events about steering, which belong to no response."""
BEGIN: Final = "response.created"
ERROR: Final = "error"
CANCELLED: Final = NotBegunError.of(Cancel()).status
OF_A_TEST: Final = re.compile(r"/(?!v1/|interlock/)(.+?)(/(?:v1|interlock)/.*)", re.DOTALL)
"""Matches the encoded path of a request of a test: the name of the test, and the path without it."""


@frozen
class ScriptFaults:
    """ASGI middleware that records requests, spoils an answer as its step says, and takes the name of a test from the path.

    It must be the outermost middleware.
    """

    app: ASGIApp
    engine: ScriptedEngine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in {"http", "websocket"}:
            test, path = self._named(encoded_path(scope))
            scope = at_path(scope, path)
            connection = scope[CONNECTION] = RecordedConnection(self.engine, scope, receive, send, test=test)
            receive, send = connection.receive, FaultyConnection(scope, connection.receive, connection.send).send
        await self.app(scope, receive, send)

    def _named(self, path: str) -> tuple[str, str]:
        """Return the name of a request's test, and its path without it; a known test has its requests without `/v1`, too."""
        if (named := OF_A_TEST.fullmatch(path)) is not None:
            return unquote(named[1]), named[2]
        _, name, rest = [*path.split("/", 2), ""][:3]
        return (unquote(name), f"/{rest}") if name and self.engine.knows(unquote(name)) else ("", path)


def encoded_path(scope: Scope) -> str:
    """Return the path of a request as the client has encoded it: a name in it may have slashes."""
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"]) if raw is None else raw.decode("latin-1")


def at_path(scope: Scope, path: str) -> Scope:
    """Return the scope of a request for another path, which is encoded."""
    return {**scope, "path": unquote(path), "raw_path": path.encode("latin-1")}


@define(eq=False)
class RecordedConnection(ScriptedConnection):
    """Records the requests and streams of a connection, as the client sends and receives them.

    The lanes of a WebSocket have a stream each, one response after another. Steering begins a response of its lane without a
    request of the client; its events say which one it continues.
    """

    _engine: ScriptedEngine
    _scope: Scope
    _receive: Receive
    _send: Send
    _frames: list[Mapping[str, object]] = field(factory=list[Mapping[str, object]], init=False)
    """The requests over a WebSocket whose responses have not begun."""
    _waiting: dict[object, deque[ScriptedRequest]] = field(factory=dict[object, "deque[ScriptedRequest]"], init=False)
    """The requests over a WebSocket whose responses have begun and have no event yet, by lane."""
    _current: dict[object, ScriptedRequest] = field(factory=dict[object, ScriptedRequest], init=False)
    """Those whose responses are being streamed, by lane."""
    _lanes: dict[object, object] = field(factory=dict[object, object], init=False)
    """The lane of each response, by id."""
    _last: ScriptedRequest | None = field(default=None, init=False)
    """The only request, or the last one."""
    _streams: bool = field(default=False, init=False)
    _status: int = field(default=0, init=False)
    """The HTTP status of the answer, once it has begun."""
    _body: bytearray = field(factory=bytearray, init=False)
    """The body of the request so far."""

    @property
    def warns(self) -> bool:
        return MOCKED not in self._scope

    @property
    def transport(self) -> object:
        """The transport of the connection, which `disconnects` breaks."""
        return transport_of(self._send)

    def begin(self, body: Mapping[str, object]) -> ScriptedRequest:
        if self._scope["type"] == "websocket":
            frame = next((each for each in self._frames if _body_of(each) == _body_of(body)), None)
            if frame is None:
                lane = self._lanes.get(body.get("previous_response_id"))
            else:
                self._frames.remove(frame)
                lane = frame.get("stream_id")
            self._waiting.setdefault(lane, deque()).append(self._note(dumps(frame or body)))
        return self._last or self._note(b"")

    def refuse(self, reason: str) -> None:
        if self._last is not None:
            self._last.problem = reason

    def _note(self, body: bytes) -> ScriptedRequest:
        self._last = ScriptedRequest(path=self._scope["path"], headers=Headers(scope=self._scope), body=body)
        self._engine.progress(self.test).requests.append(self._last)
        if (mocked := self._scope.get(MOCKED)) is not None:
            mocked.append(self._last)
        return self._last

    async def receive(self) -> Message:
        """Receive a message, and note a request."""
        message = await self._receive()
        if message["type"] == "http.request" and self._scope["method"] == "POST" and self._last is None:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                self._note(bytes(self._body))
        elif message["type"] == "websocket.receive":
            frame = members(parse(str(message.get("text") or "")))
            if frame.get("type") == "response.create":
                self._frames.append(frame)
        return message

    async def send(self, message: Message) -> None:
        """Note a message of the answer, and send it."""
        match message["type"].removeprefix("websocket."):
            case "http.response.start":
                self._status = message["status"]
                self._streams = Headers(raw=message["headers"]).get("content-type", "").startswith(CONTENT_TYPE)
            case "http.response.body" if self._streams and self._last is not None:
                self._last.add(message.get("body", b""), is_last=not message.get("more_body", False))
            case "http.response.body" if self._status >= HTTPStatus.BAD_REQUEST and (self._last or self._is_unserved):
                _explain(self._last or self._note(b""), self._status, members(parse(message.get("body", b""))))
            case "send":
                self._note_event(members(parse(str(message.get("text") or ""))))
            case _:
                pass
        await self._send(message)

    @property
    def _is_unserved(self) -> bool:
        """Whether no route serves the path: the router has found no endpoint, or the one that refuses any WebSocket.

        Not HEAD, with which Claude Code looks whether a server is there, nor the icon that a browser wants with any page.
        """
        is_routed = self._scope["type"] == "http" and ("endpoint" in self._scope or self._scope["method"] == "HEAD")
        return self._status == HTTPStatus.NOT_FOUND and not is_routed and self._scope["path"] != "/favicon.ico"

    def _note_event(self, event: Mapping[str, object]) -> None:
        """Add an event to the stream of its lane, as if the lane were all; those about steering belong to no stream."""
        kind, lane = as_text(event.get("type")), event.get("stream_id")
        waiting = self._waiting.get(lane)
        if kind == ERROR and ERROR in event:  # in place of a response; the event `error` of a stream has no such field
            refused = waiting.popleft() if waiting else self._note_unread(lane)
            if refused is not None:
                _explain(refused, event.get("status"), event)
            return
        if kind == BEGIN and waiting:
            self._current[lane] = waiting.popleft()
            self._lanes[members(event.get("response")).get("id")] = lane
        request = self._current.get(lane)
        if request is None or kind.startswith(STEERING):
            return
        data = dumps({name: value for name, value in event.items() if name != "stream_id"})
        is_last = kind in TERMINAL
        request.add(b"event: %b\ndata: %b\n\n%b" % (kind.encode(), data, DONE_FRAME if is_last else b""), is_last=is_last)
        if is_last:
            del self._current[lane]

    def _note_unread(self, lane: object) -> ScriptedRequest | None:
        """Note the next request of a lane, which the server refuses before the script reads it."""
        frame = next((each for each in self._frames if each.get("stream_id") == lane), None)
        if frame is None:
            return None
        self._frames.remove(frame)
        return self._note(dumps(frame))


def _explain(request: ScriptedRequest, status: object, answer: Mapping[str, object]) -> None:
    """Note an error as the problem of a request, unless its script wants it, or its client waits no more."""
    if not (request.steps or request.problem or status == CANCELLED):
        error = members(answer.get(ERROR))
        reason = placed(as_text(error.get("param")), as_text(error.get("message")))
        request.problem = f"{request.path}: status {status}: {reason}"


def _body_of(frame: Mapping[str, object]) -> Mapping[str, object]:
    """Return what a frame of a WebSocket has of the request."""
    return {name: value for name, value in frame.items() if name not in FRAME_FIELDS}


def transport_of(send: Send) -> asyncio.WriteTransport | None:
    """Return the transport of a connection of uvicorn, or None on other servers."""
    transport: asyncio.WriteTransport | None = getattr(getattr(send, "__self__", None), "transport", None)
    return transport


@frozen
class ScriptRoutes:
    """ASGI middleware that serves what tests in any language ask of an `engine` with a script, each below its own URL.

    `GET /interlock/requests` lists the requests of a test, with a verdict, and `DELETE` forgets them. `PUT /interlock/script`
    gives the test a script of its own, of at most `max_bytes`. All need one of the `keys`, if there are any.
    """

    app: ASGIApp
    engine: ScriptedEngine
    keys: Keys
    max_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http" and scope["path"] in {REQUESTS, SCRIPT}:
            request = Request(scope, receive)
            try:
                app = await self._answer(request)
            except ApiError as error:
                app = error_response(error)
        await app(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        """Answer a request.

        Raises:
            ApiError: 401 without a key, 405 for another method, 400 for an invalid script, and the errors of `read_body`.
        """
        if self.keys.tenant(authorization_of(request.headers)) is None:
            raise ApiError(401, "This server needs an API key.", code="invalid_api_key")
        test: str = request.scope[CONNECTION].test
        asked = request.method, request.scope["path"]
        if asked == ("GET", REQUESTS):
            return JsonResponse(self.engine.progress(test).listed())
        if asked == ("DELETE", REQUESTS):
            self.engine.restart(test)
        elif asked == ("PUT", SCRIPT):
            body = await read_body(request, self.max_bytes, Yielder())
            try:
                self.engine.restart(test, read_rules(Path("script.json"), body))
            except InterlockError as error:
                raise ApiError(400, f"The script is invalid: {error}", code="invalid_script") from error
        else:
            raise ApiError(405, f"Use GET or DELETE for {REQUESTS}, and PUT for {SCRIPT}.")
        return Response(status_code=204)


@define(eq=False)
class FaultyConnection:
    """The connection of answers that a script may spoil."""

    _scope: Scope
    _receive: Receive
    _send: Send
    _unsent: list[Message] = field(factory=list[Message], init=False)
    """The messages of an answer that is broken, and sent, once it is complete."""

    async def send(self, message: Message) -> None:
        """Send a message of the application, unless the step spoils it."""
        connection: ScriptedConnection = self._scope[CONNECTION]
        step = connection.step
        if step is None or message["type"] not in {"http.response.start", "http.response.body", "websocket.send"}:
            await self._send(message)
        elif step.disconnects is not None or step.stops is not None:
            await self._cut(message, step, connection)
        elif step.breaks is not None:
            await self._break(message, step.breaks, connection)
        else:
            await self._send(message)

    async def _cut(self, message: Message, step: ScriptStep, connection: ScriptedConnection) -> None:
        """Send a message until the step's number of events is reached; an answer that is not a stream is not sent at all."""
        limit = max(step.disconnects or 0, step.stops or 0)
        if message["type"] == "http.response.start":
            is_stream = Headers(raw=message["headers"]).get("content-type", "").startswith(CONTENT_TYPE)
            if is_stream and step.disconnects != 0:
                await self._send(message)
            else:
                self._abort()
            return
        if message["type"] == "websocket.send":
            events, is_last = [message], False
        else:
            parts = message.get("body", b"").split(b"\n\n")[:-1]
            events = [{"type": "http.response.body", "body": part + b"\n\n", "more_body": True} for part in parts]
            is_last = not message.get("more_body", False)
        for event in events[: limit - connection.sent]:
            await self._send(event)
        connection.sent += len(events)
        if not is_last and connection.sent < limit:
            return
        if is_last and connection.sent <= limit and self._send is not _drop:
            fault = "disconnects" if step.stops is None else "stops"
            connection.refuse(f"The script {fault} after event {limit}, but the stream ends with event {connection.sent}.")
        if step.stops is None:
            self._abort()
        elif self._scope["type"] == "websocket":
            await self._end({"type": "websocket.close", "code": 1000})
        else:
            await self._end({"type": "http.response.body", "body": b""})

    def _abort(self) -> None:
        """Break uvicorn's connection. On other servers, the answer does not end."""
        transport = transport_of(self._send)
        self._send = _drop
        if transport is not None:
            transport.close() if transport.get_write_buffer_size() else transport.abort()

    async def _end(self, message: Message) -> None:
        await self._send(message)
        self._send = _drop

    async def _break(self, message: Message, rule: str, connection: ScriptedConnection) -> None:
        """Wait until the answer is complete, and send it with a broken rule."""
        self._unsent.append(message)
        if message["type"] == "websocket.send":
            if members(loads(message["text"])).get("type") not in TERMINAL:
                return
            data = [each["text"] for each in self._unsent]
        elif message["type"] == "http.response.start" or message.get("more_body", False):
            return
        else:
            body = b"".join(each.get("body", b"") for each in self._unsent)
            data = [each.data for each in SseDecoder().feed(body) if each.data.startswith("{")]
        head, self._unsent = self._unsent[0], []
        from interlock.testing.streams import break_rule, frames  # noqa: PLC0415 - few scripts break streams

        is_stream = bool(data) and self._scope["path"] == "/v1/responses"
        events = break_rule([dict(members(loads(each))) for each in data], rule) if is_stream else None
        if events is None:
            reason = f"The script breaks {rule}, but this answer is no stream of Responses, or has nothing that it concerns."
            connection.refuse(reason)
            error = ApiError(400, reason, code="unbreakable")
            if self._scope["type"] == "websocket":
                await self._send({"type": "websocket.send", "text": dumps({"type": "error", **error.body()}).decode()})
                return
            in_messages = speaks_messages(HTTPConnection(self._scope))
            await error_response(error, in_messages=in_messages)(self._scope, self._receive, self._send)
        elif self._scope["type"] == "websocket":
            for event in events:
                await self._send({"type": "websocket.send", "text": dumps(event).decode()})
        else:
            await self._send(head)
            await self._send({"type": "http.response.body", "body": frames(events)})


async def _drop(message: Message) -> None:
    """Send nothing: the connection is broken."""
