"""Renders a graph as text: Mermaid, DOT, JSON, a configuration for XState, or a table for a terminal.

Mermaid output is a flowchart, because only flowcharts can style single lines; a region is a subgraph. Mermaid draws some labels
over each other, so the label of an arrow is a node, and the label of a loop is added to its state's text. Mermaid has no lines
from a subgraph to itself or to its own nodes, so an extra node lists them. The colours suit light and dark backgrounds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Final

from attrs import asdict

from interlock.diagram.graph import Graph, Label, LineStyle, NodeRole

_COLOURS: Final = {LineStyle.NORMAL: "#768390", LineStyle.CUT: "#bf8700", LineStyle.FAIL: "#d1242f"}

_MERMAID_LINE: Final = {
    LineStyle.NORMAL: f"stroke:{_COLOURS[LineStyle.NORMAL]}",
    LineStyle.CUT: f"stroke:{_COLOURS[LineStyle.CUT]},stroke-dasharray:8 4",
    LineStyle.FAIL: f"stroke:{_COLOURS[LineStyle.FAIL]},stroke-dasharray:2 4",
}
_MERMAID_CLASS: Final = {
    NodeRole.INITIAL.value: "stroke-dasharray:4 3",
    NodeRole.NORMAL.value: "stroke-width:1px",
    NodeRole.FINAL.value: "stroke-width:4px,rx:14,ry:14",
    NodeRole.DROPPED.value: "stroke-width:4px,stroke-dasharray:4 3,rx:14,ry:14",
    "label": "fill:none,stroke:none",
}
_MERMAID_WIDTH: Final = 26  # characters per line of a label; Mermaid itself breaks lines at about 200 pixels

_DOT_LINE: Final = {LineStyle.NORMAL: "solid", LineStyle.CUT: "dashed", LineStyle.FAIL: "dotted"}
_DOT_NODE: Final = {
    NodeRole.INITIAL: 'style="rounded,dashed"',
    NodeRole.NORMAL: 'style="rounded"',
    NodeRole.FINAL: 'style="rounded" peripheries=2',
    NodeRole.DROPPED: 'style="rounded,dashed" peripheries=2',
}


def to_mermaid(graph: Graph) -> str:
    """Return a graph as a Mermaid flowchart, top to bottom."""
    framed = {state: region.name for region in graph.regions for state in region.states}
    parts: dict[str | None, list[str]] = {**{region.name: [] for region in graph.regions}, None: []}
    for node in graph.nodes:
        text = "<br/>".join([node.name, *_mermaid_loops(graph, node.name, [node.name])])
        parts[framed.get(node.name)].append(f'{_mermaid_id(node.name)}["{text}"]:::{node.role.value}')
    for region in graph.regions:
        if loops := _mermaid_loops(graph, region.name, [region.name, *region.states]):
            parts[region.name].append(f'{_mermaid_id(region.name)}_all["{"<br/>".join(loops)}"]:::label')
    lanes = [
        (edge, part)
        for part in parts
        for edge in graph.edges
        if edge.source not in {edge.dest, framed.get(edge.dest)}
        and part == (framed.get(edge.source) if framed.get(edge.source) == framed.get(edge.dest) else None)
    ]
    for number, (edge, part) in enumerate(lanes):
        text = "<br/>".join(line for label in edge.labels for line in _mermaid_label(graph, label))
        line = f'{_mermaid_id(edge.source)} --- line{number}["{text}"]:::label --> {_mermaid_id(edge.dest)}'
        parts[part].append(line)
    lines = ["flowchart TD"]
    for region in graph.regions:
        lines.append(f'    subgraph {_mermaid_id(region.name)}["{region.name}"]')
        lines += [*(f"        {line}" for line in parts[region.name]), "    end"]
    lines += [f"    {line}" for line in parts[None]]
    lines += [f"    style {_mermaid_id(region.name)} fill:none,stroke:#8c959f" for region in graph.regions]
    for style, look in _MERMAID_LINE.items():
        if numbers := [f"{2 * number},{2 * number + 1}" for number, (edge, _) in enumerate(lanes) if edge.style is style]:
            lines.append(f"    linkStyle {','.join(numbers)} {look}")
    lines += [f"    classDef {name} {look}" for name, look in _MERMAID_CLASS.items()]
    return _join(lines)


def _mermaid_loops(graph: Graph, name: str, ends: Collection[str]) -> list[str]:
    """Return the labels of a state's loops, or of a region's lines to itself and its states."""
    return [
        f"↻ {graph.written(label)}" + (f" → {edge.dest}" if edge.dest != name else "")
        for edge in graph.edges
        if edge.source == name and edge.dest in ends
        for label in edge.labels
    ]


def _mermaid_id(name: str) -> str:
    """Return a name with only letters, digits and underscores, because Mermaid ends an id at a space."""
    return re.sub(r"\W", "_", name)


def _mermaid_label(graph: Graph, label: Label) -> tuple[str, ...]:
    (*triggers, last), events = graph.lines(label, _MERMAID_WIDTH)
    return (*triggers, f"{last} /" if events else last, *events)


def to_dot(graph: Graph) -> str:
    """Return a graph as Graphviz DOT, top to bottom."""
    lines = [
        f'digraph "{graph.name}" {{',
        "    rankdir=TB",
        '    node [shape=box fontname="monospace"]',
        '    edge [fontname="monospace" fontsize=10]',
        "    compound=true",
    ]
    lines += [f'    "{node.name}" [{_DOT_NODE[node.role]}]' for node in graph.nodes]
    for region in graph.regions:
        states = " ".join(f'"{state}"' for state in region.states)
        lines.append(f'    subgraph "cluster_{region.name}" {{ label="{region.name}" fontname="monospace" {states} }}')
    for edge in graph.edges:
        source, dest = graph.ends(edge)[0]
        tail = f' ltail="cluster_{edge.source}"' if edge.source != source else ""
        label = "".join(f"{graph.written(label)}\\l" for label in edge.labels)
        look = f'style={_DOT_LINE[edge.style]} color="{_COLOURS[edge.style]}"'
        lines.append(f'    "{source}" -> "{dest}" [label="{label}" {look}{tail}]')
    return _join([*lines, "}"])


def to_json(graph: Graph) -> str:
    """Return a graph as JSON with full wire names."""
    return json.dumps(_document(graph), indent=2) + "\n"


def written_tables(graphs: Iterable[Graph]) -> str:
    """Return several graphs as one JSON object, with a line for each; docs/library/porting.md explains it."""
    lines = (f"{json.dumps(graph.name)}: {json.dumps(_document(graph), separators=(',', ':'))}" for graph in graphs)
    return '{"version": 1, "tables": {\n' + ",\n".join(lines) + "\n}}\n"


def _document(graph: Graph) -> dict[str, object]:
    return {
        "name": graph.name,
        "nodes": [{"name": node.name, "role": node.role.value} for node in graph.nodes],
        "edges": [
            {
                "source": edge.source,
                "dest": edge.dest,
                "style": edge.style.value,
                "labels": [asdict(label) for label in edge.labels],
            }
            for edge in graph.edges
        ],
        "regions": {region.name: region.states for region in graph.regions},
        "way": graph.main_path,
        "triggers": dict(graph.triggers),
        "key": dict(graph.key),
    }


def to_xstate(graph: Graph) -> str:
    """Return a graph as the configuration of an XState machine (version 5), which the editor of Stately imports.

    Effects are the names of actions. A region is no state there, so each of its states has the edges of the region.
    """
    rows: dict[str, dict[str, object]] = {node.name: {} for node in graph.nodes}
    for edge in graph.edges:
        for source, dest in graph.ends(edge):
            for label in edge.labels:
                rows[source].update({trigger: {"target": dest, "actions": label.events} for trigger in label.triggers})
    final = {NodeRole.FINAL, NodeRole.DROPPED}
    states = {node.name: {"type": "final"} if node.role in final else {"on": rows[node.name]} for node in graph.nodes}
    return json.dumps({"id": graph.name, "initial": graph.nodes[0].name, "states": states}, indent=2) + "\n"


def to_table(graph: Graph) -> str:
    """Return a graph as a plain text table with a line for each event, by its short name, and then the states of each region."""
    rows = [("state", "trigger", "next state", "emits")]
    for edge in graph.edges:
        for label in edge.labels:
            first, *others = map(graph.short, label.events or ("",))
            rows.append((edge.source, ", ".join(label.triggers), edge.dest, first))
            rows += [("", "", "", event) for event in others]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    regions = [f"{region.name}: {', '.join(region.states)}" for region in graph.regions]
    return _join([*("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows), *([""] if regions else []), *regions])


def _join(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
