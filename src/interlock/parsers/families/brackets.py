"""What a framing must be beyond a right table: its effects in order, nothing left open at the end of a turn, and no endless loop.

It knows what each effect needs and what it leaves: which item is open, and whether something is held. It is checked once, when
a framing is declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from attrs import frozen

from interlock.fsm.table import State, Table
from interlock.parsers.families.alphabet import Effect, Trigger

__all__ = ["Framing"]


class Place(Enum):
    """What is open."""

    NOTHING = "nothing"
    REASONING = "reasoning"
    MESSAGE = "a message"
    JSON = "a call with JSON"
    KEYS = "a call with keys"
    VALUE = "a value"


class Standing(NamedTuple):
    """Where a text stands.

    Args:
        place: What is open.
        held: Whether something is held that may be framing.
    """

    place: Place
    held: bool


@frozen
class _Need:
    """What an effect needs, and what it leaves.

    Args:
        places: What may be open before.
        leaves: What is open after; the same if nothing is said.
        held: Whether something must be held before it, or must not; None if either may be.
        holds: Whether something is held after it; as before, if nothing is said.
    """

    places: frozenset[Place]
    leaves: Place | None = None
    held: bool | None = None
    holds: bool | None = None

    def after(self, before: Standing) -> Standing | None:
        """Return where the text stands after the effect; None if it may not come there."""
        if before.place not in self.places or self.held not in {None, before.held}:
            return None
        return Standing(self.leaves or before.place, before.held if self.holds is None else self.holds)


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

_NEEDS: Final = {
    _E.HOLD: _Need(_ANYWHERE - _VALUE, holds=True),
    _E.NOTE: _Need(_ANYWHERE - _VALUE, held=True),
    _E.SPILL: _Need(frozenset({_P.NOTHING, _P.MESSAGE}), _P.MESSAGE, held=True, holds=False),
    _E.RETHINK: _Need(frozenset({_P.NOTHING, _P.REASONING}), _P.REASONING, held=True, holds=False),
    _E.AGAIN: _Need(_ANYWHERE, held=False),
    _E.REST: _Need(_RESTING, held=False),
    _E.WRITE: _Need(_WRITING, held=False),
    _E.REASON: _Need(_NOWHERE, _P.REASONING, held=False),
    _E.SPEAK: _Need(_NOWHERE, _P.MESSAGE, held=False),
    _E.CLOSE: _Need(_SPEAKING, _P.NOTHING, held=False),
    _E.LEAVE: _Need(_SPEAKING, _P.NOTHING, held=False),
    _E.COMMIT: _Need(_OUTSIDE, _P.JSON, held=True, holds=False),
    _E.ENLIST: _Need(_OUTSIDE, _P.KEYS, held=True, holds=False),
    _E.ARGUE: _Need(_JSON, held=False),
    _E.DEEPEN: _Need(_JSON, held=False),
    _E.RISE: _Need(_JSON, held=False),
    _E.ADMIT: _Need(_JSON, holds=False),
    _E.ENTER: _Need(_KEYS, _P.VALUE, held=True),
    _E.ADD: _Need(_VALUE, held=False),
    _E.SET: _Need(_VALUE, _P.KEYS, held=False),
    _E.STRAY: _Need(_KEYS, held=False),
    _E.KEEP: _Need(_KEYS, held=False),
    _E.SPOIL: _Need(_KEYS, held=True, holds=False),
    _E.END: _Need(_JSON | _KEYS, _P.NOTHING, held=False),
    _E.QUIT: _Need(_JSON | _KEYS | _VALUE, _P.NOTHING, held=False),
    _E.FORGET: _Need(_ANYWHERE, holds=False),
}
_ENDS: Final = (Trigger.FINISH, Trigger.CUT)
_TAKING: Final = frozenset({_E.HOLD, _E.NOTE, _E.REST, _E.WRITE, _E.REASON, _E.SPEAK, _E.ADD, _E.STRAY, _E.KEEP, _E.AGAIN})
"""What takes the text of a trigger."""
_FRAMING: Final = frozenset({_E.FORGET, _E.CLOSE, _E.COMMIT, _E.ENLIST, _E.ENTER, _E.SET, _E.END})
"""What a marker may ask for that is no text to anybody."""


class Framing(Table[Trigger, Effect]):
    """A declared framing.

    Raises:
        DeclarationError: The declaration is wrong; the message names the state and the trigger.
    """

    def __attrs_post_init__(self) -> None:
        """Compile the edges and check them, as a table and as a framing."""
        super().__attrs_post_init__()
        _check_order(self)
        _check_texts(self)
        _check_ends(self)
        _check_standings(self)


def _check_order(framing: Framing) -> None:
    """Refuse an effect twice or after `again`, and input that is read again for ever."""
    for state in framing.states.values():
        for trigger, (_, effects) in state.rows.items():
            if len(set(effects)) < len(effects):
                raise framing.refusal(f"{trigger!s} in state {state.name!r} asks for the same twice")
            if Effect.AGAIN in effects[:-1]:
                raise framing.refusal(f"{trigger!s} in state {state.name!r} goes on after it was to be read again")
            if any(later is state for later in _reread(state, trigger)):
                raise framing.refusal(f"{trigger!s} in state {state.name!r} is read again for ever")


def _check_texts(framing: Framing) -> None:
    """Refuse an edge that loses the text which fires it (rule R20); only markers and white space may be framing."""
    for state in framing.states.values():
        for trigger, (_, effects) in state.rows.items():
            framed = trigger not in {Trigger.TEXT, Trigger.WORD} and not _FRAMING.isdisjoint(effects)
            if trigger not in _ENDS and not framed and _TAKING.isdisjoint(effects):
                raise framing.refusal(f"{trigger!s} in state {state.name!r} loses its text")


def _reread(state: State[Trigger, Effect], trigger: Trigger) -> Iterator[State[Trigger, Effect]]:
    """Yield the states in which a trigger is read again, each of them once."""
    seen: list[State[Trigger, Effect]] = []
    while Effect.AGAIN in state.rows[trigger][1]:
        state, _ = state.rows[trigger]
        if state in seen:
            return
        seen.append(state)
        yield state


def _check_standings(framing: Framing) -> None:
    """Refuse an effect that may not come where a text may stand in its state, and a turn that may begin with something open."""
    standings: dict[str, set[Standing]] = {framing.initial: {Standing(Place.NOTHING, held=False)}}
    waiting = [(framing.initial, standing) for standing in standings[framing.initial]]
    while waiting:
        name, before = waiting.pop()
        for dest, after in _steps(framing, framing.states[name], before):
            if after not in standings.setdefault(dest, set()):
                standings[dest].add(after)
                waiting.append((dest, after))
    if len(standings[framing.initial]) > 1:
        raise framing.refusal(f"state {framing.initial!r} is entered with something open or held")


def _steps(framing: Framing, state: State[Trigger, Effect], before: Standing) -> Iterable[tuple[str, Standing]]:
    """Yield where a text stands after each edge of a state, and in which state it is then."""
    steps: dict[tuple[str, tuple[Effect, ...]], Standing] = {}
    for trigger, (dest, effects) in state.rows.items():
        if (dest.name, effects) not in steps:
            steps[dest.name, effects] = _walk(framing, f"{trigger!s} in state {state.name!r}", effects, before)
    return ((dest, standing) for (dest, _), standing in steps.items())


def _walk(framing: Framing, edge: str, effects: Iterable[Effect], before: Standing) -> Standing:
    for effect in effects:
        after = _NEEDS[effect].after(before)
        if after is None:
            held = "something" if before.held else "nothing"
            raise framing.refusal(f"{edge} asks to {effect.value} where {before.place.value} is open and {held} is held")
        before = after
    return before


def _check_ends(framing: Framing) -> None:
    """Refuse an end of a turn that does not lead back to where turns start, unless it is read again."""
    for state in framing.states.values():
        for trigger in _ENDS:
            dest, effects = state.rows[trigger]
            if Effect.AGAIN not in effects and dest.name != framing.initial:
                raise framing.refusal(f"{trigger!s} in state {state.name!r} does not lead to {framing.initial!r}")
