"""What `interlock diagram` can draw: every lifecycle, and the framing of harmony, which is a table of the same shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from interlock.fsm.diagram import Graph, draw, graph_of
from interlock.fsm.lifecycles import LIFECYCLES, RESPONSE
from interlock.parsers.framing import HARMONY

GRAPHS: Final[Mapping[str, Graph]] = {
    RESPONSE.item: draw(RESPONSE),
    **{kind: draw(lifecycle) for kind, lifecycle in LIFECYCLES.items()},
    "harmony": graph_of(
        "harmony",
        HARMONY.initial,
        [
            (state, trigger.value, dest, tuple(effect.value for effect in effects))
            for state, row in HARMONY.rows.items()
            for trigger, (dest, effects) in row.items()
        ],
    ),
}
"""Every graph by the name that the command takes."""


def summary(graph: Graph) -> str:
    """Give a graph in one line: its name, how many states it has, and how many lines are drawn between them."""
    return f"{graph.name}: {len(graph.nodes)} states, {len(graph.edges)} lines"
