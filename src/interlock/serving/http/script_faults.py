"""Disconnects, stops and breaks answers as the steps of a script say.

The events of an answer are its server-sent events, or the frames of a WebSocket.
"""

from __future__ import annotations

from attrs import define, field, frozen
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.events.decode import SseDecoder
from interlock.events.json import dumps, loads, members
from interlock.events.sse import CONTENT_TYPE
from interlock.events.stream import TERMINAL
from interlock.serving.engines.script import Step
from interlock.serving.engines.scripted_engine import EXCHANGE, Exchange
from interlock.serving.http.answers import error_response, speaks_messages
from interlock.serving.requests.api_errors import ApiError


@frozen
class ScriptFaults:
    """ASGI middleware that spoils an answer if the step of its `Exchange` does. Only the server may be around it."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in {"http", "websocket"}:
            scope = {EXCHANGE: Exchange(), **scope}
            send = FaultyLine(scope, receive, send).send
        await self.app(scope, receive, send)


@define(eq=False)
class FaultyLine:
    """The connection of answers that a script may spoil."""

    _scope: Scope
    _receive: Receive
    _send: Send
    _streams: bool = field(default=True, init=False)
    """Whether the answer is a stream."""
    _held: list[Message] = field(factory=list[Message], init=False)
    """The messages of an answer that is sent once it is complete, and broken."""

    async def send(self, message: Message) -> None:
        """Send a message of the application, unless the step spoils it."""
        exchange: Exchange = self._scope[EXCHANGE]
        step = exchange.step
        if step is None or message["type"] not in {"http.response.start", "http.response.body", "websocket.send"}:
            await self._send(message)
        elif step.disconnects is not None or step.stops is not None:
            await self._cut(message, step, exchange)
        elif step.breaks is not None:
            await self._break(message, step.breaks, exchange)
        else:
            await self._send(message)

    async def _cut(self, message: Message, step: Step, exchange: Exchange) -> None:
        """Send a message until the step's number of events is reached; an answer that is no stream is not sent at all."""
        limit = max(step.disconnects or 0, step.stops or 0)
        if message["type"] == "http.response.start":
            self._streams = Headers(raw=message["headers"]).get("content-type", "").startswith(CONTENT_TYPE)
            if self._streams and (limit or step.stops is not None):
                await self._send(message)
            elif step.disconnects is not None or not self._streams:
                self._abort()
                return
        is_last = False
        if message["type"] == "websocket.send":
            events = [message]
        else:
            events = [
                {"type": "http.response.body", "body": part + b"\n\n", "more_body": True}
                for part in message.get("body", b"").split(b"\n\n")[:-1]
            ]
            is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        for event in events[: limit - exchange.sent]:
            await self._send(event)
        exchange.sent += len(events)
        if not is_last and exchange.sent < limit:
            return
        if step.stops is None:
            self._abort()
        elif self._scope["type"] == "websocket":
            await self._end({"type": "websocket.close", "code": 1000})
        else:
            await self._end({"type": "http.response.body", "body": b""})

    def _abort(self) -> None:
        """Break the connection, without the end that HTTP or WebSockets have for an answer."""
        transport = getattr(
            getattr(self._send, "__self__", None), "transport", None
        )  # uvicorn's; others see an answer without end
        self._send = _drop
        if transport is not None:
            transport.close() if transport.get_write_buffer_size() else transport.abort()

    async def _end(self, message: Message) -> None:
        """Send the last message."""
        await self._send(message)
        self._send = _drop

    async def _break(self, message: Message, rule: str, exchange: Exchange) -> None:
        """Hold back the answer until it is complete, and break it."""
        self._held.append(message)
        if message["type"] == "websocket.send":
            if members(loads(message["text"])).get("type") not in TERMINAL:
                return
            data = [held["text"] for held in self._held]
        elif message["type"] == "http.response.start" or message.get("more_body", False):
            return
        else:
            body = b"".join(held.get("body", b"") for held in self._held)
            data = [each.data for each in SseDecoder().feed(body) if each.data.startswith("{")]
        head, self._held = self._held[0], []
        from interlock.testing.faults import break_rule  # noqa: PLC0415 - few scripts break streams
        from interlock.testing.legality import frames  # noqa: PLC0415 - as above

        is_stream = bool(data) and self._scope["path"] == "/v1/responses"
        events = break_rule([dict(members(loads(each))) for each in data], rule) if is_stream else None
        if events is None:
            reason = f"The script breaks {rule}, but this answer is not a stream of the Responses API in which it can be broken."
            exchange.refuse(reason)
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
