"""Strings and numbers that come to mind for a JSON schema, the best first.

It proposes and does not judge: whoever asks takes the first proposal that fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import ceil, floor, inf
from typing import Final

from interlock.serving.engines.embedded.pattern import Unreadable, example
from interlock.serving.requests.values import elements

__all__ = ["numbers", "strings"]

FORMATS: Final[Mapping[str, str]] = {
    "date": "2026-01-0{}",
    "date-time": "2026-01-0{}T12:00:00Z",
    "time": "12:00:0{}Z",
    "duration": "PT{}H",
    "email": "someone{}@example.com",
    "hostname": "host{}.example.com",
    "ipv4": "192.0.2.{}",
    "ipv6": "2001:db8::{}",
    "uri": "https://example.com/{}",
    "uuid": "00000000-0000-4000-8000-00000000000{}",
}
"""A string of each format, with a place for a digit from 1 to 9."""

WORD: Final = "text"
LONGEST: Final = 2_000
"""Characters that a string gets at most to be as long as it must."""

LARGEST: Final = 2.0**53
"""The largest number that is counted with."""


def strings(schema: Mapping[str, object], text: str | None, nth: int) -> Iterator[str]:
    """Propose strings.

    Args:
        schema: What the string must be.
        text: What it should say, or None.
        nth: Which one of the strings is wanted, from 0; others than 0 are made to differ.
    """
    kind, pattern = str(schema.get("format", "")), schema.get("pattern")
    least = _whole(schema, "minLength", 0)
    yield from [given for given in (schema.get("default"), *elements(schema.get("examples"))) if isinstance(given, str)][nth:]
    if isinstance(pattern, str):
        with suppress(Unreadable):
            yield example(pattern, least)
    elif kind in FORMATS:
        yield FORMATS[kind].format(nth % 9 + 1)
    if text is not None and kind not in FORMATS and not nth:
        yield _fitted(text, schema, least)
    suffix = str(nth or "")
    yield _fitted(WORD + suffix, schema, least)
    yield _fitted(suffix + WORD, schema, least)


def _fitted(text: str, schema: Mapping[str, object], least: int) -> str:
    """Cut a text, or say it again, so that its length is right."""
    enough = min(least, LONGEST)
    longer = text if len(text) >= enough else ((text or ".") * enough)[:enough]
    return longer[: _whole(schema, "maxLength", len(longer))]


def numbers(schema: Mapping[str, object], kind: str, nth: int) -> Iterator[float]:
    """Propose numbers.

    Args:
        schema: What the number must be.
        kind: `integer` or `number`.
        nth: Which one of the numbers is wanted, from 0.
    """
    step = _number(schema, "multipleOf", 1) or 1
    low = max(_number(schema, "minimum", -inf), _number(schema, "exclusiveMinimum", -inf))
    high = min(_number(schema, "maximum", inf), _number(schema, "exclusiveMaximum", inf))
    given = [schema.get("default"), *elements(schema.get("examples"))]
    yield from [value for value in given if isinstance(value, int | float) and not isinstance(value, bool)][nth:]
    starts = [value for value in (1.0, 0.0) if low <= value <= high]
    starts += [low, low + step] if low > -inf else []
    starts += [high, high - step] if high < inf else []
    for start in starts:
        for round_ in (ceil, floor):
            yield _plain((round_(start / step) + nth) * step)
            yield _plain((round_(start / step) - nth) * step)
    if kind == "number" and low > -inf and high < inf:
        yield low + (high - low) * (nth + 1) / (nth + 2)


def _number(schema: Mapping[str, object], name: str, default: float) -> float:
    value = schema.get(name)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
    return value if fits and isinstance(value, int | float) else default


def _whole(schema: Mapping[str, object], name: str, default: int) -> int:
    value = schema.get(name)
    return int(value) if isinstance(value, int | float) and 0 <= value <= LARGEST else default


def _plain(value: float) -> float:
    """Return a whole number as an integer, as JSON writes it."""
    return int(value) if float(value).is_integer() else value
