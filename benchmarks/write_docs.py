"""`make bench-docs`: write the figures of docs/performance.md and docs/state.md again, from the last run of the benches.

    python benchmarks/write_docs.py

What stands between `<!-- figures: NAME -->` and `<!-- end -->` is replaced, as far as the last runs measured it; the rest of the
page is written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from speed.chart import bars, lines
from speed.report import short
from speed.targets import TARGETS

Run = list[dict[str, Any]]

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parent / "docs" / "performance.md"
STATE: Final = HERE.parent / "docs" / "state.md"
STORE: Final = HERE / "out" / "store.json"
PICTURES: Final = HERE.parent / "docs" / "performance"
CONTENDERS: Final = {"interlock": "Interlock", "plugin": "Interlock, on vLLM's outputs", "vllm": "vLLM", "floor": "floor"}
SECTION: Final = re.compile(r"(<!-- figures: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Fill in the pages, and draw the pictures, as far as there are figures."""
    if STORE.exists():
        STATE.write_text(SECTION.sub(_stores, STATE.read_text()))
        print(f"{STATE} is written")
    if (HERE / "out" / "latest.json").exists():
        write_performance()


def _stores(match: re.Match[str]) -> str:
    """Return the table of the stores: a row for each, a column for each figure."""
    run = json.loads(STORE.read_text())
    names = [*next(iter(run["rows"].values()))]
    rows = [_cells(name, *(short(figures[each]) for each in names)) for name, figures in run["rows"].items()]
    lines = [f"µs for each, on {_machine(run['machine'])}:", "", *_head("store", *names), *rows]
    return "\n".join([match[1], *lines, "", match[3]])


def write_performance() -> None:
    """Fill in docs/performance.md, and draw its pictures."""
    files = HERE / "out" / "latest.json", HERE / "out" / "server.json"
    runs = [json.loads(file.read_text()) for file in files if file.exists()]
    rows: Run = [row for run in runs for row in run["rows"]]

    def filled(match: re.Match[str]) -> str:
        name = match[2]
        if name == "targets":
            written = "\n".join(_targets(rows, match[0]))
        elif name == "machine":
            written = _machine(runs[0]["machine"])
        elif any(row["group"] == name for row in rows):
            written = "\n".join(_group(name)(rows))
        else:
            return match[0]
        return f"{match[1]}\n{written}\n\n{match[3]}"

    PAGE.write_text(SECTION.sub(filled, PAGE.read_text()))
    if {"harmony", "deltas"} <= {row["group"] for row in rows}:
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / "reasoning.svg").write_text(_reasoning(rows))
        (PICTURES / "peers.svg").write_text(_peers(rows))
    print(f"{PAGE} and its pictures are written")


def _machine(machine: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in machine.items())


def _group(group: str) -> Callable[[Run], Iterator[str]]:
    """Return the table of a group."""

    def table(rows: Run) -> Iterator[str]:
        ours = [row for row in rows if row["group"] == group]
        names = [name for name in CONTENDERS if any(name in row["figures"] for row in ours)]
        ratios = {"faster": "times less than vLLM", "above_floor": "times the floor"}
        shown = [name for name in ratios if any(row[name] for row in ours)]
        yield from _head("", "unit", *(CONTENDERS[name] for name in names), *(ratios[name] for name in shown))
        for row in ours:
            figures = [row["figures"].get(name) for name in names] + [row[name] for name in shown]
            yield _cells(row["name"], row["unit"], *map(_spread, figures))

    return table


def _targets(rows: Run, before: str) -> Iterator[str]:
    """Yield what was to be reached, and what was, in these rows or in those that were written before."""
    known = {line.split(" | ")[0].removeprefix("| "): line for line in before.splitlines() if line.startswith("| ")}
    yield from _head("", "to reach", "reached", "")
    for target in TARGETS:
        reached = target.reached(rows)
        if reached is not None:
            sign = "at least" if target.at_least else "at most"
            met = (reached >= target.bound) is target.at_least or reached == target.bound
            bound, got = (f"{number}{target.unit}" for number in (f"{target.bound:g}", short(reached)))
            yield _cells(target.name, f"{sign} {bound}", got, "yes" if met else "**no**")
        elif target.name in known:
            yield known[target.name]


def _head(*cells: str) -> Iterator[str]:
    yield _cells(*cells)
    yield _cells(*("---" if index == 0 else "---:" for index in range(len(cells))))


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _spread(figure: Mapping[str, float] | None) -> str:
    if figure is None:
        return ""
    middle, low, high = (short(figure[name]) for name in ("median", "low", "high"))
    return middle if low == high else f"{middle} ({low} to {high})"


def _reasoning(rows: Run) -> str:
    harmony = [row for row in rows if row["group"] == "harmony"]
    names = [name for name in CONTENDERS if name in harmony[0]["figures"]]
    series = {name: {row["at"]: row["figures"][name]["median"] for row in harmony} for name in names}
    return lines("µs for each token of harmony, one token for each step", "reasoning tokens before it", series)


def _peers(rows: Run) -> str:
    groups = "deltas", "harmony", "parse_delta", "items"
    shown = [row for row in rows if row["group"] in groups and row["at"] in {None, 0, 10}]
    names = {f"{row['group']}: {row['name']}".removeprefix("items: "): row["figures"] for row in shown}
    medians = {
        label: {name: figures[name]["median"] for name in CONTENDERS if name in figures} for label, figures in names.items()
    }
    return bars("µs for each delta, token or item", medians)


if __name__ == "__main__":
    main()
