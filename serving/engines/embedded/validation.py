"""Validating JSON against a schema of unknown origin: it fetches nothing, and it ends soon.

It knows what may make a validator slow or curious: references to elsewhere, references that double at every step, and
patterns that take exponential time. Such patterns, and those that `Pattern` cannot read, are not enforced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from attrs import frozen
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from referencing import Registry

from interlock.serving.engines.embedded.pattern import Pattern, Unreadable
from interlock.serving.requests.values import is_array, is_object, members

__all__ = ["Impossible", "Judge"]

FOLLOWED: Final = 2_000
"""References that are followed for one schema before it counts as endless."""

DATA: Final = frozenset({"const", "enum", "default", "examples"})
"""The words of a schema that hold data and no schemas."""

UNENFORCED: Final = "x-pattern"
"""Where a pattern goes that is not enforced."""


class Impossible(Exception):  # noqa: N818 - it says what the schema is
    """No value was found: there is none, or the schema is beyond us."""


@frozen
class Judge:
    """Says what fits a schema, or a part of it.

    Args:
        root: The whole schema, which references point into, without what is not enforced.
        validator: A `jsonschema` validator of the whole.
    """

    root: Mapping[str, object]
    validator: Any

    @classmethod
    def of(cls, schema: Mapping[str, object]) -> Judge:
        """Make the judge of a schema, by the draft that it names (2020-12 if none)."""
        draft: Any = validators.validator_for(dict(schema), default=Draft202012Validator)
        root = members(_harmless({name: inner for name, inner in schema.items() if name not in ("$schema", "$id")}))
        extend: Any = vars(validators)["extend"]  # its own annotations are too few for a strict checker
        registry: Any = Registry  # likewise
        bounded = extend(draft, {"$ref": _bounded(draft.VALIDATORS["$ref"])})
        return cls(root, bounded(dict(root), registry=registry()))

    def fits(self, value: object, schema: object) -> bool:
        """Validate a value against a part of the whole.

        Raises:
            Impossible: The references of the schema never end.
        """
        return cast("bool", self.validator.evolve(schema=schema).is_valid(value))


def _bounded(follow: Any) -> Any:  # noqa: ANN401 - jsonschema's keyword functions have no types
    """Let a validator follow so many references and no more."""
    budget = iter(range(FOLLOWED))

    def follow_within_budget(*where: object) -> Iterator[ValidationError]:
        if next(budget, None) is None:
            raise Impossible("its references never end")
        yield from follow(*where) or ()

    return follow_within_budget


def _harmless(schema: object) -> object:
    """Copy a schema; patterns that are not enforced are put aside."""
    if is_array(schema):
        return [_harmless(inner) for inner in schema]
    if not is_object(schema):
        return schema
    kept = dict(schema)
    if isinstance(pattern := kept.get("pattern"), str) and not _is_cheap(pattern):
        kept[UNENFORCED] = kept.pop("pattern")
    if is_object(named := kept.get("patternProperties")):
        kept["patternProperties"] = {pattern: inner for pattern, inner in named.items() if _is_cheap(pattern)}
    return {name: inner if name in DATA else _harmless(inner) for name, inner in kept.items()}


def _is_cheap(pattern: str) -> bool:
    try:
        return Pattern(pattern).is_cheap
    except Unreadable:
        return False
