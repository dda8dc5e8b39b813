"""The settings that a response echoes from its request, without secrets.

They have every field that Open Responses' `ResponseResource` requires. A setting that is missing, null or invalid gets its
default. Tools of unknown types are dropped, so that the response is valid. No request is rejected here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from inspect import isclass
from typing import Any, Final, cast, get_args

from msgspec import Struct, ValidationError, convert, defstruct, to_builtins
from msgspec.structs import fields

from interlock.events.json import as_text, elements, is_array, is_object, members
from interlock.events.response_object import DEFAULTS, RUN_FIELDS, Response
from interlock.events.shapes import Arm, Hint, arms_of, extra_of
from interlock.events.tools import AnyTool

_DEFAULT_SETTINGS: Final = {name: value for name, value in DEFAULTS.items() if name not in RUN_FIELDS}
"""The settings of a response to a request that sets nothing."""

_SETTING_TYPES: Final = {
    each.name: defstruct(each.name, [(each.name, each.type)]) for each in fields(Response) if each.name in _DEFAULT_SETTINGS
}
"""The type of each setting, as a Struct with one field, which msgspec compiles once."""

_USER: Final = re.compile(r"(?<=//)[^/?#\\]*@")
"""Matches the user and the password in a URL."""


def drop_secrets(tool: Mapping[str, object]) -> dict[str, object]:
    """Return a tool without what its type marks as secret, wherever it is nested."""
    return cast("dict[str, object]", _without_secrets(tool, AnyTool)) if as_text(tool.get("type")) in SECRETIVE else dict(tool)


def _without_secrets(value: object, hint: Hint) -> object:
    arms = [*arms_of(hint)]
    if is_array(value):
        entries = next((arm.args[0] for arm in arms if arm.kind is list), Any)
        return [_without_secrets(entry, entries) for entry in value]
    kinds = [*_structs(arms)]
    if not is_object(value) or not kinds:
        return value
    tagged = (kind for kind in kinds if kind.__struct_config__.tag == value.get("type"))
    public: dict[str, object] = dict(value)
    for member in fields(next(tagged, kinds[0])):
        name = member.encode_name
        match extra_of(member.type, "secret"):
            case "value":
                public.pop(name, None)
            case "user" if isinstance(public.get(name), str):
                public[name] = _USER.sub("", str(public[name]))
            case "" if name in public:
                public[name] = _without_secrets(public[name], member.type)
            case _:
                pass
    return public


def _has_secrets(hint: Hint, above: tuple[Hint, ...] = ()) -> bool:
    """Return whether a type marks anything in it as secret; `above` has the types around it, which it may contain."""
    arms = [*arms_of(hint)]
    entries = (arm.args[0] for arm in arms if arm.kind is list)
    inner_fields = ((member.type, (*above, kind)) for kind in _structs(arms) if kind not in above for member in fields(kind))
    return any(_has_secrets(entry, above) for entry in entries) or any(
        extra_of(inner, "secret") or _has_secrets(inner, within) for inner, within in inner_fields
    )


def _structs(arms: Iterable[Arm]) -> Iterator[type[Struct]]:
    return (arm.kind for arm in arms if isclass(arm.kind) and issubclass(arm.kind, Struct))


SECRETIVE: Final = frozenset(kind.__struct_config__.tag for kind in get_args(AnyTool) if _has_secrets(kind))
"""The types of the tools that can have secrets."""


def response_settings(request: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that a response echoes from its request.

    Args:
        request: The validated body of a `POST /v1/responses`.

    Returns:
        Every field that `ResponseResource` requires, except `id`, `object`, `created_at`, `completed_at`, `status`, `output`,
        `usage`, `error` and `incomplete_details`; also `user`, and `conversation` if the request has one. Of the numbers and
        booleans, only `max_output_tokens` and `max_tool_calls` can be null.
    """
    settings = cast("dict[str, object]", to_builtins(_DEFAULT_SETTINGS))
    for name, value in request.items():
        if value is not None and name in _DEFAULT_SETTINGS:
            settings |= {name: _tools(value)} if name == "tools" else _fit(name, _complete(name, value))
    conversation = request.get("conversation")
    if conversation is not None:
        settings["conversation"] = {"id": members(conversation).get("id", conversation)}
    return settings


def _fit(name: str, value: object) -> dict[str, object]:
    """Return a setting, converted if necessary (`"false"` to false); nothing if the setting cannot have the value."""
    for strict in (True, False):
        try:
            fitted = convert({name: value}, _SETTING_TYPES[name], strict=strict)
        except ValidationError:
            continue
        return {name: value} if strict else to_builtins(fitted)
    return {}


def _complete(name: str, value: object) -> object:
    """Return a setting with the fields that Open Responses requires; `fast` becomes `priority`."""
    match name:
        case "reasoning":
            return {"effort": None, "summary": None, **_without_nulls(value)}
        case "text":
            present = _without_nulls(value)
            form = members(present.get("format", {"type": "text"}))
            if form.get("type") == "json_schema":
                form = {"description": None, **form, "strict": form.get("strict") is True}
            return {**present, "format": form}
        case "service_tier":
            return "priority" if value == "fast" else value
        case _:
            return value


def _without_nulls(value: object) -> dict[str, object]:
    return {name: inner for name, inner in members(value).items() if inner is not None}


def _tools(value: object) -> list[dict[str, object]]:
    """Return the tools of known types, with the fields that Open Responses requires and without credentials."""
    completed = [{**drop_secrets(tool), **_require(tool)} for tool in map(members, elements(value))]
    return [{**tool, **members(fitted)} for tool in completed for fitted in elements(_fit("tools", [tool]).get("tools"))]


def _require(tool: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that a response requires and this tool lacks."""
    match tool.get("type"):
        case "function":
            required: dict[str, object] = {"description": None, "parameters": None, "strict": None}
        case "namespace":
            required = {"description": "", "tools": []}
        case "code_interpreter":
            required = {"container": {"type": "auto"}}
        case _:
            required = {}
    return {name: value for name, value in required.items() if name not in tool}
