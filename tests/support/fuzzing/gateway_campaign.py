"""Hostile streams of Chat Completions through a gateway, to clients of each API.

The gateway is in this process; only the bytes of its upstream are made up. Each stream is judged. One that breaks something is
shrunk, printed and written to `counterexamples/hostile_streams/`, where the ordinary tests replay it; the exit status is then 1.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import httpx
from attrs import define, field
from campaigns import any_seed, options
from fuzzing.campaign import broken_by, show
from fuzzing.chunk_streams import ChunkStream, Kind, chunk_streams, to_json
from live.dialects import chunks_of, messages_of
from live.wire import bodies

from interlock.dialects import ApiName
from interlock.serving.build import build
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.http_client import HttpError
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.requests.api_errors import EngineError
from interlock.serving.settings import Settings, UpstreamSettings

FOUND = Path(__file__).parents[2] / "counterexamples" / "hostile_streams"
ROUND = 200
"""The streams of a round."""
PATIENCE = 20.0
"""Seconds after which a stream counts as endless."""
KINDS: Final[Sequence[Kind]] = ("message", "reasoning", "function_call")
NAMES: Final = ("f", "get_weather")
BODY: Final = {
    "model": "m",
    "input": "Hi",
    "stream": True,
    "include": ["message.output_text.logprobs"],
    "tools": [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in NAMES],
}
DIALOGUE: Final = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 99, "stream": True}
BODIES: Final[Mapping[ApiName, Mapping[str, object]]] = {
    "responses": {**BODY, "store": False},
    "messages": {**DIALOGUE, "tools": [{"name": name, "input_schema": {"type": "object"}} for name in NAMES]},
    "chat": {
        **DIALOGUE,
        "tools": [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in NAMES],
        "stream_options": {"include_usage": True},
    },
}
"""The request in each API."""
PATHS: Final[Mapping[ApiName, str]] = {
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "chat": "/v1/chat/completions",
}


def judge(stream: ChunkStream, data: bytes, api: ApiName = "responses") -> None:
    """Judge the answer of a gateway to a stream of its upstream.

    Raises:
        AssertionError: It is illegal, or lacks a word.
    """
    failed, texts = READERS[api](data)
    for kind in KINDS:
        certain = [piece.word for piece in stream.certain if piece.kind == kind]
        words = certain if failed else stream.words(kind)
        at, text = 0, texts[kind]
        for word in filter(None, words):
            assert word in text[at:], f"{word} is missing in {text!r} of the kind {kind}"
            at = text.index(word, at) + len(word)


def _read_responses(data: bytes) -> tuple[bool, Mapping[Kind, str]]:
    """Return whether a response failed, and its text of each kind."""
    response = bodies(data)[-1]["response"]
    texts = {kind: "\n".join(_text(item) for item in response["output"] if item["type"] == kind) for kind in KINDS}
    return response["status"] == "failed", texts


def _read_messages(data: bytes) -> tuple[bool, Mapping[Kind, str]]:
    events = messages_of(data)
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    names = zip(KINDS, ("text", "thinking", "partial_json"), strict=True)
    return events[-1]["type"] == "error", {kind: "".join(delta.get(name, "") for delta in deltas) for kind, name in names}


def _read_chat(data: bytes) -> tuple[bool, Mapping[Kind, str]]:
    chunks = chunks_of(data, usage=True)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", ())]
    texts: dict[Kind, str] = {
        "message": "".join(f"{delta.get('content') or ''}{delta.get('refusal') or ''}" for delta in deltas),
        "reasoning": "".join(delta.get("reasoning_content") or "" for delta in deltas),
        "function_call": "".join(call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", ())),
    }
    return "error" in chunks[-1], texts


READERS: Final[Mapping[ApiName, Callable[[bytes], tuple[bool, Mapping[Kind, str]]]]] = {
    "responses": _read_responses,
    "messages": _read_messages,
    "chat": _read_chat,
}


def _text(item: Mapping[str, Any]) -> str:
    parts = [*item.get("content", ()), *item.get("summary", ())]
    return item.get("arguments", "".join(part.get("text", part.get("refusal", "")) for part in parts))


@define(eq=False)
class FakeUpstream:
    """Stands for the HTTP client of an upstream, and for its answers, whose bytes are those of a stream."""

    stream: ChunkStream | None = None
    _reads: list[bytes] = field(factory=list)
    status: int = 200
    headers: Mapping[str, str] = field(factory=lambda: {"content-type": "text/event-stream"})
    parts: Sequence[bytes] = ()
    receive: Callable[[], bool] | None = None

    @property
    def is_over(self) -> bool:
        return not self._reads

    async def request(self, *_: object) -> Self:
        assert self.stream is not None
        self._reads = [*self.stream.reads]
        return self

    async def more(self) -> None:
        """Return at once."""

    def take(self) -> bytes:
        if self._reads:
            return self._reads.pop(0)
        if self.stream is not None and not self.stream.is_whole:
            raise HttpError
        return b""

    def fail(self, _: Exception) -> None:
        """Do nothing."""


class Faults(logging.Handler):
    """Keeps the errors that are logged, except those that an upstream causes."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno >= logging.ERROR and not isinstance(error, EngineError):
            self.messages.append(record.getMessage())


class GatewayProber:
    """Sends requests to a gateway in this process, and judges the answers."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._clients: dict[str | None, tuple[FakeUpstream, httpx.AsyncClient]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def probe(self, stream: ChunkStream) -> None:
        """Send a request of each API to a gateway whose upstream answers with a stream.

        Raises:
            AssertionError: No gateway may answer so.
        """
        for api in PATHS:
            judge(stream, self.answer(stream, api), api)

    def answer(self, stream: ChunkStream, api: ApiName = "responses") -> bytes:
        """Return the answer of the gateway, which is not judged.

        Raises:
            AssertionError: The gateway logs an error of its own.
        """
        upstream, client = self._client(stream.family)
        upstream.stream = stream
        faults, log = Faults(), logging.getLogger()
        log.addHandler(faults)
        try:
            answer = self._runner.run(self._post(client, api))
        finally:
            log.removeHandler(faults)
        assert answer.status_code == 200, answer.text
        assert not faults.messages, faults.messages
        return answer.content

    async def _post(self, client: httpx.AsyncClient, api: ApiName) -> httpx.Response:
        async with asyncio.timeout(PATIENCE):
            return await client.post(PATHS[api], json=BODIES[api])

    def _client(self, family: str | None) -> tuple[FakeUpstream, httpx.AsyncClient]:
        if family not in self._clients:
            upstream = upstream_of(UpstreamSettings(url="http://upstream", retries=0, family=family))
            fake: Any = FakeUpstream()
            upstream._http = fake  # in place of a connection
            transport = httpx.ASGITransport(build(Settings(), Gateway([upstream])))
            self._clients[family] = fake, httpx.AsyncClient(transport=transport, base_url="http://gateway")
        return self._clients[family]


def main(minutes: float, seed: int) -> int:
    """Run for some minutes, and return the exit status."""
    start, streams = time.monotonic(), 0
    with GatewayProber() as prober:
        while (seconds := time.monotonic() - start) < minutes * 60:
            broken = broken_by(chunk_streams(), prober.probe, ROUND, seed)
            if broken is not None:
                stream, error = broken
                FOUND.mkdir(exist_ok=True)
                path = FOUND / time.strftime("%Y%m%d-%H%M%S.json")
                path.write_text(json.dumps(to_json(stream), indent=1) + "\n")
                show(f"{error!r}\n{str(stream)[:2_000]}\nwritten to {path}, seed {seed}\n")
                return 1
            streams, seed = streams + ROUND, seed + 1
            show(f"{streams:,} streams, {seconds / 60:.1f} of {minutes:g} minutes ")
    show(f"{streams:,} streams in {minutes:g} minutes, and each became a legal one with all words\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(**options(__doc__, minutes=5.0, seed=any_seed())))
