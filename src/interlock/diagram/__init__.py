"""Draws lifecycles and other tables.

`draw` turns a `Table` (see `interlock.fsm.table`) into a `Graph`. A renderer turns the graph into Mermaid, DOT, JSON, an SVG
picture, a configuration for XState, or a table for a terminal.

    graph     the graph of a table
    layout    the order of states and lines, and their coordinates
    svg       the renderer of SVG
    text      the other renderers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from interlock.diagram.graph import Graph, NodeRole, draw, graph_of, key_of
from interlock.diagram.svg import to_svg
from interlock.diagram.text import to_dot, to_json, to_mermaid, to_table, to_xstate, written_tables

__all__ = ["RENDERERS", "Graph", "NodeRole", "draw", "graph_of", "key_of", "to_mermaid", "to_svg", "written_tables"]

RENDERERS: Final[Mapping[str, Callable[[Graph], str]]] = {
    "mermaid": to_mermaid,
    "dot": to_dot,
    "svg": to_svg,
    "json": to_json,
    "xstate": to_xstate,
    "table": to_table,
}
"""The renderer of each format, by name. Renderers are deterministic, and their text ends with a line feed."""
