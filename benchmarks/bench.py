"""Interlock beside vLLM's own code, in one process; see docs/evidence/performance.md.

    python benchmarks/bench.py [--only GROUP]

The table comes at the end, and all figures as JSON in `benchmarks/out/latest.json`.
"""

from __future__ import annotations

import gc
import json
import sys
from argparse import ArgumentParser
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from runs import with_run
from speed.outputs import HAS_VLLM
from speed.report import Result, table
from speed.rows import FULL, GROUPS, rows_of
from speed.timing import take_turns

LATEST = Path(__file__).parent / "out" / "latest.json"


def main() -> None:
    """Measure all rows, or those of one group."""
    parser = ArgumentParser(description=main.__doc__)
    parser.add_argument("--only", choices=GROUPS, help="measure this group alone; only its figures are written")
    only = parser.parse_args().only
    console = Console(width=None if sys.stdout.isatty() else 160)
    if not HAS_VLLM:
        console.print("vLLM is not installed here, so its columns are missing.")
    rows = rows_of(FULL, GROUPS if only is None else [only])
    if not rows:
        parser.error(f"the rows of {only} need vLLM")
    gc.freeze()  # what is loaded stays, and need not be gone through before each round
    results: list[Result] = []
    # A thread that draws would allocate while memory is traced, and wait for the lock while time is measured.
    with Progress(console=console, auto_refresh=False) as progress:
        task = progress.add_task("", total=sum(row.repeats * len(row.rounds) for row in rows))
        while rows:
            row = rows.pop(0)  # so that its open streams end with it
            progress.update(task, description=f"{row.group}: {row.name}", refresh=True)
            results.append(Result.of(row, take_turns(row, lambda: progress.update(task, advance=1, refresh=True))))
            del row
    console.print(table(results))
    LATEST.parent.mkdir(exist_ok=True)
    LATEST.write_text(json.dumps({"rows": with_run(result.plain() for result in results)}, indent=1) + "\n")
    console.print(f"\nwritten to {LATEST}")


if __name__ == "__main__":
    main()
