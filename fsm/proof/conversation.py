"""The walk through the life of a conversation: whoever holds it finds it as it was, and every hold ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from interlock.fsm.conversation import CONVERSATION, ConversationEffect, ConversationTrigger
from interlock.fsm.proof.walk import Walk, found
from interlock.fsm.table import State, Table

__all__ = ["walk_conversation"]

_T, _E = ConversationTrigger, ConversationEffect
_Place: TypeAlias = tuple[State[ConversationTrigger, ConversationEffect], bool]
"""A state, and whether somebody holds the conversation there."""


def walk_conversation(table: Table[ConversationTrigger, ConversationEffect] = CONVERSATION) -> Walk:
    """Walk through the life of a conversation.

    Args:
        table: What is walked; another than the declared one only to show that the walk finds what is wrong.
    """
    waiting: deque[_Place] = deque([(table.states[table.initial], False)])
    seen = {*waiting}
    fired: set[tuple[str, ConversationTrigger]] = set()
    faults: list[str] = []
    while waiting:
        state, held = waiting.popleft()
        if held and not {_T.LAPSE, _T.RELEASE} <= state.rows.keys():
            faults.append(f"{state.name}: a hold that does not end")
        for trigger, (dest, effects) in state.rows.items():
            fired.add((state.name, trigger))
            faults += [f"{state.name}/{trigger}: {fault}" for fault in _wrong(trigger, effects, held=held)]
            after = dest, (held or _E.TAKE in effects) and not {_E.FREE, _E.REMOVE}.intersection(effects)
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return found(table, len(seen), fired, faults)


def _wrong(trigger: ConversationTrigger, effects: Sequence[ConversationEffect], *, held: bool) -> Iterator[str]:
    """Yield what is wrong with the effects of an edge."""
    if held and _E.WRITE in effects and trigger is not _T.JOIN:
        yield "the items change under who holds them"
    if held and _E.WRITE in effects and _E.FREE not in effects:
        yield "it is added to and held on to"
    if held and _E.TAKE in effects and trigger is not _T.RENEW:
        yield "a second one takes it"
    if not held and _E.FREE in effects:
        yield "it is freed although nobody holds it"
