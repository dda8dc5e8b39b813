"""Renders a graph as text: Mermaid, DOT, JSON, or a table for a terminal.

Mermaid output is a flowchart, because only flowcharts can style single lines. Mermaid would draw some labels over each other, so
a loop is written inside its state, and where several lines join the same two states each label is a node. The colours suit light
and dark backgrounds.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Final

from interlock.fsm.diagram.graph import Graph, Label, Node, Role, Style

_COLOURS: Final = {Style.NORMAL: "#768390", Style.CUT: "#bf8700", Style.FAIL: "#d1242f"}

_MERMAID_LINE: Final = {
    Style.NORMAL: f"stroke:{_COLOURS[Style.NORMAL]}",
    Style.CUT: f"stroke:{_COLOURS[Style.CUT]},stroke-dasharray:8 4",
    Style.FAIL: f"stroke:{_COLOURS[Style.FAIL]},stroke-dasharray:2 4",
}
_MERMAID_CLASS: Final = {
    Role.INITIAL.value: "stroke-dasharray:4 3",
    Role.NORMAL.value: "stroke-width:1px",
    Role.FINAL.value: "stroke-width:4px,rx:14,ry:14",
    Role.DROPPED.value: "stroke-width:4px,stroke-dasharray:4 3,rx:14,ry:14",
    "label": "fill:none,stroke:none",
}
_MERMAID_WIDTH: Final = 26  # of a line of a label, in characters; Mermaid itself breaks at about 200 pixels

_DOT_LINE: Final = {Style.NORMAL: "solid", Style.CUT: "dashed", Style.FAIL: "dotted"}
_DOT_NODE: Final = {
    Role.INITIAL: 'style="rounded,dashed"',
    Role.NORMAL: 'style="rounded"',
    Role.FINAL: 'style="rounded" peripheries=2',
    Role.DROPPED: 'style="rounded,dashed" peripheries=2',
}


def to_mermaid(graph: Graph) -> str:
    """Return a graph as a Mermaid flowchart, top to bottom."""
    lines = ["flowchart TD", *(f"    {_mermaid_node(graph, node)}" for node in graph.nodes)]
    lanes = [edge for edge in graph.edges if edge.source != edge.dest]
    joined = Counter(frozenset((edge.source, edge.dest)) for edge in lanes)
    styles: list[Style] = []
    for number, edge in enumerate(lanes):
        text = "<br/>".join(line for label in edge.labels for line in _mermaid_label(graph, label))
        if joined[frozenset((edge.source, edge.dest))] == 1:
            lines.append(f'    {_mermaid_id(edge.source)} -->|"{text}"| {_mermaid_id(edge.dest)}')
            styles.append(edge.style)
        else:
            lines.append(f'    {_mermaid_id(edge.source)} --- line{number}["{text}"]:::label --> {_mermaid_id(edge.dest)}')
            styles += [edge.style, edge.style]
    for style, line in _MERMAID_LINE.items():
        if numbers := [str(number) for number, line_style in enumerate(styles) if line_style is style]:
            lines.append(f"    linkStyle {','.join(numbers)} {line}")
    lines += [f"    classDef {name} {look}" for name, look in _MERMAID_CLASS.items()]
    return _joined(lines)


def _mermaid_node(graph: Graph, node: Node) -> str:
    """Return a state with the labels of the lines that return to it."""
    loops = [label for edge in graph.edges if edge.source == edge.dest == node.name for label in edge.labels]
    text = "<br/>".join([node.name, *(f"↻ {graph.written(label)}" for label in loops)])
    return f'{_mermaid_id(node.name)}["{text}"]:::{node.role.value}'


def _mermaid_id(name: str) -> str:
    """Return a name without spaces, which end a name in Mermaid."""
    return name.replace(" ", "_")


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
    ]
    lines += [f'    "{node.name}" [{_DOT_NODE[node.role]}]' for node in graph.nodes]
    for edge in graph.edges:
        label = "".join(f"{graph.written(label)}\\l" for label in edge.labels)
        look = f'style={_DOT_LINE[edge.style]} color="{_COLOURS[edge.style]}"'
        lines.append(f'    "{edge.source}" -> "{edge.dest}" [label="{label}" {look}]')
    return _joined([*lines, "}"])


def to_json(graph: Graph) -> str:
    """Return a graph as JSON with full wire names."""
    return _joined(
        [
            json.dumps(
                {
                    "name": graph.name,
                    "nodes": [{"name": node.name, "role": node.role.value} for node in graph.nodes],
                    "edges": [
                        {
                            "source": edge.source,
                            "dest": edge.dest,
                            "style": edge.style.value,
                            "labels": [{"triggers": list(label.triggers), "events": list(label.events)} for label in edge.labels],
                        }
                        for edge in graph.edges
                    ],
                    "way": list(graph.way),
                    "key": dict(graph.key),
                },
                indent=2,
            )
        ]
    )


def to_table(graph: Graph) -> str:
    """Return a graph as a plain text table with a line for each event, in short names."""
    rows = [("state", "trigger", "next state", "emits")]
    for edge in graph.edges:
        for label in edge.labels:
            first, *others = map(graph.short, label.events or ("",))
            rows.append((edge.source, ", ".join(label.triggers), edge.dest, first))
            rows += [("", "", "", event) for event in others]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return _joined(["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows])


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
