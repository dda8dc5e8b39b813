"""`make bench-alone`: what the standalone server costs at 1 to 2,000 streams; see docs/performance.md.

    python benchmarks/bench_alone.py
    python benchmarks/bench_alone.py gateway    # this part alone, without writing figures

A real `interlock serve` replays an answer of 200 tokens at a rate, to clients each of which always has a stream open. The least
that any server would do is measured likewise (`benchmarks/alone/floor.py`), and so is a gateway, beside a proxy that only
forwards the bytes of the same upstream (`benchmarks/alone/relay.py`). Figures go to `benchmarks/out/alone.json`.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any, Final

from alone.clients import Crowd, first_event, unread
from alone.process import Process, started
from alone.script import MODEL, written
from attrs import frozen
from rich.console import Console
from speed.report import Result, machine, short, table
from speed.targets import PROXY
from speed.timing import FLOOR, INTERLOCK, Row

OUT: Final = Path(__file__).parent / "out" / "alone.json"
RATES: Final = {1: 100, 50: 50, 500: 20, 2_000: 5}
"""Tokens per second of each stream, by the number of streams: at most 10,000 in all."""

TOKENS: Final = 200
WINDOWS: Final = 5
WINDOW: Final = 1.5
"""Seconds of a window."""

GATEWAY_RATES: Final = {streams: rate for streams, rate in RATES.items() if streams <= 500}  # noqa: PLR2004 - the upstream takes a core too
PROBES: Final = 150
PAUSE: Final = 0.05
"""Seconds between two probes."""

LONG: Final = 20_000
"""Tokens of the answers that nobody reads: 5 MB of events."""
UNREAD: Final = 50
STILL: Final = 1.0
"""Seconds without any work after which a server waits for its clients."""


@frozen
class Loaded:
    """What was measured under one load.

    Args:
        costs: Microseconds of CPU time for each token, by window.
        waits: Milliseconds from a request to its first event.
        before: MB of memory at the start, during, and after.
    """

    costs: list[float]
    waits: list[float]
    memory: Mapping[str, float]


def main() -> None:
    """Measure each load, and write the figures."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if sys.argv[1:] == ["gateway"]:
        for each in _gateway(console):
            if isinstance(each, Result):
                console.print(each.plain())
        return
    costs: list[Result] = []
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        script = written(Path(folder) / "answer.jsonl", TOKENS)
        for streams, rate in RATES.items():
            with started(*_interlock(script, rate)) as server:
                ours = asyncio.run(_loaded(server, streams, probes=PROBES))
            with started("-m", "alone.floor", str(script), str(rate)) as server:
                floor = asyncio.run(_loaded(server, streams, probes=0))
            name = f"{streams:,} stream{'s' if streams > 1 else ''} of {rate} tokens a second"
            row = Row("alone", name, "µs per token", {}, WINDOWS, streams)
            costs.append(Result.of(row, {INTERLOCK: ours.costs, FLOOR: floor.costs}))
            rows += _waits(name, streams, ours), _memory(name, streams, ours)
            console.print(f"{name}: {_told(rows[-2])}; {_told(rows[-1])}")
        for each in _gateway(console):
            (costs if isinstance(each, Result) else rows).append(each)
        with started(*_interlock(written(Path(folder) / "long.jsonl", LONG), 0)) as server:
            rows.append(_unread(server))
            console.print(f"{rows[-1]['name']}: {_told(rows[-1])}")
    console.print(table(costs))
    rows = [*(result.plain() for result in costs), *rows]
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    console.print(f"\nwritten to {OUT}")


def _gateway(console: Console) -> Iterator[Result | dict[str, Any]]:
    """Measure a gateway and a forwarding proxy in front of the same upstream."""
    for streams, rate in GATEWAY_RATES.items():
        measured: dict[str, Loaded] = {}
        with started("-m", "alone.relay", "upstream", str(rate)) as upstream:
            serving = ["-m", "interlock", "serve", "--port", "0", "--upstream", upstream.url]
            for side, command in {INTERLOCK: serving, PROXY: ["-m", "alone.relay", "forward", upstream.url]}.items():
                with started(*command) as server:
                    measured[side] = asyncio.run(_loaded(server, streams, probes=PROBES))
        name = f"{streams:,} stream{'s' if streams > 1 else ''} of {rate} tokens a second through a gateway"
        row = Row("gateway", name, "µs per token", {}, WINDOWS, streams)
        yield Result.of(row, {side: loaded.costs for side, loaded in measured.items()})
        waits = {side: quantiles(loaded.waits, n=100)[49] for side, loaded in measured.items()}
        first = _row("gateway: first event", name, "ms", streams, waits)
        memory = _memory(name, streams, measured[INTERLOCK])
        console.print(f"{name}: {_told(first)}; {_told(memory)}")
        yield first
        yield {**memory, "group": "gateway: memory"}


def _interlock(script: Path, rate: int) -> list[str]:
    return ["-m", "interlock", "serve", "--port", "0", "--script", str(script), "--rate", str(rate), "--model", MODEL]


async def _loaded(server: Process, streams: int, *, probes: int) -> Loaded:
    memory = {"start": server.megabytes}
    await first_event(server.url)
    memory["before"] = server.megabytes
    crowd = Crowd(server.url, streams, TOKENS)
    await crowd.open()
    await asyncio.sleep(1)
    costs: list[float] = []
    for _ in range(WINDOWS):
        taken, tokens = server.microseconds, crowd.tally.tokens
        await asyncio.sleep(WINDOW)
        costs.append((server.microseconds - taken) / (crowd.tally.tokens - tokens))
    memory["during"] = server.megabytes
    waits = await _probed(server.url, probes)
    await crowd.leave()
    await asyncio.sleep(2)
    memory["after"] = server.megabytes
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
        "figures": {name: {"median": value, "low": value, "high": value} for name, value in figures.items()},
    }


def _told(row: Mapping[str, Any]) -> str:
    figures = ", ".join(f"{name} {short(figure['median'])}" for name, figure in row["figures"].items())
    return f"{figures} ({row['unit']})"


def _waits(name: str, streams: int, measured: Loaded) -> dict[str, Any]:
    hundredths = quantiles(measured.waits, n=100)
    return _row("alone: first event", name, "ms", streams, {"p50": hundredths[49], "p99": hundredths[98]})


def _memory(name: str, streams: int, measured: Loaded) -> dict[str, Any]:
    memory = measured.memory
    each = (memory["during"] - memory["before"]) * 1000 / streams
    return _row("alone: memory", name, "MB", streams, {**memory, "each": each})


def _unread(server: Process) -> dict[str, Any]:
    """Open streams that nobody reads, wait until nothing more is made, and tell what each of them holds."""
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
