"""Draws a lifecycle, or any other table, from the table that runs.

A table becomes a `Graph`, and a graph becomes text: Mermaid, DOT, JSON, an SVG picture, or a table for a terminal. A renderer
sees only the graph, so no picture can differ from its table.

    graph     the graph of a table
    plan      the order of states and lines, without coordinates
    layout    from a plan to coordinates
    geometry  boxes, lines and labels with coordinates
    svg       a graph as a picture
    text      a graph as Mermaid, DOT, JSON or a table
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from interlock.fsm.diagram.graph import DrawnEdge, Graph, Label, Node, Region, Role, Style, draw, graph_of, key_of
from interlock.fsm.diagram.svg import to_svg
from interlock.fsm.diagram.text import to_dot, to_json, to_mermaid, to_table

__all__ = [
    "RENDERERS",
    "DrawnEdge",
    "Format",
    "Graph",
    "Label",
    "Node",
    "Region",
    "Role",
    "Style",
    "draw",
    "graph_of",
    "key_of",
    "to_dot",
    "to_json",
    "to_mermaid",
    "to_svg",
    "to_table",
]

Format: TypeAlias = Literal["mermaid", "dot", "svg", "json", "table"]
"""The name of an output format."""

RENDERERS: Final[Mapping[Format, Callable[[Graph], str]]] = {
    "mermaid": to_mermaid,
    "dot": to_dot,
    "svg": to_svg,
    "json": to_json,
    "table": to_table,
}
"""The renderer of each format; it is deterministic, and its text ends with a line feed."""
