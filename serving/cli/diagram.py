"""The command `interlock diagram`: a table drawn, or written out for a terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.fsm.diagram import RENDERERS, Format
from interlock.serving.cli.inputs import fail


def diagram(
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="What to draw; without it, list what can be drawn.")
    ] = None,
    *,
    form: Annotated[Format, typer.Option("--format", help="The form of the output.")] = "mermaid",
) -> None:
    """Draw a lifecycle, as a picture or as a table.

    KIND is a kind of item, `response`, or `harmony` for the framing of harmony.
    """
    from interlock.serving.cli.diagrams import GRAPHS, summary

    if kind is None:
        typer.echo("\n".join(map(summary, GRAPHS.values())))
    elif kind not in GRAPHS:
        fail(f"no diagram of {kind!r}; there are: {', '.join(GRAPHS)}")
    else:
        typer.echo(RENDERERS[form](GRAPHS[kind]), nl=False)
