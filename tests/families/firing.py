"""Which rows of the framing texts fire."""

from typing import ClassVar

from families.properties import READ_AS, cut
from recovery.notation import run

from interlock.parsers import Chunk
from interlock.parsers.families import FamilyParser, family
from interlock.parsers.families.alphabet import Trigger
from interlock.parsers.families.framing import FRAMING


class Firing(FamilyParser):
    """Notes the edges that are taken."""

    fired: ClassVar[set[tuple[str, Trigger]]] = set()

    def _fire(self, trigger, text):
        self.fired.add((self._state.name, trigger))
        return super()._fire(trigger, text)

    def _passes_json(self, _):  # the shortcut takes no edges
        return False


def fired_by(name, texts):
    """The edges that texts take, each read at once and letter by letter."""
    Firing.fired.clear()
    for text, reason in texts:
        for size in (len(text) or 1, 1):
            run(Firing(family(name, "qwen3"), READ_AS), [Chunk(text=piece) for piece in cut(text, [size])], reason)
    return frozenset(Firing.fired)


def means(state, trigger):
    """Whether a trigger does something else in a state than text does, or is text."""
    rows = FRAMING.states[state].rows
    return trigger is Trigger.TEXT or rows[trigger] != rows[Trigger.TEXT]
