"""Graphs as text: mermaid, DOT and JSON, which other programs draw or read, and a table for a terminal.

It knows these notations. A flowchart is used for mermaid although there is a notation for states, because only in
a flowchart can lines have styles of their own. Two habits of its layout are evaded: a line that returns to its state is
written inside of the state, and where several lines join the same two states, each label is a node of its own, because
they would lie on one another otherwise. The colours are chosen for light and dark backgrounds alike.
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
_MERMAID_WIDTH: Final = 26  # of a line of a label, in characters; mermaid itself breaks at about 200 pixels

_DOT_LINE: Final = {Style.NORMAL: "solid", Style.CUT: "dashed", Style.FAIL: "dotted"}
_DOT_NODE: Final = {
    Role.INITIAL: 'style="rounded,dashed"',
    Role.NORMAL: 'style="rounded"',
    Role.FINAL: 'style="rounded" peripheries=2',
    Role.DROPPED: 'style="rounded,dashed" peripheries=2',
}


def to_mermaid(graph: Graph) -> str:
    """Return a graph as a mermaid flowchart, top to bottom.

    Args:
        graph: What to draw.
    """
    lines = ["flowchart TD", *(f"    {_mermaid_node(graph, node)}" for node in graph.nodes)]
    lanes = [edge for edge in graph.edges if edge.source != edge.dest]
    joined = Counter(frozenset((edge.source, edge.dest)) for edge in lanes)
    drawn: list[Style] = []
    for number, edge in enumerate(lanes):
        text = "<br/>".join(line for label in edge.labels for line in _mermaid_label(graph, label))
        if joined[frozenset((edge.source, edge.dest))] == 1:
            lines.append(f'    {_mermaid_id(edge.source)} -->|"{text}"| {_mermaid_id(edge.dest)}')
            drawn.append(edge.style)
        else:
            lines.append(f'    {_mermaid_id(edge.source)} --- line{number}["{text}"]:::label --> {_mermaid_id(edge.dest)}')
            drawn += [edge.style, edge.style]
    for style, line in _MERMAID_LINE.items():
        if numbers := [str(number) for number, drawn_style in enumerate(drawn) if drawn_style is style]:
            lines.append(f"    linkStyle {','.join(numbers)} {line}")
    lines += [f"    classDef {name} {look}" for name, look in _MERMAID_CLASS.items()]
    return _joined(lines)


def _mermaid_node(graph: Graph, node: Node) -> str:
    """Return a state, with the lines that return to it."""
    loops = [label for edge in graph.edges if edge.source == edge.dest == node.name for label in edge.labels]
    text = "<br/>".join([node.name, *(f"↻ {line}" for label in loops for line in [graph.written(label)])])
    return f'{_mermaid_id(node.name)}["{text}"]:::{node.role.value}'


def _mermaid_id(name: str) -> str:
    """Return a name without the spaces that mermaid takes for the end of it."""
    return name.replace(" ", "_")


def _mermaid_label(graph: Graph, label: Label) -> tuple[str, ...]:
    (*triggers, last), events = graph.lines(label, _MERMAID_WIDTH)
    return (*triggers, f"{last} /" if events else last, *events)


def to_dot(graph: Graph) -> str:
    """Return a graph in Graphviz's DOT, top to bottom.

    Args:
        graph: What to draw.
    """
    lines = [
        f'digraph "{graph.name}" {{',
        "    rankdir=TB",
        '    node [shape=box fontname="monospace"]',
        '    edge [fontname="monospace" fontsize=10]',
    ]
    lines += [f'    "{node.name}" [{_DOT_NODE[node.role]}]' for node in graph.nodes]
    for edge in graph.edges:
        label = "".join(f"{graph.written(label)}\\l" for label in edge.labels)
        drawn = f'style={_DOT_LINE[edge.style]} color="{_COLOURS[edge.style]}"'
        lines.append(f'    "{edge.source}" -> "{edge.dest}" [label="{label}" {drawn}]')
    return _joined([*lines, "}"])


def to_json(graph: Graph) -> str:
    """Return a graph as JSON, with the wire names whole.

    Args:
        graph: What to give.
    """
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
    """Return a graph as a table of plain text, one line for each event.

    Args:
        graph: The graph; events are written as in its labels.
    """
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
