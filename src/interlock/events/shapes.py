"""The types of the Structs of `interlock.events`, and the validation of JSON values against them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

from attrs import frozen
from msgspec import Meta, Struct, UnsetType, structs

from interlock.events.json import as_text, members
from interlock.events.parts import Json

Direction: TypeAlias = Literal["request", "stream"]
"""`request`: fields with a default may be omitted. `stream`: only fields of type `parts.Maybe` or `parts.Nullable` may be."""
Path: TypeAlias = tuple[str | int, ...]
Hint: TypeAlias = Any
"""A type, or a union of types."""


@frozen
class Arm:
    """One of the types that a field or another value can have.

    Args:
        kind: `str`, `int`, `float`, `bool`, `NoneType`, `list`, `dict`, `Literal`, `Any` or a Struct.
        args: The type of a list's entries, the types of a dict's names and values, or the choices of a literal.
        metas: The msgspec annotations, which limit the value.
    """

    kind: Hint
    args: tuple[Hint, ...] = ()
    metas: tuple[Meta, ...] = ()


def arms_of(type_: Hint, metas: tuple[Meta, ...] = ()) -> Iterator[Arm]:
    """Yield the types in a union, or the only one; `metas` are for those without annotations of their own."""
    origin: Hint = get_origin(type_)
    if origin is Annotated:
        yield from arms_of(get_args(type_)[0], tuple(one for one in type_.__metadata__ if isinstance(one, Meta)))
    elif origin in {Union, UnionType}:
        for arm in get_args(type_):
            yield from arms_of(arm, metas)
    elif type_ is not UnsetType:
        yield Arm(origin or type_, get_args(type_), metas)


@frozen
class Mismatch:
    """A difference between a value and its type, at one path.

    Args:
        path: The path to the difference; empty for the value itself.
        kind: `type`: another JSON type; `null`: a null instead of an omitted field; `missing` and `unknown`: a field; `tag`: an
            unknown `type`; `value`: not one of the choices, or beyond a limit.
        type: The type of the object that has the field, or the name of its class; if its own `type` is missing or unknown, that
            of the object around it. Empty if there is none.
        expected: The expected value, in words; empty for an unknown field.
        value: The actual value; None for a missing one.
        choices: The allowed values or types.
        limit: The limit that the value violates: `ge`, `le`, `gt`, `min_length`, `max_length` or `pattern`, with its value.
    """

    path: Path
    kind: Literal["type", "null", "missing", "unknown", "tag", "value"]
    type: str
    expected: str
    value: object = None
    choices: Sequence[str] = ()
    limit: tuple[str, float | str] | None = None


_Task: TypeAlias = "Mismatch | tuple[_Shape, object, Path, str]"
"""A mismatch, or a value to check: its shape, the value, its path, and the type of the object that has it."""
_Check: TypeAlias = Callable[[Json, Path, str], Sequence[_Task]]
"""Checks a value of the right JSON type. It returns mismatches and the values to check next, in document order."""
_MISFIT: Final[_Check] = lambda _value, _path, _holder: ()  # noqa: E731 - stands for a JSON type that a value cannot have


@frozen(eq=False)
class _Shape:
    """A compiled type: its description, and a check per JSON type; None accepts any value.

    A string that is one of the choices needs no check.
    """

    expected: str
    checks: Mapping[type, _Check | None]
    choices: frozenset[object] = frozenset()


def mismatches(value: object, type_: Hint, *, direction: Direction) -> Iterator[Mismatch]:
    """Yield the mismatches of a JSON value in document order; the missing fields of an object come last."""
    waiting: list[_Task] = [(_shape_of(type_, direction), value, (), "")]
    while waiting:
        task = waiting.pop()
        if isinstance(task, Mismatch):
            yield task
            continue
        shape, inner, path, holder = task
        check = shape.checks.get(type(inner), _MISFIT)
        if check is _MISFIT:
            yield Mismatch(path, "type", holder, shape.expected, inner)
        elif check is not None:
            waiting += reversed(check(inner, path, holder))


def param_of(path: Path) -> str:
    """Return a path in the API's form: `input[3].content[0].image_url`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


_NULL: Final = type(None)


@cache
def _shape_of(type_: Hint, direction: Direction) -> _Shape:
    return _compile(type_, direction)


def _compile(type_: Hint, direction: Direction) -> _Shape:
    """Compile a type; a union has one check for each JSON type."""
    checks: dict[type, _Check | None] = {}
    words: list[str] = []
    choices: list[str] = []
    kinds: dict[str, type[Struct]] = {}
    for arm in arms_of(type_):
        limits = _limits(arm.metas)
        if arm.kind is Any:
            checks = dict.fromkeys((str, int, float, bool, list, dict, _NULL))
            words.append("any value")
        elif arm.kind is Literal:
            choices += arm.args
            checks[str] = _choice(tuple(choices))
        elif arm.kind is list:
            entries = _compile(arm.args[0], direction)
            checks[list] = _array(entries, limits)
            words.append(f"an array of {_plural(entries.expected)}")
        elif arm.kind is dict:
            name, entry = arm.args
            checks[dict] = _names(_limits(next(arms_of(name)).metas), _compile(entry, direction), limits)
            words.append("an object")
        elif issubclass(arm.kind, Struct):
            kinds[str(arm.kind.__struct_config__.tag or "")] = arm.kind
        else:
            checks[arm.kind] = partial(_beyond, limits=limits) if limits else None
            words.append(WORDS[arm.kind])
    if kinds:
        checks[dict] = _check_tag(kinds, direction) if len(kinds) > 1 else _members(next(iter(kinds.values())), direction)
        words.append("an object")
    if choices:
        words.append(_among(choices))
    implied = {"null", "an integer"} if "a number" in words else {"null"}
    expected = " or ".join(dict.fromkeys(word for word in words if word not in implied)) or "null"
    return _Shape(expected, checks, frozenset(choices))


def _limits(metas: tuple[Meta, ...]) -> Mapping[str, float | str]:
    return {name: limit for meta in metas for name in _BEYOND if (limit := getattr(meta, name)) is not None}


_BEYOND: Final[Mapping[str, tuple[str, Callable[[Json, Json], bool]]]] = MappingProxyType(
    {
        "ge": ("at least {:g}", lambda value, limit: not value >= limit),
        "le": ("at most {:g}", lambda value, limit: not value <= limit),
        "gt": ("above {:g}", lambda value, limit: not value > limit),
        "min_length": ("a length of at least {:g}", lambda value, limit: len(value) < limit),
        "max_length": ("a length of at most {:g}", lambda value, limit: len(value) > limit),
        "pattern": ("a text that matches {}", lambda value, limit: re.search(limit, value) is None),
    }
)
"""Each limit in words, and a test for values that violate it; NaN violates every numeric limit."""
WORDS: Final[Mapping[type, str]] = MappingProxyType(
    {str: "a string", int: "an integer", float: "a number", bool: "a boolean", _NULL: "null"}
)
"""The JSON type of a value that is neither an array nor an object, in words."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 event`, `2 events`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _plural(words: str) -> str:
    """Return `strings or objects` for `a string or an object`."""
    if words.startswith(("one of", "'", "any")):
        return f"values, each {words}"
    parts = (part.partition(" ")[2].partition(" ") for part in words.split(" or "))
    return " or ".join(f"{noun}s{space}{rest}" for noun, space, rest in parts)


def _among(choices: Sequence[str]) -> str:
    """Return choices in words."""
    *others, last = (f"'{choice}'" for choice in choices)
    return f"one of {', '.join(others)} and {last}" if others else last


def _beyond(value: Json, path: Path, holder: str, limits: Mapping[str, float | str]) -> list[_Task]:
    return [
        Mismatch(path, "value", holder, words.format(limit), value, limit=(name, limit))
        for name, limit in limits.items()
        for words, is_beyond in (_BEYOND[name],)
        if is_beyond(value, limit)
    ]


def _choice(choices: tuple[str, ...], kind: Literal["tag", "value"] = "value") -> _Check:
    expected = _among(choices)

    def check(value: str, path: Path, holder: str) -> Sequence[_Task]:
        return () if value in choices else (Mismatch(path, kind, holder, expected, value, choices),)

    return check


def _array(entries: _Shape, limits: Mapping[str, float | str]) -> _Check:
    checks = entries.checks

    def check(value: list[object], path: Path, holder: str) -> Sequence[_Task]:
        tasks = _beyond(value, path, holder, limits)
        for index, entry in enumerate(value):
            if checks.get(type(entry), _MISFIT) is not None:
                tasks.append((entries, entry, (*path, index), holder))
        return tasks

    return check


def _names(name_limits: Mapping[str, float | str], entry: _Shape, limits: Mapping[str, float | str]) -> _Check:
    """Check an object with arbitrary names; an invalid name is a mismatch of the object."""

    def check(value: Mapping[str, object], path: Path, holder: str) -> Sequence[_Task]:
        tasks = _beyond(value, path, holder, limits)
        for name, inner in value.items():
            tasks += _beyond(name, path, holder, name_limits)
            if entry.checks.get(type(inner), _MISFIT) is not None:
                tasks.append((entry, inner, (*path, name), holder))
        return tasks

    return check


def _check_tag(kinds: Mapping[str, type[Struct]], direction: Direction) -> _Check:
    """Check an object by its `type`."""
    choices = tuple(kinds)
    expected = _among(choices)
    checks = {tag: _members(kind, direction) for tag, kind in kinds.items()}

    def check(value: Mapping[str, object], path: Path, holder: str) -> Sequence[_Task]:
        tag = value.get("type")
        if type(tag) is str and tag in checks:
            return checks[tag](value, path, holder)
        inner = (*path, "type")
        if "type" not in value:
            return (Mismatch(inner, "missing", holder, expected, choices=choices),)
        return (Mismatch(inner, "tag" if type(tag) is str else "type", holder, expected, tag, choices),)

    return check


def _members(kind: type[Struct], direction: Direction) -> _Check:
    """Check an object of a known type, which is compiled on first use because a type may contain itself."""
    name = name_of(kind)

    def check(value: Mapping[str, object], path: Path, _holder: str) -> Sequence[_Task]:
        shapes, required = _fields(kind, direction)
        tasks: list[_Task] = []
        for field, inner in value.items():
            shape = shapes.get(field)
            if shape is None:
                tasks.append(Mismatch((*path, field), "unknown", name, "", inner))
            elif shape.checks.get(type(inner), _MISFIT) is not None and not (type(inner) is str and inner in shape.choices):
                tasks.append((shape, inner, (*path, field), name))
        if not required <= value.keys():
            lacks = (field for field in shapes if field in required and field not in value)
            tasks += (Mismatch((*path, field), "missing", name, shapes[field].expected) for field in lacks)
        return tasks

    return check


def name_of(kind: type[Struct]) -> str:
    """Return the name of an object for messages: its type, or its class name if it has none."""
    return str(kind.__struct_config__.tag or kind.__name__)


@cache
def _fields(kind: type[Struct], direction: Direction) -> tuple[Mapping[str, _Shape], frozenset[str]]:
    """Return the fields of a type, and the names of the required ones."""
    tag = kind.__struct_config__.tag
    name = f"'{tag}'"
    shapes = {"type": _Shape(name, {str: _choice((str(tag),), "tag")}, frozenset({tag}))} if tag else {}
    required = {"type"} if tag and direction == "stream" else set[str]()
    for field in structs.fields(kind):
        shape = _compile(field.type, direction)
        presence = extra_of(field.type, "presence")
        always = presence == "outbound" or not presence if direction == "stream" else field.required
        if direction == "stream" and (presence == "optional" or (presence == "outbound" and field.default is not None)):
            shape = _Shape(shape.expected, _drop_null(shape, tolerated=presence == "optional"), shape.choices)
        shapes[field.encode_name] = shape
        required |= {field.encode_name} if always else set()
    return shapes, frozenset(required)


def extra_of(hint: Hint, name: str) -> str:
    """Return what a field's type declares under a name, such as `presence` (`interlock.events.parts`); empty if nothing."""
    extras = (members(one.extra) for one in getattr(hint, "__metadata__", ()))
    return next((as_text(extra[name]) for extra in extras if name in extra), "")


def _drop_null(shape: _Shape, *, tolerated: bool) -> Mapping[type, _Check | None]:
    def check(_value: None, path: Path, holder: str) -> Sequence[_Task]:
        return (Mismatch(path, "null", holder, shape.expected),)

    checks = {kind: inner for kind, inner in shape.checks.items() if kind is not _NULL}
    return {**checks, _NULL: check} if tolerated else checks
