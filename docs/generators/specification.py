"""Write the specification for other languages: the tables, rules and test vectors, as JSON (docs/library/porting.md).

python docs/generators/specification.py FOLDER
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from interlock.diagram import Graph, written_tables
from interlock.events.stream import wire_name
from interlock.judges import DEVIATIONS, DIALECT_RULES, RULES, AnyJudge
from interlock.judges.automaton import OBSERVED
from interlock.serving.cli.machines import process_graphs, stream_graphs

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
from corpus_streams.make_corpus import CORPUS, corpus

FILES: Final = ("tables.json", "rules.json", "walks.json", "streams.json")


def write(folder: Path) -> None:
    """Write the four files, the streams, and an archive of all beside the folder."""
    graphs = [*stream_graphs().values(), *process_graphs().values()]
    streams = folder / "streams"
    streams.mkdir(parents=True, exist_ok=True)
    (folder / "tables.json").write_text(written_tables(graphs), "utf-8")
    _write(folder / "rules.json", _rules())
    _write(folder / "walks.json", {graph.name: list(_walks(graph)) for graph in graphs})
    vectors: dict[str, Mapping[str, Any]] = {}
    observed = {path: path.read_bytes() for path in CORPUS.glob("observed/*.sse")}
    for path, data in sorted({**corpus(), **observed}.items()):
        name = f"{path.parent.name}-{path.name}"
        (streams / name).write_bytes(data)
        vectors[name] = _vector(data)
    _write(folder / "streams.json", vectors)
    shutil.make_archive(str(folder), "zip", folder)


def _write(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object with a line for each of its members."""
    lines = (f"{json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}" for name, entry in value.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _rules() -> dict[str, Any]:
    observed = {
        kind: [{**attrs.asdict(edge), "events": [wire_name(event) for event in edge.events]} for edge in edges]
        for kind, edges in OBSERVED.items()
    }
    return {
        "rules": [attrs.asdict(rule) for rule in (*RULES.values(), *DIALECT_RULES.values())],
        "deviations": [attrs.asdict(deviation) for deviation in DEVIATIONS.values()],
        "observed": observed,
    }


def _walks(graph: Graph) -> Iterator[list[tuple[str, str, list[str]]]]:
    """Yield paths from the initial state, one that ends with each edge: the triggers, the states entered, and the events."""
    rows: dict[str, list[tuple[str, str, list[str]]]] = {}
    for edge in graph.edges:
        for source, dest in graph.ends(edge):
            for label in edge.labels:
                rows.setdefault(source, []).extend((trigger, dest, [*label.events]) for trigger in label.triggers)
    start = graph.nodes[0].name
    paths: dict[str, list[tuple[str, str, list[str]]]] = {start: []}
    waiting = [start]
    for state in waiting:
        for step in rows.get(state, ()):
            yield [*paths[state], step]
            if step[1] not in paths:
                paths[step[1]] = [*paths[state], step]
                waiting.append(step[1])


def _vector(data: bytes) -> Mapping[str, Any]:
    """Return the verdict on a stream, and its findings by rule, severity, event and deviation."""
    judge = AnyJudge()
    judge.feed(data)
    verdict = judge.end()
    found = [
        {"rule": finding.rule, "severity": finding.severity, "event": finding.event, "deviation": finding.deviation}
        for finding in verdict.findings
    ]
    return {"legal": verdict.legal, "events": verdict.events, "items": verdict.items, "status": verdict.status, "findings": found}


def main(arguments: Iterable[str]) -> None:
    """Write the folder that the command line names."""
    (name,) = arguments
    write(Path(name))
    print(f"specification: {name}, {name}.zip")


if __name__ == "__main__":
    main(sys.argv[1:])
