"""What a JSON schema has to look like: a strict function's parameters, and the form of an answer.

It is as wide as the drafts from 4 to 2020-12 together, and takes a time that grows with the schema alone: references are not
followed and patterns are not compiled.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, field

from interlock.events.parts import Json, Number
from interlock.events.shapes import faults, param_of

__all__ = ["flaw"]

Kind: TypeAlias = Literal["null", "boolean", "object", "array", "number", "integer", "string"]
Text: TypeAlias = str | UnsetType
Count: TypeAlias = Annotated[int, Meta(ge=0)] | UnsetType
Bound: TypeAlias = Number | UnsetType
Flagged: TypeAlias = Number | bool | UnsetType
One: TypeAlias = "Schema | bool | UnsetType"
Named: TypeAlias = "dict[str, Schema | bool] | UnsetType"
Many: TypeAlias = "list[Schema | bool] | UnsetType"


class Schema(Struct, kw_only=True, rename="camel"):
    """The keywords of a schema; others say nothing."""

    dialect: Text = field(default=UNSET, name="$schema")
    id: Text = field(default=UNSET, name="$id")
    ref: Text = field(default=UNSET, name="$ref")
    defs: Named = field(default=UNSET, name="$defs")
    definitions: Named = UNSET
    title: Text = UNSET
    description: Text = UNSET
    type: Kind | list[Kind] | UnsetType = UNSET
    enum: list[Json] | UnsetType = UNSET
    pattern: Text = UNSET
    format: Text = UNSET
    min_length: Count = UNSET
    max_length: Count = UNSET
    minimum: Bound = UNSET
    maximum: Bound = UNSET
    exclusive_minimum: Flagged = UNSET
    exclusive_maximum: Flagged = UNSET
    multiple_of: Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    items: Schema | bool | list[Schema | bool] | UnsetType = UNSET
    prefix_items: Many = UNSET
    additional_items: One = UNSET
    contains: One = UNSET
    min_items: Count = UNSET
    max_items: Count = UNSET
    min_contains: Count = UNSET
    max_contains: Count = UNSET
    unique_items: bool | UnsetType = UNSET
    properties: Named = UNSET
    pattern_properties: Named = UNSET
    additional_properties: One = UNSET
    property_names: One = UNSET
    required: list[str] | UnsetType = UNSET
    min_properties: Count = UNSET
    max_properties: Count = UNSET
    dependent_required: dict[str, list[str]] | UnsetType = UNSET
    dependent_schemas: Named = UNSET
    all_of: Many = UNSET
    any_of: Many = UNSET
    one_of: Many = UNSET
    negated: One = field(default=UNSET, name="not")
    condition: One = field(default=UNSET, name="if")
    then: One = UNSET
    otherwise: One = field(default=UNSET, name="else")


def flaw(schema: object) -> str | None:
    """Return what is wrong with a JSON schema.

    Args:
        schema: Any value.

    Returns:
        A sentence that names the place, for the first flaw that is found; None for a schema.
    """
    try:
        convert(schema, Schema | bool)
    except ValidationError:
        wrong = next(fault for fault in faults(schema, Schema | bool, direction="request") if fault.kind != "unknown")
        return f"{param_of(('$', *wrong.path))} must be {wrong.expected}"
    return None
