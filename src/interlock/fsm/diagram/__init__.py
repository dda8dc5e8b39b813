"""Diagrams: a lifecycle, or any other table of rows, drawn from the table that runs.

A table becomes a `Graph`, and a graph becomes text: mermaid, DOT, JSON, a picture in SVG, or a table for a terminal. A renderer
sees the graph alone, so no picture can say what the table does not.

    graph     what is drawn
    plan      which state stands where
    layout    from a plan to coordinates
    geometry  boxes, lines and labels with coordinates
    svg       a graph as a picture
    text      a graph as mermaid, DOT, JSON or a table
    key       what the effects of a table mean
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from interlock.fsm.diagram.graph import DrawnEdge, Graph, Label, Node, Role, Style, draw, graph_of
from interlock.fsm.diagram.key import key_of
from interlock.fsm.diagram.svg import to_svg
from interlock.fsm.diagram.text import to_dot, to_json, to_mermaid, to_table

__all__ = [
    "RENDERERS",
    "DrawnEdge",
    "Format",
    "Graph",
    "Label",
    "Node",
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
"""What a graph can be rendered as."""

RENDERERS: Final[Mapping[Format, Callable[[Graph], str]]] = {
    "mermaid": to_mermaid,
    "dot": to_dot,
    "svg": to_svg,
    "json": to_json,
    "table": to_table,
}
"""The renderer of each format; each gives text that ends with a line feed, the same for the same graph."""
