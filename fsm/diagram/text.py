"""Graphs as text that other programs draw or read: mermaid, DOT and JSON.

It knows these three notations. A flowchart is used for mermaid although there is a notation for states, because only in
a flowchart can lines have styles of their own. The colours are chosen for light and dark backgrounds alike.
"""

from __future__ import annotations

import json
from typing import Final

from interlock.fsm.diagram.graph import Graph, Node, Role, Style

_COLOURS: Final = {Style.NORMAL: "#768390", Style.CUT: "#bf8700", Style.FAIL: "#d1242f"}

_MERMAID_LINE: Final = {
    Style.NORMAL: f"stroke:{_COLOURS[Style.NORMAL]}",
    Style.CUT: f"stroke:{_COLOURS[Style.CUT]},stroke-dasharray:8 4",
    Style.FAIL: f"stroke:{_COLOURS[Style.FAIL]},stroke-dasharray:2 4",
}
_MERMAID_CLASS: Final = {
    Role.INITIAL: "stroke-width:1px,stroke-dasharray:4 3",
    Role.FINAL: "stroke-width:4px",
    Role.DROPPED: "stroke-width:4px,stroke-dasharray:4 3",
}
_MERMAID_ARROW: Final = {Style.NORMAL: "-->", Style.CUT: "-.->", Style.FAIL: "-.->"}

_DOT_LINE: Final = {Style.NORMAL: "solid", Style.CUT: "dashed", Style.FAIL: "dotted"}
_DOT_NODE: Final = {
    Role.INITIAL: 'style="rounded,dashed"',
    Role.NORMAL: 'style="rounded"',
    Role.FINAL: 'style="rounded" peripheries=2',
    Role.DROPPED: 'style="rounded,dashed" peripheries=2',
}


def to_mermaid(graph: Graph) -> str:
    """Give a graph as a mermaid flowchart, top to bottom.

    Args:
        graph: What to draw.
    """
    lines = ["flowchart TD"]
    lines += [f"    {_mermaid_node(node)}" for node in graph.nodes]
    for edge in graph.edges:
        label = "<br/>".join(map(graph.written, edge.labels))
        lines.append(f'    {edge.source} {_MERMAID_ARROW[edge.style]}|"{label}"| {edge.dest}')
    for style, line in _MERMAID_LINE.items():
        if numbers := [str(number) for number, edge in enumerate(graph.edges) if edge.style is style]:
            lines.append(f"    linkStyle {','.join(numbers)} {line}")
    for role, declared in _MERMAID_CLASS.items():
        if names := [node.name for node in graph.nodes if node.role is role]:
            lines += [f"    classDef {role.value} {declared}", f"    class {','.join(names)} {role.value}"]
    return _joined(lines)


def _mermaid_node(node: Node) -> str:
    return f"{node.name}[{node.name}]" if node.role is Role.NORMAL else f"{node.name}([{node.name}])"


def to_dot(graph: Graph) -> str:
    """Give a graph in Graphviz's DOT, top to bottom.

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
    """Give a graph as JSON, with the wire names whole.

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
                },
                indent=2,
            )
        ]
    )


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
