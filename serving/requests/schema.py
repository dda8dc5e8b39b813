"""The shape of a JSON schema: what a strict function's parameters and the form of an answer have to be.

It is as wide as the drafts from 4 to 2020-12 together, and checks in a time that grows with the schema alone. References are not
followed, and patterns are not compiled.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from interlock.serving.requests.shapes import Shape, text_or

__all__ = ["JsonSchema"]

Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Count: TypeAlias = Annotated[float, Field(allow_inf_nan=False, ge=0, multiple_of=1)]
Kind: TypeAlias = Literal["null", "boolean", "object", "array", "number", "integer", "string"]


def _flag_or(other: str) -> Discriminator:
    return Discriminator(lambda value: "<flag>" if isinstance(value, bool) else other)


def _array_or(other: str) -> Discriminator:
    return Discriminator(lambda value: "<array>" if isinstance(value, list) else other)


Schema: TypeAlias = Annotated[Annotated[bool, Tag("<flag>")] | Annotated["JsonSchema", Tag("<schema>")], _flag_or("<schema>")]
Schemas: TypeAlias = list[Schema]
Named: TypeAlias = dict[str, Schema]
SchemaOrMany: TypeAlias = Annotated[Annotated[Schemas, Tag("<array>")] | Annotated[Schema, Tag("<one>")], _array_or("<one>")]
SchemaOrNames: TypeAlias = Annotated[Annotated[list[str], Tag("<array>")] | Annotated[Schema, Tag("<one>")], _array_or("<one>")]
NumberOrFlag: TypeAlias = Annotated[Annotated[bool, Tag("<flag>")] | Annotated[Number, Tag("<number>")], _flag_or("<number>")]
Kinds: TypeAlias = Annotated[Annotated[Kind, Tag("<text>")] | Annotated[list[Kind], Tag("<array>")], text_or("<array>")]

ABSENT: Final[Any] = None
"""What an absent keyword is; null, which no keyword may be, is refused."""


class JsonSchema(Shape):
    """A JSON schema that is an object; a keyword that it does not name may be anything."""

    dialect: Annotated[str, Field(alias="$schema")] = ABSENT
    identity: Annotated[str, Field(alias="$id")] = ABSENT
    reference: Annotated[str, Field(alias="$ref")] = ABSENT
    defs: Annotated[Named, Field(alias="$defs")] = ABSENT
    definitions: Named = ABSENT
    kinds: Annotated[Kinds, Field(alias="type")] = ABSENT
    enum: list[Any] = ABSENT
    title: str = ABSENT
    description: str = ABSENT
    pattern: str = ABSENT
    format: str = ABSENT
    min_length: Annotated[Count, Field(alias="minLength")] = ABSENT
    max_length: Annotated[Count, Field(alias="maxLength")] = ABSENT
    minimum: Number = ABSENT
    maximum: Number = ABSENT
    exclusive_minimum: Annotated[NumberOrFlag, Field(alias="exclusiveMinimum")] = ABSENT
    exclusive_maximum: Annotated[NumberOrFlag, Field(alias="exclusiveMaximum")] = ABSENT
    multiple_of: Annotated[float, Field(alias="multipleOf", gt=0, allow_inf_nan=False)] = ABSENT
    properties: Named = ABSENT
    pattern_properties: Annotated[Named, Field(alias="patternProperties")] = ABSENT
    additional_properties: Annotated[Schema, Field(alias="additionalProperties")] = ABSENT
    property_names: Annotated[Schema, Field(alias="propertyNames")] = ABSENT
    required: list[str] = ABSENT
    dependent_required: Annotated[dict[str, list[str]], Field(alias="dependentRequired")] = ABSENT
    dependent_schemas: Annotated[Named, Field(alias="dependentSchemas")] = ABSENT
    dependencies: dict[str, SchemaOrNames] = ABSENT
    min_properties: Annotated[Count, Field(alias="minProperties")] = ABSENT
    max_properties: Annotated[Count, Field(alias="maxProperties")] = ABSENT
    items: SchemaOrMany = ABSENT
    prefix_items: Annotated[Schemas, Field(alias="prefixItems")] = ABSENT
    additional_items: Annotated[Schema, Field(alias="additionalItems")] = ABSENT
    contains: Schema = ABSENT
    min_contains: Annotated[Count, Field(alias="minContains")] = ABSENT
    max_contains: Annotated[Count, Field(alias="maxContains")] = ABSENT
    min_items: Annotated[Count, Field(alias="minItems")] = ABSENT
    max_items: Annotated[Count, Field(alias="maxItems")] = ABSENT
    unique_items: Annotated[bool, Field(alias="uniqueItems")] = ABSENT
    all_of: Annotated[Schemas, Field(alias="allOf", min_length=1)] = ABSENT
    any_of: Annotated[Schemas, Field(alias="anyOf", min_length=1)] = ABSENT
    one_of: Annotated[Schemas, Field(alias="oneOf", min_length=1)] = ABSENT
    negated: Annotated[Schema, Field(alias="not")] = ABSENT
    condition: Annotated[Schema, Field(alias="if")] = ABSENT
    consequence: Annotated[Schema, Field(alias="then")] = ABSENT
    alternative: Annotated[Schema, Field(alias="else")] = ABSENT
