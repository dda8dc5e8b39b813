"""Settings of a request that certainly fit the type of a response: those of the usual shapes.

They fit every release of the `openai` package that is allowed, so that nobody has to import its types, which takes half a second
and 12 MB. It knows shapes alone; what else fits is for `interlock.events.resource` to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Final, TypeAlias, TypeGuard

__all__ = ["is_mapping", "is_sure"]

Shape: TypeAlias = Callable[[object], bool]
"""Returns whether a value certainly fits."""


def _of(*types: type) -> Shape:
    """Return the shape of values of some types; a boolean is no number."""
    return lambda value: type(value) in types


def _one_of(*values: str | None) -> Shape:
    """Return the shape of a few values."""
    return lambda value: (value is None or isinstance(value, str)) and value in values


def _object(members: Mapping[str, Shape], **optional: Shape) -> Shape:
    """Return the shape of objects that have all of some members, and no others but the optional ones."""
    shapes = {**members, **optional}

    def fits(value: object) -> bool:
        return (
            is_mapping(value)
            and members.keys() <= value.keys() <= shapes.keys()
            and all(shapes[name](member) for name, member in value.items())
        )

    return fits


def _any_of(*shapes: Shape) -> Shape:
    """Return the shape of values that have one of several."""
    return lambda value: any(shape(value) for shape in shapes)


def _texts_by_name(value: object) -> bool:
    return is_mapping(value) and all(type(text) is str for pair in value.items() for text in pair)


_TEXT: Final = _of(str)
_FORMAT: Final = _any_of(
    _object({"type": _one_of("text", "json_object")}),
    _object(
        {
            "type": _one_of("json_schema"),
            "name": _TEXT,
            "schema": _of(dict),
            "description": _of(str, NoneType),
            "strict": _of(bool),
        }
    ),
)

SETTINGS: Final[Mapping[str, Shape]] = {
    "background": _of(bool),
    "instructions": _TEXT,
    "max_output_tokens": _of(int),
    "max_tool_calls": _of(int),
    "metadata": _texts_by_name,
    "model": _TEXT,
    "parallel_tool_calls": _of(bool),
    "previous_response_id": _TEXT,
    "prompt_cache_key": _TEXT,
    "reasoning": _object(
        {
            "effort": _one_of("none", "minimal", "low", "medium", "high", "xhigh", None),
            "summary": _one_of("auto", "concise", "detailed", None),
        }
    ),
    "safety_identifier": _TEXT,
    "service_tier": _one_of("auto", "default", "flex", "priority"),
    "store": _of(bool),
    "temperature": _of(int, float),
    "text": _object({"format": _FORMAT}, verbosity=_one_of("low", "medium", "high")),
    "tool_choice": _any_of(_one_of("auto", "none", "required"), _object({"type": _one_of("function", "custom"), "name": _TEXT})),
    "tools": _of(list),  # each of them was judged by itself
    "top_logprobs": _of(int),
    "top_p": _of(int, float),
    "truncation": _one_of("auto", "disabled"),
    "user": _TEXT,
}
"""The shapes of settings that fit every release of the `openai` package, which is then not asked."""

TOOLS: Final = _any_of(
    _object(
        {
            "type": _one_of("function"),
            "name": _TEXT,
            "parameters": _of(dict, NoneType),
            "strict": _of(bool, NoneType),
            "description": _of(str, NoneType),
        }
    ),
    _object({"type": _one_of("custom"), "name": _TEXT, "description": _TEXT}),
    _object({"type": _one_of("web_search")}),
)
"""The shape of tools that fit every release likewise."""


def is_sure(name: str, value: object) -> bool:
    """Return whether the value of a setting certainly fits; "" stands for one tool.

    Args:
        name: The setting.
        value: It, in the shape that a response gives it.
    """
    shape = SETTINGS.get(name) if name else TOOLS
    return shape is not None and shape(value)


def is_mapping(value: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether a value is an object of JSON."""
    return isinstance(value, Mapping)
