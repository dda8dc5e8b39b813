"""Records which rows of the framing the texts of a family fire."""

from typing import ClassVar

from families.properties import READ_AS
from families.relations import steps, walk
from recovery.notation import run

from interlock.parsers import Chunk
from interlock.parsers.families import FamilyParser, family
from interlock.parsers.families.envelope import MAX_LENGTH
from interlock.parsers.families.framing import FRAMING, Trigger


class Firing(FamilyParser):
    """Records the edges that fire."""

    fired: ClassVar[set[tuple[str, Trigger]]] = set()

    def _fire(self, trigger, text):
        self.fired.add((self._state.name, trigger))
        return super()._fire(trigger, text)

    def _passes_json(self, _):  # the fast path fires no edges
        return False


def fired_by(name):
    """Return the edges that texts of a family fire, up to one step beyond each condition of the parser.

    Each text is read at once, and its last step letter by letter; the text that leads to a condition, letter by letter too.
    """
    Firing.fired.clear()
    for state, way in walk(name):
        if state in {*FRAMING.regions["value_ends"], "rehearsed_rest"}:
            _read(name, way + "x" * MAX_LENGTH)
            _read(name, way, "x" * MAX_LENGTH)
        _read(name, way, reason="length")
        _read(name, *way)
        for step in steps(name):
            _read(name, way + step)
            _read(name, way, *step)
    return frozenset(Firing.fired)


def _read(name, *chunks, reason="stop"):
    run(Firing(family(name, "qwen3"), READ_AS), [Chunk(text=chunk) for chunk in chunks], reason)


def means(state, trigger):
    """Return whether a trigger is `text`, or has another row than `text` in a state."""
    rows = FRAMING.states[state].rows
    return trigger is Trigger.TEXT or rows[trigger] != rows[Trigger.TEXT]
