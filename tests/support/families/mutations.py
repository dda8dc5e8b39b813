"""Changes of the framing, one edge at a time, and the fate of each: refused at its declaration, caught by a case, or neither.

A change is tried on the texts that pass through its state: the cases with their items, the pairs with equal items, and random
texts with the properties. A change that passes all of them is compared with the original framing, on every text of a few chunks
behind its edge; if that shows no difference, it counts as equivalent. The exit status is 1 if a text shows a difference that no
case does. docs/ has to be on PYTHONPATH.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, product
from random import Random
from typing import Final, Literal, TypeAlias

from attrs import evolve, frozen
from campaigns import log, options
from families.campaign import random_text
from families.cases import CASES
from families.derived import cases_of
from families.properties import GROUPS, READ_AS, cut, holds_of, read, vocabulary
from families.relations import Firing, Pair, covering, pairs, ways
from family_pictures import part_for, triggers_of
from recovery.notation import Item, run
from table_mutations import changes

from interlock.fsm.deltas import FinishReason
from interlock.fsm.table import DeclarationError, Edge
from interlock.parsers import Chunk
from interlock.parsers.families import SYNTAXES, family
from interlock.parsers.families.framing import FRAMING, Effect, Framing, Trigger
from interlock.parsers.families.state_markers import markers_by_state

_IN_CALL: Final = ("json", "torn_string", "json_complete", "envelope_closed")

ALIKE: Final[Mapping[str, frozenset[str]]] = {
    "A family whose calls stand alone has no sections: inside of one and outside is the same to it.": frozenset(
        {
            *(f"{state}/call: go to name" for state in _IN_CALL),
        }
    ),
    "What is read again there is read alike in both states.": frozenset(
        {
            "json_complete/next: go to argument",
            "literal/finish: drop",
            "literal/cut: drop",
        }
    ),
    "A family whose calls are bare JSON has no end of sections: inside of one and outside is the same to it.": frozenset(
        {"section/object: go to aside_name", "aside_section/object: go to name"}
    ),
    "Families that mark the end of a key need no lines of their own, so the start of a value is like its rest.": frozenset(
        {"keyed/value: go to value"}
    ),
    "A declared name is complete, so no text refutes it.": frozenset({"bare/declared: go to aside_name"}),
    "The turn ends after it, alike in both states.": frozenset({"key/partial: go to keyed", "keyed/partial: go to key"}),
}
"""Equivalent changes of the framing, by the reason: `main` checks that no text of three chunks behind their edges shows them."""


Fate: TypeAlias = Literal["refused", "idle", "caught", "survived"]
"""The result of a change: its declaration is refused, no text can fire its edge, a text shows it, or none of these."""

RANDOM: Final = 150
"""Random texts for each group of families."""

_T: Final = Trigger
_DECIDED: Final = {
    _T.MEMBER: _T.MEMBER,
    _T.DECLARED: _T.DECLARED,
    _T.WHOLE: _T.WHOLE,
}
"""Triggers that are fired only where another one counts."""


@frozen
class Mutation:
    """The framing with one edge changed; `edge` is the original one, `edges` are all the new ones."""

    edge: Edge[Trigger, Effect]
    change: str
    edges: Sequence[Edge[Trigger, Effect]]

    def declare(self) -> Framing:
        return Framing(FRAMING.name, FRAMING.initial, self.edges, total=Trigger)

    def __str__(self) -> str:
        return f"{self.edge.source}/{self.edge.trigger}: {self.change}"


@frozen
class Trial:
    """A text on which changes are tried, from inside its reasoning on, with its items if they are known."""

    family: str
    text: str
    reason: FinishReason = "stop"
    items: Sequence[Item] | None = None

    def holds(self, framing: Framing) -> bool:
        """Return whether a framing parses it correctly."""
        if self.items is None:
            holds_of(self.family, self.text, (1, 3), self.reason, framing=framing)
            return True
        partitions = (1 << 20,), (1,), (3,)
        return all(read(self.family, self.text, sizes, self.reason, framing) == [*self.items] for sizes in partitions)


def _fired(trial: Trial | Pair) -> set[tuple[str, Trigger]]:
    """Return the edges that a text fires, at once or letter by letter."""
    reader = Firing(family(trial.family, "qwen3"), READ_AS)
    reason = trial.reason if isinstance(trial, Trial) else "stop"
    for size in (1 << 20, 1):
        run(reader, [Chunk(text=chunk) for chunk in cut(trial.text, (size,))], reason)
    return {(state, trigger) for state, trigger, _ in reader.fired}


def texts() -> Iterator[Trial]:
    """Yield the cases, and random texts."""
    yield from (Trial(case.family, case.text, case.reason, case.items) for case in CASES)
    for name in covering():
        if SYNTAXES[name].ids is None:
            yield from (Trial(name, case.text, items=case.whole_items) for case in cases_of(name) if case.reason == "stop")
    rng = Random(7)  # noqa: S311 - repeatable, not secret
    for names in GROUPS.values():
        for _ in range(RANDOM):
            name = rng.choice(names)
            yield Trial(name, "".join(random_text(rng, name)), rng.choice(["stop", "length"]))


@cache
def _through() -> Mapping[str, Sequence[tuple[set[tuple[str, Trigger]], Trial | Pair]]]:
    """Return the texts that pass through each state, with the edges that they fire."""
    through: defaultdict[str, list[tuple[set[tuple[str, Trigger]], Trial | Pair]]] = defaultdict(list)
    for trial in chain(pairs(), texts()):
        fired = _fired(trial)
        for state in {state for state, _ in fired}:
            through[state].append((fired, trial))
    return through


@cache
def _families(state: str) -> list[frozenset[Trigger]]:
    """Return the triggers of each family whose texts lead to a state."""
    reads = (family(name, "qwen3") for name in SYNTAXES)
    return [triggers_of(read_as) for read_as in reads if state in part_for(read_as, read_as.name).states]


def can_come(edge: Edge[Trigger, Effect]) -> bool:
    """Return whether a text of some family can fire an edge, or could if its row were different.

    A marker comes only in families that have it, and some triggers only where another one has a meaning.
    """
    rows = FRAMING.states[edge.source].rows
    needed = _DECIDED.get(edge.trigger)
    means = needed is None or rows[needed] != rows[Trigger.TEXT]
    shaping = edge.trigger in {_T.QUOTE, _T.BREAK}
    return means and (shaping or any(edge.trigger in triggers for triggers in _families(edge.source)))


def mutations() -> Iterator[Mutation]:
    """Yield every change of the framing; the rows that a state does not declare equal that of text and change together."""
    for name, state in FRAMING.states.items():
        edges = [edge for edge in FRAMING.edges if edge.source == name]
        plain = [edge for edge in edges if state.rows[edge.trigger] == state.rows[Trigger.TEXT]]
        text = next(edge for edge in plain if edge.trigger is Trigger.TEXT)
        for changed in ([text, *(edge for edge in plain if edge is not text)], *([edge] for edge in edges if edge not in plain)):
            unchanged = [edge for edge in FRAMING.edges if edge not in changed]
            for change, to in changes(FRAMING, changed[0]):
                rows = [evolve(edge, trigger=each.trigger) for edge in to for each in changed] if "on " not in change else to
                yield Mutation(changed[0], change, (*unchanged, *rows))


def fate_of(mutation: Mutation) -> Fate:
    """Return the result of a change."""
    try:
        framing = mutation.declare()
    except DeclarationError:
        return "refused"
    if not can_come(mutation.edge):
        return "idle"
    place = mutation.edge.source, mutation.edge.trigger
    nearest = sorted(_through()[mutation.edge.source], key=lambda each: place not in each[0])
    markers_by_state.cache_clear()  # it has those of the change before
    return "survived" if all(_holds(trial, framing) for _, trial in nearest) else "caught"


def text_that_shows(mutation: Mutation, longest: int) -> Trial | None:
    """Return a text that a changed framing parses differently, of at most `longest` chunks behind the edge; None if none does."""
    framing, state = mutation.declare(), mutation.edge.source
    markers_by_state.cache_clear()
    for name in chain.from_iterable(GROUPS.values()):
        if state in ways(name) and mutation.edge.trigger in triggers_of(family(name, "qwen3")):
            for chunks in chain.from_iterable(product(_chunks(name), repeat=count) for count in range(1, longest + 1)):
                text = ways(name)[state] + "".join(chunks)
                for reason in _REASONS:
                    items = read(name, text, reason=reason)
                    if _read_by(framing, name, text, reason) != items:
                        return Trial(name, text, reason, items)
    return None


_REASONS: Final[Sequence[FinishReason]] = ("stop", "length")


def _read_by(framing: Framing, name: str, text: str, reason: FinishReason) -> list[Item] | None:
    """Return the items that a framing parses; None if it raises."""
    try:
        return read(name, text, reason=reason, framing=framing)
    except Exception:  # noqa: BLE001 - whatever it is, it shows the change
        return None


@cache
def _chunks(name: str) -> Sequence[str]:
    """Return the building blocks of texts of a family: its markers, names, keys, white space, and JSON."""
    style = SYNTAXES[name].style
    enveloped = ['{"name": "f"', ', "arguments": ', '{"arguments": {}, "name": "f"'] if style == "envelope" else []
    return [*dict.fromkeys([*vocabulary(name), " ", "\n", "x", "f", "s", "strange", '"', "{", "}", *enveloped])]


def _holds(trial: Trial | Pair, framing: Framing) -> bool:
    try:
        return trial.holds(framing)
    except Exception:  # noqa: BLE001 - whatever it is, it shows the change
        return False


def main(longest: int) -> int:
    """Try all changes, and return the exit status."""
    fates: Counter[Fate] = Counter()
    survived, differing = set[str](), 0
    for mutation in mutations():
        fate = fate_of(mutation)
        fates[fate] += 1
        if fate == "survived":
            survived.add(str(mutation))
            text = text_that_shows(mutation, longest)
            differing += text is not None
            log(f"{mutation}: {f'no text of {longest} chunks shows it' if text is None else f'shown by {text}'}")
    expected = frozenset(chain.from_iterable(ALIKE.values()))
    for change in sorted(survived ^ expected):
        log(f"{change}: {'no reason is expected' if change in survived else 'does not survive'}")
    log(", ".join(f"{count} {fate}" for fate, count in sorted(fates.items())))
    return 1 if differing or survived != expected else 0


if __name__ == "__main__":
    sys.exit(main(**options(__doc__, longest=3)))
