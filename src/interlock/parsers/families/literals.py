"""The grammar of literals as a table: arguments in a notation other than JSON, converted to JSON as they arrive.

A literal is an object of members. `f(a=1, b=['x'])` in Python, `f{a:1,b:[<|"|>x<|"|>]}` and nested elements,
`<a>1</a><b><item>x</item></b>`, have the same members, and one table reads all three. A `Notation` describes a notation.

The triggers are the parts of a literal, which `interlock.parsers.families.literal_reader` finds. Every state has a row for every
trigger, so any text can be read (rule R20); a part that is out of place breaks the literal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from math import isfinite
from types import MappingProxyType
from typing import Final, TypeAlias

import orjson
from attrs import evolve, field, frozen

from interlock.fsm.table import Edge, Table
from interlock.parsers.families.parameter_values import ANY, STRING, Schema, convert, quote_json


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
            (_P.BETWEEN, "after", (_S.ASIDE,)),
            (_P.TAG, "element", (_S.ENTER,)),
            (_P.UNTAG, "after", (_S.CLOSE,)),
        ),
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
_WORDS: Final = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}


def _python(text: str, schema: Schema) -> str:  # noqa: ARG001 - Python shows the type
    """Return a word or number of Python as JSON, and any other text as a string."""
    if _INTEGER.fullmatch(text):
        return text
    if text in _WORDS:
        return _WORDS[text]
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


def _text(text: str, schema: Schema) -> str:
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
        namespace: The text before each tag, in a dialect of elements; otherwise empty.
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
ELEMENTS: Final = Notation(_text, namespace="]<]minimax[>[")
