"""The walk through the life of the owner of a response in the background, with all that its run and its store may do.

At most one write is on its way, the response is ended when its run is over and not before, and every way comes to an end, where
those go on who wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from attrs import frozen

from interlock.fsm.background import BACKGROUND, BackgroundEffect, BackgroundTrigger
from interlock.fsm.proof.walk import Walk, found
from interlock.fsm.table import State, Table

__all__ = ["walk_background"]

_ANSWERS: Final = frozenset({BackgroundTrigger.WRITTEN, BackgroundTrigger.RETRY, BackgroundTrigger.LOSE})
"""What a store may make of a write."""
_MADE: Final = frozenset({BackgroundTrigger.GROW, BackgroundTrigger.END})
"""What a run does until it is over."""
_WRITES: Final = frozenset({BackgroundEffect.WRITE, BackgroundEffect.FINISH})


@frozen
class _Owner:
    """An owner, with what is around it.

    Args:
        state: Where its table stands.
        under_way: Whether a write is on its way.
        over: Whether the run has made its last event.
        released: Whether those go on who wait for it.
    """

    state: State[BackgroundTrigger, BackgroundEffect]
    under_way: bool = False
    over: bool = False
    released: bool = False

    def possible(self) -> Iterator[BackgroundTrigger]:
        """Yield what can happen: a store answers what is on its way, and a run that is over makes nothing."""
        for trigger in self.state.rows:
            if self.under_way if trigger in _ANSWERS else not (self.over and trigger in _MADE):
                yield trigger

    def after(self, trigger: BackgroundTrigger) -> _Owner:
        """Return the owner after a trigger."""
        dest, effects = self.state.rows[trigger]
        under_way = (self.under_way and trigger not in _ANSWERS) or not _WRITES.isdisjoint(effects)
        over = self.over or trigger is BackgroundTrigger.END
        return _Owner(dest, under_way, over, self.released or BackgroundEffect.RELEASE in effects)

    def wrong(self, trigger: BackgroundTrigger, after: _Owner) -> Iterator[str]:
        """Yield what is wrong with a trigger that led to another owner."""
        effects = self.state.rows[trigger][1]
        if self.under_way and trigger not in _ANSWERS and not _WRITES.isdisjoint(effects):
            yield "a second write begins before the first is answered"
        if BackgroundEffect.FINISH in effects and not after.over:
            yield "the response is ended before its run is over"
        if after.under_way is not (BackgroundTrigger.WRITTEN in after.state.rows):
            yield "what a store answers is not what is waited for"
        if after.over and not after.under_way and after.state.rows:
            yield "the run is over, and nothing more happens"
        if after.released is bool(after.state.rows):
            yield "those who wait for the end do not go on with it"


def walk_background(table: Table[BackgroundTrigger, BackgroundEffect] = BACKGROUND) -> Walk:
    """Walk through the life of the owner of a response in the background.

    Args:
        table: What is walked; another than the declared one only to show that the walk finds what is wrong.
    """
    waiting = deque([_Owner(table.states[table.initial])])
    seen = {*waiting}
    fired: set[tuple[str, BackgroundTrigger]] = set()
    faults: list[str] = []
    while waiting:
        owner = waiting.popleft()
        for trigger in owner.possible():
            fired.add((owner.state.name, trigger))
            after = owner.after(trigger)
            faults += [f"{owner.state.name}/{trigger}: {fault}" for fault in owner.wrong(trigger, after)]
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return found(table, len(seen), fired, faults)
