"""The proof that an illegal order of events cannot happen: the real driver, explored until nothing new appears.

The driver is fed every delta of the vocabulary in every abstract state that can be reached. After each of them the
stream is ended and judged twice: by the independent oracle, which knows the rules of a stream, and by an account of what
was told, which knows what must be seen of it. docs/proof.md says what this proves, and what it does not.

    explorer         the exploration
    inputs           the deltas that it feeds
    expectation      the second judge: what must be seen of the deltas
    visible_effects  what a stretch of events shows
    fault_injection  what the driver is handed raises, in each edge
    process_walks    the walks through the tables of `interlock.fsm.processes`
    table_mutations  lifecycles with one edge changed, which the proof must find
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

from attrs import frozen

from interlock.events.items import ItemKind
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.lifecycles import DECLARED, Lifecycles
from interlock.fsm.proof.explorer import Counterexample, Explorer, Fired
from interlock.fsm.proof.fault_injection import faults_of

__all__ = ["Counterexample", "Coverage", "Proof", "prove"]

S = TypeVar("S")

OPEN_ITEMS: Final = 2
"""How many items are open at once in the states that are explored; docs/proof.md says why two are enough."""


@frozen
class Coverage:
    """How much of a lifecycle was seen to happen.

    Args:
        edges: How many edges it has.
        unfired: Those that never fired, as `state/trigger`.
    """

    edges: int
    unfired: tuple[str, ...]


@frozen
class Proof:
    """What an exploration found.

    Args:
        states: The abstract states that were reached and explored.
        inputs: How many deltas were told in the state that has the most of them.
        transitions: How many deltas were told in all.
        streams: The different streams that were judged.
        events: The events of those streams.
        coverage: What was seen of each lifecycle, by its name.
        counterexample: The shortest path on which something is wrong; the exploration ends there.
        faults: What is wrong where the writer, the clock or a maker of ids or late fields raises, each with its path.
    """

    states: int
    inputs: int
    transitions: int
    streams: int
    events: int
    coverage: Mapping[str, Coverage]
    counterexample: Counterexample | None
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong and every edge fired."""
        return self.counterexample is None and not self.faults and not any(seen.unfired for seen in self.coverage.values())


def prove(
    lifecycles: Lifecycles = DECLARED,
    *,
    kinds: Collection[ItemKind] = tuple(DECLARED.items),
    open_items: int = OPEN_ITEMS,
    progress: Callable[[int, int], None] = lambda _explored, _known: None,
) -> Proof:
    """Explore the driver, and judge every stream that it can give.

    Args:
        lifecycles: What the driver composes.
        kinds: The kinds of items that are opened; by default all.
        open_items: How many items may be open in a state that is explored.
        progress: Called with how many states were explored, and how many are known, again and again.
    """
    explorer = Explorer(lifecycles, kinds, open_items)
    explorer.run(progress)
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


def _coverage(lifecycle: Lifecycle[S], fired: AbstractSet[Fired]) -> Coverage:
    unfired = [f"{e.source}/{e.trigger}" for e in lifecycle.edges if (lifecycle.name, e.source, e.trigger) not in fired]
    return Coverage(len(lifecycle.edges), tuple(unfired))
