"""Reads a literal and writes it as JSON, with the table of `interlock.parsers.families.literals`."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import ClassVar, Final, Literal, TypeAlias

from attrs import define, field, frozen

from interlock.fsm.table import State
from interlock.parsers.families.literals import LITERALS, Dialect, Part, Step
from interlock.parsers.families.parameter_values import ESCAPED, STRING, Schema, escaped, quoted
from interlock.parsers.families.patterns import Search, alternatives, proper_prefixes

__all__ = ["LiteralReader", "Stop"]

Stop: TypeAlias = Literal["", "marker", "ended", "broken"]
"""Why the reader stopped: it needs more text, a marker may begin here, the literal is complete, or it is invalid here."""

_P: Final = Part
_BLANK, _ESCAPED, _PLAIN, _QUOTE, _STRAY, _WORD = _P.BLANK, _P.ESCAPE, _P.PLAIN, _P.QUOTE, _P.STRAY, _P.WORD
_IN_KEY: Final = frozenset({"member", "key", "keyed"})
_IN_STRING: Final = frozenset({"quoted key", "string", "torn"})
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
_ESCAPES: Final = frozenset("\n\r\\'\"abfnrtv01234567xuUN")
_TAG: Final = r"[^<>\s/][^<>\n]{0,255}"


@lru_cache(maxsize=256)
def _unescaped(escape: str) -> str:
    """Return the text of a Python escape, or the escape itself if it is invalid."""
    if escape[1:2] not in _ESCAPES:
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
        search: Finds the next sign, or the beginning of one at the end of the text.
        parts: Which part each sign of the notation is, except for escapes and tags.
        longer: The signs that begin another one.
        stops: The markers that end the literal.
    """

    search: Search
    parts: Mapping[str, Part]
    longer: frozenset[str]
    stops: frozenset[str]

    def is_whole(self, sign: str) -> bool:
        """Return whether a sign is more than the beginning of one."""
        return sign in self.parts or sign in self.stops or sign[0] == "\\"


@cache
def _outside(dialect: Dialect, stops: frozenset[str], closing: str, nested: bool, keys: bool) -> _Signs:  # noqa: FBT001 - a key
    """Return the signs outside of strings.

    Args:
        dialect: The notation.
        stops: The markers that end the literal.
        closing: The bracket that closes the innermost object or list; empty at the start.
        nested: Whether the innermost object or list is in another one.
        keys: Whether the colons count.
    """
    in_list = nested and closing != "}"
    parts = {",": _P.ITEM if in_list else _P.MEMBER, **dict.fromkeys(dialect.quotes, _P.QUOTE)}
    for opening, other in dialect.brackets.items():
        parts |= {opening: _P.OBJECT if opening == "{" else _P.LIST, other: _P.STRAY}
    if keys:
        parts |= dict.fromkeys(dialect.colons, _P.STRAY) | {dialect.colons[nested]: _P.COLON}
    parts = {**parts, closing: _P.CLOSE if nested else _P.END} if closing else dict.fromkeys(parts, _P.OBJECT)
    return _signs(parts, stops)


@lru_cache(maxsize=256)
def _inside(closing: str, stops: frozenset[str], *, escapes: bool, breaks: bool) -> _Signs:
    """Return the signs in a string."""
    parts = {closing: _P.UNQUOTE} | ({"\n": _P.BREAK} if breaks else {})
    return _signs(parts, stops, _ESCAPE if escapes else "")


@lru_cache(maxsize=256)
def _among(namespace: str, closing: str, stops: frozenset[str]) -> _Signs:
    """Return the signs between elements, or at the beginning of one."""
    others = f"{namespace}<"[1:]
    opening = re.escape(namespace[0]) + "".join(f"(?:{re.escape(letter)}" for letter in others)
    tag = rf"{opening}/?(?:{_TAG}(?:>|\Z)|\Z)" + r"|\Z)" * len(others)
    parts = {closing: _P.UNQUOTE} if closing else {}
    return _signs(parts, stops, tag)


def _signs(parts: Mapping[str, Part], stops: frozenset[str], pattern: str = "") -> _Signs:
    texts = frozenset({*parts, *stops})
    search = re.compile("|".join([*alternatives(texts), *filter(None, [pattern])])).search
    return _Signs(search, parts, proper_prefixes(texts), stops - parts.keys())


_START_OF_ELEMENTS: Final = _signs({">": _P.ELEMENTS}, frozenset())


@cache
def _stops(firsts: frozenset[str]) -> Search:
    """Return the search for characters that stop text of a string from passing through unchanged."""
    return re.compile(f"[{ESCAPED}{re.escape(''.join(sorted(firsts)))}]").search


@define
class _Level:
    """An open object or list: what closes it in its notation and in JSON, its schema, and whether it has a member yet."""

    closing: str
    bracket: str
    schema: Schema
    has_members: bool = False


@define(eq=False)
class LiteralReader:
    """Reads one literal.

    Args:
        dialect: Its notation.
        stops: The markers that end it outside of strings, and in a string with a line break that the notation does not allow.
        schema: The schema of its value.
        state: The state of the table at its beginning.
    """

    _dialect: Dialect
    _stops: frozenset[str]
    _schema: Schema
    _state: State[Part, Step] = LITERALS.states[LITERALS.initial]
    _levels: list[_Level] = field(factory=list[_Level])
    _pending: list[str] = field(factory=list[str])
    """Text that is read but not yet written, as it arrived."""
    _word: list[str] = field(factory=list[str])
    """The key or value in the pending text, without its quotes and white space."""
    _key: str = ""
    """The key of the value that follows."""
    _closing: str = ""
    """The quote or tag that ends the string or element."""
    _is_raw: bool = False
    """Whether the string has no escapes."""
    _out: list[str] = field(factory=list[str])
    _part_read: Part = _P.STRAY
    """The part that fired the current edge."""
    _text: str = ""
    """The text of this part."""
    _signs: _Signs | None = None
    """The signs that count now; None until they are needed."""
    _signs_outside: dict[tuple[str, bool, bool], _Signs] = field(factory=dict[tuple[str, bool, bool], _Signs])
    """The signs outside of strings, by the place in the literal; the cache of `_outside` is slower."""

    @property
    def passes(self) -> Search | None:
        """Finds what stops text from passing through unchanged; None outside of a string."""
        if self._state.name not in {"string", "torn"}:
            return None
        texts = [self._closing, *(self._stops if self._state.name == "torn" else ())]
        return _stops(frozenset(text[0] for text in texts))

    def read(self, text: str, at: int, *, final: bool) -> tuple[str, int, Stop]:
        """Read a text from `at`; return its JSON, where the reader stopped, and why. If `final`, no text follows."""
        end, searched, match, undecided = len(text), None, None, False
        while at < end and self._state.rows:
            signs = self._signs = self._signs or self._find_signs()
            if signs is not searched or (match is not None and match.start() < at):
                searched, match = signs, signs.search(text, at)
                undecided = match is not None and match.end() == end and self._may_grow(signs, match.group())
            if match is not None and undecided and final and not signs.is_whole(match.group()):
                match = None
            start = end if match is None else match.start()
            if match is None or start > at:
                part, part_text = self._run(text[at:start])
            elif undecided and not final:
                return self._take(), at, ""
            elif (part_text := match.group()) in signs.stops:
                return self._take(), at, "marker"
            else:
                part = self._part(signs, part_text)
            at += self._fire(part, part_text)
        return self._take(), at, "" if self._state.rows else "ended" if self._state.name == "end" else "broken"

    def end(self) -> str:
        """Complete the literal at a marker that ends it: close elements, and return the pending text of any other."""
        if self._dialect.namespace and self._state.name == "after" and len(self._levels) == 1:
            self._fire(_P.END, "")
        return self.spill()

    def spill(self) -> str:
        """Return the pending text of an incomplete literal, unchanged."""
        if self._state.rows:
            self._fire(_P.STRAY, "")
        return self._take()

    def _take(self) -> str:
        out = "".join(self._out)
        self._out.clear()
        return out

    def _may_grow(self, signs: _Signs, sign: str) -> bool:
        if sign in signs.parts or sign in signs.stops:
            return sign in signs.longer
        if sign[0] == "\\":
            return _PARTIAL_ESCAPE.fullmatch(sign) is not None
        return not (sign.endswith(">") and sign.startswith(f"{self._dialect.namespace}<"))

    def _find_signs(self) -> _Signs:
        """Return the signs of the state, in the innermost object or list."""
        dialect, name, levels = self._dialect, self._state.name, self._levels
        if name in _IN_STRING or (dialect.namespace and name == "word"):
            stops = self._stops if name == "torn" else frozenset[str]()
            breaks = dialect.escapes and len(self._closing) == 1 and name != "torn"
            return _inside(self._closing, stops, escapes=dialect.escapes, breaks=breaks)
        if dialect.namespace and name == "start":
            return _START_OF_ELEMENTS
        if dialect.namespace:
            return _among(dialect.namespace, self._closing if name == "element" else "", self._stops)
        place = levels[-1].closing if levels else "", len(levels) > 1, name in _IN_KEY
        return self._signs_outside.get(place) or self._signs_outside.setdefault(place, _outside(dialect, self._stops, *place))

    def _part(self, signs: _Signs, sign: str) -> Part:
        """Return which `Part` a sign is."""
        part = signs.parts.get(sign)
        if part is _QUOTE:
            return _QUOTE if not self._word or "".join(self._word) in self._dialect.prefixes else _STRAY
        if part is not None:
            return part
        if sign[0] == "\\":
            return _ESCAPED
        if sign == self._levels[-1].closing:
            return _P.UNTAG
        return _STRAY if sign.startswith(f"{self._dialect.namespace}</") else _P.TAG

    def _run(self, text: str) -> tuple[Part, str]:
        """Return the first part of text without signs: white space, a word, or all of it."""
        name = self._state.name
        if name in _IN_STRING or (self._dialect.namespace and name == "word"):
            return _PLAIN, text
        if self._dialect.namespace and name == "element":
            is_string = (self._value_schema().types or STRING) == STRING
            return _BLANK if text.isspace() else _PLAIN if is_string else _WORD, text
        word = text.lstrip()
        if len(word) < len(text):
            return _BLANK, text[: len(text) - len(word)]
        return _WORD, text.split(maxsplit=1)[0] if name in _IN_KEY else text

    def _value_schema(self) -> Schema:
        """Return the schema of the value that follows."""
        level = self._levels[-1]
        return level.schema.item if level.bracket == "]" else level.schema.member(self._key)

    def _fire(self, part: Part, text: str) -> int:
        """Fire an edge, and return how much of the text it took: none of a part that breaks the literal."""
        state, steps = self._state.rows[part]
        if state is not self._state:
            self._state, self._signs = state, None
        self._part_read, self._text = part, "" if state.name == "broken" else text
        for step in steps:
            self._CARRY_OUT[step](self)
        return len(self._text)

    def _open(self) -> None:
        is_tag = self._part_read is _P.TAG
        schema = self._value_schema() if self._levels else self._schema
        if self._levels:
            self._begin_value()
        is_list = self._part_read is _P.LIST or (is_tag and self._is_list(schema))
        closing = self._closing if is_tag else self._dialect.brackets.get(self._text, "")
        self._levels.append(_Level(closing, "]" if is_list else "}", schema))
        self._out.append("[" if is_list else "{")
        self._signs = None
        self._clear()

    def _close(self) -> None:
        self._out.append(self._levels.pop().bracket)
        self._signs = None
        self._clear()

    def _hold(self) -> None:
        self._pending.append(self._text)
        self._quote()

    def _note(self) -> None:
        self._pending.append(self._text)
        self._word.append(self._plain())

    def _drop(self) -> None:
        """Drop the word before a string, which says whether the string has escapes."""
        self._is_raw = "r" in "".join(self._word).lower()
        self._clear()

    def _write_key(self) -> None:
        self._key = "".join(self._word)
        self._out.append(f"{self._comma()}{quoted(self._key)}:")
        self._clear()

    def _write_value(self) -> None:
        word = "".join(self._word)
        types = self._value_schema().types
        self._begin_value()
        self._out.append(self._dialect.convert(word if self._dialect.namespace else word.strip(), types))
        self._clear()

    def _begin_string(self) -> None:
        self._begin_value()
        self._out.append(f'"{escaped("".join(self._word))}')
        self._clear()
        self._quote()

    def _write(self) -> None:
        self._out.append(escaped(self._plain()))

    def _seal(self) -> None:
        self._out.append('"')
        self._is_raw = False

    def _enter(self) -> None:
        """Begin an element: the member of an object, or an item of a list, whatever its tag."""
        self._clear()
        namespace = self._dialect.namespace
        name = self._text.removeprefix(f"{namespace}<").removesuffix(">")
        self._closing, self._signs = f"{namespace}</{name}>", None
        if self._levels[-1].bracket == "}":
            self._key = name
            self._out.append(f"{self._comma()}{quoted(name)}:")

    def _spill(self) -> None:
        self._out.extend(self._pending)
        self._clear()

    def _clear(self) -> None:
        self._pending.clear()
        self._word.clear()

    def _quote(self) -> None:
        if self._part_read is _QUOTE:
            self._closing = self._text

    def _plain(self) -> str:
        """Return the text that a part of a string stands for."""
        return _unescaped(self._text) if self._part_read is _ESCAPED and not self._is_raw else self._text

    def _comma(self) -> str:
        level = self._levels[-1]
        comma = "," if level.has_members else ""
        level.has_members = True
        return comma

    def _begin_value(self) -> None:
        """Write the comma before a value in a list; in an object, the key already has it."""
        if self._levels[-1].bracket == "]":
            self._out.append(self._comma())

    def _is_list(self, schema: Schema) -> bool:
        """Return whether an element is a list, of which this tag begins the first child."""
        types = schema.types
        return "array" in types or (not types and self._text == f"{self._dialect.namespace}<item>")

    _CARRY_OUT: ClassVar[Mapping[Step, Callable[..., None]]] = {
        Step.OPEN: _open,
        Step.CLOSE: _close,
        Step.HOLD: _hold,
        Step.NOTE: _note,
        Step.DROP: _drop,
        Step.KEY: _write_key,
        Step.VALUE: _write_value,
        Step.STRING: _begin_string,
        Step.WRITE: _write,
        Step.SEAL: _seal,
        Step.ENTER: _enter,
        Step.SPILL: _spill,
    }
    """What carries out each step. A `match` would take longer, because each of its cases looks up a member of an enum."""
