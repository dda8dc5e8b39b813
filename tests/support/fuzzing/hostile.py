"""Sends hostile requests to a real server, and writes their cost into docs/evidence/performance/hostile.md.

The server is `interlock serve` in its own process. During each request, another client fetches `/health` every few milliseconds;
its longest wait is the delay that the request causes for others.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import cache, partial
from http.client import HTTPResponse
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
from attrs import frozen
from live.mcp_servers import plain, running
from live.sockets import DEFLATE, MIB, framed, raw_socket
from live.watched import PATIENCE, Watch, serving
from websockets.frames import Opcode

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from runs import described, this_run

ALLOWED: Final = ("--allow-mcp-host", "127.0.0.1")
"""The options of the server."""
MCP_SERVERS: Final = ExitStack()
JSON: Final = {"content-type": "application/json"}
MODEL: Final = "interlock-embedded"
PAGE: Final = Path(__file__).parents[3] / "docs" / "evidence" / "performance" / "hostile.md"
BEGIN: Final = "<!-- begin: hostile -->"
END: Final = "<!-- end: hostile -->"


def body(**settings: object) -> bytes:
    """Return the body of a request."""
    return json.dumps({"model": MODEL, "input": "Hello: Paris", **settings}).encode()


def answer_by(schema: Mapping[str, object]) -> bytes:
    """Return the body of a request whose answer has a JSON schema."""
    return body(text={"format": {"type": "json_schema", "name": "n", "schema": schema}})


def tool(number: int, **fields: object) -> dict[str, object]:
    """Return the declaration of a function."""
    about = {"description": "Does something", "parameters": {"type": "object"}}
    return {"type": "function", "name": f"tool_{number}", **about, **fields}


@cache
def mcp_url(count: int) -> str:
    """Start an MCP server with `count` tools, and return its URL."""
    tools = [{"name": f"tool_{n}", "inputSchema": {"type": "object"}} for n in range(count)]
    return MCP_SERVERS.enter_context(running(plain(tools=tools)))


def mcp_server(count: int, **members: object) -> dict[str, object]:
    """Return the declaration of an MCP server with `count` tools."""
    return {"type": "mcp", "server_label": "many", "server_url": f"{mcp_url(count)}/mcp", **members}


def texts(schema: Mapping[str, object]) -> dict[str, object]:
    """Return the schema of an object with one member, which has the given schema."""
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


def deep(levels: int) -> dict[str, object]:
    """Return a schema that refers twice to the next level at each level."""
    steps = {f"s{n}": {"anyOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/s0", "$defs": {**steps, f"s{levels}": {"type": "string"}}}


PROPERTIES: Final = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(20_000)}}

REQUESTS: Final[Mapping[str, Callable[[], bytes]]] = {
    "(for comparison) nothing special": body,
    "a pattern that takes exponential time": lambda: answer_by(texts({"type": "string", "pattern": "^a*a*a*a*a*a*a*a*a*a*b$"})),
    "the same in a tool's parameters": lambda: body(
        tools=[tool(0, parameters=texts({"type": "string", "pattern": "^(a+)+$", "examples": ["a" * 40 + "b"]}))],
        tool_choice="required",
    ),
    "`minItems` of 100,000": lambda: answer_by({"type": "array", "minItems": 100_000, "items": {"type": "string"}}),
    "`minLength` of 100,000": lambda: answer_by(texts({"type": "string", "minLength": 100_000})),
    "`uniqueItems`, `minItems` of 5,000": lambda: body(
        tools=[tool(0, parameters=texts({"type": "array", "minItems": 5_000, "uniqueItems": True}))], tool_choice="required"
    ),
    "20,000 properties": lambda: answer_by(PROPERTIES),
    "20,000 properties, strict": lambda: body(tools=[tool(0, strict=True, parameters=PROPERTIES)], tool_choice="required"),
    "references that double 40 times": lambda: answer_by(deep(40)),
    "200,000 times the letter x": lambda: body(input="x" * 200_000),
    "200,000 spaces": lambda: body(input=" " * 200_000),
    "200,000 times the same ideograph": lambda: body(input="\u4e16" * 200_000),
    "10,000,000 letters": lambda: body(input="x" * 10_000_000),
    "30 MB of words": lambda: body(input=[{"role": "user", "content": "word " * 2_000_000}] * 3),
    "10 MB of instructions": lambda: body(instructions="word " * 2_000_000),
    "1,000 tools and 240 kB of input": lambda: body(input="some words " * 21_800, tools=[tool(n) for n in range(1_000)]),
    "a sum of 200,000 characters": lambda: body(
        input="(" * 200_000, tools=[{"type": "code_interpreter", "container": {"type": "auto"}}]
    ),
    "10,000 calls with their outputs": lambda: body(
        input=[
            {"role": "user", "content": "Hello"},
            *({"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"} for n in range(4_999)),
            *({"type": "function_call_output", "call_id": f"c{n}", "output": "4"} for n in range(4_999)),
        ]
    ),
    "20,000 items": lambda: body(input=[{"role": "user", "content": "a"}] * 20_000),
    "5,000,000 empty arrays": lambda: b'{"model": "' + MODEL.encode() + b'", "input": [' + b"[]," * 5_000_000 + b"1]}",
    "100,000 levels of arrays": lambda: b"[" * 100_000,
    "690,000 lone surrogates": lambda: body(ignored="\ud800" * 690_000),
    "340,000 pairs of surrogates and one alone": lambda: body(ignored="\U0001f600" * 340_000 + "\ud800"),
    "5,800,000 lone surrogates": lambda: body(ignored="\ud800" * 5_800_000),
    "an MCP server that lists 15,000 tools": lambda: body(tools=[mcp_server(15_000)]),
    "the same with `allowed_tools` of one": lambda: body(tools=[mcp_server(15_000, allowed_tools=["tool_1"])]),
    "an MCP server that lists 4,900 tools": lambda: body(tools=[mcp_server(4_900)]),
    "an MCP server that lists 1,024 tools, and 40,000 that are allowed": lambda: body(
        tools=[mcp_server(1_024, allowed_tools=[f"tool_{n}" for n in range(40_000, 0, -1)])]
    ),
    "60 MB": lambda: body(input="x" * 60_000_000),
    "`call_id` of `{}`": lambda: body(input=[{"type": "function_call_output", "call_id": {}, "output": "4"}]),
    "an item of a type that nobody knows": lambda: body(input=[{"type": "nonsense"}]),
    "a reference to nothing": lambda: body(input=[{"type": "item_reference", "id": "msg_1"}]),
    "an output without its call": lambda: body(input=[{"type": "function_call_output", "call_id": "c", "output": "4"}]),
    "a hosted tool that is chosen and not there": lambda: body(tool_choice={"type": "web_search"}),
    "`max_output_tokens` of 1": lambda: body(max_output_tokens=1),
}


def head(*headers: str) -> bytes:
    """Return the head of a request."""
    return "\r\n".join(["GET /v1/models HTTP/1.1", "host: 127.0.0.1", *headers, "", ""]).encode()


HEADS: Final[Mapping[str, Callable[[], bytes]]] = {
    "a header of 57 MiB": lambda: head(f"x-a: {'a' * 57 * MIB}"),
    "a header of 57 MiB without an end": lambda: head(f"x-a: {'a' * 57 * MIB}")[:-4],
    "a request line of 1 MiB": lambda: head().replace(b"/v1/models", b"/" + b"a" * MIB),
    "400,000 headers": lambda: head(*(f"x-{n}: a" for n in range(400_000))),
    "201 headers": lambda: head(*(f"x-{n}: a" for n in range(200))),
    "trailers of 57 MiB": lambda: head("transfer-encoding: chunked") + b"0\r\nx-a: " + b"a" * 57 * MIB + b"\r\n\r\n",
    "two hosts": lambda: head("host: example.org"),
    "(for comparison) 100 headers of 600 bytes": lambda: head(*(f"x-{n}: {'a' * 590}" for n in range(100))),
}
"""The bytes of requests whose head is hostile."""


def created(**settings: object) -> bytes:
    """Return a request for a WebSocket, which generates no output."""
    return body(type="response.create", store=False, generate=False, **settings)


def file_of(size: int) -> list[object]:
    """Return an input with a file."""
    return [{"role": "user", "content": [{"type": "input_file", "filename": "a", "file_data": "x" * size}]}]


def text(data: bytes) -> bytes:
    """Return a text frame."""
    return framed(Opcode.TEXT, data)


FRAMES: Final[Mapping[str, Callable[[], Iterable[tuple[bytes, int]]]]] = {
    "(for comparison) a frame with nothing special": lambda: [(text(created()), 1)],
    "a frame of one string of 31 MiB": lambda: [(text(created(input=file_of(31 * MIB))), 1)],
    "a frame of 3 MB of lone surrogates": lambda: [(text(created().replace(b"Hello: Paris", rb"\ud800" * 500_000)), 1)],
    "a frame of 60,000 values": lambda: [(text(created(metadata={"a": [1] * 60_000})), 1)],
    "a frame of 5,001 items": lambda: [(text(created(input=[{"role": "user", "content": "a"}] * 5_001)), 1)],
    "a frame of invalid UTF-8": lambda: [(text(b"\xff"), 1)],
    "20,000 frames that are no requests": lambda: [(text(b"[]") * 20_000, 20_000)],
    "a million continuation frames of two bytes": lambda: [
        (framed(Opcode.TEXT, fin=False) + framed(Opcode.CONT, b"aa", fin=False) * 1_000_000, 1)
    ],
    "a million empty continuation frames": lambda: [
        (framed(Opcode.TEXT, fin=False) + framed(Opcode.CONT, fin=False) * 1_000_000, 1)
    ],
    "a million pings, and nothing is read": lambda: [(framed(Opcode.PING, b"a" * 100) * 1_000_000, 1)],
    "32 lanes that keep 30 MB each": lambda: ((text(created(stream_id=str(n), input=file_of(30_000_000))), 1) for n in range(32)),
}
"""For each name, the data to send over one WebSocket in turn, each with the number of answers to wait for."""


@frozen
class Outcome:
    """The answer to a request, and its cost.

    Args:
        status: The status of the answer, or the name of the client's error.
        summary: The answer in a few words.
        seconds: The time until the answer.
        health: The longest wait for `/health` meanwhile, in seconds.
        busy: The longest part of such a wait in which the server computed something else, in seconds.
        memory: The largest growth of the server's memory meanwhile, in bytes.
    """

    status: str
    summary: str
    seconds: float
    health: float
    busy: float
    memory: int


def post(url: str, pid: int, content: bytes) -> Outcome:
    """Send a request over HTTP, and watch the server meanwhile."""

    def send() -> tuple[str, str]:
        answer = httpx.post(f"{url}/v1/responses", content=content, headers=JSON, timeout=PATIENCE)
        return str(answer.status_code), summarize(answer.json())

    return watched(url, pid, send)


def watched_socket(url: str, pid: int, frames: Iterable[tuple[bytes, int]]) -> tuple[Outcome, int]:
    """Send frames over one WebSocket, and watch the server meanwhile; also return the number of sent bytes."""
    size = 0

    def send() -> tuple[str, str]:
        nonlocal size
        status, summary, size = over_socket(url, frames)
        return status, summary

    return watched(url, pid, send), size


def over_connection(url: str, data: bytes) -> tuple[str, str]:
    """Send bytes over one connection; return the status and summary of the answer."""
    place = urlsplit(url)
    with socket.create_connection((str(place.hostname), place.port or 80), timeout=PATIENCE) as connection:
        with suppress(ConnectionError):
            connection.sendall(data)
        answer = HTTPResponse(connection)
        answer.begin()
        return str(answer.status), summarize(json.loads(answer.read()))


def over_socket(url: str, frames: Iterable[tuple[bytes, int]]) -> tuple[str, str, int]:
    """Send frames over one WebSocket; return the status and summary of the last answer, and the number of sent bytes."""
    size, answer = 0, dict[str, object]()
    with raw_socket(url, DEFLATE) as client:
        for data, answers in frames:
            size += len(data)
            client.send_all(data)
            for _ in range(answers):
                answer = client.end_of_turn()
    response = answer.get("response")
    return str(answer.get("status") or answer["type"]), summarize(response if isinstance(response, Mapping) else answer), size


def watched(url: str, pid: int, send: Callable[[], tuple[str, str]]) -> Outcome:
    """Call `send`, which returns a status and a summary, and watch the server meanwhile."""
    with Watch(url, pid) as watch:
        start = time.perf_counter()
        try:
            status, summary = send()
        except (httpx.HTTPError, OSError) as error:
            status, summary = type(error).__name__, ""
        seconds = time.perf_counter() - start
    return Outcome(status, summary, seconds, watch.longest, watch.busy, watch.memory - watch.before)


def summarize(answer: Mapping[str, object]) -> str:
    """Return an answer in a few words."""
    error = answer.get("error")
    if isinstance(error, Mapping):
        where = f" ({error['param']})" if error.get("param") else ""
        return f"{error.get('code') or str(error.get('message'))[:60]}{where}"
    return str(answer.get("status", "")) if "type" not in answer else ""


def row(name: str, size: int, outcome: Outcome) -> str:
    """Return a row of the table."""
    return (
        f"| {name} | {size / 1000:,.0f} | {outcome.status} {outcome.summary} | {outcome.seconds:.2f} "
        f"| {outcome.health * 1000:.0f} | {outcome.busy * 1000:.0f} | {outcome.memory / 1e6:,.0f} |"
    )


def show(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Send the requests whose names have a word of the command line; without words, send all and write the page's table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="send only the requests whose names have one of these words")
    words = parser.parse_args().words
    rows, worst = [], 0.0
    chosen = [name for name in (*REQUESTS, *HEADS, *FRAMES) if not words or any(word in name for word in words)]
    with serving(*ALLOWED) as (url, pid), MCP_SERVERS:
        for name in chosen:
            if name in FRAMES:
                outcome, size = watched_socket(url, pid, FRAMES[name]())
            elif name in HEADS:
                data = HEADS[name]()
                outcome, size = watched(url, pid, partial(over_connection, url, data)), len(data)
            else:
                content = REQUESTS[name]()
                outcome, size = post(url, pid, content), len(content)
            worst = max(worst, outcome.busy)
            rows.append(row(name, size, outcome))
            show(rows[-1])
    if not words:
        write(rows)
    show(f"The longest delay of /health was {worst * 1000:.0f} ms.")
    return 0


def write(rows: list[str]) -> None:
    """Write the rows into the page."""
    head = "| request | kB | answer | seconds | longest `/health`, ms | held up, ms | memory, MB |\n|---|--:|---|--:|--:|--:|--:|"
    run = f"{described(this_run())} {len(rows)} requests one after another on one server."
    table = "\n".join([BEGIN, "", head, *rows, "", run, "", END])
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + table + rest.split(END)[1])


if __name__ == "__main__":
    sys.exit(main())
