"""Judging JSON by a schema of unknown origin, with `jsonschema`: nothing is fetched, no pattern is matched, it ends soon.

All work is counted, so that the same schema always has the same outcome, however busy the machine is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import Any, Final, cast

from attrs import define, field
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import UnknownType, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from interlock.serving.requests.values import is_array, is_object, members

__all__ = ["BROKEN", "Impossible", "Judge"]

LARGEST: Final = 4_000
"""Values that a schema may have; one of more is not looked at."""

WORK: Final = 50_000
"""What may be done for one schema, in units of about a microsecond."""

KEYWORD: Final = 10
"""What it takes to look at a keyword, beside one for each value in it."""

REFERENCE: Final = 50
"""What it takes to follow a reference."""

FOLLOWED: Final = 50
"""References that are followed one after the other."""

UNJUDGED: Final = frozenset({"pattern", "patternProperties", "unevaluatedProperties", "unevaluatedItems"})
"""The keywords that match patterns, or look through the whole schema for those that do."""


class Impossible(Exception):  # noqa: N818 - it says what the schema is
    """No value was found: there is none, or the schema is beyond us."""


BROKEN: Final = (
    Impossible,
    Unresolvable,
    UnknownType,
    RecursionError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What a schema raises that has no value, or that is wrong in itself and so breaks a validator in ways of its own."""


@define
class Judge:
    """Says what fits a schema, or a part of it.

    Args:
        root: The whole schema, which references point into.
        draft: The class of `jsonschema` for its draft.
    """

    root: Mapping[str, object]
    _draft: Any
    _work: int = field(default=0, init=False)
    _validator: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the validator."""
        extend: Any = vars(validators)["extend"]  # its own annotations are too few for a strict checker
        registry: Any = Registry  # likewise
        counted = extend(self._draft, {name: self._counted(name, judge) for name, judge in self._draft.VALIDATORS.items()})
        self._validator = counted(dict(self.root), registry=registry())

    @classmethod
    def of(cls, schema: Mapping[str, object]) -> Judge:
        """Return the judge of a schema, by the draft that it names (2020-12 if none).

        Raises:
            Impossible: The schema is too large.
        """
        if _size(schema) > LARGEST:
            raise Impossible("the schema is too large")
        named = schema.get("$schema")
        draft: Any = Draft202012Validator
        if isinstance(named, str):
            draft = validators.validator_for({"$schema": named}, default=Draft202012Validator)
        return cls({name: inner for name, inner in schema.items() if name not in ("$schema", "$id")}, draft)

    def fits(self, value: object, schema: object) -> bool:
        """Return whether a value fits a part of the whole.

        Raises:
            Exception: One of `BROKEN`.
        """
        return cast("bool", self._validator.evolve(schema=schema).is_valid(value))

    def resolved(self, schema: Mapping[str, object]) -> dict[str, object]:
        """Return a part of the whole with what its `$ref` and `allOf` say.

        Raises:
            Impossible: A reference leads nowhere, or for ever on.
        """
        whole = dict(schema)
        for _ in range(FOLLOWED):
            if "$ref" in whole:
                whole = _both(members(self._target(str(whole.pop("$ref")))), whole)
            elif is_array(parts := whole.get("allOf")) and parts:
                del whole["allOf"]
                for part in parts:
                    if part is False:
                        raise Impossible("nothing fits")
                    whole = _both(whole, self.resolved(members(part)))
                    self._spend(len(whole))
            else:
                return whole
        raise Impossible("its references never end")

    def _target(self, reference: str) -> object:
        """Follow a reference of the form `#/a/b`."""
        self._spend(REFERENCE)
        target: object = self.root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = dict(enumerate(target)).get(int(name)) if is_array(target) else members(target).get(name)
        if target is None or not reference.startswith("#"):
            raise Impossible(f"{reference[:100]} leads nowhere")
        return target

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > WORK:
            raise Impossible("it takes too long")

    def _counted(self, name: str, judge: Any) -> Any:  # noqa: ANN401 - jsonschema's keyword functions have no types
        def counted(validator: object, inner: object, value: object, schema: Mapping[str, object]) -> Iterator[ValidationError]:
            sizes = [len(cast("Sized", each)) for each in (inner, value) if isinstance(each, list | dict)]
            self._spend(sum(sizes, REFERENCE if name == "$ref" else KEYWORD))
            if name not in UNJUDGED and not (name == "additionalProperties" and "patternProperties" in schema):
                yield from judge(validator, inner, value, schema) or ()

        return counted


def _size(schema: object) -> int:
    """Count the values in a schema, as far as that matters."""
    rest, count = [schema], 0
    while rest and count <= LARGEST:
        value = rest.pop()
        count += 1
        if is_object(value):
            rest += value.values()
        elif is_array(value):
            rest += value
    return count


def _both(first: Mapping[str, object], second: Mapping[str, object]) -> dict[str, object]:
    """Join two schemas as far as that is plain: properties and required names of both, the second's word for the rest."""
    both = {**first, **second}
    if "properties" in first and "properties" in second:
        both["properties"] = {**members(first["properties"]), **members(second["properties"])}
    if is_array(ours := first.get("required")) and is_array(theirs := second.get("required")):
        both["required"] = [*ours, *(name for name in theirs if name not in ours)]
    return both
