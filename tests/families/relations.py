"""Pairs of texts that are read alike, for every state and every marker: what the rows of text and of early ends mean.

- A marker that has no meaning in a state is text there: any other text in its place gives the same items.
- What can only stand after a call ends it: the same comes of it as if the call had been ended first.
- A call is the same wherever it begins: in reasoning, in a message, after another call, without its section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from random import Random
from typing import Final

import orjson
from attrs import evolve, frozen
from families.campaign import random_text
from families.cases import CASES
from families.properties import GROUPS, READ_AS, read
from recovery.notation import Item

from interlock.fsm.table import State
from interlock.parsers import Chunk
from interlock.parsers.families import SYNTAXES, Family, FamilyParser, family
from interlock.parsers.families.alphabet import Effect, Trigger
from interlock.parsers.families.brackets import Framing
from interlock.parsers.families.drawing import part_for
from interlock.parsers.families.framing import FRAMING
from interlock.parsers.families.lexicon import Reading, lexica
from interlock.parsers.families.reference_encoders import WrittenItem, encode

NEUTRAL: Final = "<¤"
"""A text that no marker, name, key or JSON is made of."""
_BRACKETS: Final = frozenset("{}[]")
"""A marker that has them means something in JSON."""
_ENDING: Final = (Trigger.SECTION, Trigger.CALL, Trigger.INVOKE, Trigger.UNSECTION)
"""The markers that end a call although they are not its end."""


@frozen
class Pair:
    """Two texts of a family that are read alike.

    Args:
        state: Where they begin to differ.
        family: As in `--tool-call-parser`.
        text: The one.
        other: The other, which may say something neutral instead.
        meant: What the neutral text stands for.
        before: How many items come before those that are alike, in the one and in the other.
    """

    state: str
    family: str
    text: str
    other: str
    meant: str = ""
    before: tuple[int, int] = (0, 0)

    def holds(self, framing: Framing = FRAMING) -> bool:
        """Whether they are read alike, at once and in pieces."""
        for sizes in ((1 << 20,), (1,)):
            one, other = (read(self.family, text, sizes, framing=framing) for text in (self.text, self.other))
            if one[self.before[0] :] != self._meant(other)[self.before[1] :]:
                return False
        return True

    def _meant(self, items: list[Item]) -> list[Item]:
        """The items with what is meant in place of the neutral text, escaped where it is made JSON of."""
        if not self.meant:
            return items
        keyed = SYNTAXES[self.family].style == "keys"
        escaped = orjson.dumps(self.meant).decode()[1:-1]
        return [
            evolve(item, text=item.text.replace(NEUTRAL, escaped if keyed and item.kind == "function_call" else self.meant))
            for item in items
        ]


def pairs() -> Iterator[Pair]:
    """All pairs, of every family and every state that its texts lead to."""
    for name in chain.from_iterable(GROUPS.values()):
        reads = family(name, "qwen3")
        for state, way in ways(name).items():
            rows = FRAMING.states[state]
            yield from _meaningless(reads, name, rows, way)
            yield from _ended_early(reads, name, rows, way)
        yield from anywhere(reads, name)


@cache
def ways(name: str) -> Mapping[str, str]:
    """The shortest beginning that leads to each state, of the cases of a family and of random texts."""
    found = {"thinking": ""}
    rng = Random(5)  # noqa: S311 - repeatable, not secret
    texts = [case.text for case in CASES if case.family == name]
    reached = set(part_for(family(name, "qwen3"), name).states)
    while texts or found.keys() != reached:
        text = texts.pop() if texts else "".join(random_text(rng, name))
        reader = FamilyParser(family(name, "qwen3"), READ_AS)
        for at, letter in enumerate(text):
            reader.feed(Chunk(text=letter))
            if not reader._partial and len(found.get(reader._state.name, text)) > at:
                found[reader._state.name] = text[: at + 1]
    return found


def _meaningless(reads: Family, name: str, state: State[Trigger, Effect], way: str) -> Iterator[Pair]:
    counting = set(chain.from_iterable(lexica(reads, FRAMING, calls=True)[row.name].roles for row in _read_in(state)))
    for marker in dict.fromkeys(chain.from_iterable(reads.markers.values())):
        if marker == marker.strip() and marker not in counting and _BRACKETS.isdisjoint(marker):
            for after in _afters(reads, name):
                yield Pair(state.name, name, way + marker + after, way + NEUTRAL + after, marker)

    lexicon = lexica(reads, FRAMING, calls=True)[state.name]
    if lexicon.reading is Reading.TEXT:
        for shaping in ('"', *([] if lexicon.blank else ["\n"])):
            if shaping not in counting:
                for after in _afters(reads, name):
                    yield Pair(state.name, name, way + shaping + after, way + NEUTRAL + after, shaping)


def _read_in(state: State[Trigger, Effect]) -> Iterator[State[Trigger, Effect]]:
    """The states in which text is read that comes in a state."""
    yield state
    while Effect.AGAIN in state.rows[Trigger.TEXT][1]:
        state, _ = state.rows[Trigger.TEXT]
        yield state


def _ended_early(reads: Family, name: str, state: State[Trigger, Effect], way: str) -> Iterator[Pair]:
    ends = reads.markers.get(Trigger.UNCALL)
    if ends is None or Effect.END not in state.rows[Trigger.UNCALL][1]:
        return
    for role in _ENDING:
        for marker in reads.markers.get(role, ()):
            for after in _afters(reads, name):
                yield Pair(state.name, name, way + marker + after, way + ends[0] + marker + after)


def _afters(reads: Family, name: str) -> Iterator[str]:
    """What may come then: JSON that shows whether it is still counted; a name by itself; text and a call without its section."""
    call = encode([WrittenItem("call", '{"s":"a"}', "strange")], name)
    section = encode([WrittenItem("call", "{}", "strange")], name).partition("strange")
    end = reads.markers.get(Trigger.UNCALL, ("",))[0]
    inner = call.removeprefix(reads.markers.get(Trigger.SECTION, ("",))[0]).lstrip()
    yield f' "t": "{end} x\\"", "u": {{"v": [1]}}}}}}\n{end}§{inner}Then.'
    yield f"strange{section[2]}Then.{inner}"
    yield f'{{"name": "strange"}}{end}{inner}'
    yield f"{inner}{call}Then."


def anywhere(reads: Family, name: str) -> Iterator[Pair]:
    """Every way in which a call can begin, everywhere, and what may come then."""
    markers = reads.markers
    opening = markers.get(Trigger.SECTION, ("",))[0] + markers.get(Trigger.INVOKE, markers.get(Trigger.CALL, ("",)))[0]
    first = encode([WrittenItem("call", "{}", "f")], name).partition(markers.get(Trigger.UNCALL, ("\0",))[0])
    for named in _names(reads):
        for after in _nexts(reads, name):
            told = named + after
            shown = f"</think>So. {opening}{told}"
            yield Pair("name", name, shown, f"Hm. {opening}{told}", before=(1, 1))
            yield Pair("name", name, f"</think>{opening}{told}", f"{opening}{told}")
            yield Pair("thought name", name, f"Hm. {opening}{told}", shown, before=(1, 1))
            yield Pair("aside name", name, f"</think>{first[0]}{first[1]}{opening}{told}", shown, before=(1, 1))
            if Trigger.BARE in markers and named.startswith("f"):
                yield Pair("bare name", name, f"</think>So. {markers[Trigger.BARE][0]}{told}", shown, before=(1, 1))


def _names(reads: Family) -> Iterator[str]:
    """A name and what ends it, in every way there is."""
    if reads.style == "envelope":
        yield '{"name": "f"'
        yield '{"arguments": {"s": 1}, "name": "f"'
    for end in chain.from_iterable(reads.markers.get(role, ()) for role in _NAMED):
        yield f"f{end}"
        yield f"strange{end}"


_NAMED: Final = (Trigger.KEYS, Trigger.GLUED_KEYS, Trigger.JSON, Trigger.GLUED_JSON)


def _nexts(reads: Family, name: str) -> Iterator[str]:
    """What may come behind a name: the end of the turn, of the call, of JSON that was or was not begun, and text."""
    end = reads.markers.get(Trigger.UNCALL, ("",))[0]
    yield from ("", " ", "\n", f"\n{end}Then.", " x", f"}} {end}Then.", f"}}}}{end}Then.", f'"{end}"x', f"\n{{}}{end}Then.")
    yield f'"a\n"{end}Then.'
    yield f', "arguments": {{"s": "{end}"}}}}{end}Then.'
    yield f'"s": {{"v": "{end}"}}}}{end}Then.'
    yield from _afters(reads, name)
