"""Write the figures of docs/evidence/performance.md and of the pages in docs/evidence/performance/ again, from the last runs.

    python benchmarks/write_docs.py

What stands between `<!-- figures: NAME -->` and `<!-- end -->` is replaced, as far as the last runs measured it; the rest of the
pages is written by hand. In docs/evidence/performance.md NAME is a question, in docs/evidence/performance/figures.md a group of
rows; docs/evidence/performance/bounds.md has the targets, and docs/guides/operating.md the size of a gateway.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from runs import described
from speed.questions import QUESTIONS
from speed.report import short
from speed.targets import TARGETS

Run = list[dict[str, Any]]

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parent / "docs" / "evidence" / "performance.md"
STORE: Final = HERE / "out" / "store.json"
PICTURES: Final = HERE.parent / "docs" / "evidence" / "performance"
STORES: Final = PICTURES / "stores.md"
TABLES: Final = PICTURES / "figures.md"
BOUNDS: Final = PICTURES / "bounds.md"
GUIDE: Final = HERE.parent / "docs" / "guides" / "operating.md"
GATEWAY: Final = "500 streams of 20 text deltas a second, chat upstream"
"""The row of the gateway in the guide."""
RUNS: Final = "latest", "server", "gateway", "alone"
"""The results of the benchmarks, each in its own file."""
CONTENDERS: Final = {
    "interlock": "Interlock",
    "plugin": "Interlock, on vLLM's outputs",
    "responses": "in Responses",
    "vllm": "vLLM",
    "floor": "floor",
}
SECTION: Final = re.compile(r"(<!-- figures: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Fill in the pages, and draw the pictures, as far as there are figures."""
    if STORE.exists():
        STORES.write_text(SECTION.sub(_stores, STORES.read_text()))
        print(f"{STORES} is written")
    runs = [json.loads(file.read_text()) for name in RUNS if (file := HERE / "out" / f"{name}.json").exists()]
    if runs:
        write_performance([row for run in runs for row in run["rows"]])


def _stores(match: re.Match[str]) -> str:
    """Return a table of the stores: a row for each, a column for each figure."""
    run = json.loads(STORE.read_text())
    measured = run.get(match[2])
    if measured is None:
        return match[0]
    names = [*next(iter(measured.values()))]
    rows = [_cells(name, *(short(figures[each]) for each in names)) for name, figures in measured.items()]
    unit = "Milliseconds" if match[2] == "loads" else "µs for each"
    lines = [f"{unit}:", "", *_head("store", *names), *rows, "", described(run["run"])]
    return _section(match, "\n".join(lines))


def write_performance(rows: Run) -> None:
    """Fill in docs/evidence/performance.md and the pages of its tables and targets, and draw the pictures."""

    def answered(match: re.Match[str]) -> str:
        name = match[2]
        answer = QUESTIONS[name](rows)
        if answer is None:
            return match[0]
        (PICTURES / f"{name}.svg").write_text(answer.picture)
        return _section(match, f"![{answer.shows}](performance/{name}.svg)\n\n{answer.sentence}")

    def tabled(match: re.Match[str]) -> str:
        measured = [row for row in rows if row["group"] == match[2]]
        return _section(match, "\n".join([*_table(measured), "", *_runs(measured)])) if measured else match[0]

    def judged(match: re.Match[str]) -> str:
        return _section(match, "\n".join(_targets(rows, match[0])))

    def sized(match: re.Match[str]) -> str:
        size = _size(rows)
        return _section(match, size) if size else match[0]

    PICTURES.mkdir(exist_ok=True)
    GUIDE.write_text(SECTION.sub(sized, GUIDE.read_text()))
    BOUNDS.write_text(SECTION.sub(judged, BOUNDS.read_text()))
    PAGE.write_text(SECTION.sub(answered, PAGE.read_text()))
    TABLES.write_text(SECTION.sub(tabled, TABLES.read_text()))
    print(f"{PAGE}, {TABLES}, {BOUNDS} and the pictures are written")


def _size(rows: Run) -> str | None:
    """Return how many streams one core would carry for a gateway, and their memory; None if no gateway was measured."""
    figures = {
        (row["group"], row["name"]): row["figures"]["interlock"]["median"] for row in rows if "interlock" in row["figures"]
    }
    if ("gateway", GATEWAY) not in figures:
        return None
    start, during = (figures["gateway: memory", f"{GATEWAY}, {when}"] for when in ("start", "during"))
    carried = f"{1e6 / figures['gateway', GATEWAY] / 30:.0f} streams of 30 tokens a second"
    return (
        f"One core would carry {carried} from an upstream of Chat Completions. A gateway has {short(start)} MB at its start, and "
        f"{1_000 * (during - start) / 500:.0f} KB more for each stream."
    )


def _section(match: re.Match[str], written: str) -> str:
    return f"{match[1]}\n{written}\n\n{match[3]}"


def _runs(rows: Run) -> Iterator[str]:
    """Yield the runs of rows as sentences."""
    yield from dict.fromkeys(described(row["run"]) for row in rows)


def _table(rows: Run) -> Iterator[str]:
    """Yield the table of a group's rows."""
    names = [name for name in CONTENDERS if any(name in row["figures"] for row in rows)]
    names += [name for name in rows[0]["figures"] if name not in CONTENDERS]
    ratios = {
        "faster": "times less than vLLM",
        "above_floor": "times the floor",
        "above_responses": "times Responses",
        "above_peer": "times agentic-api",
    }
    shown = [name for name in ratios if any(row.get(name) for row in rows)]
    yield from _head("", "unit", *(CONTENDERS.get(name, name) for name in names), *(ratios[name] for name in shown))
    for row in rows:
        figures = [row["figures"].get(name) for name in names] + [row.get(name) for name in shown]
        yield _cells(row["name"], row["unit"], *map(_spread, figures))


def _targets(rows: Run, before: str) -> Iterator[str]:
    """Yield the targets with the reached figures, of these rows or of those on the page."""
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


if __name__ == "__main__":
    main()
