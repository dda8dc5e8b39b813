"""Two JSON schemas made one, as far as their words can be: what a value must be that fits both.

It knows how the words of two schemas meet, and nothing of values. Where two words cannot meet in one (two `anyOf`, say) the
second one's is left out: the result then allows too much, and whoever makes a value of it validates that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

from interlock.serving.requests.values import elements, is_array, is_object

__all__ = ["merged"]


def merged(first: Mapping[str, object], second: Mapping[str, object]) -> dict[str, object]:
    """Merge two schemas; the second has its say where the first has none."""
    both = {name: MEETINGS[name](first[name], second[name]) for name in second if name in first and name in MEETINGS}
    return {**second, **first, **both}


def _both(first: object, second: object) -> object:
    """Two schemas, or whatever stands for schemas, that must both hold."""
    if first is True or second is False:
        return second
    return first if second is True or first is False else {"allOf": [first, second]}


def _each(first: object, second: object) -> object:
    """Two mappings of names to schemas."""
    if not is_object(first) or not is_object(second):
        return first
    met = {name: _both(inner, second[name]) if name in second else inner for name, inner in first.items()}
    return {**second, **met}


def _shared(first: object, second: object) -> object:
    """Two lists of which a value must be in both."""
    others = elements(second)
    return [value for value in elements(first) if value in others]


def _joined(first: object, second: object) -> object:
    """Two lists that both must be there."""
    return [*elements(first), *(value for value in elements(second) if value not in elements(first))]


def _kinds(first: object, second: object) -> object:
    """Two types, or lists of types; an integer is a number."""
    ours, theirs = (elements(given) if is_array(given) else [given] for given in (first, second))
    shared = [kind for kind in ours if kind in theirs or (kind == "integer" and "number" in theirs)]
    return shared + [kind for kind in theirs if kind == "integer" and "number" in ours and kind not in shared]


def _larger(first: object, second: object) -> object:
    return max(cast("float", first), cast("float", second))


def _smaller(first: object, second: object) -> object:
    return min(cast("float", first), cast("float", second))


MEETINGS: Final[Mapping[str, Callable[[object, object], object]]] = {
    "type": _kinds,
    "enum": _shared,
    "required": _joined,
    "allOf": _joined,
    "properties": _each,
    "patternProperties": _each,
    "items": _both,
    "additionalProperties": _both,
    "contains": _both,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), _larger),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), _smaller),
}
"""How two values of one word meet."""
