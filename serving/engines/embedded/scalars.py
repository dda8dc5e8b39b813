"""Strings and numbers that come to mind for a JSON schema, the best first.

It proposes and does not judge: whoever asks takes the first proposal that validates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, floor
from typing import Final

from jsonschema import FormatChecker

from interlock.serving.engines.embedded.pattern import Pattern, Unreadable
from interlock.serving.engines.embedded.validation import UNENFORCED
from interlock.serving.requests.values import elements

__all__ = ["numbers", "strings"]

FORMATS: Final[Mapping[str, str]] = {
    "date": "2026-01-0{}",
    "date-time": "2026-01-0{}T12:00:00Z",
    "time": "12:00:0{}Z",
    "duration": "PT{}H",
    "email": "someone{}@example.com",
    "idn-email": "someone{}@example.com",
    "hostname": "host{}.example.com",
    "idn-hostname": "host{}.example.com",
    "ipv4": "192.0.2.{}",
    "ipv6": "2001:db8::{}",
    "uri": "https://example.com/{}",
    "uri-reference": "/{}",
    "url": "https://example.com/{}",
    "iri": "https://example.com/{}",
    "iri-reference": "/{}",
    "uri-template": "/{}",
    "uuid": "00000000-0000-4000-8000-00000000000{}",
    "json-pointer": "/{}",
    "relative-json-pointer": "{}",
    "regex": "a{{{}}}",
    "binary": "{}",
    "byte": "MTIz",
}
"""A string of each format, with a place for a digit from 1 to 9."""

CHECKER: Final = FormatChecker()
WORD: Final = "text"
LONGEST: Final = 100_000
"""Characters that a string gets at most to be as long as it must."""

PATTERN_TEXT: Final = 40
"""Characters that a text may have to be tried against a pattern: some patterns take a power of the length."""


def strings(schema: Mapping[str, object], text: str | None, nth: int) -> Iterator[str]:
    """Propose strings.

    Args:
        schema: What the string must be.
        text: What it should say, or None.
        nth: Which one of the strings is wanted first, from 0; others than 0 are made to differ.
    """
    kind = str(schema.get("format", ""))
    pattern = schema.get("pattern")
    known = [text, schema.get("default"), *elements(schema.get("examples"))]
    apt = [given for given in known if isinstance(given, str) and CHECKER.conforms(given, kind)]
    if pattern is not None:
        apt = [given for given in apt if len(given) <= PATTERN_TEXT]
    yield from _matching(schema.get(UNENFORCED), schema, nth)
    for given in apt[nth:]:
        yield _fitted(given, schema)
        yield given
    yield from _matching(pattern, schema, nth)
    if kind in FORMATS:
        yield FORMATS[kind].format(nth % 9 + 1)
    suffix = str(nth) if nth else ""
    yield _fitted(WORD + suffix, schema)
    yield _fitted(suffix + WORD, schema)


def _matching(pattern: object, schema: Mapping[str, object], nth: int) -> Iterator[str]:
    try:
        for offset in range(4) if isinstance(pattern, str) else ():
            yield Pattern(str(pattern)).example(int(str(schema.get("minLength", 0))), nth + offset)
    except Unreadable:
        return


def _fitted(text: str, schema: Mapping[str, object]) -> str:
    """Cut a text, or say it again, so that its length is right."""
    least, most = min(LONGEST, int(str(schema.get("minLength", 0)))), schema.get("maxLength")
    longer = text if len(text) >= least else (text * (least // len(text) + 1))[:least] if text else "." * least
    return longer if most is None else longer[: int(str(most))]


def numbers(schema: Mapping[str, object], kind: str, nth: int) -> Iterator[float]:
    """Propose numbers.

    Args:
        schema: What the number must be.
        kind: `integer` or `number`.
        nth: Which one of the numbers is wanted, from 0.
    """
    step = _number(schema, "multipleOf") or 1
    low = max(_number(schema, "minimum", float("-inf")), _number(schema, "exclusiveMinimum", float("-inf")))
    high = min(_number(schema, "maximum", float("inf")), _number(schema, "exclusiveMaximum", float("inf")))
    known = [schema.get("default"), *elements(schema.get("examples"))]
    yield from [value for value in known if isinstance(value, int | float)][nth:]
    starts = [value for value in (1.0, 0.0) if low <= value <= high]
    if low > float("-inf"):
        starts += [ceil(low / step) * step, (floor(low / step) + 1) * step]
    if high < float("inf"):
        starts += [floor(high / step) * step, (ceil(high / step) - 1) * step]
    for start in starts:
        for sign in (1, -1):
            yield _plain(ceil(start / step) * step + sign * nth * step)
    if kind == "number" and float("-inf") < low and high < float("inf"):
        yield low + (high - low) * (nth + 1) / (nth + 2)
        yield _plain(low)


def _number(schema: Mapping[str, object], name: str, default: float = 0) -> float:
    value = schema.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


def _plain(value: float) -> float:
    """A whole number as an integer, as JSON writes it."""
    return int(value) if float(value).is_integer() else value
