"""A state table with checks for the framing.

Effects fit the open item, each turn ends with every item closed or left to the driver, and no text is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from attrs import frozen

from interlock.fsm.table import State, Table
from interlock.parsers.families.alphabet import Effect, Trigger


class Place(Enum):
    """What is open: an item, the value of a key in a call, or nothing."""

    NOTHING = "nothing"
    REASONING = "reasoning"
    MESSAGE = "a message"
    JSON = "a call with JSON"
    KEYS = "a call with keys"
    VALUE = "a value"


class Condition(NamedTuple):
    """What is open, and whether text is pending because it may be framing."""

    place: Place
    pending: bool


@frozen
class _Rule:
    """The condition that an effect requires, and the condition after it.

    If `pending` is None, it does not matter before the effect; `result` and `leaves_pending` of None change nothing.
    """

    places: frozenset[Place]
    result: Place | None = None
    pending: bool | None = None
    leaves_pending: bool | None = None

    def after(self, before: Condition) -> Condition | None:
        """Return the condition after the effect; None if the effect is not allowed there."""
        if before.place not in self.places or self.pending not in {None, before.pending}:
            return None
        return Condition(self.result or before.place, before.pending if self.leaves_pending is None else self.leaves_pending)


_P: Final = Place
_E: Final = Effect
_ANYWHERE: Final = frozenset(Place)
_OUTSIDE: Final = frozenset({_P.NOTHING, _P.REASONING, _P.MESSAGE})
_SPEAKING: Final = frozenset({_P.REASONING, _P.MESSAGE})
_RESTING: Final = frozenset({_P.NOTHING, _P.KEYS})
_NOWHERE: Final = frozenset({_P.NOTHING})
_WRITING: Final = frozenset({_P.REASONING, _P.MESSAGE, _P.JSON})
_JSON: Final = frozenset({_P.JSON})
_KEYS: Final = frozenset({_P.KEYS})
_VALUE: Final = frozenset({_P.VALUE})

_RULES: Final = {
    _E.HOLD: _Rule(_ANYWHERE - _VALUE, leaves_pending=True),
    _E.NOTE: _Rule(_ANYWHERE - _VALUE, leaves_pending=True),
    _E.SPILL: _Rule(frozenset({_P.NOTHING, _P.MESSAGE}), _P.MESSAGE, pending=True, leaves_pending=False),
    _E.RETHINK: _Rule(frozenset({_P.NOTHING, _P.REASONING}), _P.REASONING, pending=True, leaves_pending=False),
    _E.AGAIN: _Rule(_ANYWHERE, pending=False),
    _E.REST: _Rule(_RESTING, pending=False),
    _E.WRITE: _Rule(_WRITING, pending=False),
    _E.REASON: _Rule(_NOWHERE, _P.REASONING, pending=False),
    _E.SPEAK: _Rule(_NOWHERE, _P.MESSAGE, pending=False),
    _E.CLOSE: _Rule(_SPEAKING, _P.NOTHING, pending=False),
    _E.LEAVE: _Rule(_SPEAKING, _P.NOTHING, pending=False),
    _E.COMMIT: _Rule(_OUTSIDE, _P.JSON, pending=True, leaves_pending=False),
    _E.ENLIST: _Rule(_OUTSIDE, _P.KEYS, pending=True, leaves_pending=False),
    _E.EXPRESS: _Rule(_OUTSIDE, _P.JSON, pending=True, leaves_pending=False),
    _E.ARGUE: _Rule(_JSON, pending=False),
    _E.DEEPEN: _Rule(_JSON, pending=False),
    _E.RISE: _Rule(_JSON, pending=False),
    _E.ADMIT: _Rule(_JSON, leaves_pending=False),
    _E.ENTER: _Rule(_KEYS, _P.VALUE, pending=True),
    _E.ADD: _Rule(_VALUE, pending=False),
    _E.SET: _Rule(_VALUE, _P.KEYS, pending=False),
    _E.STRAY: _Rule(_KEYS, pending=False),
    _E.KEEP: _Rule(_KEYS, pending=False),
    _E.SPOIL: _Rule(_KEYS, pending=True, leaves_pending=False),
    _E.END: _Rule(_JSON | _KEYS, _P.NOTHING, pending=False),
    _E.QUIT: _Rule(_JSON | _KEYS | _VALUE, _P.NOTHING, pending=False),
    _E.FORGET: _Rule(_ANYWHERE, leaves_pending=False),
}
_ENDS: Final = (Trigger.FINISH, Trigger.CUT)
_TAKING: Final = frozenset({_E.HOLD, _E.NOTE, _E.REST, _E.WRITE, _E.REASON, _E.SPEAK, _E.ADD, _E.STRAY, _E.KEEP, _E.AGAIN})
"""Effects that use the text of a trigger, or read it again."""
_FRAMING: Final = frozenset({_E.FORGET, _E.CLOSE, _E.COMMIT, _E.ENLIST, _E.EXPRESS, _E.ENTER, _E.SET, _E.END})
"""Effects that treat a marker as framing; they may drop its text."""


class Framing(Table[Trigger, Effect]):
    """The state table of a framing; raises `DeclarationError` if a check fails."""

    def __attrs_post_init__(self) -> None:
        """Compile and check the edges."""
        super().__attrs_post_init__()
        _check_order(self)
        _check_texts(self)
        _check_ends(self)
        _check_conditions(self)


def _check_order(framing: Framing) -> None:
    """Refuse an effect that an edge has twice, effects after `again`, and endless loops."""
    for state in framing.states.values():
        for trigger, (_, effects) in state.rows.items():
            if len(set(effects)) < len(effects):
                raise framing.refusal(f"{trigger!s} in state {state.name!r} has an effect twice")
            if Effect.AGAIN in effects[:-1]:
                raise framing.refusal(f"{trigger!s} in state {state.name!r} has effects after 'again'")
            if any(later is state for later in _reread(state, trigger)):
                raise framing.refusal(f"{trigger!s} in state {state.name!r} is read again forever")


def _check_texts(framing: Framing) -> None:
    """Refuse an edge that loses the text of its trigger (rule R20); only markers and white space may be framing."""
    for state in framing.states.values():
        for trigger, (_, effects) in state.rows.items():
            framed = trigger not in {Trigger.TEXT, Trigger.WORD} and not _FRAMING.isdisjoint(effects)
            if trigger not in _ENDS and not framed and _TAKING.isdisjoint(effects):
                raise framing.refusal(f"{trigger!s} in state {state.name!r} loses its text")


def _reread(state: State[Trigger, Effect], trigger: Trigger) -> Iterator[State[Trigger, Effect]]:
    """Yield each further state in which a trigger is read again, until one repeats."""
    seen: list[State[Trigger, Effect]] = []
    while Effect.AGAIN in state.rows[trigger][1]:
        state, _ = state.rows[trigger]
        if state in seen:
            return
        seen.append(state)
        yield state


def _check_conditions(framing: Framing) -> None:
    """Refuse an effect where a reachable condition rules it out, and a turn that may begin with something open or pending."""
    conditions: dict[str, set[Condition]] = {framing.initial: {Condition(Place.NOTHING, pending=False)}}
    waiting = [(framing.initial, condition) for condition in conditions[framing.initial]]
    while waiting:
        name, before = waiting.pop()
        for dest, after in _steps(framing, framing.states[name], before):
            if after not in conditions.setdefault(dest, set()):
                conditions[dest].add(after)
                waiting.append((dest, after))
    if len(conditions[framing.initial]) > 1:
        raise framing.refusal(f"state {framing.initial!r} is entered with an open item or pending text")


def _steps(framing: Framing, state: State[Trigger, Effect], before: Condition) -> Iterable[tuple[str, Condition]]:
    """Yield the state and condition after each edge of a state."""
    steps: dict[tuple[str, tuple[Effect, ...]], Condition] = {}
    for trigger, (dest, effects) in state.rows.items():
        if (dest.name, effects) not in steps:
            steps[dest.name, effects] = _apply(framing, f"{trigger!s} in state {state.name!r}", effects, before)
    return ((dest, condition) for (dest, _), condition in steps.items())


def _apply(framing: Framing, edge: str, effects: Iterable[Effect], before: Condition) -> Condition:
    for effect in effects:
        after = _RULES[effect].after(before)
        if after is None:
            amount = "some" if before.pending else "no"
            raise framing.refusal(
                f"{edge} has the effect {effect.value!r} where {before.place.value} is open and {amount} text is pending"
            )
        before = after
    return before


def _check_ends(framing: Framing) -> None:
    """Refuse an end of the turn that neither leads back to the initial state nor is read again."""
    for state in framing.states.values():
        for trigger in _ENDS:
            dest, effects = state.rows[trigger]
            if Effect.AGAIN not in effects and dest.name != framing.initial:
                raise framing.refusal(f"{trigger!s} in state {state.name!r} does not lead to {framing.initial!r}")
