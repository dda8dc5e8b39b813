"""What `interlock diagram` can draw: every lifecycle, and the framing of harmony."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from interlock.fsm.diagram import Graph, draw
from interlock.fsm.lifecycles import LIFECYCLES, RESPONSE
from interlock.parsers.framing import HARMONY

GRAPHS: Final[Mapping[str, Graph]] = {
    graph.name: graph for graph in (draw(RESPONSE), *map(draw, LIFECYCLES.values()), draw(HARMONY))
}
"""Every graph by the name that the command takes."""


def summary(graph: Graph) -> str:
    """Return a graph in one line: its name, how many states it has, and how many lines are drawn between them."""
    return f"{graph.name}: {len(graph.nodes)} states, {len(graph.edges)} lines"
