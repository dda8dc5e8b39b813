"""The settings of a request as a response object echoes them, complete as Open Responses' `ResponseResource` wants it.

This module knows what each setting is when a request leaves it out or says null, and that no echo may break the type of
the response (rule R14): a value that its field cannot have is not echoed; its default is, and a tool of an unknown type is left
out of `tools`. It does not judge requests, and it knows nothing of what a response becomes while it runs: its id, status, output
and usage are the driver's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast, get_type_hints

from msgspec import Struct, ValidationError, convert, defstruct, to_builtins

from interlock.events.response_object import Response
from interlock.events.tools import AnyTool

__all__ = ["response_settings", "without_secrets"]

SETTINGS: Final = (
    *("background", "frequency_penalty", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model"),
    *("parallel_tool_calls", "presence_penalty", "previous_response_id", "prompt_cache_key", "reasoning", "safety_identifier"),
    *("service_tier", "store", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"),
)
"""Every setting that a response echoes."""

FIELDS: Final[Mapping[str, type[Struct]]] = {
    name: defstruct(name, [("value", hint)])
    for name, hint in {**get_type_hints(Response, include_extras=True), "tool": AnyTool}.items()
    if name in (*SETTINGS, "tool")
}
"""What each setting may be, and a tool: an object of one member, which msgspec compiles once."""

DEFAULTS: Final = {name: getattr(Response(id="", created_at=0, model=""), name) for name in SETTINGS}
"""The settings of a request that sets nothing."""

SECRETS: Final = frozenset({"authorization", "headers"})
"""What a request says about an MCP server that no response repeats: it may be stored, logged and shown."""

UNFIT: Final = object()
"""Stands for a value that a field cannot have."""


def without_secrets(tool: Mapping[str, object]) -> dict[str, object]:
    """Return a tool as anybody may know it: an MCP server without what only that server is to get."""
    return {name: value for name, value in tool.items() if name not in SECRETS or tool.get("type") != "mcp"}


def response_settings(request: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a request as its response object echoes them.

    Args:
        request: The body of a `POST /v1/responses`, already found valid.

    Returns:
        Every field that `ResponseResource` requires but `id`, `object`, `created_at`, `completed_at`, `status`,
        `output`, `usage`, `error` and `incomplete_details`. The numbers and booleans are never null. With them `conversation`,
        if the request belongs to one.
    """
    settings = cast("dict[str, object]", to_builtins(DEFAULTS))
    for name in SETTINGS:
        value = request.get(name)
        if value is not None:
            echoed = _tools(value) if name == "tools" else _fitted(_completed(name, value), name)
            if echoed is not UNFIT:
                settings[name] = echoed
    conversation = request.get("conversation")
    if conversation is not None:
        settings["conversation"] = {"id": _members(conversation).get("id", conversation)}
    return settings


def _fitted(value: object, name: str) -> object:
    """Return a value as it is, or as a lenient host reads it (`"false"` as false), if a field can have it."""
    for strict in (True, False):
        try:
            fitted = convert({"value": value}, FIELDS[name], strict=strict)
        except ValidationError:
            continue
        return value if strict else to_builtins(fitted)["value"]
    return UNFIT


def _completed(name: str, value: object) -> object:
    """Return a setting with what Open Responses requires of it; `fast` is another name for `priority`, which responses say."""
    members = {field: inner for field, inner in _members(value).items() if inner is not None}
    match name:
        case "reasoning":
            return {"effort": None, "summary": None, **members}
        case "text":
            form = _members(members.get("format", {"type": "text"}))
            if form.get("type") == "json_schema":
                form = {"description": None, **form, "strict": form.get("strict") is True}
            return {**members, "format": form}
        case "service_tier":
            return "priority" if value == "fast" else value
        case _:
            return value


def _tools(value: object) -> list[dict[str, object]]:
    """Return the tools of known types, each with what Open Responses requires of it and with what else the request says."""
    given = cast("list[object]", value) if isinstance(value, list) else []
    completed = [{**without_secrets(tool), **_required(tool)} for tool in map(_members, given)]
    read = [(tool, _fitted(tool, "tool")) for tool in completed]
    return [tool if fitted is tool else {**tool, **_members(fitted)} for tool, fitted in read if fitted is not UNFIT]


def _required(tool: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that a tool of a response has and that this one lacks."""
    match tool.get("type"):
        case "function":
            fields: dict[str, object] = {"description": None, "parameters": None, "strict": None}
        case "namespace":
            fields = {"description": "", "tools": []}
        case "code_interpreter":
            fields = {"container": {"type": "auto"}}
        case _:
            fields = {}
    return {name: value for name, value in fields.items() if name not in tool}


def _members(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
