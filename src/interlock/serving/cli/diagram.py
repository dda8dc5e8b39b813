"""The command `interlock diagram`: a table as a picture, or written out for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated

import typer

from interlock.fsm.diagram import RENDERERS, Format, Graph, draw, key_of
from interlock.serving.cli.sources import fail


def diagram(
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="What to draw; without it, list what can be drawn.")
    ] = None,
    *,
    form: Annotated[Format, typer.Option("--format", help="The form of the output.")] = "mermaid",
) -> None:
    """Draw a lifecycle, as a picture or as a table.

    KIND is a kind of item, `response`, a process of the server such as `turns`, or `harmony` for the framing of harmony.
    """
    graphs = {**stream_graphs(), **process_graphs()}
    if kind is None:
        for graph in graphs.values():
            typer.echo(f"{graph.name}: {len(graph.nodes)} states, {len(graph.edges)} lines")
    elif kind not in graphs:
        fail(f"no diagram of {kind!r}; choose one of {', '.join(graphs)}")
    else:
        typer.echo(RENDERERS[form](graphs[kind]), nl=False)


@cache
def stream_graphs() -> Mapping[str, Graph]:
    """Return the graphs of all lifecycles, and of the framing of harmony, by their names."""
    from interlock.fsm.lifecycles import LIFECYCLES, RESPONSE
    from interlock.parsers.harmony_framing import HARMONY, Effect

    lifecycles = (draw(RESPONSE), *map(draw, LIFECYCLES.values()))
    return {**{graph.name: graph for graph in lifecycles}, "harmony": draw(HARMONY, key=key_of(Effect))}


@cache
def process_graphs() -> Mapping[str, Graph]:
    """Return the graphs of the server's processes, which no item goes through, by their names."""
    from interlock.fsm.processes.background import BACKGROUND, BackgroundEffect
    from interlock.fsm.processes.connection import CONNECTION, ConnectionEffect
    from interlock.fsm.processes.conversation import CONVERSATION, ConversationEffect
    from interlock.fsm.processes.lane import LANE, LaneEffect
    from interlock.fsm.processes.stored import STORED, StoredEffect
    from interlock.fsm.processes.turns import TURNS, TurnEffect

    graphs = (
        draw(TURNS, way=("absent", "opening", "preparing", "generating", "ending", "settling", "ended"), key=key_of(TurnEffect)),
        draw(BACKGROUND, way=("idle", "holding", "writing", "closing", "ending", "ended"), key=key_of(BackgroundEffect)),
        draw(STORED, way=("absent", "queued", "running", "ended", "expired"), key=key_of(StoredEffect)),
        draw(CONVERSATION, way=("absent", "free", "held", "deleted"), key=key_of(ConversationEffect)),
        draw(LANE, way=("idle", "beginning", "running"), key=key_of(LaneEffect)),
        draw(CONNECTION, key=key_of(ConnectionEffect)),
    )
    return {graph.name: graph for graph in graphs}
