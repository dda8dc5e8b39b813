"""The short way for deltas of one text that follow one another, which are nearly all the events of a stream."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from interlock.events.spec import EventSpec
from interlock.fsm.acceptor.automaton import Node
from interlock.fsm.acceptor.texts import Text
from interlock.fsm.acceptor.track import Track


@frozen(eq=False)
class Groove:
    """Deltas of one text, one after the other, which differ in nothing but their text and their number.

    Args:
        blank: What makes such events equal: their own values taken out.
        like: What they are equal to then.
        text: The text that they write.
        indices: Their fields that are whole numbers, which a boolean would be equal to.
        moved: What each of them does to the lifecycle; see `Acceptor.step`.
    """

    blank: Mapping[str, object]
    like: Mapping[str, object]
    text: Text
    indices: tuple[str, ...]
    moved: tuple[Track | None, Node, str, Node]

    def fits(self, body: Mapping[str, object]) -> bool:
        """Return whether the indices of an event that is equal are whole numbers."""
        return all(type(body[name]) is int for name in self.indices)


def groove_of(item: Track, spec: EventSpec, body: Mapping[str, object]) -> Groove | None:
    """Remember a delta that was legal, for the next one will be like it."""
    text = item.part.text if item.part else item.text
    if body.get("logprobs") or item.automaton is None or item.node is not item.automaton.step(item.node, spec.name):
        return None
    blank = {name: None for name in ("delta", "sequence_number", "obfuscation") if name in body}
    indices = tuple(name for name in spec.scope.value if name.endswith("_index"))
    moved = (item, item.node, spec.name, item.node)
    return Groove(blank, {**body, **blank}, text, indices, moved) if len(blank) > 1 else None
