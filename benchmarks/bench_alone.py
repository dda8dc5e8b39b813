"""The cost of the standalone server at 1 to 2,000 streams; see docs/evidence/performance.md.

    python benchmarks/bench_alone.py
    python benchmarks/bench_alone.py gateway    # this part alone; server and workers likewise
    AGENTIC_SERVER=/path/to/agentic-server python benchmarks/bench_alone.py gateway    # beside that server too

A real server replays an answer of 200 tokens at a rate, to clients each of which always has a stream open. The least that any
server would do is measured likewise (`benchmarks/alone/servers.py`), and so is a gateway, in turns with a forwarder that
reads none of the bytes of the same upstream (`benchmarks/alone/relay.py`), and with agentic-api (Rust) if it is on PATH. Figures
go to `benchmarks/out/alone.json`, those of the gateway alone to `benchmarks/out/gateway.json`. How many tokens one process and
several send is measured without a rate; the clients need a core of their own. A run takes at most twelve minutes, of which the
gateway takes eight.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from shutil import which
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any, Final

from alone.clients import Crowd, burst, first_event, unread
from alone.process import ADDRESS, LISTENING, Process, started
from alone.script import MODEL, written
from attrs import frozen
from rich.console import Console
from runs import with_run
from speed.report import Result, short, table
from speed.timing import FLOOR, INTERLOCK, PEER, Row

OUT: Final = Path(__file__).parent / "out" / "alone.json"
RATES: Final = {1: 100, 50: 50, 500: 20, 2_000: 5}
"""Tokens per second of each stream, by the number of streams: at most 10,000 in all."""

TOKENS: Final = 200
WINDOWS: Final = 5
WINDOW: Final = 1.5
"""Seconds of a window."""
SETTLE: Final = 1.0
"""Seconds between the last stream's beginning and the first window."""

GATEWAY_RATES: Final = {1: 100, 50: 40, 500: 20}
CROWD: Final = 50
"""Streams without a rate, for which the workers share the work."""
ROUNDS: Final = 3
SHAPES: Final = {("responses", "text"): ROUNDS, ("responses", "calls"): 1, ("chat", "text"): 1, ("chat", "calls"): 1}
"""Rounds of a gateway, by the API of its upstream and the kind of its deltas; the targets are about the first."""
PROBES: Final = 150
GATEWAY_PROBES: Final = 40
GATEWAY_WINDOWS: Final = 3
PAUSE: Final = 0.05
"""Seconds between two probes."""
BURST: Final = 50
"""Concurrent requests of a burst."""
BURSTS: Final = 6
"""The number of bursts; the first one warms up the server."""
AT_ONCE: Final = "1000000"
"""Deltas a second of an upstream that does not wait."""

LONG: Final = 20_000
"""The tokens of an unread answer: 5 MB of events."""
UNREAD: Final = 50
STILL: Final = 1.0
"""Seconds without any work after which a server waits for its clients."""


@frozen
class Loaded:
    """The figures under one load.

    Args:
        costs: Microseconds of CPU time for each token, by window.
        waits: Milliseconds from a request to its first event.
        memory: MB of memory at the start, before the load, and during it.
    """

    costs: list[float]
    waits: list[float]
    memory: Mapping[str, float]


def main() -> None:
    """Measure each load, and write the figures."""
    parser = ArgumentParser(description=main.__doc__)
    parser.add_argument("part", nargs="?", choices=("gateway", "server", "workers"), help="this part alone")
    part = parser.parse_args().part
    console = Console(width=None if sys.stdout.isatty() else 160)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if part == "workers":
        with TemporaryDirectory() as folder:
            [*_workers(Path(folder), console)]
        return
    if part != "server":
        results = [*_gateway(console), *_bursts(console)]
        _write(OUT.with_name("gateway.json"), [each.plain() if isinstance(each, Result) else each for each in results], console)
        console.print(table([each for each in results if isinstance(each, Result)]))
    if part == "gateway":
        return
    costs: list[Result] = []
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        script = written(Path(folder) / "answer.jsonl", TOKENS)
        for streams, rate in RATES.items():
            with started("-m", "alone.servers", INTERLOCK, str(script), str(rate)) as server:
                ours = asyncio.run(_loaded(server, streams, probes=PROBES))
                time.sleep(2 * SETTLE)
                after = server.megabytes
            with started("-m", "alone.servers", FLOOR, str(script), str(rate)) as server:
                floor = asyncio.run(_loaded(server, streams, probes=0))
            name = f"{streams:,} stream{'s' if streams > 1 else ''} of {rate} tokens a second"
            row = Row("alone", name, "µs per token", {}, WINDOWS, streams)
            costs.append(Result.of(row, {INTERLOCK: ours.costs, FLOOR: floor.costs}))
            rows += _waits(name, streams, ours), _memory(name, streams, {**ours.memory, "after": after})
            console.print(f"{name}: {_told(rows[-2])}; {_told(rows[-1])}")
        with started("-m", "alone.servers", INTERLOCK, str(written(Path(folder) / "long.jsonl", LONG)), "0") as server:
            rows.append(_unread(server))
            console.print(f"{rows[-1]['name']}: {_told(rows[-1])}")
        rows += _workers(Path(folder), console)
    console.print(table(costs))
    rows = [*(result.plain() for result in costs), *rows]
    _write(OUT, rows, console)


def _write(path: Path, rows: list[dict[str, Any]], console: Console) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"rows": with_run(rows)}, indent=1) + "\n")
    console.print(f"\nwritten to {path}")


def _gateway(console: Console) -> Iterator[Result | dict[str, Any]]:
    """Measure a gateway, the raw forwarder and, where it is installed, agentic-api, in turns in front of the same upstream."""
    for ((api, kind), repeats), (streams, rate) in product(SHAPES.items(), GATEWAY_RATES.items()):
        measured: dict[str, list[Loaded]] = {}
        with started("-m", "alone.relay", "upstream", api, kind, str(rate)) as upstream, TemporaryDirectory() as folder:
            for _ in range(repeats):
                for side, (program, command) in _sides(api, upstream.url, folder).items():
                    with started(*command, program=program, address=LISTENING if side == PEER else ADDRESS) as server:
                        load = _loaded(server, streams, probes=GATEWAY_PROBES, windows=GATEWAY_WINDOWS)
                        measured.setdefault(side, []).append(asyncio.run(load))
        name = f"{streams:,} stream{'s' if streams > 1 else ''} of {rate} {kind} deltas a second, {api} upstream"
        row = Row("gateway", name, "µs per delta", {}, repeats, streams)
        yield Result.of(row, {side: [median(each.costs) for each in rounds] for side, rounds in measured.items()})
        waits = {side: median(wait for each in rounds for wait in each.waits) for side, rounds in measured.items()}
        yield _row("gateway: first event", name, "ms", streams, waits)
        for when in ("start", "during"):
            memory = {side: median(each.memory[when] for each in rounds) for side, rounds in measured.items()}
            yield _row("gateway: memory", f"{name}, {when}", "MB", streams, memory)
        console.print(f"{name}: {_told(_row('', name, 'ms to the first event', streams, waits))}")


def _bursts(console: Console) -> Iterator[dict[str, Any]]:
    """Measure how long the first event of a request takes that comes with others, in turns as above."""
    name = f"{BURST} requests at once, responses upstream"
    waits: dict[str, list[float]] = {}
    with started("-m", "alone.relay", "upstream", "responses", "text", AT_ONCE) as upstream, TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            for side, (program, command) in _sides("responses", upstream.url, folder).items():
                with started(*command, program=program, address=LISTENING if side == PEER else ADDRESS) as server:
                    waits.setdefault(side, []).append(asyncio.run(_burst(server.url)))
    row = _row("gateway: burst", name, "ms to the first event", BURST, {side: median(rounds) for side, rounds in waits.items()})
    yield row
    console.print(f"{name}: {_told(row)}")


async def _burst(url: str) -> float:
    """Return the milliseconds until the first event of half of the requests of a burst."""
    _, *bursts = [median(await burst(url, BURST)) for _ in range(BURSTS)]
    return 1000 * median(bursts)


def _workers(folder: Path, console: Console) -> Iterator[dict[str, Any]]:
    """Measure how many tokens a second one process and several send, in turns."""
    script = written(folder / "endless.jsonl", LONG)
    rates: dict[int, list[float]] = {}
    for number in range(ROUNDS):
        for workers in sorted({1, 2, os.cpu_count() or 1}):
            options = ["--workers", str(workers), "--store", f"sqlite:{folder}/{workers}-{number}.db"]
            with started(*_interlock(script, 0), *options) as server:
                rates.setdefault(workers, []).append(asyncio.run(_sent(server)))
    for workers, each in rates.items():
        name = f"{CROWD} streams without a rate, {workers} worker{'s' if workers > 1 else ''}"
        yield _row("workers", name, "tokens per second", CROWD, {INTERLOCK: median(each)})
        console.print(f"{name}: {median(each):,.0f} tokens a second")


async def _sent(server: Process) -> float:
    """Return how many tokens a second a crowd receives."""
    crowd = Crowd(server.url, CROWD, LONG)
    await crowd.open()
    await asyncio.sleep(SETTLE)
    tokens, began = crowd.tally.tokens, time.perf_counter()
    await asyncio.sleep(WINDOWS * WINDOW)
    rate = (crowd.tally.tokens - tokens) / (time.perf_counter() - began)
    await crowd.leave()
    return rate


def _sides(api: str, url: str, folder: str) -> dict[str, tuple[str, list[str]]]:
    """Return the program and the arguments of each contender."""
    ours = ["-m", "interlock", "serve", "--port", "0", "--upstream", url, "--upstream-api", api]
    sides = {INTERLOCK: (sys.executable, ours), FLOOR: (sys.executable, ["-m", "alone.relay", "forward", url])}
    agentic = os.environ.get("AGENTIC_SERVER") or which("agentic-server")
    if agentic is not None and api == "responses":  # it speaks no other API upstream
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        database = f"sqlite://{folder}/agentic.db?mode=rwc"
        options = {"llm-api-base": url, "gateway-host": "127.0.0.1", "gateway-port": port, "db-url": database}
        arguments = [f"--{name}={value}" for name, value in options.items()]
        sides[PEER] = (agentic, [*arguments, "--skip-llm-ready-check"])
    return sides


def _interlock(script: Path, rate: int) -> list[str]:
    return ["-m", "interlock", "serve", "--port", "0", "--script", str(script), "--rate", str(rate), "--model", MODEL]


async def _loaded(server: Process, streams: int, *, probes: int, windows: int = WINDOWS) -> Loaded:
    memory = {"start": server.megabytes}
    await first_event(server.url)
    memory["before"] = server.megabytes
    crowd = Crowd(server.url, streams, TOKENS)
    await crowd.open()
    await asyncio.sleep(SETTLE)
    costs: list[float] = []
    for _ in range(windows):
        taken, tokens = server.microseconds, crowd.tally.tokens
        await asyncio.sleep(WINDOW)
        costs.append((server.microseconds - taken) / (crowd.tally.tokens - tokens))
    memory["during"] = server.megabytes
    waits = await _probed(server.url, probes)
    await crowd.leave()
    return Loaded(costs, waits, memory)


async def _probed(url: str, probes: int) -> list[float]:
    """Ask for short streams beside the others, and return the milliseconds until their first events."""
    asked: list[asyncio.Task[float]] = []
    for _ in range(probes):
        asked.append(asyncio.create_task(first_event(url)))
        await asyncio.sleep(PAUSE)
    return [1000 * seconds for seconds in await asyncio.gather(*asked)]


def _row(group: str, name: str, unit: str, at: int, figures: Mapping[str, float]) -> dict[str, Any]:
    return {
        "group": group,
        "name": name,
        "unit": unit,
        "at": at,
        "repeats": 1,
        "faster": None,
        "above_floor": None,
        "above_peer": None,
        "figures": {name: {"median": value, "low": value, "high": value} for name, value in figures.items()},
    }


def _told(row: Mapping[str, Any]) -> str:
    figures = ", ".join(f"{name} {short(figure['median'])}" for name, figure in row["figures"].items())
    return f"{figures} ({row['unit']})"


def _waits(name: str, streams: int, measured: Loaded) -> dict[str, Any]:
    hundredths = quantiles(measured.waits, n=100)
    return _row("alone: first event", name, "ms", streams, {"p50": hundredths[49], "p99": hundredths[98]})


def _memory(name: str, streams: int, memory: Mapping[str, float]) -> dict[str, Any]:
    each = (memory["during"] - memory["before"]) * 1000 / streams
    return _row("alone: memory", name, "MB", streams, {**memory, "each": each})


def _unread(server: Process) -> dict[str, Any]:
    """Open streams that nobody reads, wait until the server is idle, and return the row with the memory of each."""
    asyncio.run(first_event(server.url))
    before = server.megabytes
    clients = [unread(server.url) for _ in range(UNREAD)]
    taken = -STILL
    while server.microseconds - taken > WINDOW * 10_000:  # more than a server does that waits
        taken = server.microseconds
        time.sleep(STILL)
    process, system = (server.megabytes - before) * 1e6 / UNREAD, sum(server.queued()) / UNREAD
    for client in clients:
        client.close()
    figures = {"process": process / 1024, "system": system / 1024}
    return _row("alone: unread", f"{UNREAD} streams of {LONG:,} tokens that nobody reads", "KiB for each", UNREAD, figures)


if __name__ == "__main__":
    main()
