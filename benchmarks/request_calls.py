"""Count the Python calls that a request costs: from a POST to the first byte of its answer, and for each delta after that.

    python benchmarks/request_calls.py                 # a plain engine, and a gateway on its long way
    python benchmarks/request_calls.py --list          # also each function in the order of first calls
    PYTHONPATH=../before/src python benchmarks/request_calls.py    # the same of another checkout

The application is called in this process, without a socket in front, so a delta of the gateway takes the long way. A resumed
coroutine or generator counts as a call, as it does for the interpreter, and so does a comprehension before Python 3.12. The calls
in other packages and the standard library are counted apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from starlette.types import ASGIApp

import interlock
from interlock.parsers import Chunk
from interlock.serving.build import build
from interlock.serving.engines.engine import Engine, EngineOutput, Turn
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings, UpstreamSettings
from interlock.serving.tools.hosting import NullTools

PACKAGE: Final = str(Path(interlock.__file__).parent)
BODY: Final = json.dumps({"model": "m", "input": "Hello", "stream": True}).encode()
WORDS: Final = 20
PAUSE: Final = 0.005
"""Seconds between two words."""
GENERATOR: Final = 0x20 | 0x200
"""The flags of the code of generators, plain and asynchronous."""

Call = tuple[str, str]
"""The file of a function, below the package, and its name."""


class Words(Engine):
    """Yields a word at a time, with a pause after each, so that a gateway reads each on its own."""

    models = ("m",)
    format = "text"

    async def count(self, turn: Turn) -> int:
        """Return the number of items."""
        return len(turn.items)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Generate the words."""
        for _ in range(WORDS):
            await asyncio.sleep(PAUSE)
            yield EngineOutput(Chunk(text="word "))
        yield EngineOutput(Chunk(), "stop", input_tokens=await self.count(turn), output_tokens=WORDS)


class Calls:
    """The calls of the package's functions, in each write to the client."""

    def __init__(self) -> None:
        self.writes: list[Counter[Call]] = []
        self.generators: list[Counter[Call]] = []
        self.others: list[int] = []
        """The calls outside the package."""
        self.flush()

    def flush(self) -> None:
        """Begin another write."""
        self._calls = Counter[Call]()
        self._generators = Counter[Call]()
        self.writes.append(self._calls)
        self.generators.append(self._generators)
        self.others.append(0)

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count a call of the interpreter's profile."""
        code = frame.f_code
        if event != "call":
            return
        if not code.co_filename.startswith(PACKAGE):
            self.others[-1] += code.co_filename != __file__
        else:
            call = (code.co_filename.removeprefix(PACKAGE)[1:], code.co_qualname)
            self._calls[call] += 1
            if code.co_flags & GENERATOR:
                self._generators[call] += 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count within the context, in this thread."""
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="also list the functions with their calls")
    listed: bool = parser.parse_args().list
    words = Words()
    with ServerThread(build(Settings(), words)) as url:
        engines = {"plain engine": words, "gateway": Gateway([upstream_of(UpstreamSettings(url=url, api="responses"))])}
        for name, engine in engines.items():
            _report(name, asyncio.run(_profile(engine)), listed=listed)


SCOPE: Final[Mapping[str, Any]] = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/v1/responses",
    "raw_path": b"/v1/responses",
    "query_string": b"",
    "root_path": "",
    "headers": [(b"host", b"test"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))],
    "client": ("127.0.0.1", 1),
    "server": ("127.0.0.1", 80),
}


async def _profile(engine: Engine) -> Calls:
    """Return the calls of a warm application."""
    app = build(Settings(), engine, tools=NullTools())
    for _ in range(2):
        await _ask(app, Calls())
    calls = Calls()
    with calls.counted():
        await _ask(app, calls)
    if isinstance(engine, Gateway):
        await engine.close()
    return calls


async def _ask(app: ASGIApp, calls: Calls) -> None:
    messages = [{"type": "http.request", "body": BODY, "more_body": False}]

    async def receive() -> dict[str, object]:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()  # the client stays
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        if message.get("body"):
            calls.flush()

    await app({**SCOPE, "state": {}}, receive, send)


def _report(name: str, calls: Calls, *, listed: bool) -> None:
    first, middle = calls.writes[0], calls.writes[len(calls.writes) // 2]
    resumed = calls.generators[len(calls.writes) // 2]
    print(
        f"{name}, to the first byte: {first.total()} calls in {len({file for file, _ in first})} files,"
        f" and {calls.others[0]} in other packages"
    )
    print(
        f"{name}, for a delta: {middle.total()} calls in {len({file for file, _ in middle})} files,"
        f" {len(resumed)} generators resumed"
    )
    if listed:
        for counter in (first, middle):
            print(*(f"  {count:4} {file}:{function}" for (file, function), count in counter.items()), sep="\n")


if __name__ == "__main__":
    main()
