"""What `interlock diagram` can draw: every lifecycle, the framing of harmony, and the machines of those who make responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from interlock.fsm.diagram import Graph, draw, key_of
from interlock.fsm.lifecycles import LIFECYCLES, RESPONSE
from interlock.fsm.processes.background import BACKGROUND, BackgroundEffect
from interlock.fsm.processes.connection import CONNECTION, ConnectionEffect
from interlock.fsm.processes.conversation import CONVERSATION, ConversationEffect
from interlock.fsm.processes.lane import LANE, LaneEffect
from interlock.fsm.processes.stored import STORED, StoredEffect
from interlock.fsm.processes.turns import TURNS, TurnEffect
from interlock.parsers.framing import HARMONY, Effect

HOSTS: Final[Mapping[str, Graph]] = {
    graph.name: graph
    for graph in (
        draw(TURNS, way=("absent", "opening", "preparing", "generating", "ending", "settling", "ended"), key=key_of(TurnEffect)),
        draw(BACKGROUND, way=("idle", "holding", "writing", "closing", "ending", "ended"), key=key_of(BackgroundEffect)),
        draw(STORED, way=("absent", "queued", "running", "ended", "expired"), key=key_of(StoredEffect)),
        draw(CONVERSATION, way=("absent", "free", "held", "deleted"), key=key_of(ConversationEffect)),
        draw(LANE, way=("idle", "beginning", "running"), key=key_of(LaneEffect)),
        draw(CONNECTION, key=key_of(ConnectionEffect)),
    )
}
"""The graphs of those who make responses: no item and no part of a stream goes through them."""

GRAPHS: Final[Mapping[str, Graph]] = {
    **{graph.name: graph for graph in (draw(RESPONSE), *map(draw, LIFECYCLES.values()))},
    "harmony": draw(HARMONY, key=key_of(Effect)),
    **HOSTS,
}
"""Every graph by the name that the command takes."""


def summary(graph: Graph) -> str:
    """Return a graph in one line: its name, how many states it has, and how many lines are drawn between them."""
    return f"{graph.name}: {len(graph.nodes)} states, {len(graph.edges)} lines"
