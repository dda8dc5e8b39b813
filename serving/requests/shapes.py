"""What every shape of a request is made of: strict pydantic models, and the types that several of them share.

A shape checks a value; the value itself is kept as it came. Members that a shape does not name are free, because clients are
ahead of servers, and null stands for a member that was not given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

from interlock.serving.requests.values import is_object

__all__ = [
    "UNKNOWN_TYPE",
    "AnyTool",
    "CallName",
    "Identifier",
    "LongText",
    "Name",
    "Named",
    "Object",
    "Objects",
    "Shape",
    "Some",
    "TextOrObject",
    "Texts",
    "by_type",
    "text_or",
]

UNKNOWN_TYPE: Final = "unknown_type"
"""The kind of error that an object has whose type is missing, or is none that a shape is for."""


class Shape(BaseModel):
    """An object whose named members are checked; a string is no number, and a boolean is none either."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, protected_namespaces=(), hide_input_in_errors=True)


LONGEST_TEXT: Final = 10_485_760
"""Characters of a text, as OpenAI's API and the Open Responses specification limit them."""

LongText: TypeAlias = Annotated[str, StringConstraints(max_length=LONGEST_TEXT)]
Some: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Identifier: TypeAlias = Annotated[str, StringConstraints(max_length=4_096)]
"""An id of somebody's, which may be empty."""

CallName: TypeAlias = Annotated[str, StringConstraints(max_length=4_096, pattern=r"^(?:[^<]|<+[^<|])*<*$")]
"""A name in a call, which a model may have made up; no prompt can quote a control token, which begins with `<|`."""

Name: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_-]+$")]
"""The name of a function, a custom tool or a schema."""

Object: TypeAlias = dict[str, Any]
Objects: TypeAlias = Annotated[list[Object], Field(fail_fast=True)]
Texts: TypeAlias = Annotated[list[str], Field(fail_fast=True, max_length=1_000)]


class Named(Shape):
    """An object that names a tool."""

    name: Identifier | None = None
    namespace: Identifier | None = None
    server_label: Identifier | None = None


class AnyTool(Named):
    """A tool of any type, as far as tools are told apart, or a choice of tools."""

    type: Identifier | None = None
    tools: Annotated[list[AnyTool], Field(fail_fast=True)] | None = None


def text_or(other: str) -> Discriminator:
    """Return what tells a text from something else.

    Args:
        other: The tag of what is no text. Tags stand in angle brackets, which no member of a shape has in its name.
    """
    return Discriminator(lambda value: "<text>" if isinstance(value, str) else other)


def _type_of(value: Mapping[str, object]) -> object:
    return value.get("type")


def by_type(
    tags: Mapping[str, str], type_of: Callable[[Mapping[str, object]], object] = _type_of, *, otherwise: str | None = None
) -> Discriminator:
    """Return what tells objects apart by their types.

    Args:
        tags: The tag of each type.
        type_of: Returns the type of an object.
        otherwise: The tag of other types; None if there may be no others.
    """
    anything = next(iter(tags.values()))

    def tag(value: object) -> str | None:
        if not is_object(value):
            return anything  # whose shape refuses it
        kind = type_of(value)
        return tags.get(kind, otherwise) if isinstance(kind, str) and kind else None

    choices = ", ".join(f"'{kind}'" for kind in tags)
    return Discriminator(tag, custom_error_type=UNKNOWN_TYPE, custom_error_message=choices)


TextOrObject: TypeAlias = Annotated[Annotated[LongText, Tag("<text>")] | Annotated[Object, Tag("<object>")], text_or("<object>")]
