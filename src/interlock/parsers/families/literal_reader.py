"""Reads a literal and writes it as JSON, with the table of `interlock.parsers.families.literals`."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias, assert_never

from attrs import define, field, frozen

from interlock.fsm.table import State
from interlock.parsers.families.literals import LITERALS, Dialect, Part, Step
from interlock.parsers.families.parameter_values import ESCAPED, STRING, Schema, escaped, quoted
from interlock.parsers.families.patterns import Search, alternatives, proper_prefixes

__all__ = ["LiteralReader", "Stop"]

Stop: TypeAlias = Literal["", "marker", "ended", "broken"]
"""Why the reader stopped: it needs more text, a marker may begin here, the literal is complete, or it is invalid here."""

_P: Final = Part
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
    """The signs that count in a state, and a search for the next one, or the beginning of one at the end of the text."""

    search: Search
    parts: Mapping[str, Part]
    longer: frozenset[str]
    stops: frozenset[str]


class _Token(NamedTuple):
    """The next part of a text; `part` is None at a marker, or if the rest of the text is undecided."""

    part: Part | None
    text: str = ""
    stop: Stop = ""


@cache
def _outside(dialect: Dialect, stops: frozenset[str], *, keys: bool) -> _Signs:
    """Return the signs outside of strings; `keys` adds the colons."""
    parts: dict[str, Part] = {",": _P.MEMBER, **dict.fromkeys(dialect.quotes, _P.QUOTE)}
    for opening, closing in dialect.brackets.items():
        parts |= {opening: _P.OBJECT if opening == "{" else _P.LIST, closing: _P.CLOSE}
    if keys:
        parts |= dict.fromkeys(dialect.colons, _P.COLON)
    return _signs(parts, stops)


@cache
def _inside(closing: str, stops: frozenset[str], *, escapes: bool, breaks: bool) -> _Signs:
    """Return the signs in a string."""
    parts = {closing: _P.UNQUOTE} | ({"\n": _P.BREAK} if breaks else {})
    return _signs(parts, stops, _ESCAPE if escapes else "")


@cache
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
    """An open object or list: the bracket or tag that closes it, its closing bracket in JSON, and whether it has a member yet."""

    closing: str
    bracket: str
    schema: Schema
    has_members: bool = False


@define(eq=False)
class LiteralReader:
    """Reads one literal.

    Args:
        dialect: Its notation.
        stops: The markers that end it, outside of strings and in one with an invalid line break.
        schema: The schema of its value.
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

    @property
    def passes(self) -> Search | None:
        """Finds what stops text from passing through unchanged; None outside of a string."""
        if self._state.name not in {"string", "torn"}:
            return None
        texts = [self._closing, *(self._stops if self._state.name == "torn" else ())]
        return _stops(frozenset(text[0] for text in texts))

    def read(self, text: str, at: int, *, final: bool) -> tuple[str, int, Stop]:
        """Read a text from `at`; return JSON, where the reader stopped, and why. If `final`, no text follows."""
        while at < len(text) and self._state.rows:
            part, part_text, stop = self._next(text, at, final=final)
            if part is None:
                return self._take(), at, stop
            breaks = self._state.rows[part][0].name == "broken"
            self._fire(part, "" if breaks else part_text)
            at += 0 if breaks else len(part_text)
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

    def _next(self, text: str, at: int, *, final: bool) -> _Token:
        """Return the next sign, or the text before it."""
        signs = self._signs()
        match = signs.search(text, at)
        sign, start = ("", len(text)) if match is None else (match.group(), match.start())
        undecided = match is not None and match.end() == len(text) and self._may_grow(signs, sign)
        if undecided and final and sign not in signs.parts and sign not in signs.stops and sign[0] != "\\":
            start = len(text)
        if start > at:
            return self._run(text[at:start])
        if undecided and not final:
            return _Token(None)
        return _Token(None, stop="marker") if sign in signs.stops else _Token(self._part(signs, sign), sign)

    def _may_grow(self, signs: _Signs, sign: str) -> bool:
        if sign in signs.parts or sign in signs.stops:
            return sign in signs.longer
        if sign[0] == "\\":
            return _PARTIAL_ESCAPE.fullmatch(sign) is not None
        return not (sign.endswith(">") and sign.startswith(f"{self._dialect.namespace}<"))

    def _signs(self) -> _Signs:
        """Return the signs of the state."""
        dialect, name = self._dialect, self._state.name
        if name in _IN_STRING or (dialect.namespace and name == "word"):
            stops = self._stops if name == "torn" else frozenset[str]()
            breaks = dialect.escapes and len(self._closing) == 1 and name != "torn"
            return _inside(self._closing, stops, escapes=dialect.escapes, breaks=breaks)
        if dialect.namespace and name == "start":
            return _START_OF_ELEMENTS
        if dialect.namespace:
            return _among(dialect.namespace, self._closing if name == "element" else "", self._stops)
        return _outside(dialect, self._stops, keys=name in _IN_KEY)

    def _part(self, signs: _Signs, sign: str) -> Part:
        """Return which `Part` a sign is; it depends on what is open."""
        if not self._levels:
            return _P.ELEMENTS if self._dialect.namespace else _P.OBJECT
        level = self._levels[-1]
        part = signs.parts.get(sign)
        match part:
            case None:
                return _P.ESCAPE if sign[0] == "\\" else self._part_of_tag(sign, level)
            case _P.MEMBER if level.bracket == "]":
                return _P.ITEM
            case _P.CLOSE if sign == level.closing and len(self._levels) == 1:
                return _P.END
            case _P.CLOSE:
                is_in_place = sign == level.closing
            case _P.COLON:
                is_in_place = sign == self._dialect.colons[len(self._levels) > 1]
            case _P.QUOTE:
                is_in_place = not self._word or "".join(self._word) in self._dialect.prefixes
            case _:
                is_in_place = True
        return part if is_in_place else _P.STRAY

    def _part_of_tag(self, sign: str, level: _Level) -> Part:
        if sign == level.closing:
            return _P.UNTAG
        return _P.STRAY if sign.startswith(f"{self._dialect.namespace}</") else _P.TAG

    def _run(self, text: str) -> _Token:
        """Return the first token of text without signs: white space, a word, or all of it."""
        name = self._state.name
        if name in _IN_STRING or (self._dialect.namespace and name == "word"):
            return _Token(_P.PLAIN, text)
        if self._dialect.namespace and name == "element":
            is_string = (self._value_schema().types or STRING) == STRING
            return _Token(_P.BLANK if text.isspace() else _P.PLAIN if is_string else _P.WORD, text)
        blank = text[: len(text) - len(text.lstrip())]
        return _Token(_P.BLANK, blank) if blank else _Token(_P.WORD, text.split(maxsplit=1)[0] if name in _IN_KEY else text)

    def _value_schema(self) -> Schema:
        """Return the schema of the value that follows."""
        level = self._levels[-1]
        return level.schema.item() if level.bracket == "]" else level.schema.member(self._key)

    def _fire(self, part: Part, text: str) -> None:
        self._state, steps = self._state.rows[part]
        for step in steps:
            self._carry_out(step, part, text)

    def _carry_out(self, step: Step, part: Part, text: str) -> None:  # noqa: C901, PLR0912 - one case for each step
        match step:
            case Step.OPEN:
                self._open(part, text)
            case Step.CLOSE:
                self._out.append(self._levels.pop().bracket)
                self._clear()
            case Step.HOLD:
                self._pending.append(text)
                self._quote(part, text)
            case Step.NOTE:
                self._pending.append(text)
                self._word.append(self._value_of(part, text))
            case Step.DROP:
                self._is_raw = "r" in "".join(self._word).lower()
                self._clear()
            case Step.KEY:
                self._key = "".join(self._word)
                self._out.append(f"{self._comma()}{quoted(self._key)}:")
                self._clear()
            case Step.VALUE:
                word = "".join(self._word)
                word = word if self._dialect.namespace else word.strip()
                types = self._value_schema().types
                self._begin_value()
                self._out.append(self._dialect.convert(word, types))
                self._clear()
            case Step.STRING:
                self._begin_value()
                self._out.append(f'"{escaped("".join(self._word))}')
                self._clear()
                self._quote(part, text)
            case Step.WRITE:
                self._out.append(escaped(self._value_of(part, text)))
            case Step.SEAL:
                self._out.append('"')
                self._is_raw = False
            case Step.ENTER:
                self._enter(text)
            case Step.SPILL:
                self._out.extend(self._pending)
                self._clear()
            case _:
                assert_never(step)

    def _clear(self) -> None:
        self._pending.clear()
        self._word.clear()

    def _quote(self, part: Part, text: str) -> None:
        if part is _P.QUOTE:
            self._closing = text

    def _value_of(self, part: Part, text: str) -> str:
        return _unescaped(text) if part is _P.ESCAPE and not self._is_raw else text

    def _comma(self) -> str:
        level = self._levels[-1]
        comma = "," if level.has_members else ""
        level.has_members = True
        return comma

    def _begin_value(self) -> None:
        """Write the comma before a value in a list; in an object, the key already has it."""
        if self._levels[-1].bracket == "]":
            self._out.append(self._comma())

    def _open(self, part: Part, text: str) -> None:
        schema = self._value_schema() if self._levels else self._schema
        if self._levels:
            self._begin_value()
        is_list = part is _P.LIST or (part is _P.TAG and self._is_list(schema, text))
        closing = self._closing if part is _P.TAG else self._dialect.brackets.get(text, "")
        self._levels.append(_Level(closing, "]" if is_list else "}", schema))
        self._out.append("[" if is_list else "{")
        self._clear()

    def _is_list(self, schema: Schema, tag: str) -> bool:
        """Return whether an element whose first child has this tag is a list."""
        types = schema.types
        return "array" in types or (not types and tag == f"{self._dialect.namespace}<item>")

    def _enter(self, tag: str) -> None:
        """Begin an element: the member of an object, or an item of a list, whatever its tag."""
        self._clear()
        namespace = self._dialect.namespace
        name = tag.removeprefix(f"{namespace}<").removesuffix(">")
        self._closing = f"{namespace}</{name}>"
        if self._levels[-1].bracket == "}":
            self._key = name
            self._out.append(f"{self._comma()}{quoted(name)}:")
