"""The short way for deltas of one text that follow one another, which are nearly all the events of a stream."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from interlock.events.stream import StreamEvent, wire_name
from interlock.fsm.acceptor.automaton import Node
from interlock.fsm.acceptor.text_digest import Text
from interlock.fsm.acceptor.track import Track


@frozen(eq=False)
class FastPath:
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
        """Return whether an event that is equal has whole numbers for its indices, and text where nothing was compared."""
        return type(body.get("obfuscation", "")) is str and all(type(body[name]) is int for name in self.indices)


def fast_path_of(item: Track, event: type[StreamEvent], body: Mapping[str, object]) -> FastPath | None:
    """Remember a delta that was legal, for the next one will be like it."""
    text, name = item.part.text if item.part else item.text, wire_name(event)
    if body.get("logprobs") or item.automaton is None or item.node is not item.automaton.step(item.node, name):
        return None
    blank = {field: None for field in ("delta", "sequence_number", "obfuscation") if field in body}
    indices = tuple(field for field in event.__struct_fields__ if field.endswith("_index"))
    moved = (item, item.node, name, item.node)
    return FastPath(blank, {**body, **blank}, text, indices, moved) if len(blank) > 1 else None
