"""The command `interlock verify`: what the proof found, for a terminal or for a program.

It knows how figures are shown and tells the processor time that the proof took, which does not depend on what else the
machine does; the proof itself is `interlock.fsm.proof`.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import Annotated, Final

import attrs
import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from interlock.fsm.proof import OPEN_ITEMS, Proof, prove

REFUTED: Final = 1
"""The exit status when the proof fails."""


def verify(
    *,
    json: Annotated[bool, typer.Option("--json", help="Write the figures as JSON.")] = False,
    open_items: Annotated[
        int, typer.Option("--open", min=1, metavar="N", help="Explore states with up to N items open at once.")
    ] = OPEN_ITEMS,
) -> None:
    """Prove that no illegal order of events can happen: explore the driver until nothing new appears."""
    begun = process_time()  # the proof itself has no clock
    proof = prove(open_items=open_items)
    seconds = process_time() - begun
    if json:
        typer.echo(_json(proof, seconds))
    else:
        _print(proof, seconds)
    if not proof.holds:
        raise typer.Exit(REFUTED)


def _json(proof: Proof, seconds: float) -> bytes:
    figures: dict[str, object] = {"holds": proof.holds, **attrs.asdict(proof), "seconds": round(seconds, 3)}
    if proof.counterexample is not None:
        figures["counterexample"] = {
            "path": [repr(delta) for delta in proof.counterexample.path],
            "faults": proof.counterexample.faults,
        }
    return orjson.dumps(figures, option=orjson.OPT_INDENT_2)


def _print(proof: Proof, seconds: float) -> None:
    console = Console(highlight=False)
    table = Table("lifecycle", "edges", "fired", "never fired", box=None, pad_edge=False)
    for name, seen in proof.coverage.items():
        table.add_row(name, str(seen.edges), str(seen.edges - len(seen.unfired)), Text(", ".join(seen.unfired)))
    console.print(table)
    console.print(Text("\n".join(["", *_verdict(proof, seconds)])), soft_wrap=True)


def _verdict(proof: Proof, seconds: float) -> Iterator[str]:
    yield f"{proof.states:,} states, up to {proof.inputs} inputs in each, {proof.transitions:,} transitions"
    yield f"{proof.streams:,} different streams of {proof.events:,} events in all, judged in {seconds:.1f} s of processor time"
    if proof.counterexample is not None:
        yield "a counterexample:"
        yield from (f"    {delta!r}" for delta in proof.counterexample.path)
        yield from proof.counterexample.faults
    elif not proof.holds:
        yield "some edges never fired"
    else:
        yield "every stream is legal, and every edge fired"
