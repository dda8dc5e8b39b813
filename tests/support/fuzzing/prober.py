"""Sends any request to a real server, and asserts what must hold for every answer and for the server."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPResponse
from typing import Self
from urllib.parse import urlsplit

import httpx
from attrs import define, field
from fuzzing.bodies import head_of
from live.raw_socket import framed, raw_socket
from live.watched import PATIENCE, Watch, memory_of
from websockets.frames import Opcode

from interlock.events.json import dumps, members
from interlock.serving.settings import Settings
from interlock.testing import assert_legal
from interlock.verify.oracle import check

REFUSED = {400, 404, 413}
ENDED = {"completed", "incomplete", "failed"}
LIMIT = 0.1
"""The seconds for which a request may delay other clients."""


@define(eq=False)
class Prober:
    """Sends requests to a server at a URL, which runs as the process `pid`, and judges the answers."""

    url: str
    pid: int
    count: int = 0
    longest: float = 0.0
    """The longest wait for `/health`, in seconds."""
    busy: float = 0.0
    """The longest part of such a wait in which the server computed something else, in seconds."""
    statuses: dict[str, int] = field(factory=dict)
    """The number of answers by status."""
    _client: httpx.Client = field(factory=lambda: httpx.Client(timeout=PATIENCE))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def send(self, body: Mapping[str, object]) -> None:
        """Send a request over HTTP, or over a WebSocket if it has a `type`; or only a head that has `lines`.

        Raises:
            AssertionError: No server may answer so.
        """
        self.count += 1
        if "lines" in body:
            self._count(self._send_head(head_of(body)))
            return
        content = json.dumps(body).encode()
        if "type" in body:
            self._count(self._send_frame(content))
            return
        answer = self._client.post(f"{self.url}/v1/responses", content=content, headers={"content-type": "application/json"})
        self._count(self._judge(answer, streamed=body.get("stream") is True))

    def _count(self, status: str) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1

    def _send_head(self, data: bytes) -> str:
        """Send the head of a request, which is answered or refused, and never leaves the client waiting."""
        place = urlsplit(self.url)
        with socket.create_connection((str(place.hostname), place.port or 80), timeout=PATIENCE) as connection:
            with suppress(OSError):  # the server may have closed the connection
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            answer = HTTPResponse(connection)
            with suppress(ConnectionError):  # the server has closed a connection whose bytes it has not read to their end
                answer.begin()
                assert answer.status in {200, 400, 404, 431, 501}, (answer.status, answer.read())
                return f"head {answer.status}"
        return "head closed"

    def _send_frame(self, content: bytes) -> str:
        """Send a frame over a new WebSocket, judge the answer, and assert that the next frame has one too."""
        with raw_socket(self.url) as client:
            client.send_all(framed(Opcode.TEXT, content))
            events = client.turn()
            if len(content) > Settings().max_body_bytes:
                assert events[-1]["type"] == "closed", events
                return "socket closed"
            client.send(Opcode.TEXT, b"[]")
            assert client.end_of_turn()["type"] == "error"
        end = events[-1]
        if end["type"] in {"error", "response.steer.failed"}:
            assert len(events) == 1, events
            assert end.get("status", 400) in REFUSED, end
            assert len(dumps(end)) < 10_000 or end["type"] != "error", "an error repeats too much of its request"
            return f"socket {end.get('status', 'steer')}"
        lane = {event.pop("stream_id", None) for event in events}
        assert len(lane) == 1, lane
        assert check(events) == []
        return f"socket {self._final_status(members(end['response']))}"

    def _judge(self, answer: httpx.Response, *, streamed: bool) -> str:
        assert answer.status_code == 200 or answer.status_code in REFUSED, (answer.status_code, answer.text[:500])
        if answer.status_code != 200:
            error = answer.json()["error"]
            assert [*error] == ["message", "type", "param", "code"], error
            assert isinstance(error["message"], str), error
            assert error["message"], error
            assert len(answer.content) < 10_000, "an error repeats too much of its request"
            return str(answer.status_code)
        if streamed:
            assert_legal(answer.content, strict=True)
            response = json.loads(answer.content.split(b"\ndata: ")[-2].partition(b"\n")[0])["response"]
        else:
            response = answer.json()
        return self._final_status(response)

    def _final_status(self, response: Mapping[str, object]) -> str:
        """Judge a response at its end, delete it from the store, and return its status."""
        if response["background"] is True:
            stream = self._client.get(f"{self.url}/v1/responses/{response['id']}", params={"stream": "true"})
            assert stream.status_code == 200, stream.text[:500]
            assert_legal(stream.content, strict=True)
            response = self._client.get(f"{self.url}/v1/responses/{response['id']}").json()
        assert response["status"] in ENDED, response["status"]
        error = response["error"]
        assert error is None or error["code"] == "invalid_prompt", error
        if response["store"] is True:
            self._client.delete(f"{self.url}/v1/responses/{response['id']}")
        return str(response["status"])

    def send_watched(self, body: Mapping[str, object]) -> None:
        """Send a request while another client fetches `/health` again and again.

        Raises:
            AssertionError: No server may answer so, or `/health` had to wait.
        """
        with Watch(self.url, self.pid) as watch:
            self.send(body)
        self.longest, self.busy = max(self.longest, watch.longest), max(self.busy, watch.busy)
        assert watch.busy <= LIMIT, f"/health had to wait {watch.busy * 1000:.0f} ms for the server to compute something else"

    @property
    def memory(self) -> int:
        """The memory of the server, in bytes."""
        return memory_of(self.pid)
