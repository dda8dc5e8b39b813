"""A state table with checks for the framing.

Effects fit the open item, each turn ends with every item closed or left to the driver, and no text is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from attrs import evolve, frozen

from interlock.fsm.table import Edge, State, Table
from interlock.parsers.families.triggers import Effect, Trigger


class Openness(Enum):
    """What is open: an item, the value of a key in a call, or nothing."""

    NOTHING = "nothing"
    REASONING = "reasoning"
    MESSAGE = "a message"
    JSON = "a call with JSON"
    KEYS = "a call with keys"
    VALUE = "a value"


class Condition(NamedTuple):
    """What is open, and whether text is pending because it may be framing."""

    place: Openness
    pending: bool


@frozen
class _EffectRule:
    """The condition that an effect requires, and the condition after it.

    If `pending` is None, it does not matter before the effect; `result` and `leaves_pending` of None change nothing.
    """

    places: frozenset[Openness]
    result: Openness | None = None
    pending: bool | None = None
    leaves_pending: bool | None = None

    def after(self, before: Condition) -> Condition | None:
        """Return the condition after the effect; None if the effect is not allowed there."""
        if before.place not in self.places or self.pending not in {None, before.pending}:
            return None
        return Condition(self.result or before.place, before.pending if self.leaves_pending is None else self.leaves_pending)


_P: Final = Openness
_E: Final = Effect
_ANYWHERE: Final = frozenset(Openness)
_CALLS: Final = frozenset({_P.JSON, _P.KEYS})
_OUTSIDE: Final = frozenset({_P.NOTHING, _P.REASONING, _P.MESSAGE})
_RESTING: Final = frozenset({_P.NOTHING, _P.KEYS})
_THINKING: Final = frozenset({_P.NOTHING, _P.REASONING})
_SPEAKING: Final = frozenset({_P.NOTHING, _P.MESSAGE})
_JSON: Final = frozenset({_P.JSON})
_KEYS: Final = frozenset({_P.KEYS})
_VALUE: Final = frozenset({_P.VALUE})

_RULES: Final = {
    _E.HOLD: _EffectRule(_ANYWHERE - _VALUE, leaves_pending=True),
    _E.SPILL: _EffectRule(_ANYWHERE - _VALUE, leaves_pending=False),
    _E.AGAIN: _EffectRule(_ANYWHERE),
    _E.DROP: _EffectRule(_ANYWHERE, leaves_pending=False),
    _E.SPACE: _EffectRule(_RESTING, pending=False),
    _E.REASON: _EffectRule(_THINKING, _P.REASONING, pending=False),
    _E.SPEAK: _EffectRule(_SPEAKING, _P.MESSAGE, pending=False),
    _E.OPEN: _EffectRule(_OUTSIDE, _P.JSON, pending=True, leaves_pending=False),
    _E.WRITE: _EffectRule(_JSON, pending=False),
    _E.ENTER: _EffectRule(_KEYS, _P.VALUE, pending=True, leaves_pending=False),
    _E.ADD: _EffectRule(_VALUE, pending=False),
    _E.SET: _EffectRule(_VALUE, _P.KEYS, pending=False),
    _E.STRAY: _EffectRule(_KEYS, pending=False),
    _E.CLOSE: _EffectRule(_OUTSIDE | _CALLS, _P.NOTHING, leaves_pending=False),
    _E.LEAVE: _EffectRule(_ANYWHERE, _P.NOTHING, leaves_pending=False),
}
_OPEN_WITH_KEYS: Final = _EffectRule(_OUTSIDE, _P.KEYS, pending=True, leaves_pending=False)
_ENDS: Final = (Trigger.FINISH, Trigger.CUT)
_TAKING: Final = frozenset({_E.HOLD, _E.AGAIN, _E.SPACE, _E.REASON, _E.SPEAK, _E.WRITE, _E.ADD, _E.STRAY})
"""Effects that use the text of a trigger, or read it again."""
_FRAMING: Final = frozenset({_E.DROP, _E.OPEN, _E.ENTER, _E.SET, _E.CLOSE})
"""Effects that treat a marker as framing; they may drop its text."""


class Framing(Table[Trigger, Effect]):
    """The state table of a framing; a trigger without a row has the row of `text`.

    Raises:
        DeclarationError: A check fails.
    """

    def _expand(self) -> Iterator[Edge[Trigger, Effect]]:
        edges = [*super()._expand()]
        yield from edges
        rows = {(edge.source, edge.trigger) for edge in edges}
        texts = [edge for edge in edges if edge.trigger is Trigger.TEXT]
        yield from (evolve(edge, trigger=each) for edge in texts for each in Trigger if (edge.source, each) not in rows)

    def __attrs_post_init__(self) -> None:
        """Compile and check the edges."""
        super().__attrs_post_init__()
        _check_order(self)
        _check_texts(self)
        _check_ends(self)
        _check_conditions(self)


def _check_order(framing: Framing) -> None:
    """Refuse an effect that an edge has twice, effects after `again`, `spill` without `again`, and endless loops."""
    for state in framing.states.values():
        for trigger, (_, effects) in state.rows.items():
            if len(set(effects)) < len(effects):
                raise framing.refusal(f"{trigger!s} in state {state.name!r} has an effect twice")
            if Effect.AGAIN in effects[:-1]:
                raise framing.refusal(f"{trigger!s} in state {state.name!r} has effects after 'again'")
            if Effect.SPILL in effects and effects[-1] is not Effect.AGAIN:
                raise framing.refusal(f"{trigger!s} in state {state.name!r} has 'spill' without 'again'")
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
    """Refuse an effect where a reachable condition rules it out, and a state where different items may be open.

    Only what is open around pending text may differ. A turn begins with nothing open and nothing pending.
    """
    conditions: dict[str, set[Condition]] = {framing.initial: {Condition(Openness.NOTHING, pending=False)}}
    waiting = [(framing.initial, condition) for condition in conditions[framing.initial]]
    while waiting:
        name, before = waiting.pop()
        for dest, after in _steps(framing, framing.states[name], before):
            if after not in conditions.setdefault(dest, set()):
                conditions[dest].add(after)
                waiting.append((dest, after))
    for name, found in conditions.items():
        if len(places := {place.value for place, pending in found if not pending}) > 1:
            raise framing.refusal(f"state {name!r} is entered with {' and with '.join(sorted(places))} open")
    if len(conditions[framing.initial]) > 1:
        raise framing.refusal(f"state {framing.initial!r} is entered with an open item or pending text")


def _steps(framing: Framing, state: State[Trigger, Effect], before: Condition) -> Iterable[tuple[str, Condition]]:
    """Yield the state and condition after each edge of a state."""
    steps: dict[tuple[str, tuple[Effect, ...], bool], Condition] = {}
    for trigger, (dest, effects) in state.rows.items():
        step = dest.name, effects, trigger is Trigger.KEYS
        if step not in steps:
            after = _apply(framing, state, trigger, before)
            released = Effect.SPILL in effects and before.pending
            steps[step] = _apply(framing, dest, Trigger.TEXT, after) if released else after
    return ((dest, condition) for (dest, _, _), condition in steps.items())


def _apply(framing: Framing, state: State[Trigger, Effect], trigger: Trigger, before: Condition) -> Condition:
    for effect in state.rows[trigger][1]:
        rule = _OPEN_WITH_KEYS if effect is Effect.OPEN and trigger is Trigger.KEYS else _RULES[effect]
        after = rule.after(before)
        if after is None:
            amount = "some" if before.pending else "no"
            where = f"{before.place.value} is open and {amount} text is pending"
            raise framing.refusal(f"{trigger!s} in state {state.name!r} has the effect {effect.value!r} where {where}")
        before = after
    return before


def _check_ends(framing: Framing) -> None:
    """Refuse an end of the turn that neither leads back to the initial state nor is read again."""
    for state in framing.states.values():
        for trigger in _ENDS:
            dest, effects = state.rows[trigger]
            if Effect.AGAIN not in effects and dest.name != framing.initial:
                raise framing.refusal(f"{trigger!s} in state {state.name!r} does not lead to {framing.initial!r}")
