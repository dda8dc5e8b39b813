"""The walk through the life of a stored response: one owner, one end, and nobody who waits without being woken."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from interlock.fsm.proof.walk import Walk, found
from interlock.fsm.stored import STORED, StoredEffect, StoredTrigger
from interlock.fsm.table import State, Table

__all__ = ["walk_stored"]

_Place: TypeAlias = tuple[State[StoredTrigger, StoredEffect], bool, bool]
"""A state, whether somebody has the lease there, and whether the response has had an owner and has ended."""

_HEARD = (StoredEffect.LOG, StoredEffect.FLAG, StoredEffect.REMOVE, StoredEffect.RELEASE)
"""What those who watch are woken for."""


def walk_stored(table: Table[StoredTrigger, StoredEffect] = STORED) -> Walk:
    """Walk through the life of a stored response.

    Args:
        table: What is walked; another than the declared one only to show that the walk finds what is wrong.
    """
    waiting: deque[_Place] = deque([(table.states[table.initial], False, False)])
    seen = {*waiting}
    fired: set[tuple[str, StoredTrigger]] = set()
    faults: list[str] = []
    while waiting:
        state, owned, over = waiting.popleft()
        for trigger, (dest, effects) in state.rows.items():
            fired.add((state.name, trigger))
            faults += [f"{state.name}/{trigger}: {fault}" for fault in _wrong(effects, owned=owned, over=over)]
            held = (owned or StoredEffect.TAKE in effects) and StoredEffect.RELEASE not in effects
            after = dest, held, over or StoredEffect.RELEASE in effects
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return found(table, len(seen), fired, faults)


def _wrong(effects: Sequence[StoredEffect], *, owned: bool, over: bool) -> Iterator[str]:
    """Yield what is wrong with the effects of an edge, in the order of the walk's rules."""
    if not owned and {StoredEffect.LOG, StoredEffect.EXTEND}.intersection(effects):
        yield "somebody writes without a lease"
    if over and StoredEffect.LOG in effects:
        yield "events are appended after the end"
    if owned and StoredEffect.KEEP in effects and StoredEffect.RELEASE not in effects:
        yield "the response is kept as it ended, and its lease goes on"
    if owned and StoredEffect.WAKE not in effects and set(_HEARD).intersection(effects):
        yield "nobody is woken"
