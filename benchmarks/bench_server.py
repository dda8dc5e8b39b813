"""`make bench-server`: CPU time of a vLLM server's process for each token, by route; see docs/performance.md.

    PYTHONPATH=tests/vllm python benchmarks/bench_server.py

One server with the tiny gpt_oss of tests/vllm, whose tokens are scripted. The table comes at the end, and all figures as JSON in
`benchmarks/out/server.json`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import servers  # of tests/vllm, which PYTHONPATH has to name
from attrs import evolve
from rich.console import Console
from rich.progress import Progress
from server.load import cpu_time, send
from speed.outputs import ANSWER, encode, prose
from speed.report import Result, machine, table
from speed.timing import FLOOR, INTERLOCK, VLLM, Round, Row, take_turns

HERE: Final = Path(__file__).parent
LATEST: Final = HERE / "out" / "server.json"
TOKENS: Final = 500
STREAMS: Final = (1, 8)
REPEATS: Final = 5
PATHS: Final = {INTERLOCK: "", VLLM: "/vllm", FLOOR: "/floor"}


def main() -> None:
    """Start the server, send to each route in turn, and show what came out."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    with TemporaryDirectory() as folder:
        _announce(Path(folder))
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(HERE), folder])
        environment = {"VLLM_PLUGINS": "interlock,interlock_bench", "PYTHONPATH": path}
        console.print("starting the server, which takes half a minute")
        with servers.Server(evolve(servers.HARMONY, tools=False, environment=environment)) as server:
            results = _measure(server, console)
    console.print(table(results))
    LATEST.parent.mkdir(exist_ok=True)
    LATEST.write_text(json.dumps({"machine": machine(), "rows": [result.plain() for result in results]}, indent=1) + "\n")
    console.print(f"\nwritten to {LATEST}")


def _announce(folder: Path) -> None:
    """Write what an installed package would have, so that vLLM finds the plugin."""
    package = folder / "interlock_bench-0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: interlock-bench\nVersion: 0\n")
    (package / "entry_points.txt").write_text("[vllm.endpoint_plugins]\ninterlock_bench = server.routes:Routes\n")


def _measure(server: servers.Server, console: Console) -> list[Result]:
    rows = [_row(server, streams) for streams in STREAMS]
    with Progress(console=console) as progress:
        task = progress.add_task("", total=sum(row.repeats * len(row.rounds) for row in rows))
        for row in rows:
            for measure in row.rounds.values():
                measure()  # the first request of a route is slower
        results: list[Result] = []
        for row in rows:
            progress.update(task, description=row.name)
            results.append(Result.of(row, take_turns(row, lambda: progress.advance(task))))
    return results


def _row(server: servers.Server, streams: int) -> Row:
    rounds = {name: _round(server, path, streams) for name, path in PATHS.items()}
    return Row("server", f"{streams} stream{'s' if streams > 1 else ''}", "µs per token", rounds, REPEATS, streams)


def _round(server: servers.Server, path: str, streams: int) -> Round:
    script = [*encode(ANSWER), *prose(TOKENS), *encode("<|return|>")]
    body = {"model": "tiny", "input": "Hi.", "stream": True, "store": False, "vllm_xargs": {"round_0": script, "round_token": -1}}
    url = f"{server.url}{path}/v1/responses"

    def measure() -> float:
        before = cpu_time(server.process.pid)
        send(url, body, streams)
        return (cpu_time(server.process.pid) - before) / (streams * TOKENS)

    return measure


if __name__ == "__main__":
    main()
