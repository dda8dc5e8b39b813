"""CPU time of a vLLM server's process for each token, by route; see docs/evidence/performance.md.

    PYTHONPATH=tests/support:tests/real_vllm python benchmarks/bench_server.py [--only CASE] [--streams N] [--repeats N]

Two servers with the tiny models of tests/real_vllm, whose tokens are scripted, one after the other. The table comes at the end,
and all figures as JSON in `benchmarks/out/server.json`, which keeps the rows of an earlier run that were not measured again.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import servers  # of tests/real_vllm, which PYTHONPATH has to name
from attrs import evolve, frozen
from rich.console import Console
from rich.progress import Progress
from runs import with_run
from server.cases import CASES, WRITER, Case
from server.delays import DELAYS, delays
from server.load import cpu_time, read
from speed.report import Result, table
from speed.timing import FLOOR, INTERLOCK, VLLM, Round, Row, take_turns

HERE: Final = Path(__file__).parent
LATEST: Final = HERE / "out" / "server.json"
PATHS: Final = {INTERLOCK: "", VLLM: "/vllm", FLOOR: "/floor"}


@frozen
class Options:
    """The arguments: measure the cases whose names contain `only`, with `streams` streams if that is given."""

    only: str
    streams: int | None
    repeats: int | None

    def has(self, case: Case) -> bool:
        """Return whether some of a case is measured."""
        return self.only in case.name and self.streams in {None, *case.streams}


def main() -> None:
    """Start the servers, send requests to each route in turn, and show the results."""
    names = ", ".join([*dict.fromkeys(case.name for case in CASES), DELAYS])
    parser = ArgumentParser(description=main.__doc__)
    parser.add_argument("--only", default="", help=f"cases whose names hold this: {names}")
    parser.add_argument("--streams", type=int, help="with so many streams alone")
    parser.add_argument("--repeats", type=int, help="rounds of each route")
    options = Options(**vars(parser.parse_args()))
    if options.only != DELAYS and not any(options.has(case) for case in CASES):
        parser.error(f"no case has these; the cases are {', '.join(f'{case.name} {[*case.streams]}' for case in CASES)}")
    console = Console(width=None if sys.stdout.isatty() else 190)
    with TemporaryDirectory() as folder:
        _announce(Path(folder))
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(HERE), folder])
        environment = {"VLLM_PLUGINS": "interlock,interlock_bench", "PYTHONPATH": path}
        results: list[Result] = []
        for setup, cases in groupby(CASES, lambda case: case.server):
            chosen = [case for case in cases if options.has(case)]
            if not chosen and not (setup is WRITER.server and options.only == DELAYS):
                continue
            console.print(f"starting the server of {setup.model}, which takes half a minute")
            with servers.Server(evolve(setup, environment=environment)) as server:
                results += _measure(list(_rows(server, chosen, options)), console)
                if setup is WRITER.server and options.only in DELAYS and options.streams is None:
                    console.print("measuring for how long others wait")
                    urls = {name: f"{server.url}{path}/v1/responses" for name, path in PATHS.items()}
                    results += delays(urls, options.repeats or WRITER.repeats)
            _keep(results, console)


def _keep(results: Sequence[Result], console: Console) -> None:
    """Show the results so far, and write them in the place of those of the same rows."""
    console.print(table(results))
    rows = [result.plain() for result in results]
    before = json.loads(LATEST.read_text())["rows"] if LATEST.exists() else []
    measured = {(row["group"], row["name"]) for row in rows}
    rows += [row for row in before if (row["group"], row["name"]) not in measured]
    LATEST.parent.mkdir(exist_ok=True)
    LATEST.write_text(json.dumps({"rows": with_run(rows)}, indent=1) + "\n")
    console.print(f"\nwritten to {LATEST}")


def _announce(folder: Path) -> None:
    """Write the metadata of an installed package, so that vLLM finds the plugin."""
    package = folder / "interlock_bench-0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: interlock-bench\nVersion: 0\n")
    (package / "entry_points.txt").write_text("[vllm.endpoint_plugins]\ninterlock_bench = server.routes:Routes\n")


def _rows(server: servers.Server, cases: Sequence[Case], options: Options) -> Iterator[Row]:
    for case in cases:
        for streams in case.streams:
            if options.streams in {None, streams}:
                rounds = {name: _cost(server, case, path, streams) for name, path in PATHS.items()}
                group, noun = ("not streamed", "request") if case.whole else ("server", "stream")
                name = f"{case.name}, {streams} {noun}{'s' if streams > 1 else ''}"
                yield Row(group, name, "µs per token", rounds, options.repeats or case.repeats, streams)


def _measure(rows: Sequence[Row], console: Console) -> list[Result]:
    with Progress(console=console) as progress:
        task = progress.add_task("", total=sum(row.repeats * len(row.rounds) for row in rows))
        results: list[Result] = []
        for row in rows:
            progress.update(task, description=row.name)
            for measure in row.rounds.values() if row is rows[0] else ():
                measure()  # the first request of a route is slower
            results.append(Result.of(row, take_turns(row, lambda: progress.advance(task))))
    return results


def _cost(server: servers.Server, case: Case, path: str, streams: int) -> Round:
    """Return a round that measures the CPU time of the server's process for each token."""
    tokens = case.streams[streams]
    body, url, pid = case.body(streams), f"{server.url}{path}/v1/responses", server.process.pid

    def measure() -> float:
        before = [cpu_time(pid)] if case.whole else []
        asyncio.run(read(url, body, streams, lambda: before.append(cpu_time(pid))))
        return (cpu_time(pid) - before[0]) / (streams * tokens)

    return measure


if __name__ == "__main__":
    main()
