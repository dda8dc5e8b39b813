"""Hostile streams of Chat Completions through a gateway, to clients of each API.

A stream is a list of pieces. Some are well-formed chunks, each with a word of its own that must reach the client; the others are
chunks and bytes of any form. The gateway is in this process; only the bytes of its upstream are made up. Each stream is judged.
One that breaks something is shrunk, printed and written to `counterexamples/hostile_streams/`, where the ordinary tests replay
it; the exit status is then 1.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

import httpx
from attrs import define, field, frozen
from campaigns import any_seed, options
from fuzzing.bodies import KEYS, deep
from fuzzing.campaign import broken_by, show
from hypothesis import strategies as st
from live.wire import bodies, chunks_of, messages_of

from interlock.dialects import ApiName
from interlock.serving.build import build
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.http_client import HttpError
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.requests.api_errors import EngineError
from interlock.serving.settings import Settings, UpstreamSettings

Kind: TypeAlias = Literal["message", "reasoning", "function_call"]

FIRST: Final = 1_000
"""The first index of a well-formed call; odd calls have smaller ones."""


@frozen
class Piece:
    """The data of an event, or other bytes of a stream; `kind` is the kind of item that a well-formed chunk adds a word to."""

    data: bytes
    kind: Kind | None = None
    word: str = ""
    is_event: bool = True


@frozen
class ChunkStream:
    """The pieces of a stream, with the line end and the number of bytes of each read; it is whole, or breaks off."""

    pieces: Sequence[Piece]
    line_end: bytes = b"\n"
    size: int = 2**20
    is_whole: bool = True
    family: str | None = None

    @property
    def reads(self) -> Sequence[bytes]:
        """The bytes of each read."""
        blank = self.line_end * 2
        data = b"".join(b"data: " + piece.data + blank if piece.is_event else piece.data + blank for piece in self.pieces)
        return [data[at : at + self.size] for at in range(0, len(data), self.size)]

    def words(self, kind: Kind) -> Sequence[str]:
        """The words that items of a kind must have, in order."""
        return [piece.word for piece in self.pieces if piece.kind == kind]

    @property
    def certain(self) -> Sequence[Piece]:
        """The well-formed pieces before the first odd one."""
        odd = next((index for index, piece in enumerate(self.pieces) if piece.kind is None), len(self.pieces))
        return self.pieces[:odd]


def to_json(stream: ChunkStream) -> Mapping[str, object]:
    """Return a stream as JSON values."""
    pieces = [[piece.data.decode("latin-1"), piece.kind, piece.word, piece.is_event] for piece in stream.pieces]
    rest = [stream.line_end.decode(), stream.size, stream.is_whole, stream.family]
    return {"pieces": pieces, "rest": rest}


def from_json(value: Mapping[str, Sequence[object]]) -> ChunkStream:
    """Return the stream that `to_json` returned as JSON values."""
    pieces = [Piece(data.encode("latin-1"), *others) for data, *others in value["pieces"]]
    line_end, *rest = value["rest"]
    return ChunkStream(pieces, line_end.encode(), *rest)


def well_formed(kind: Kind, number: int) -> Sequence[Piece]:
    """Return the chunks of a service that keeps to the API; their word has the number."""
    word = f"w{number}w"
    if kind == "function_call":
        index, function = FIRST + number, {"name": "f", "arguments": ""}
        begin = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
        arguments = {"index": index, "function": {"arguments": json.dumps({"word": word})}}
        return [Piece(_chunk({"tool_calls": [begin]}), kind), Piece(_chunk({"tool_calls": [arguments]}), kind, word)]
    name = "content" if kind == "message" else "reasoning_content"
    return [Piece(_chunk({name: f"{word} "}), kind, word)]


def _chunk(delta: object) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}).encode()


HALVES = st.sampled_from(["\ud83d", "\ude00", "a\ud83d", "\ude00b", "\ud83d\ude00"])
TEXTS = st.one_of(
    st.sampled_from(["", " ", "\n", "a", "<reasoning>", "</reasoning>", "<", "data: x\n\n", "\u2028", "\x00", "\ufeff", "é😀"]),
    HALVES,
    st.text(max_size=6),
)
NUMBERS = st.sampled_from([0, 1, -1, 10**30, -(10**30), 0.5, 1e308, float("inf"), float("-inf"), float("nan"), 2**53, 9])
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
ODD = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)), max_leaves=4
)


def fields(**values: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    """Return a strategy for objects that have any of these fields, one in twenty with a value of any type."""
    return st.fixed_dictionaries({}, optional={name: _mostly(value) for name, value in values.items()})


def _mostly(good: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.integers(0, 19).flatmap(lambda drawn: ODD if drawn == 19 else good)


PARTS = st.lists(
    st.one_of(
        fields(type=st.just("text"), text=TEXTS),
        fields(
            type=st.just("thinking"), thinking=st.one_of(TEXTS, st.lists(fields(type=st.just("text"), text=TEXTS), max_size=2))
        ),
        fields(type=st.sampled_from(["reasoning.text", "reasoning.summary", "x"]), text=TEXTS, summary=TEXTS, signature=TEXTS),
    ),
    max_size=3,
)
ARGUMENTS = st.one_of(
    st.sampled_from(["", "{", '{"a":', "1}", "{}", '{"a":1}', "}", "[]", "[1", " ", '"\ud83d', "null", "nul", "7", "not json"]),
    HALVES,
    st.just({"a": 1}),
    TEXTS,
)
FUNCTIONS = fields(name=st.sampled_from(["f", "g", "", "get", "_weather", "functions.f", "mcp.x", "a b"]), arguments=ARGUMENTS)
CALL_IDS = st.one_of(st.sampled_from(["call_1", "", "g6fVbXS8K", "functions.f:0", "x" * 2_000, "\ud83d"]), TEXTS)
CALLS = st.lists(
    fields(index=st.sampled_from([0, 0, 1, 2, -1]), id=CALL_IDS, type=st.just("function"), function=FUNCTIONS), max_size=3
)
DELTAS = fields(
    role=st.sampled_from(["assistant", "", "tool"]),
    content=st.one_of(TEXTS, PARTS),
    reasoning=TEXTS,
    reasoning_content=st.one_of(TEXTS, PARTS),
    reasoning_details=PARTS,
    refusal=TEXTS,
    tool_calls=CALLS,
    function_call=FUNCTIONS,
    audio=ODD,
)
TOKENS = st.lists(fields(token=TEXTS, bytes=st.lists(NUMBERS, max_size=2), logprob=NUMBERS, top_logprobs=ODD), max_size=2)
LOGPROBS = st.one_of(fields(content=TOKENS, refusal=TOKENS), ODD)
REASONS = st.sampled_from(
    [None, None, "", "stop", "STOP", "tool_calls", "length", "MAX_TOKENS", "content_filter", "error", 7, [], {}]
)
CHOICES = fields(
    index=st.sampled_from([0, 0, 0, 1, -1, None, "0"]), delta=DELTAS, finish_reason=REASONS, logprobs=LOGPROBS, message=DELTAS
)
COUNTS = st.one_of(NUMBERS, ODD)
USAGES = fields(
    prompt_tokens=COUNTS,
    completion_tokens=COUNTS,
    prompt_tokens_details=fields(cached_tokens=COUNTS),
    completion_tokens_details=fields(reasoning_tokens=COUNTS),
    input_tokens_details=ODD,
)
CHUNKS = st.one_of(
    st.lists(CHOICES, min_size=1, max_size=2).map(lambda choices: {"choices": choices}),
    st.fixed_dictionaries(
        {"choices": _mostly(st.lists(CHOICES, max_size=2))},
        optional={"usage": USAGES, "error": _mostly(st.none()), "object": ODD, "id": ODD, "model": ODD},
    ),
    fields(usage=USAGES, choices=st.just([])),
)
ODD_CHUNKS = st.builds(
    lambda chunk, escapes: Piece(json.dumps(chunk, ensure_ascii=escapes).encode("utf-8", "surrogatepass")), CHUNKS, st.booleans()
)
ODD_DATA = st.builds(
    Piece,
    st.one_of(
        st.binary(max_size=8).filter(lambda data: not {*b"\n\r"} & {*data} and data.strip() != b"[DONE]"),
        st.sampled_from([b"", b"{", b"null", b"[]", b"{}", b"NaN", b'{"choices": [{"delta": {"content": "\xff"}}]}', b"[done]"]),
        st.sampled_from([100, 2_000]).map(lambda levels: json.dumps({"choices": [{"delta": deep_as_text(levels)}]}).encode()),
    ),
)
ODD_BYTES = st.builds(
    lambda data: Piece(data, is_event=False),
    st.sampled_from(
        [b": comment", b"event: error", b"id: 1", b"retry: 9", b"\xef\xbb\xbf", b"data", b"data:", b"\xff\xfe", b":"]
    ),
)


def deep_as_text(levels: int) -> object:
    """Return a delta with arrays in arrays, of which JSON can be written."""
    return {"content": deep(min(levels, 900))}


@st.composite
def chunk_streams(draw: st.DrawFn) -> ChunkStream:
    """Draw a stream of well-formed and odd pieces in any order."""
    kinds: st.SearchStrategy[Kind] = st.sampled_from(["message", "message", "message", "reasoning", "function_call"])
    odd = st.one_of(*[ODD_CHUNKS] * 8, *[ODD_BYTES] * 2, ODD_DATA)
    drawn = draw(st.lists(st.one_of(kinds, kinds, odd), max_size=12))
    pieces: list[Piece] = []
    for number, each in enumerate(drawn):
        pieces += [each] if isinstance(each, Piece) else well_formed(each, number)
    reason = draw(st.sampled_from(["stop", "stop", "stop", "tool_calls", "length", None]))
    if reason is not None:
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        pieces.append(Piece(json.dumps(end).encode(), "message"))
    if draw(st.booleans()):
        pieces.append(Piece(b"[DONE]"))
        pieces += draw(st.lists(odd, max_size=1))
    return ChunkStream(
        pieces,
        draw(st.sampled_from([b"\n", b"\r\n", b"\r"])),
        draw(st.sampled_from([1, 7, 100, 2**20])),
        draw(st.sampled_from([True, True, True, False])),
        draw(st.sampled_from([None, None, None, "bedrock_gpt_oss"])),
    )


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
