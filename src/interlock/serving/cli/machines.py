"""The commands `interlock verify` and `interlock diagram`, which prove and draw the state machines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from time import monotonic, process_time
from typing import TYPE_CHECKING, Final, Literal

import attrs
import click
import orjson

from interlock.serving.cli.options import examples, fail, option_errors

if TYPE_CHECKING:
    from interlock.diagram import Graph
    from interlock.verify.process_models import Exploration
    from interlock.verify.proof import Coverage, Proof


@click.command(epilog=examples("interlock verify", "interlock verify --json"))
@click.option("--json", is_flag=True, help="Write the figures as JSON.")
@click.option(
    "--open",
    "open_items",
    type=click.IntRange(min=1),
    metavar="N",
    help="Explore up to N items open at once; by default, all that the proof needs.",
)
def verify(*, json: bool, open_items: int | None) -> None:
    """Prove that no illegal order of events is possible.

    Feeds the driver, which emits the events, every input in every state that it can reach, and explores the server's processes.
    The exit status is 1 if the proof fails.
    """
    from rich.console import Console

    from interlock.verify.process_models import MODELS, explore
    from interlock.verify.proof import OPEN_ITEMS, prove

    start, started = process_time(), monotonic()
    console = Console(stderr=True)
    if open_items is None:
        click.echo("The proof takes one to two minutes of CPU time.", err=True)
    with option_errors(), console.status("Exploring the driver") as status:
        shown = started

        def show(text: str) -> None:
            nonlocal shown
            status.update(text)
            if not console.is_terminal and monotonic() > shown + PROGRESS:  # which shows no status
                click.echo(f"{text}, after {monotonic() - started:.0f} s", err=True)
                shown = monotonic()

        proof = prove(
            open_items=open_items or OPEN_ITEMS,
            progress=lambda explored, total: show(f"Exploring the driver: {explored:,} of {total:,} known states"),
        )
        processes: dict[str, Exploration] = {}
        for name, model in MODELS.items():
            show(f"Exploring the process {name}")
            processes[name] = explore(model)
    seconds = process_time() - start
    holds = proof.holds and all(each.holds for each in processes.values())
    if json:
        figures: dict[str, object] = {
            "holds": holds,
            **attrs.asdict(proof),
            "processes": {name: attrs.asdict(each) for name, each in processes.items()},
            "seconds": round(seconds, 3),
        }
        if proof.counterexample is not None:
            path = [repr(delta) for delta in proof.counterexample.path]
            figures["counterexample"] = {"path": path, "faults": proof.counterexample.faults}
        click.echo(orjson.dumps(figures, option=orjson.OPT_INDENT_2))
    else:
        click.echo("\n".join(_text(proof, processes, seconds, holds=holds)))
    if not holds:
        sys.exit(1)


def _text(proof: Proof, processes: Mapping[str, Exploration], seconds: float, *, holds: bool) -> Iterator[str]:
    machines: dict[str, Coverage | Exploration] = {**proof.coverage, **processes}
    rows = [("lifecycle", "edges", "fired", "never fired")]
    for name, each in machines.items():
        rows.append((name, str(each.edges), str(each.edges - len(each.unfired)), ", ".join(each.unfired)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield from ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    yield ""
    yield f"{proof.states:,} states, up to {proof.inputs} inputs in each, {proof.transitions:,} transitions"
    yield f"{proof.streams:,} different streams with {proof.events:,} events, judged in {seconds:.1f} s of CPU time"
    faults = [f"{name}: {fault}" for name, each in processes.items() for fault in each.faults]
    if proof.counterexample is not None:
        yield "counterexample:"
        yield from (f"    {delta!r}" for delta in proof.counterexample.path)
        yield from proof.counterexample.faults
    elif faults or proof.faults:
        yield from (*faults, *proof.faults)
    else:
        yield "every stream is legal, and every edge fired" if holds else "some edges never fired"


@click.command(
    epilog=examples("interlock diagram message --format table", "interlock diagram mcp_call --format svg > mcp_call.svg")
)
@click.argument("kind", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot", "svg", "json", "xstate", "table"]),
    default="mermaid",
    help="The format of the diagram.",
)
def diagram(kind: str | None, *, form: Literal["mermaid", "dot", "svg", "json", "xstate", "table"]) -> None:
    """Draw a lifecycle, as a diagram or as a table.

    KIND is a kind of item, `response`, a process of the server such as `turns`, or `harmony`, the format of gpt-oss.
    Without it, the command lists the kinds, or writes all tables with `--format json`.
    """
    from interlock.diagram import RENDERERS, written_tables

    graphs = {**stream_graphs(), **process_graphs()}
    if kind is None and form == "json":
        click.echo(written_tables(graphs.values()), nl=False)
    elif kind is None:
        for graph in graphs.values():
            states, edges = graph.size
            click.echo(f"{graph.name}: {states} states, {edges} edge{'' if edges == 1 else 's'}")
    elif kind not in graphs:
        fail(f"no diagram of {kind!r}; choose one of {', '.join(graphs)}")
    else:
        click.echo(RENDERERS[form](graphs[kind]), nl=False)


@cache
def stream_graphs() -> Mapping[str, Graph]:
    """Return the graphs of all lifecycles and of harmony's framing, by name."""
    from interlock.diagram import draw
    from interlock.fsm.lifecycles import LIFECYCLES, RESPONSE
    from interlock.parsers.harmony import HARMONY

    graphs = (draw(RESPONSE), *map(draw, LIFECYCLES.values()), draw(HARMONY))
    return {graph.name: graph for graph in graphs}


PROGRESS: Final = 5.0
"""Seconds between two lines about the progress where no terminal shows it."""
_PATHS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "messages": {"main_path": ("absent", "between", "text", "between", "ended"), "column": ("absent", "between", "ended")},
    "chat": {"main_path": ("absent", "created", "open", "ended")},
}
"""The main path and column in the picture of a transducer, if not those of `draw`."""


@cache
def process_graphs() -> Mapping[str, Graph]:
    """Return the graphs of the server's processes and of the transducers, by name."""
    from interlock.diagram import draw
    from interlock.judges import DIALECT_JUDGES
    from interlock.serving.engines.upstream.connection_table import UPSTREAM_CONNECTION
    from interlock.serving.http.tables import CONNECTION, LANE, SERVER, STEERING
    from interlock.serving.requests.input_items import ASYNC_CALL
    from interlock.serving.responses.background_response import BACKGROUND
    from interlock.serving.responses.turns_table import TURNS
    from interlock.serving.store.tables import CONVERSATION, STORED
    from interlock.serving.tools.code_interpreter import CONTAINER

    graphs = (
        draw(TURNS, main_path=("absent", "admitting", "preparing", "generating", "ending", "settling", "settled", "ended")),
        draw(
            BACKGROUND,
            main_path=("idle", "holding", "writing", "closing", "ending", "ended"),
            column=("idle", "holding", "closing", "ending", "ended"),
        ),
        draw(
            STORED,
            main_path=("absent", "queued", "running", "ended", "expired"),
            column=("absent", "queued", "running", "lost", "ended", "hidden", "expired"),
        ),
        *(draw(judge.make_transducer().table, **_PATHS.get(name, {})) for name, judge in DIALECT_JUDGES.items()),
        draw(CONVERSATION, main_path=("absent", "free", "leased", "deleted")),
        draw(LANE, main_path=("idle", "running", "leaving", "closed")),
        draw(STEERING, main_path=("open", "queued", "committing", "ended")),
        draw(CONNECTION, main_path=("open", "expired", "finishing", "closed")),
        draw(SERVER, main_path=("starting", "serving", "draining", "ending", "ended")),
        draw(CONTAINER, main_path=("new", "running", "idle", "expired")),
        draw(ASYNC_CALL, main_path=("called", "pending", "answered", "ended")),
        draw(UPSTREAM_CONNECTION, main_path=("connected", "waiting", "reading", "idle", "closed")),
    )
    return {graph.name: graph for graph in graphs}
