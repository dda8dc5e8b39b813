"""Pairs of texts with the same items, for every state and every marker.

- A marker without a meaning in a state is text there: any other text in its place gives the same items.
- A marker that can only follow a call ends it: the items are the same as with the call's own end before it.
- A marker that a state drops changes nothing, and neither does the end of a call whose arguments are complete.
- A call is the same wherever it begins: in reasoning, in a message, after another call, without its section.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Final

import orjson
from attrs import define, evolve, field, frozen
from families.properties import READ_AS, read, vocabulary
from family_pictures import part_for, triggers_of
from recovery.notation import Item, run

from interlock.fsm.table import State
from interlock.parsers import Chunk
from interlock.parsers.families import DISTINCT, SYNTAXES, Family, FamilyParser, family
from interlock.parsers.families.family import MAX_LENGTH
from interlock.parsers.families.framing import FRAMING, Effect, Framing, Trigger
from interlock.parsers.families.patterns import example, wild
from interlock.parsers.families.reference_encoders import WrittenItem, encode
from interlock.parsers.families.state_markers import Reading, markers_by_state

NEUTRAL: Final = "<¤"
"""A text that is in no marker, name, key or JSON."""
_BRACKETS: Final = frozenset("{}[]")
"""A marker with one of them has a meaning in JSON."""
_OF_VALUES: Final = frozenset(chain.from_iterable(FRAMING.regions[region] for region in ("values", "value_ends", "missing_ends")))
"""The states in which text belongs to a value, and is escaped; all other text of a call is passed on unchanged."""
_ENDING: Final = (Trigger.SECTION, Trigger.CALL, Trigger.INVOKE, Trigger.UNSECTION)
"""The markers that end a call although they are not its end."""


@frozen
class Pair:
    """Two texts of a family that have the same items.

    `state` is where they begin to differ, `intended` what the neutral text in `other` stands for, and `before` how many items
    precede the equal ones in each.
    """

    state: str
    family: str
    text: str
    other: str
    intended: str = ""
    before: tuple[int, int] = (0, 0)

    def holds(self, framing: Framing = FRAMING) -> bool:
        """Return whether the items are the same, at once and letter by letter."""
        for sizes in ((1 << 20,), (1,)):
            one, other = (read(self.family, text, sizes, framing=framing) for text in (self.text, self.other))
            if one[self.before[0] :] != self._intended(other)[self.before[1] :]:
                return False
        return True

    def _intended(self, items: list[Item]) -> list[Item]:
        """Return the items with the intended text in place of the neutral one, escaped where it is in a value."""
        if not self.intended:
            return items
        escaped = orjson.dumps(self.intended).decode()[1:-1]
        return [
            evolve(
                item,
                text=item.text.replace(
                    NEUTRAL, escaped if self.state in _OF_VALUES and item.kind == "function_call" else self.intended
                ),
            )
            for item in items
        ]


@cache
def covering() -> Sequence[str]:
    """Return a few families that together use every row of the framing in every style that has it."""
    parts = {name: part_for(family(name, "qwen3"), name) for name in DISTINCT}
    rows = {name: {(SYNTAXES[name].style, edge.source, edge.trigger) for edge in part.edges} for name, part in parts.items()}
    missing, names = set(chain.from_iterable(rows.values())), list[str]()
    while missing:
        names.append(max(DISTINCT, key=lambda name: len(rows[name] & missing)))
        missing -= rows[names[-1]]
    return names


def pairs() -> Iterator[Pair]:
    """Yield all pairs, of the families that use every row, and of every state that their texts lead to."""
    for name in covering():
        read_as = family(name, "qwen3")
        for state, beginning in ways(name).items():
            rows = FRAMING.states[state]
            yield from _meaningless(read_as, name, rows, beginning)
            yield from _ended_early(read_as, name, rows, beginning)
            yield from _dropped(read_as, name, rows, beginning)
        yield from _stopped(read_as, name)
        if not read_as.markers.keys().isdisjoint({Trigger.SECTION, Trigger.CALL}):
            yield from anywhere(read_as, name)


_STEPS: Final = (
    *(
        "f",
        "strange",
        "s",
        "x",
        " x y",
        " ",
        "\n",
        "\t",
        "5",
        '"',
        '"{',
        "{'s': 5",
        "{",
        "}",
        "[",
        "]",
        ",",
        "f(s",
        "f(",
        ", f(s=",
        ", f()",
        "strange(s",
    ),
    *(
        ' name="f"',
        ' name="strange"',
        ' name="s"',
        '{"f"',
        '{"strange"',
        '{"name": "f"',
        '{"name": "strange"',
        '{"arguments": {"s": 1}, "name": "f"',
        ', {"name": "f"',
        ', "arguments": ',
    ),
    '{"name": "f", "arguments": ',
)
"""Texts that may follow any text, besides the markers of its family."""


@cache
def steps(name: str) -> Sequence[str]:
    """Return the texts that may follow any text of a family."""
    markers = SYNTAXES[name].markers
    after = (Trigger.KEY, Trigger.CALL, Trigger.INVOKE, Trigger.UNCALL, Trigger.UNSECTION) if Trigger.KEY in markers else ()
    lines = [f"\n{example(text)}" for role in after for text in markers.get(role, ())]
    tags = [f"{namespace}</strange>"] if (namespace := SYNTAXES[name].notation.namespace) else []
    return [*dict.fromkeys([*vocabulary(name), *lines, *tags, *_STEPS])]


@cache
def ways(name: str) -> Mapping[str, str]:
    """Return the shortest text that leads to each state."""
    beginnings: dict[str, str] = {}
    for state, beginning in walk(name):
        beginnings.setdefault(state, beginning)
    return beginnings


@cache
def walk(name: str) -> Sequence[tuple[str, str]]:
    """Return the shortest text that leads to each condition of the parser, with the state of each."""
    reached: dict[Hashable, tuple[str, str]] = {}
    waiting = [""]
    for text in waiting:
        reader = FamilyParser(family(name, "qwen3"), READ_AS)
        reader.feed(Chunk(text=text))
        condition = _condition(reader)
        if condition not in reached and not reader._partial:
            reached[condition] = (reader._state.name, text)
            waiting += [text + step for step in steps(name)]
    return [*reached.values()]


def _condition(reader: FamilyParser) -> Hashable:
    """Return the condition of a parser: its state, the open brackets or literal, and the name or key so far."""
    effects, read_as = reader._effects, reader._family
    matches = [read_as.read_name(effects.header + sign) for sign in ("", *read_as.markers.get(Trigger.LITERAL, ()))]
    name = next((match.name in READ_AS.routing.declared for match in matches if match is not None), None)
    key = read_as.read_key(effects.header)
    header = name, key is not None and effects.item.in_call and effects.item.call.declares(key[0]), key is not None
    literal = effects.item._call and effects.item._call.literal
    inner = literal and (literal._state.state.name, min(len(literal._levels), 2))
    waiting = bool(effects.pending), bool(effects.pending[effects._marker_length :].strip())
    return reader._state.name, min(effects.nesting.depth, 2), inner, header, bool(effects.header), waiting


def _meaningless(read_as: Family, name: str, state: State[Trigger, Effect], beginning: str) -> Iterator[Pair]:
    markers_there = [markers_by_state(read_as, FRAMING, calls=True)[row.name] for row in _read_in(state)]
    counting = set(chain.from_iterable(markers.roles for markers in markers_there))
    by_state = markers_by_state(read_as, FRAMING, calls=True)
    rereads = by_state[state.name].reading is Reading.HELD
    for marker in vocabulary(name):
        if state.name == "literal" or marker in read_as.signs or any(markers.marker(marker) for markers in markers_there):
            continue
        if marker == marker.strip() and _BRACKETS.isdisjoint(marker) and not ('"' in marker and '"' in counting):
            for after in _afters(read_as, name):
                later = _states_of_neutral(name, beginning + NEUTRAL + after) if rereads else ()
                if not any(by_state[each].marker(marker) for each in later):
                    yield Pair(state.name, name, beginning + marker + after, beginning + NEUTRAL + after, marker)

    markers = markers_by_state(read_as, FRAMING, calls=True)[state.name]
    if markers.reading is Reading.TEXT:
        for shaping in ('"', *([] if markers.blank or SYNTAXES[name].lenient else ["\n"])):  # JSON may have blanks around it
            if shaping not in counting:
                for after in _afters(read_as, name):
                    yield Pair(state.name, name, beginning + shaping + after, beginning + NEUTRAL + after, shaping)


@define
class Firing(FamilyParser):
    """Records the rows that fire, each with its text."""

    fired: list[tuple[str, Trigger, str]] = field(factory=list, init=False)

    def _fire(self, trigger: Trigger, text: str) -> bool:
        self.fired.append((self._state.name, trigger, text))
        return super()._fire(trigger, text)


@cache
def _states_of_neutral(name: str, text: str) -> frozenset[str]:
    """Return the states in which the neutral text in a text is read: text that waits may be read again."""
    reader = Firing(family(name, "qwen3"), READ_AS)
    run(reader, [Chunk(text=text)])
    return frozenset(state for state, _, written in reader.fired if NEUTRAL in written)


def _read_in(state: State[Trigger, Effect]) -> Iterator[State[Trigger, Effect]]:
    """Yield the states in which text of a state is read."""
    yield state
    while Effect.AGAIN in state.rows[Trigger.TEXT][1]:
        state, _ = state.rows[Trigger.TEXT]
        yield state


def _ended_early(read_as: Family, name: str, state: State[Trigger, Effect], beginning: str) -> Iterator[Pair]:
    ends = read_as.markers.get(Trigger.UNCALL)
    if ends is None or Effect.CLOSE not in state.rows[Trigger.UNCALL][1]:
        return
    for role in _ENDING:
        for marker in map(example, read_as.markers.get(role, ())):
            for after in _afters(read_as, name):
                yield Pair(state.name, name, beginning + marker + after, beginning + example(ends[0]) + marker + after)


def _dropped(read_as: Family, name: str, state: State[Trigger, Effect], beginning: str) -> Iterator[Pair]:
    """Yield markers that a state drops, and the same text without them."""
    call = encode([WrittenItem("call", '{"s":"a"}', "f")], name)
    keys = [call[call.index(key) :] for key in read_as.markers.get(Trigger.KEY, ()) if key in call]
    for marker, role in markers_by_state(read_as, FRAMING, calls=True)[state.name].roles.items():
        if role is not None and state.rows[role] == (state, (Effect.DROP,)):
            for after in (*_afters(read_as, name), *keys):
                yield Pair(state.name, name, beginning + example(marker) + after, beginning + after)


def _stopped(read_as: Family, name: str) -> Iterator[Pair]:
    """Yield a turn that stops after complete arguments, and the same with the end of its call.

    Keys and values are complete only at that end, except in a family whose models omit it.
    """
    call, end = encode([WrittenItem("call", '{"s":"a"}', "f")], name), _end(name)
    if end and Trigger.WHOLE in triggers_of(read_as) and (read_as.style != "keys" or read_as.omits_ends):
        yield Pair("json_complete", name, f"</think>{call.partition(end)[0]}", f"</think>{call.partition(end)[0]}{end}")


def _afters(read_as: Family, name: str) -> Iterator[str]:
    """Yield texts that show the state: JSON that shows which brackets are open, a name, and a call without its section."""
    call = encode([WrittenItem("call", '{"s":"a"}', "strange")], name)
    section = encode([WrittenItem("call", "{}", "strange")], name).partition("strange")
    end = _end(name)
    inner = call.removeprefix(read_as.markers.get(Trigger.SECTION, ("",))[0]).lstrip()
    yield f' "t": "{end} x\\"", "u": {{"v": [1]}}}}}}\n{end}§{inner}Then.'
    yield f"strange{section[2]}Then.{inner}"
    yield f'{{"name": "strange"}}{end}{inner}'
    yield f"{inner}{call}Then."


def anywhere(read_as: Family, name: str) -> Iterator[Pair]:
    """Yield pairs for every beginning of a call with a marker, at every place, with the texts that may follow."""
    markers = read_as.markers
    roles = (Trigger.INVOKE, Trigger.LIST) if Trigger.SECTION in markers else (Trigger.CALL, Trigger.BARE)
    inner = next((markers[role] for role in roles if role in markers), ("",))
    opening = example(markers.get(Trigger.SECTION, ("",))[0]) + inner[0]
    first = encode([WrittenItem("call", "{}", "f")], name).partition(_end(name) or "\0")
    for name_text in _names(read_as, first[0].partition(inner[0])[2] if inner[0] else first[0]):
        for after in _nexts(read_as, name):
            rest = name_text + after
            text = f"</think>So. {opening}{rest}"
            yield Pair("name", name, text, f"Hm. {opening}{rest}", before=(1, 1))
            yield Pair("name", name, f"</think>{opening}{rest}", f"{opening}{rest}")
            yield Pair("thought_name", name, f"Hm. {opening}{rest}", text, before=(1, 1))
            yield Pair("aside_name", name, f"</think>{first[0]}{first[1]}{opening}{rest}", text, before=(1, 1))
            if Trigger.BARE in markers and "strange" not in name_text:
                yield Pair("bare", name, f"</think>So. {markers[Trigger.BARE][0]}{rest}", text, before=(1, 1))


def _end(name: str) -> str:
    """Return the end of a call as a family writes it; empty if it writes none."""
    call, ends = encode([WrittenItem("call", "{}", "f")], name), SYNTAXES[name].markers.get(Trigger.UNCALL, ())
    found = (each.search(call) for each in wild(ends).values())
    return next((end for end in ends if end in call), next((match.group() for match in found if match), ""))


def _names(read_as: Family, call: str) -> Iterator[str]:
    """Yield every beginning of a call up to the end of its name; `call` is a call to `f` from its name on."""
    if read_as.style == "envelope":
        yield '{"name": "f"'
        yield '{"arguments": {"s": 1}, "name": "f"'
    before = call.partition("f")[0].strip("\"'") if "name=" in call else ""
    before, after = ('{"', '"') if call.startswith('{"f"') else (before, "")
    for end in chain.from_iterable(read_as.markers.get(role, ()) for role in _NAMED):
        ending = _ENDINGS.get(end, example(end))
        yield f"{before}f{after}{ending}"
        yield f"{before}strange{after}{ending}"


_ENDINGS: Final = {"=": "(s=", ")": "()"}
"""The text from the end of a name in Python up to the sign that shows that the name has ended."""
_NAMED: Final = (Trigger.LITERAL, Trigger.KEYS, Trigger.JSON)


def _nexts(read_as: Family, name: str) -> Iterator[str]:
    """Yield texts that may follow a name: nothing, ends of the call and of JSON that may not be open, and other text."""
    end = _end(name)
    yield from ("", " ", "\n", f"\n{end}Then.", " x", f"}} {end}Then.", f"}}}}{end}Then.", f'"{end}"x', f"\n{{}}{end}Then.")
    yield f'"a\n"{end}Then.'
    yield f', "arguments": {{"s": "{end}"}}}}{end}Then.'
    yield f'"s": {{"v": "{end}"}}}}{end}Then.'
    yield from _afters(read_as, name)


def fired_by(name: str) -> frozenset[tuple[str, Trigger]]:
    """Return the edges that texts of a family fire, up to one step beyond each condition of the parser.

    Each text is read at once, and its last step letter by letter, or cut; the text that leads to a condition, by letters too.
    """
    fired: set[tuple[str, Trigger]] = set()

    def play(*chunks, reason="stop"):
        reader = Firing(family(name, "qwen3"), READ_AS)
        run(reader, [Chunk(text=chunk) for chunk in chunks], reason)
        fired.update((state, trigger) for state, trigger, _ in reader.fired)

    for state, way in walk(name):
        if state in {*FRAMING.regions["value_ends"], "rehearsed_rest"}:
            play(way + "x" * MAX_LENGTH)
            play(way, "x" * MAX_LENGTH)
        play(way, reason="length")
        play(*way)
        for step in steps(name):
            play(way + step)
            play(way, *step)
            for end in {2, len(step) - 1}:
                play(way + step[:end])
    return frozenset(fired)


def means(state: str, trigger: Trigger) -> bool:
    """Return whether a trigger is `text`, or has another row than `text` in a state."""
    rows = FRAMING.states[state].rows
    return trigger is Trigger.TEXT or rows[trigger] != rows[Trigger.TEXT]
