"""The command `interlock verify`: the figures of the proof, for a terminal or for a program.

It measures the processor time, which does not depend on what else the machine does; the proof itself is `interlock.fsm.proof`.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import TYPE_CHECKING, Annotated, Final

import attrs
import orjson
import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interlock.fsm.proof import Coverage, Proof
    from interlock.fsm.proof.process_walks import Walk

REFUTED: Final = 1
"""The exit status when the proof fails."""


def verify(
    *,
    json: Annotated[bool, typer.Option("--json", help="Write the figures as JSON.")] = False,
    open_items: Annotated[
        int | None,
        typer.Option(
            "--open", min=1, metavar="N", help="Explore states with up to N items open at once, instead of as many as are needed."
        ),
    ] = None,
) -> None:
    """Prove that no illegal order of events is possible.

    The driver is explored, with every input in every state, until nothing new appears; so are the processes around it.
    """
    from rich.console import Console

    from interlock.fsm.proof import OPEN_ITEMS, prove
    from interlock.fsm.proof.process_walks import WALKS

    start = process_time()  # the proof itself has no clock
    with Console(stderr=True).status("Exploring the driver") as status:  # which is seen on a terminal only
        proof = prove(
            open_items=open_items or OPEN_ITEMS,
            progress=lambda explored, known: status.update(f"Exploring the driver: {explored:,} of {known:,} known states"),
        )
        walks: dict[str, Walk] = {}
        for name, walk in WALKS.items():
            status.update(f"Exploring the process {name}")
            walks[name] = walk()
    seconds = process_time() - start
    if json:
        typer.echo(_json(proof, walks, seconds))
    else:
        _print(proof, walks, seconds)
    if not (proof.holds and all(walk.holds for walk in walks.values())):
        raise typer.Exit(REFUTED)


def _json(proof: Proof, walks: Mapping[str, Walk], seconds: float) -> bytes:
    holds = proof.holds and all(walk.holds for walk in walks.values())
    figures: dict[str, object] = {
        "holds": holds,
        **attrs.asdict(proof),
        "walks": {name: attrs.asdict(walk) for name, walk in walks.items()},
        "seconds": round(seconds, 3),
    }
    if proof.counterexample is not None:
        figures["counterexample"] = {
            "path": [repr(delta) for delta in proof.counterexample.path],
            "faults": proof.counterexample.faults,
        }
    return orjson.dumps(figures, option=orjson.OPT_INDENT_2)


def _print(proof: Proof, walks: Mapping[str, Walk], seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table("lifecycle", "edges", "fired", "never fired", box=None, pad_edge=False)
    covered: dict[str, Coverage | Walk] = {**proof.coverage, **walks}
    for name, each in covered.items():
        table.add_row(name, str(each.edges), str(each.edges - len(each.unfired)), Text(", ".join(each.unfired)))
    console.print(table)
    console.print(Text("\n".join(["", *_verdict(proof, walks, seconds)])), soft_wrap=True)


def _verdict(proof: Proof, walks: Mapping[str, Walk], seconds: float) -> Iterator[str]:
    yield f"{proof.states:,} states, up to {proof.inputs} inputs in each, {proof.transitions:,} transitions"
    yield f"{proof.streams:,} different streams of {proof.events:,} events in all, judged in {seconds:.1f} s of processor time"
    faults = [f"{name}: {fault}" for name, walk in walks.items() for fault in walk.faults]
    if proof.counterexample is not None:
        yield "a counterexample:"
        yield from (f"    {delta!r}" for delta in proof.counterexample.path)
        yield from proof.counterexample.faults
    elif faults or proof.faults:
        yield from (*faults, *proof.faults)
    elif not (proof.holds and all(walk.holds for walk in walks.values())):
        yield "some edges never fired"
    else:
        yield "every stream is legal, and every edge fired"
