"""The proof that `ResponseDriver` cannot emit events in an illegal order: it explores the states of the real driver.

The explorer feeds the driver every delta in every reachable state with at most two open items. It ignores ids, counters and
texts, so these states are finitely many. The expectation compares the events of each delta with the effects that it must have.
After each delta that changes something, the explorer ends the stream, and `interlock.verify.oracle` checks the stream against
docs/evidence/rules.md. docs/evidence/proof.md shows why these states suffice, and states the limits of the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

from attrs import frozen

from interlock.events.items import ItemKind
from interlock.fsm.errors import DeclarationError
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.lifecycles import DECLARED, Lifecycles
from interlock.verify.expectation import WITH_ARGUMENTS
from interlock.verify.explorer import Counterexample, Explorer, Fired
from interlock.verify.fault_injection import faults_of
from interlock.verify.oracle.grammar import ORDERS, RUNNING

__all__ = ["Counterexample", "Coverage", "Proof", "prove"]

S = TypeVar("S")

OPEN_ITEMS: Final = 2
"""The maximum number of open items in an explored state; docs/evidence/proof.md shows that two suffice."""


@frozen
class Coverage:
    """How many edges a lifecycle has, and which of them never fired."""

    edges: int
    unfired: tuple[str, ...]
    """Each edge as `state/trigger`."""


@frozen
class Proof:
    """The result of an exploration, which ends at the first counterexample."""

    states: int
    inputs: int
    """The maximum number of deltas fed in one state."""
    transitions: int
    streams: int
    """How many different streams the oracle checked."""
    events: int
    """How many events these streams have."""
    coverage: Mapping[str, Coverage]
    """The coverage of each lifecycle, by its name."""
    counterexample: Counterexample | None
    faults: tuple[str, ...]
    """The faults that fault injection found, each with its path."""

    @property
    def holds(self) -> bool:
        """Whether there is no counterexample and no fault, and every edge fired."""
        return self.counterexample is None and not self.faults and not any(each.unfired for each in self.coverage.values())


def prove(
    lifecycles: Lifecycles = DECLARED,
    *,
    kinds: Collection[ItemKind] = tuple(DECLARED.items),
    open_items: int = OPEN_ITEMS,
    arguments: bool = True,
    progress: Callable[[int, int], None] = lambda _explored, _discovered: None,
) -> Proof:
    """Explore the driver, and judge the stream of every explored state and delta.

    Args:
        lifecycles: The lifecycles of the driver.
        kinds: The kinds of items to open.
        open_items: The maximum number of open items in an explored state.
        arguments: Whether to explore calls with arguments of every JSON kind too, which takes most of the time.
        progress: Called for each state, with the number of states explored so far and the number discovered so far.

    Raises:
        DeclarationError: The oracle lacks a row for a kind; the message names every missing row.
    """
    if missing := [row for kind in kinds for row in _missing_rows(lifecycles.items[kind])]:
        raise DeclarationError("\n".join(missing))
    explorer = Explorer(lifecycles, kinds, open_items)
    explorer.run(progress)
    callers = [kind for kind in kinds if kind in WITH_ARGUMENTS]
    if arguments and callers and explorer.counterexample is None:
        explorer.merge(_explore_arguments(lifecycles, callers))
    faults = () if explorer.counterexample else tuple(faults_of(lifecycles, explorer.paths))
    coverage = {"response": _coverage(lifecycles.response, explorer.fired)}
    coverage.update((kind, _coverage(lifecycles.items[kind], explorer.fired)) for kind in kinds)
    return Proof(
        len(explorer.states),
        explorer.inputs,
        explorer.transitions,
        len(explorer.streams),
        explorer.events,
        coverage,
        explorer.counterexample,
        faults,
    )


def _explore_arguments(lifecycles: Lifecycles, kinds: Collection[ItemKind]) -> Explorer:
    """Explore one item at a time, with arguments of every JSON kind, and tell states apart by the arguments of all calls."""
    explorer = Explorer(lifecycles, kinds, 1, tells_arguments=True)
    explorer.run(lambda _explored, _discovered: None)
    return explorer


def _missing_rows(lifecycle: Lifecycle[S]) -> Iterator[str]:
    """Yield a sentence for each row that the oracle lacks for a kind of item."""
    kind = lifecycle.name
    runs = any("run" in state.rows for state in lifecycle.states.values())
    for is_missing, table, row in (
        (kind not in ORDERS, "ORDERS" if len(lifecycle.edges) > 1 else "WHOLE", f"row for '{kind}'"),
        (runs and kind not in RUNNING, "ORDERS", f"`>` before the events of the tool of '{kind}'"),
    ):
        if is_missing:
            yield f"{table} in verify/oracle/orders.py has no {row}"


def _coverage(lifecycle: Lifecycle[S], fired: AbstractSet[Fired]) -> Coverage:
    unfired = [f"{e.source}/{e.trigger}" for e in lifecycle.edges if (lifecycle.name, e.source, e.trigger) not in fired]
    return Coverage(len(lifecycle.edges), tuple(unfired))
