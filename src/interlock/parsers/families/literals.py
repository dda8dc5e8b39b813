"""Literals: arguments in a notation other than JSON, converted to JSON as they arrive.

A literal is an object of members. `f(a=1, b=['x'])` in Python, `f{a:1,b:[<|"|>x<|"|>]}` and nested elements,
`<a>1</a><b><item>x</item></b>`, have the same members, and one table reads all three. A `Notation` describes a notation.

The triggers are the parts of a literal, which `LiteralReader` finds. Every state has a row for every trigger, so any text can be
read (rule R20); a part that is out of place breaks the literal. The table is compiled for each notation and kind of bracket, so
most signs take one lookup, and the text between two signs takes one search.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache, partial
from math import isfinite
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias

import orjson
from attrs import define, evolve, field, frozen

from interlock.fsm.table import Edge, State, Table
from interlock.parsers.families.parameter_values import (
    ANY,
    ESCAPED,
    PYTHON_ESCAPES,
    PYTHON_WORDS,
    STRING,
    Schema,
    convert,
    escape_json,
    quote_json,
    truncate,
)
from interlock.parsers.families.patterns import SearchFunction, alternatives


class LiteralPart(StrEnum):
    """A part of a literal."""

    OBJECT = "object"
    """A bracket that opens an object; also the one that opens the literal."""
    LIST = "list"
    """A bracket that opens a list."""
    ELEMENTS = "elements"
    """The beginning of a literal of elements."""
    CLOSE = "close"
    """The bracket that closes the innermost object or list."""
    END = "end"
    """The end of the literal."""
    MEMBER = "member"
    """A comma in an object."""
    ITEM = "item"
    """A comma in a list."""
    COLON = "colon"
    """The sign between a key and its value."""
    QUOTE = "quote"
    """A quote that begins a string."""
    UNQUOTE = "unquote"
    """The end of a string, or of an element without children."""
    PLAIN = "plain"
    """Text of a string, or of a value in an element."""
    ESCAPE = "escape"
    """An escape in a string."""
    BREAK = "break"
    """A line break in a string that must not have one."""
    TAG = "tag"
    """The tag that begins an element."""
    UNTAG = "untag"
    """The tag that ends an element with children."""
    WORD = "word"
    """Text outside of strings."""
    BLANK = "blank"
    """White space outside of strings."""
    NEXT_KEY = "next key"
    """A key without a comma before it."""
    LATE_QUOTE = "late quote"
    """A quote that ends a string whose first quote is missing."""
    BETWEEN = "between"
    """Text between elements."""
    STRAY = "stray"
    """A sign that is out of place."""


class LiteralStep(StrEnum):
    """An action for a part."""

    OPEN = "open"
    """Write the bracket that opens an object or list."""
    CLOSE = "close"
    """Write the bracket that closes it."""
    HOLD = "hold"
    """Hold the text."""
    NOTE = "note"
    """Hold the text, and add it to the key or value."""
    DROP = "drop"
    """Drop the pending text."""
    KEY = "key"
    """Write the noted text as a key, and drop the rest."""
    VALUE = "value"
    """Write the noted text as a value, and drop the rest."""
    STRING = "string"
    """Begin a string with the noted text, and drop the rest."""
    WRITE = "write"
    """Write text of the string."""
    SEAL = "seal"
    """End the string."""
    ENTER = "enter"
    """Begin an element."""
    ASIDE = "aside"
    """Keep the pending text and this for a message after the call."""
    SPILL = "spill"
    """Write the pending text unchanged."""


_P, _S = LiteralPart, LiteralStep
_LiteralEdge: TypeAlias = Edge[LiteralPart, LiteralStep]


def _rows(state: str, *rows: tuple[LiteralPart, str, tuple[LiteralStep, ...]]) -> Iterator[_LiteralEdge]:
    """Yield the rows of a state; every other part breaks the literal."""
    parts = {part for part, _, _ in rows}
    yield from (_LiteralEdge(state, part, dest, steps) for part, dest, steps in rows)
    yield from (_LiteralEdge(state, part, "broken", (_S.SPILL,)) for part in _P if part not in parts)


_CLOSING: Final = (_P.CLOSE, "after", (_S.CLOSE,))
_ENDING: Final = (_P.END, "end", (_S.CLOSE,))
_VALUES: Final = (
    (_P.QUOTE, "string", (_S.STRING,)),
    (_P.LIST, "item", (_S.OPEN,)),
    (_P.OBJECT, "member", (_S.OPEN,)),
    (_P.WORD, "word", (_S.NOTE,)),
)
_TEXT: Final = (
    (_P.PLAIN, "string", (_S.WRITE,)),
    (_P.ESCAPE, "string", (_S.WRITE,)),
    (_P.UNQUOTE, "after", (_S.SEAL,)),
)
_BETWEEN: Final = (
    (_P.BETWEEN, "aside", (_S.ASIDE,)),
    (_P.TAG, "element", (_S.ENTER,)),
    (_P.UNTAG, "after", (_S.CLOSE,)),
)

LITERALS: Final = Table(
    "literals",
    initial="start",
    edges=[
        *_rows("start", (_P.OBJECT, "member", (_S.OPEN,)), (_P.ELEMENTS, "after", (_S.OPEN,))),
        *_rows(
            "member",
            (_P.BLANK, "member", (_S.HOLD,)),
            (_P.WORD, "key", (_S.NOTE,)),
            (_P.QUOTE, "quoted key", (_S.HOLD,)),
            _CLOSING,
            _ENDING,
        ),
        *_rows("key", (_P.WORD, "key", (_S.NOTE,)), (_P.BLANK, "keyed", (_S.HOLD,)), (_P.COLON, "value", (_S.KEY,))),
        *_rows(
            "quoted key",
            (_P.PLAIN, "quoted key", (_S.NOTE,)),
            (_P.ESCAPE, "quoted key", (_S.NOTE,)),
            (_P.UNQUOTE, "keyed", (_S.HOLD,)),
        ),
        *_rows("keyed", (_P.BLANK, "keyed", (_S.HOLD,)), (_P.COLON, "value", (_S.KEY,))),
        *_rows("value", (_P.BLANK, "value", (_S.HOLD,)), *_VALUES),
        *_rows("item", (_P.BLANK, "item", (_S.HOLD,)), *_VALUES, _CLOSING),
        *_rows(
            "word",
            *((part, "word", (_S.NOTE,)) for part in (_P.WORD, _P.BLANK, _P.PLAIN)),
            (_P.QUOTE, "string", (_S.DROP, _S.STRING)),
            (_P.MEMBER, "member", (_S.VALUE, _S.HOLD)),
            (_P.ITEM, "item", (_S.VALUE, _S.HOLD)),
            (_P.CLOSE, "after", (_S.VALUE, _S.CLOSE)),
            (_P.END, "end", (_S.VALUE, _S.CLOSE)),
            (_P.UNQUOTE, "after", (_S.VALUE,)),
            (_P.LATE_QUOTE, "after", (_S.VALUE,)),
        ),
        *_rows("string", *_TEXT, (_P.BREAK, "torn_string", (_S.WRITE,))),
        # A string with a line break may be invalid, so the markers that end a call count in it.
        *_rows("torn_string", *((part, "torn_string" if dest == "string" else dest, steps) for part, dest, steps in _TEXT)),
        *_rows(
            "after",
            (_P.BLANK, "after", (_S.HOLD,)),
            (_P.MEMBER, "member", (_S.HOLD,)),
            (_P.ITEM, "item", (_S.HOLD,)),
            _CLOSING,
            _ENDING,
            (_P.NEXT_KEY, "key", (_S.DROP, _S.NOTE)),
            *_BETWEEN,
        ),
        # White space after text between elements belongs to that text, even if it arrives later.
        *_rows("aside", (_P.BLANK, "aside", (_S.ASIDE,)), _ENDING, *_BETWEEN),
        *_rows(
            "element",
            (_P.BLANK, "element", (_S.NOTE,)),
            (_P.PLAIN, "string", (_S.STRING, _S.WRITE)),
            (_P.WORD, "word", (_S.NOTE,)),
            (_P.TAG, "element", (_S.OPEN, _S.ENTER)),
            (_P.UNQUOTE, "after", (_S.VALUE,)),
        ),
    ],
    final={"end", "broken"},
    total=_P,
)

_INTEGER: Final = re.compile("0|-?[1-9][0-9]{0,17}")
_NUMBER: Final = re.compile(r"([+-]?)\s*([0-9.][\w.+-]*)")


def _python(text: str, schema: Schema) -> str:  # noqa: ARG001 - Python shows the type
    """Return a word or number of Python as JSON, and any other text as a string."""
    if _INTEGER.fullmatch(text):
        return text
    if text in PYTHON_WORDS:
        return PYTHON_WORDS[text]
    number = _NUMBER.fullmatch(text)
    return (number and _number("".join(number.groups()))) or quote_json(text)


def _number(text: str) -> str | None:
    """Return a Python number as JSON; None if the text is not a number, or JSON has no such number."""
    for read in _READERS:
        try:
            value = read(text)
        except ValueError:
            continue
        return f"{value}" if isinstance(value, int) else orjson.dumps(value).decode() if isfinite(value) else None
    return None


_READERS: Final[Sequence[Callable[[str], int | float]]] = (int, partial(int, base=0), float)


def _typed(text: str, schema: Schema) -> str:
    """Return a value as JSON of one of its types, or of any type if none is declared; see `convert`."""
    return convert(text, schema.types or ANY)


def _element_text(text: str, schema: Schema) -> str:
    """Return the text of an element as JSON of one of its types, or as a string if none is declared; see `convert`.

    Blank text is an empty array or object if its types allow one.
    """
    types = schema.types
    if not text.strip():
        return "[]" if "array" in types else "{}" if "object" in types else quote_json(text)
    return convert(text, types or STRING)


@frozen(eq=False)
class Notation:
    """A notation of literals.

    Args:
        convert: Converts a value outside of quotes to JSON, given its schema.
        quotes: The quotes that begin and end strings; the longest match counts.
        brackets: The brackets of objects and lists, each with the one that closes it.
        colons: The signs between a key and its value: at the top level, and below it.
        escapes: Whether strings follow Python: a backslash escapes, and only a quote of several characters allows line breaks.
        prefixes: The words that may precede a quote; with an `r`, the string has no escapes.
        namespace: The text before each tag, in a notation of elements; otherwise empty.
        other_quotes: Quotes that a model writes in place of its own: they count only where a value or key begins, and a backslash
            escapes between them.
        outer_brackets: Brackets that may stand in place of the outer ones.
        is_lenient: Whether keys may have spaces, and a comma, closing brackets or a first quote may be missing.
    """

    convert: Callable[[str, Schema], str]
    quotes: tuple[str, ...] = ()
    brackets: Mapping[str, str] = field(factory=dict[str, str])
    colons: tuple[str, str] = ("", "")
    escapes: bool = False
    prefixes: frozenset[str] = frozenset()
    namespace: str = ""
    other_quotes: tuple[str, ...] = ()
    outer_brackets: Mapping[str, str] = field(factory=dict[str, str])
    is_lenient: bool = False

    @property
    def all_brackets(self) -> Mapping[str, str]:
        """The brackets, each with the one that closes it."""
        return {**self.brackets, **self.outer_brackets}

    @property
    def all_quotes(self) -> tuple[str, ...]:
        """All quotes."""
        return (*self.quotes, *self.other_quotes)

    @property
    def signs(self) -> frozenset[str]:
        """The signs that structure a literal; inside it, they are not markers."""
        brackets = self.all_brackets
        return frozenset({*self.all_quotes, *brackets.keys(), *brackets.values(), *filter(None, self.colons), ",", "\n"})


PYTHON: Final = Notation(
    _python,
    quotes=("'", '"', "'''", '"""'),
    brackets=MappingProxyType({"(": ")", "[": "]", "{": "}"}),
    colons=("=", ":"),
    escapes=True,
    prefixes=frozenset("rRuUfF"),
)
DICTIONARY: Final = evolve(PYTHON, colons=(":", ":"))
GEMMA: Final = Notation(
    _typed,
    ('<|"|>',),
    MappingProxyType({"{": "}", "[": "]"}),
    (":", ":"),
    other_quotes=('"', "'", "`"),
    outer_brackets=MappingProxyType({"(": ")"}),
    is_lenient=True,
)
FUNCTION_GEMMA: Final = evolve(GEMMA, quotes=("<escape>",))
ELEMENTS: Final = Notation(_element_text, namespace="]<]minimax[>[")


Stop: TypeAlias = Literal["", "marker", "ended", "broken"]
"""Why the reader stopped: it needs more text, a marker may begin here, the literal is complete, or it is invalid here."""


_BLANK, _ESCAPED, _PLAIN, _QUOTE, _STRAY, _WORD = _P.BLANK, _P.ESCAPE, _P.PLAIN, _P.QUOTE, _P.STRAY, _P.WORD
_OUTSIDE: Final = frozenset({_P.WORD, _P.BETWEEN})
"""The parts of text outside of elements without children, which no tag ends."""
_BLANKS: Final = frozenset(filter(str.isspace, map(chr, range(0x3001))))
"""White space of Unicode."""
_HEX: Final = "[0-9a-fA-F]"
_PARTIAL: Final = (
    rf"[0-7]{{0,2}}|x{_HEX}?|u{_HEX}{{0,3}}|u[dD][89abAB]{_HEX}{{2}}(?:\\(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?|U{_HEX}{{0,7}}"
    r"|N(?:\{[^}\n]{0,64})?|\r"
)
"""The beginning of an escape, after its backslash."""
_ESCAPE: Final = (
    rf"\\(?:(?:{_PARTIAL})\Z|\r\n|[0-7]{{1,3}}|x{_HEX}{{2}}|u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|u{_HEX}{{4}}"
    rf"|U{_HEX}{{8}}|N\{{[^}}\n]{{1,64}}\}}|(?s:.))"
)
"""An escape, or the beginning of one at the end of the text."""
_PARTIAL_ESCAPE: Final = re.compile(rf"\\(?:{_PARTIAL})")
_TAG: Final = r"[^<>\s/][^<>\n]{0,255}"


@lru_cache(maxsize=256)
def _unescape(escape: str) -> str:
    """Return the text of a Python escape, or the escape itself if it is invalid."""
    if escape[1:2] not in PYTHON_ESCAPES:
        return escape
    try:
        text = str(literal_eval(f"'{escape}'"))
    except (SyntaxError, ValueError):
        return escape
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@frozen(eq=False)
class _Signs:
    """The signs that count in a state: the brackets, quotes, … of the notation, and the markers that end the literal.

    Args:
        parts: Which part each sign of the notation is, except for escapes and tags.
        letters: Which part each sign of one letter is, and each space and line feed outside of strings; None for the letters that
            begin something longer or undecided: another sign, a quote, a marker, an escape, a tag or other white space.
        match: Matches what such a letter begins, in one of these groups; a letter in none of them is text.
            `beginning`: the beginning of a sign or marker at the end of the text, perhaps a whole one.
            `sign`: any other sign or marker.
            `escape`, `tag`: each may be incomplete at the end of the text.
            `blank`: white space.
        text_end: Finds the end of a run of text.
        stops: The markers that end the literal.
        text_part: Which part a run of text is; None where its schema decides that.
        raw_text_end: Finds what stops text from passing through unchanged; None where none passes.
    """

    parts: Mapping[str, LiteralPart]
    letters: Mapping[str, LiteralPart | None]
    match: SearchFunction
    text_end: SearchFunction
    stops: frozenset[str]
    text_part: LiteralPart | None
    raw_text_end: SearchFunction | None


def _signs(
    parts: Mapping[str, LiteralPart],
    stops: frozenset[str],
    *,
    text_part: LiteralPart | None = _WORD,
    ends: str = "",
    escape: str = "",
    tag: str = "",
    blank: LiteralPart = _BLANK,
) -> _Signs:
    """Compile signs; `ends` are more letters that end a run of text, and the patterns begin with a backslash and a letter."""
    texts = sorted({*parts, *stops}, key=len, reverse=True)
    undecided = {text[0] for text in texts if text[1:] or text in stops or parts[text] is _QUOTE} | {*escape[1:2], *tag[1:2]}
    letters: dict[str, LiteralPart | None] = (
        {} if text_part is _PLAIN else {**dict.fromkeys(_BLANKS, None if blank is _BLANK else blank), " ": blank, "\n": blank}
    )
    letters |= {text: part for text, part in parts.items() if not text[1:]} | dict.fromkeys(undecided)
    firsts = re.escape("".join(sorted({*undecided, *(text[0] for text in texts)})))
    beginnings = "|".join(alternatives([text[:-1] for text in texts if text[1:]]))
    groups = {
        "beginning": beginnings and rf"(?:{beginnings})\Z",
        "sign": "|".join(map(re.escape, texts)),
        "escape": escape,
        "tag": tag,
        "blank": "" if text_part is _PLAIN else rf"\s[^\S{firsts}]*",
    }
    match = re.compile("|".join([*(f"(?P<{name}>{group})" for name, group in groups.items() if group), "(?s:.)"])).match
    passes = re.compile(f"[{ESCAPED}{firsts}]").search if text_part is _PLAIN else None
    return _Signs(parts, letters, match, re.compile(f"[{ends}{firsts}]").search, stops, text_part, passes)


def _signs_outside(notation: Notation, stops: frozenset[str], closing: str, *, nested: bool) -> Mapping[str, _Signs]:
    """Return the signs in the object or list that a bracket closes (none at the start), by the state, except in strings."""
    in_list = nested and closing != "}"
    parts = {",": _P.ITEM if in_list else _P.MEMBER, **dict.fromkeys(notation.all_quotes, _P.QUOTE)}
    for opening, other in notation.brackets.items():
        parts |= {opening: _P.OBJECT if opening == "{" else _P.LIST, other: _P.STRAY}
    if not closing:
        return {"start": _signs(dict.fromkeys([*parts, *notation.outer_brackets], _P.OBJECT), stops)}
    parts |= {closing: _P.CLOSE if nested else _P.END}
    colons = dict.fromkeys(notation.colons, _P.STRAY) | {notation.colons[nested]: _P.COLON}
    in_key, in_value = _signs(parts | colons, stops, ends=r"\s"), _signs(parts, stops)
    signs: dict[str, _Signs] = dict.fromkeys(("member", "key", "keyed"), in_key)
    signs |= dict.fromkeys(("value", "item", "word", "after"), in_value)
    if notation.is_lenient:
        signs["key"] = _signs(parts | colons, stops, blank=_WORD)
        signs["after"] = in_value if in_list else _signs(parts | colons, stops, text_part=_P.NEXT_KEY, ends=r"\s")
    return signs


@lru_cache(maxsize=64)
def _signs_inside(notation: Notation, stops: frozenset[str], quote: str) -> Mapping[str, _Signs]:
    """Return the signs in a string, by the state."""
    escapes = notation.escapes or quote in notation.other_quotes
    parts, escape = {quote: _P.UNQUOTE}, _ESCAPE if escapes else ""
    breaks = {"\n": _P.BREAK} if escapes and len(quote) == 1 else {}
    in_string = _signs(parts | breaks, frozenset(), escape=escape, text_part=_PLAIN)
    return {
        "string": in_string,
        "quoted key": evolve(in_string, raw_text_end=None),
        "torn_string": _signs(parts, stops, escape=escape, text_part=_PLAIN),
    }


@lru_cache(maxsize=64)
def _signs_of_elements(namespace: str, stops: frozenset[str]) -> Mapping[str, _Signs]:
    """Return the signs of a notation of elements, by the state."""
    others = f"{namespace}<"[1:]
    opening = re.escape(namespace[0]) + "".join(f"(?:{re.escape(letter)}" for letter in others)
    tag = rf"{opening}/?(?:{_TAG}(?:>|\Z)|\Z)" + r"|\Z)" * len(others)
    inside = _signs({}, frozenset(), tag=tag, text_part=_PLAIN)
    between = _signs({}, stops, tag=tag, text_part=_P.BETWEEN)
    return {
        "start": _signs({">": _P.ELEMENTS}, frozenset()),
        "after": between,
        "aside": between,
        "element": _signs({}, stops, tag=tag, text_part=None),
        "word": evolve(inside, raw_text_end=None),
        "string": inside,
    }


_OPEN: Final = Schema({"type": "any"})
"""The schema of an inner member or item without a declared one: the text of the value decides its type."""

_Act: TypeAlias = Callable[["LiteralReader", str], None]
_ReaderEdge: TypeAlias = tuple[_Act, State[LiteralPart, LiteralStep], "_ReaderState | None"]
"""An edge: its action, which takes the text, its next state, and that of the reader (None if it depends on the text)."""


@frozen(eq=False)
class _ReaderState:
    """A state of the table in one kind of brackets, with its edges."""

    state: State[LiteralPart, LiteralStep]
    signs: _Signs
    moves: dict[LiteralPart, _ReaderEdge] = field(factory=dict[LiteralPart, _ReaderEdge])
    letters: dict[str, _ReaderEdge | None] = field(factory=dict[str, _ReaderEdge | None])
    """The edges of letters that are signs; None for the letters whose part depends on more text."""


_ReaderStates: TypeAlias = Mapping[tuple[str, str], _ReaderState]
"""The states in an object or list, by their name and the quote of a string, which is empty outside of one."""


@lru_cache(maxsize=256)
def _reader_states(
    start: State[LiteralPart, LiteralStep], notation: Notation, stops: frozenset[str], closing: str, *, nested: bool
) -> _ReaderStates:
    """Compile the table for an object or list; `closing` is empty at the start, and in a notation of elements."""
    by_name: dict[str, State[LiteralPart, LiteralStep]] = {}
    waiting = [start]
    while waiting:
        state = waiting.pop()
        if state.name not in by_name:
            by_name[state.name] = state
            waiting += [dest for dest, _ in state.rows.values()]
    if notation.namespace:
        outside = _signs_of_elements(notation.namespace, stops)
    else:
        outside = _signs_outside(notation, stops, closing, nested=nested)
    signs = {(name, ""): each for name, each in outside.items()}
    for quote in notation.all_quotes:
        signs |= {(name, quote): each for name, each in _signs_inside(notation, stops, quote).items()}
    states = {key: _ReaderState(by_name[key[0]], each) for key, each in signs.items()}
    for (_, quote), reader_state in states.items():
        for part, (dest, steps) in reader_state.state.rows.items():
            after = states.get((dest.name, quote)) or states.get((dest.name, ""))
            reader_state.moves[part] = LiteralReader.act(part, steps), dest, after if _LEVELING.isdisjoint(steps) else None
        reader_state.letters.update(
            (letter, None if part is None else reader_state.moves[part]) for letter, part in reader_state.signs.letters.items()
        )
    return states


_LEVELING: Final = frozenset({LiteralStep.OPEN, LiteralStep.CLOSE})
"""The steps that change the innermost object or list."""


@define
class _Level:
    """An open object or list."""

    closing: str
    """What closes it in its notation."""
    bracket: str
    """What closes it in JSON."""
    schema: Schema
    states: _ReaderStates
    separator: str = ""
    """The sign before its next member in JSON."""


@define(eq=False)
class LiteralReader:
    """Reads one literal.

    Args:
        notation: Its notation.
        stops: The markers that end it outside of strings, and in a string with a line break that the notation does not allow.
        schema: The schema of its value.
        start: The initial state of the table.
    """

    _notation: Notation
    _stops: frozenset[str]
    _schema: Schema
    _start: State[LiteralPart, LiteralStep] = LITERALS.states[LITERALS.initial]
    _levels: list[_Level] = field(factory=list[_Level])
    _pending: list[str] = field(factory=list[str])
    """Text that is read but not yet written, as it arrived."""
    _word: list[str] = field(factory=list[str])
    """The key or value in the pending text, without its quotes and white space."""
    _key: str = ""
    """The key of the value that follows."""
    _closing: str = ""
    """The quote or tag that ends the string or element."""
    stray: list[str] = field(factory=list[str])
    """Text between elements, for a message after the call."""
    _is_raw: bool = False
    """Whether the string has no escapes."""
    _out: list[str] = field(factory=list[str])
    _state: _ReaderState = field(init=False)
    _stop: Stop = ""

    def __attrs_post_init__(self) -> None:
        """Begin at the start."""
        self._state = _reader_states(self._start, self._notation, self._stops, "", nested=False)[self._start.name, ""]

    @property
    def passes(self) -> SearchFunction | None:
        """The search for text that may not pass through unchanged; None outside of a string."""
        return self._state.signs.raw_text_end

    def read(self, text: str, at: int, *, final: bool) -> tuple[str, int, Stop]:
        """Read a text from `at`; return its JSON, where the reader stopped, and why. If `final`, no text follows."""
        state, end = self._state, len(text)
        passes = state.signs.raw_text_end
        if passes is not None and passes(text, at) is None:
            return text[at:], end, ""
        stop: Stop = self._stop
        move: _ReaderEdge | None
        while at < end and not stop:
            taken = text[at]
            if taken not in state.letters:
                signs = state.signs
                found = signs.text_end(text, at)
                taken = text[at:] if found is None else text[at : found.start()]
                move = state.moves[signs.text_part or self._run(signs)]
            elif (move := state.letters[taken]) is None:
                part, taken = self._part(state.signs, text, at, final=final)
                if part is None:
                    stop = "marker" if taken else ""
                    break
                move = state.moves[part]
            act, dest, after = move
            act(self, taken)
            if after is not None:
                state = after
            elif dest.rows:
                state = self._state_in(dest)
            else:
                stop = self._stop = "broken" if dest.name == "broken" else "ended"
                if stop == "broken":
                    break
            at += len(taken)
        self._state = state
        return self._take(), at, stop

    def _state_in(self, state: State[LiteralPart, LiteralStep]) -> _ReaderState:
        states = self._levels[-1].states
        return states.get((state.name, "")) or states[state.name, self._closing]

    def end(self) -> str:
        """Complete the literal at a marker that ends it, where that is allowed, or return its pending text."""
        if not self._stop and self._state.state.name in self._closing_states():
            self._fire(_P.END)
            while self._levels:
                self._close("")
        return self.spill()

    def _closing_states(self) -> Container[str]:
        """Return the states in which a marker closes what is open."""
        if self._notation.is_lenient:
            return ("after", "word")
        return ("after", "aside") if self._notation.namespace and len(self._levels) == 1 else ()

    def spill(self) -> str:
        """Return the pending text of an incomplete literal, unchanged."""
        if not self._stop:
            self._fire(_STRAY)
        return self._take()

    def cut(self) -> str:
        """Return the beginning of the value in which the turn ends; no other pending text, because it may be framing."""
        if self._stop or self._state.state.name != "word":
            return ""
        types = self._value_schema().types
        self._begin_value()
        self._out.append(truncate("".join(self._word), types))
        return self._take()

    def _fire(self, part: LiteralPart) -> None:
        """Fire an edge to the end of the literal."""
        act, _, _ = self._state.moves[part]
        self._stop = "ended"
        act(self, "")

    def _take(self) -> str:
        out = "".join(self._out)
        self._out.clear()
        return out

    def _part(self, signs: _Signs, text: str, at: int, *, final: bool) -> tuple[LiteralPart | None, str]:
        """Return the next part with its text, or None with the marker, which is empty if a part or marker is incomplete."""
        found = signs.match(text, at)
        assert found is not None  # noqa: S101 - it matches any letter
        taken, is_last = found.group(), found.end() == len(text)
        match found.lastgroup:
            case "blank":
                return _BLANK, taken
            case "tag":
                return self._tag(signs, taken, is_last=is_last)
            case "escape" if not (is_last and _PARTIAL_ESCAPE.fullmatch(taken)):
                return _ESCAPED, taken
            case "escape":
                return None, ""
            case "beginning" if not (final and (taken in signs.parts or taken in signs.stops)):
                return None, ""
            case _:
                part = signs.parts.get(taken)
                if part is None and taken not in signs.stops:
                    part = self._run(signs)
                elif part is _QUOTE:
                    part = self._quote(taken)
                return part, taken

    def _quote(self, quote: str) -> LiteralPart:
        """Return which part a quote is: it begins a string only where a value or key begins, except for a prefix."""
        word = "".join(self._word)
        if not word or word in self._notation.prefixes:
            self._closing = quote
            return _QUOTE
        if quote in self._notation.other_quotes:
            return _WORD
        return _P.LATE_QUOTE if self._notation.is_lenient else _STRAY

    def _tag(self, signs: _Signs, text: str, *, is_last: bool) -> tuple[LiteralPart | None, str]:
        """Return which part a tag is; if it has no meaning, its first letter is text."""
        opening = f"{self._notation.namespace}<"
        is_whole = text.endswith(">") and text.startswith(opening)
        if text == self._closing and signs.text_part not in _OUTSIDE:
            return _P.UNQUOTE, text
        if is_last and (self._closing.startswith(text) if signs.text_part is _PLAIN else not is_whole):
            return None, ""
        if signs.text_part is _PLAIN or not is_whole:
            return (_STRAY if signs.text_part is _P.BETWEEN else self._run(signs)), text[0]
        if text == self._levels[-1].closing:
            return _P.UNTAG, text
        return _STRAY if text.startswith(f"{opening}/") else _P.TAG, text

    def _run(self, signs: _Signs) -> LiteralPart:
        """Return which part text without signs is."""
        return signs.text_part or (_PLAIN if (self._value_schema().types or STRING) == STRING else _WORD)

    def _value_schema(self) -> Schema:
        """Return the schema of the value that follows."""
        level = self._levels[-1]
        schema = level.schema.item if level.bracket == "]" else level.schema.member(self._key)
        return _OPEN if len(self._levels) > 1 and not schema.schema else schema

    def _open(self, text: str) -> None:
        namespace, is_nested = self._notation.namespace, bool(self._levels)
        schema = self._value_schema() if is_nested else self._schema
        if is_nested:
            self._begin_value()
        is_list = is_nested and (self._is_list(text, schema) if namespace else text != "{")
        closing = self._closing if namespace else self._notation.all_brackets[text]
        states = _reader_states(self._start, self._notation, self._stops, "" if namespace else closing, nested=is_nested)
        self._levels.append(_Level(closing, "]" if is_list else "}", schema, states))
        self._out.append("[" if is_list else "{")
        self._clear()

    def _close(self, _text: str) -> None:
        self._out.append(self._levels.pop().bracket)
        self._clear()

    def _hold(self, text: str) -> None:
        self._pending.append(text)

    def _note(self, text: str) -> None:
        self._pending.append(text)
        self._word.append(text)

    def _note_escape(self, text: str) -> None:
        self._pending.append(text)
        self._word.append(_unescape(text))

    def _drop(self, _text: str) -> None:
        """Drop the prefix of a string, which decides whether the string has escapes."""
        self._is_raw = "r" in "".join(self._word).lower()
        self._clear()

    def _write_key(self, _text: str) -> None:
        key, text = "".join(self._word), "".join(self._pending).strip()
        self._begin_member(text if text == key.strip() else key)  # white space belongs only to a quoted key
        self._clear()

    def _write_value(self, _text: str) -> None:
        word = "".join(self._word)
        schema = self._value_schema()
        self._begin_value()
        self._out.append(self._notation.convert(word if self._notation.namespace else word.strip(), schema))
        self._clear()

    def _begin_string(self, _text: str) -> None:
        self._begin_value()
        self._out.append(f'"{escape_json("".join(self._word))}')
        self._clear()

    def _write(self, text: str) -> None:
        self._out.append(escape_json(text))

    def _write_escape(self, text: str) -> None:
        self._out.append(escape_json(text if self._is_raw else _unescape(text)))

    def _seal(self, _text: str) -> None:
        self._out.append('"')
        self._is_raw = False

    def _enter(self, text: str) -> None:
        """Begin an element: the member of an object, or an item of a list, with any tag."""
        self._clear()
        namespace = self._notation.namespace
        name = text.removeprefix(f"{namespace}<").removesuffix(">")
        self._closing = f"{namespace}</{name}>"
        if self._levels[-1].bracket == "}":
            self._begin_member(name)

    def _set_aside(self, text: str) -> None:
        self.stray += [*self._pending, text]
        self._clear()

    def _spill(self, _text: str) -> None:
        self._out.extend(self._pending)
        self._clear()

    def _clear(self) -> None:
        self._pending.clear()
        self._word.clear()

    def _begin_member(self, key: str) -> None:
        level = self._levels[-1]
        self._key = key
        self._out.append(f"{level.separator}{quote_json(key)}:")
        level.separator = ","

    def _begin_value(self) -> None:
        """Write the comma before a value in a list; in an object, the key already has it."""
        level = self._levels[-1]
        if level.bracket == "]":
            self._out.append(level.separator)
            level.separator = ","

    def _is_list(self, tag: str, schema: Schema) -> bool:
        """Return whether an element is a list, of which this tag begins the first child."""
        types = schema.types
        return "array" in types or (types <= ANY and tag == f"{self._notation.namespace}<item>")

    _ACTIONS: ClassVar[Mapping[LiteralStep | tuple[LiteralStep, LiteralPart], Callable[..., None]]] = {
        LiteralStep.OPEN: _open,
        LiteralStep.CLOSE: _close,
        LiteralStep.HOLD: _hold,
        LiteralStep.NOTE: _note,
        (LiteralStep.NOTE, _ESCAPED): _note_escape,
        LiteralStep.DROP: _drop,
        LiteralStep.KEY: _write_key,
        LiteralStep.VALUE: _write_value,
        LiteralStep.STRING: _begin_string,
        LiteralStep.WRITE: _write,
        (LiteralStep.WRITE, _ESCAPED): _write_escape,
        LiteralStep.SEAL: _seal,
        LiteralStep.ENTER: _enter,
        LiteralStep.ASIDE: _set_aside,
        LiteralStep.SPILL: _spill,
    }
    """The method for each step, or for the step with a certain part."""

    @classmethod
    def act(cls, part: LiteralPart, steps: Sequence[LiteralStep]) -> _Act:
        """Return the function that carries out the steps for a part."""
        acts = [cls._ACTIONS.get((step, part)) or cls._ACTIONS[step] for step in steps]

        def act(reader: LiteralReader, text: str) -> None:
            for each in acts:
                each(reader, text)

        return acts[0] if len(acts) == 1 else act
