"""A long run of hostile requests against a real server.

A third of them are sent over HTTP and a third over WebSockets; the others are heads alone, some of them floods of headers. Every
second round goes to a gateway, whose upstream refuses what the strictest services refuse, as Mistral's. Every answer and every
stream is judged, while another client fetches `/health`. A request that breaks something is shrunk, printed and written to
`counterexamples/hostile_requests/`, where the ordinary tests replay it; the exit status is then 1. Memory is compared between the
end and the first round, in which caches fill.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
from attrs import define, field
from campaigns import any_seed, options
from fuzzing.bodies import frames, head_of, heads, requests
from fuzzing.campaign import broken_by, show
from hypothesis import strategies as st
from live.chunk_shapes import chunk
from live.sockets import framed, raw_socket
from live.upstream import Reply, ScriptedUpstream, failure, serve_upstream, stream
from live.watched import PATIENCE, Watch, memory_of, serving
from websockets.frames import Opcode

from interlock.events.json import dumps, members
from interlock.serving.settings import Settings
from interlock.testing import assert_legal
from interlock.verify.oracle import check

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CALL_ID = re.compile(r"[a-zA-Z0-9]{9}")
GOOD = stream(chunk({"role": "assistant", "content": "Yes."}), chunk({}, "stop"))


def faults(body: Mapping[str, Any]) -> Sequence[str]:
    """Return the parts of a request's body that a strict service refuses."""
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    ids = [*(call["id"] for call in calls), *(message["tool_call_id"] for message in messages if message["role"] == "tool")]
    found = [f"two tools have the name {name}" for name in {*names} if names.count(name) > 1]
    called = [call["function"]["name"] for call in calls]
    found += [f"the name {name!r}" for name in (*names, *called) if not NAME.fullmatch(name)]
    found += [f"the id {call_id!r}" for call_id in ids if not CALL_ID.fullmatch(call_id)]
    open_ids: list[str] = []
    for message in messages:
        if message["role"] != "tool":
            open_ids = [call["id"] for call in message.get("tool_calls", ())]
        elif message["tool_call_id"] not in open_ids and message["tool_call_id"] in {call["id"] for call in calls}:
            found.append(f"the output {message['tool_call_id']} does not follow its call")
    return found


class StrictChat(ScriptedUpstream):
    """Answers each valid request with a text, and any other with the status 422."""

    async def _reply(self, reply: Reply, receive: Any, send: Any) -> None:
        body: Any = self.requests.pop().body  # not kept: a campaign sends many
        found = [] if body is None else faults(body)
        await super()._reply(failure(422, {"error": {"message": "; ".join(found)}}) if found else reply, receive, send)


@contextmanager
def serving_gateway() -> Generator[tuple[str, int]]:
    """Run a gateway in front of a strict upstream; yield its URL and the number of its process."""
    with serve_upstream(StrictChat([GOOD])) as upstream, tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(f'[[upstream]]\nurl = "{upstream}"\nshort_call_ids = true\n')
        config.flush()
        with serving("--config", config.name) as served:
            yield served


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


FOUND = Path(__file__).parents[2] / "counterexamples" / "hostile_requests"
ROUND = 25
"""The requests of a round."""

GROWTH = 100_000_000
"""The most bytes by which the server's memory may grow after the first round."""


def main(minutes: float, seed: int) -> int:
    """Run for some minutes, and return the exit status."""
    start = time.monotonic()
    with serving() as server, serving_gateway() as gateway, Prober(*server) as plain, Prober(*gateway) as translating:
        probers, first_memory = (plain, translating), dict[int, int]()
        while (seconds := time.monotonic() - start) < minutes * 60:
            prober = probers[seed % 2]
            broken = broken_by(st.one_of(requests(), frames(), heads()), prober.send_watched, ROUND, seed)
            if broken is not None:
                body, error = broken
                FOUND.mkdir(exist_ok=True)
                path = FOUND / time.strftime("%Y%m%d-%H%M%S.json")
                path.write_text(json.dumps(body, indent=1) + "\n")
                show(f"{error!r}\n{str(body)[:2_000]}\nwritten to {path}, seed {seed}\n")
                return 1
            first_memory.setdefault(prober.pid, prober.memory)
            seed += 1
            count = sum(each.count for each in probers)
            show(f"{count:,} requests, {seconds / 60:.1f} of {minutes:g} minutes, delay {prober.busy * 1000:.0f} ms ")
        return max(_summarize(prober, minutes, first_memory.get(prober.pid, prober.memory)) for prober in probers)


def _summarize(prober: Prober, minutes: float, first_memory: int) -> int:
    """Write the results of a campaign, and return the exit status."""
    growth = prober.memory - first_memory
    wait, busy = prober.longest * 1000, prober.busy * 1000
    show(f"{prober.count:,} requests in {minutes:g} minutes: {prober.statuses}\n")
    show(f"/health took at most {wait:.0f} ms, of which the server computed something else for at most {busy:.0f} ms\n")
    show(f"memory grew by {growth / 1e6:.0f} MB to {prober.memory / 1e6:.0f} MB\n")
    return int(growth > GROWTH)


if __name__ == "__main__":
    sys.exit(main(**options(__doc__, minutes=5.0, seed=any_seed())))
