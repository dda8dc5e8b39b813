"""Compiles the `response_template` of a checkpoint to a family.

The template, in the tokenizer's configuration, describes how a model writes: the texts or regular expressions around its
reasoning, its messages and its calls, and how to read the inside of a call. vLLM reads it with `--tool-call-parser hf`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final, TypeAlias

from interlock.events.json import elements, members
from interlock.parsers.families.family import Family, Markers, ReasoningSyntax, Syntax
from interlock.parsers.families.framing import Trigger
from interlock.parsers.families.literals import GEMMA, Notation

_T: Final = Trigger
_FIELDS: Final = frozenset({"thinking", "content", "tool_calls"})
_MOST: Final = 32
"""The maximum number of texts that a pattern may stand for."""
_PAIR: Final = 2
_NAME: Final = r"[\w.:/$-]+"
_INSIDE: Final = r"(?:\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^()\\\[])*"
_PART: Final = re.compile(
    rf"(?P<space>(?:\\s|\\n|\n)[*+?])|\(\?P<(?P<group>\w+)>{_INSIDE}\)|\(\?={_INSIDE}\)"
    r"|(?P<letter>\\n|\\[^\w\s]|[^\\()\[\]{}*+?.|^$])(?P<optional>\??)",
    re.DOTALL,
)
"""A part of a simple regular expression: white space, a letter, a group for a name, key or value, or a lookahead (ignored)."""
_SPACE: Final = ("", "\n")
"""The texts that stand for white space; the framing handles other white space."""

_Texts: TypeAlias = tuple[str, ...]


def compile_template(template: Mapping[str, object], *, tools: bool, reasoning: bool) -> Family:
    """Return the family of a template.

    Args:
        template: The checkpoint's `response_template`.
        tools: Whether to read calls; otherwise they stay in the text.
        reasoning: Whether to read reasoning; otherwise it stays in the text.

    Raises:
        ValueError: The template cannot be compiled; the message says why.
    """
    fields = {name: members(field) for name, field in members(template.get("fields")).items()}
    if unknown := sorted(fields.keys() - _FIELDS):
        raise ValueError(f"the field {unknown[0]!r} is neither reasoning, nor a message, nor calls")
    for name, wanted in (("tool_calls", tools), ("thinking", reasoning)):
        if wanted and name not in fields:
            raise ValueError(f"there is no field {name!r}")
    syntax = _syntax(fields["tool_calls"]) if tools else None
    return Family("the checkpoint's response_template", syntax, _reasoning(fields) if reasoning else None)


def _reasoning(fields: Mapping[str, Mapping[str, object]]) -> ReasoningSyntax:
    thinking, content = fields["thinking"], fields.get("content", {})
    begins, ends = _markers(thinking, "open"), _markers(thinking, "close")
    if not ends:
        raise ValueError("the reasoning has no end")
    ends = tuple(dict.fromkeys([*(f"\n{end.lstrip()}" for end in ends), *(end.lstrip() for end in ends)]))
    return ReasoningSyntax(begins, ends, not begins, (_markers(content, "open"), _markers(content, "close")))


def _syntax(field: Mapping[str, object]) -> Syntax:
    """Return the syntax of calls."""
    function = members(field.get("transform")).get("function")
    names = members(function)
    before, *rest = _split(field, "open")
    ends = _split(field, "close")
    if len(ends) != 1:
        raise ValueError("the end of a call has a name")
    if field.get("transform_each"):
        raise ValueError("several calls are one value")
    markers = _markers_around(before, ends[0])
    named = names.get("name") == "{name}" and names.get("arguments") == "{content}" and len(rest) == 1
    match field.get("content"):
        case "json" if named:
            return _json_syntax(markers, rest[0], members(field.get("content_args")))
        case "json" if not rest and not field.get("content_args"):
            return _envelope_syntax(markers, function)
        case "xml-inline" if named:
            return _keys_syntax(markers, rest[0], members(field.get("content_args")))
        case content:
            raise ValueError(f"calls are written as {content!r}, with {_describe(function)} as their function")


def _json_syntax(markers: Markers, after: Sequence[_Texts], content: Mapping[str, object]) -> Syntax:
    """Return the syntax of a name before JSON, or before a literal if keys or strings are not quoted as in JSON."""
    quotes = [tuple(map(str, elements(pair))) for pair in elements(content.get("string_delims"))]
    opening = tuple(text for text in _variants(after) if text)
    if not quotes and not content.get("unquoted_keys"):
        ends: Markers = {_T.JSON: opening or ("{",)}
        return Syntax("json", {**markers, **ends})
    if any(len(pair) != _PAIR or pair[0] != pair[1] for pair in quotes):
        raise ValueError("the quotes of strings differ at both ends")
    notation = Notation(GEMMA.convert, tuple(pair[0] for pair in quotes), GEMMA.brackets, GEMMA.colons)
    ends = {_T.LITERAL: tuple(f"{text}{{" for text in opening or ("",))}
    sign = "|".join(map(re.escape, ends[_T.LITERAL]))
    return Syntax("literal", {**markers, **ends}, re.compile(rf"\s*(?P<name>{_NAME}?)\s*(?:{sign})"), notation=notation)


def _envelope_syntax(markers: Markers, function: object) -> Syntax:
    """Return the syntax of a JSON object that contains the name and the arguments."""
    names = members(function)
    arguments = {f"{{content.{word}}}" for word in ("arguments", "parameters")}
    if function != "{content}" and not (names.get("name") == "{content.name}" and names.get("arguments") in arguments):
        raise ValueError(f"calls have {_describe(function)} as their function")
    return Syntax("envelope", {**markers, _T.SHUT: ("}",)})


def _keys_syntax(markers: Markers, after: Sequence[_Texts], content: Mapping[str, object]) -> Syntax:
    """Return the syntax of a name before keys and values."""
    parts = list(_parts(str(content.get("tag_pattern")), "the pattern of a parameter"))
    groups = [part for part in parts if isinstance(part, str)]
    if groups != ["key", "value"] or content.get("merge_duplicates"):
        raise ValueError("a parameter is not a key with a value")
    key, value = (parts.index(group) for group in groups)
    segments = parts[:key], parts[key:value], parts[value:]
    before, between, end = (_variants([part for part in each if not isinstance(part, str)]) for each in segments)
    sign = tuple(text.rstrip() for text in _variants(after) if text.strip())
    if not sign or not all(map(str.strip, (*before, *between, *end))):
        raise ValueError("a name, a key or a value has no end")
    keyed = {
        _T.KEYS: tuple(dict.fromkeys(sign)),
        _T.KEY: tuple(dict.fromkeys(text.strip() for text in before)),
        _T.VALUE: between,
        _T.UNVALUE: tuple(dict.fromkeys([*end, *(text.lstrip() for text in end)])),
    }
    lenient = members(content.get("value_parser")).get("name") == "json"
    return Syntax("keys", {**markers, **keyed}, lenient=lenient)


def _markers_around(before: Sequence[_Texts], after: Sequence[_Texts]) -> Markers:
    """Return the markers around a call, and those around its section if white space separates the two."""
    begins, ends = _split_at_space(before), _split_at_space(after)
    if len(begins) == len(ends) == _PAIR:
        return {
            _T.SECTION: (begins[0],),
            _T.INVOKE: (begins[1],),
            _T.BARE: (begins[1],),
            _T.UNCALL: (ends[0],),
            _T.UNSECTION: (ends[1],),
        }
    opening, closing = (tuple(dict.fromkeys(text.strip() for text in _variants(each))) for each in (before, after))
    if not all(opening) or not opening:
        raise ValueError("a call has no beginning")
    return {_T.CALL: opening, **({_T.UNCALL: closing} if any(closing) else {})}


def _split_at_space(parts: Sequence[_Texts]) -> list[str]:
    """Return the texts that white space separates."""
    texts_between = [""]
    for texts in parts:
        if texts == _SPACE:
            texts_between.append("")
        else:
            texts_between[-1] += texts[0]
    return [text.strip() for text in texts_between if text.strip()]


def _markers(field: Mapping[str, object], which: str) -> _Texts:
    """Return the texts of an opening or closing; empty if it has none."""
    segments = _split(field, which)
    if len(segments) > 1:
        raise ValueError(f"the pattern {field.get(f'{which}_pattern')!r} has a name in it")
    return tuple(text for text in _variants(segments[0]) if text)


def _split(field: Mapping[str, object], which: str) -> list[list[_Texts]]:
    """Return the texts of an opening or closing, in order, split at its groups."""
    literal, pattern = field.get(which), field.get(f"{which}_pattern")
    if pattern is None:
        texts = (literal,) if isinstance(literal, str) else tuple(map(str, elements(literal)))
        return [[texts] if texts else []]
    segments: list[list[_Texts]] = [[]]
    for part in _parts(str(pattern), f"the pattern {pattern!r}"):
        if isinstance(part, str):
            segments.append([])
        else:
            segments[-1].append(part)
    return segments


def _parts(pattern: str, about: str) -> Iterator[_Texts | str]:
    """Yield the parts of a regular expression: the texts that each stands for, or the name of a group."""
    at = 0
    while at < len(pattern):
        match = _PART.match(pattern, at)
        if match is None:
            raise ValueError(f"{about} is not simple enough at {pattern[at : at + 10]!r}")
        if match["group"] is not None:
            yield match["group"]
        elif match["space"] is not None:
            yield _SPACE
        elif match["letter"] is not None:
            letter = "\n" if match["letter"] == r"\n" else match["letter"].removeprefix("\\")
            yield (letter, "") if match["optional"] else (letter,)
        at = match.end()


def _variants(parts: Sequence[_Texts]) -> _Texts:
    """Return the texts that a sequence of parts stands for."""
    count = 1
    for texts in parts:
        count *= len(texts)
    if count > _MOST:
        raise ValueError("a pattern stands for too many texts")
    return tuple(dict.fromkeys("".join(texts) for texts in product(*parts)))


def _describe(function: object) -> str:
    return repr(dict(members(function)) or function)
