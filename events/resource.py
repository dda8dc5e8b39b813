"""The settings of a request as a response object echoes them, complete as Open Responses' `ResponseResource` wants it.

This module knows what each setting is when a request leaves it out or says null, and that no echo may break the type of
the response (rule R14): a value that the installed `openai` package's `Response` type refuses (a tool type of another
release, say) is not echoed; its default is, and a tool of such a type is left out of `tools`. It does not judge
requests, and it knows nothing of what a response becomes while it runs: its id, status, output and usage are the
driver's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeGuard

from interlock.events.sure import is_mapping, is_sure

__all__ = ["load_types", "needs_types", "response_settings"]

Reading: TypeAlias = Callable[[object], object]

DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        "background": False,
        "frequency_penalty": 0.0,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": MappingProxyType[str, object]({}),
        "model": "",
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": MappingProxyType({"effort": None, "summary": None}),
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": MappingProxyType({"format": MappingProxyType({"type": "text"})}),
        "tool_choice": "auto",
        "tools": (),
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }
)
"""Every setting that a response echoes, as it is when the request does not give it."""

SECRETS = frozenset({"authorization", "headers"})
"""What a request says about an MCP server that no response repeats: it may be stored, logged and shown."""


def without_secrets(tool: Mapping[str, object]) -> dict[str, object]:
    """Return a tool as anybody may know it: an MCP server without what only that server is to get.

    Args:
        tool: As a request declares it.
    """
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
    settings = {name: _echo(name, request.get(name)) for name in DEFAULTS}
    conversation = request.get("conversation")
    if conversation is not None:
        settings["conversation"] = {"id": conversation["id"] if is_mapping(conversation) else conversation}
    return settings


def needs_types(request: Mapping[str, object]) -> bool:
    """Return whether the `openai` package is asked about a setting of a request; see `load_types`.

    Args:
        request: The body of a `POST /v1/responses`, already found valid.
    """
    given = {name: request[name] for name in DEFAULTS if name != "tools" and request.get(name) is not None}
    if not all(is_sure(name, READINGS.get(name, _as_given)(value)) for name, value in given.items()):
        return True
    return not all(is_sure("", tool) for tool in _shaped(request.get("tools")))


def load_types() -> None:
    """Load what a setting of no usual shape is judged by: 12 MB and half a second, which may pass in another thread."""
    for name in ("", *DEFAULTS):
        _reader_of(name)


def _echo(name: str, given: object) -> object:
    """Return the value that the request gave, as the response's type reads it, else the default; a copy at the top."""
    if given is not None:
        echoed = _read(name, READINGS.get(name, _as_given)(given))
        if echoed is not _UNFIT:
            return echoed
    return _plain(DEFAULTS[name])


def _as_given(value: object) -> object:
    return value


def _tools(value: object) -> object:
    """Return the tools of known types, each in the response's shape, with its fields in the order in which they came."""
    return [_in_order(tool, read) for tool in _shaped(value) if (read := _read("", tool)) is not _UNFIT]


def _shaped(value: object) -> list[dict[str, object]]:
    return [_tool(tool) for tool in (value if _is_sequence(value) else ()) if is_mapping(tool)]


def _in_order(given: Mapping[str, object], read: object) -> object:
    """Return the fields of `read`, those that were given first and in their order."""
    return {name: read[name] for name in (*given, *read) if name in read} if is_mapping(read) else read


def _tool(tool: Mapping[str, object]) -> dict[str, object]:
    """One tool with the fields that a response's tool has; an MCP server without its secrets."""
    match tool.get("type"):
        case "function":
            return {"description": None, "parameters": None, "strict": None, **tool}
        case "namespace":
            return {"description": "", "tools": [], **tool}
        case "code_interpreter":
            return {"container": {"type": "auto"}, **tool}
        case "mcp":
            return without_secrets(tool)
        case _:
            return dict(tool)


def _text(value: object) -> object:
    """Return the text settings with a format, whose optional fields are there too where it is a schema."""
    given = _without_nulls(value)
    form = given.get("format", {"type": "text"})
    if is_mapping(form) and form.get("type") == "json_schema":
        form = {"description": None, **form, "strict": form.get("strict") is True}
    return {**given, "format": form}


def _reasoning(value: object) -> object:
    """Return the reasoning settings with both of the fields that Open Responses requires of them."""
    return {"effort": None, "summary": None, **_without_nulls(value)}


def _service_tier(value: object) -> object:
    """Return the tier that was asked for; `fast` is another name for `priority`, and responses say the latter."""
    return "priority" if value == "fast" else value


READINGS: Mapping[str, Reading] = MappingProxyType(
    {"reasoning": _reasoning, "service_tier": _service_tier, "text": _text, "tools": _tools}
)
"""The settings that are not echoed just as they were given."""


_UNFIT: Final = object()
"""Stands for a value that a response's field cannot have."""


def _read(name: str, value: object) -> object:
    """Return a value as the type of a response's field reads it (`"false"` as false), or `_UNFIT`; "" stands for one tool."""
    return value if is_sure(name, value) else _reader_of(name)(value)


@cache
def _reader_of(name: str) -> Callable[[object], object]:
    """Return what reads a response's field by its type in the installed `openai` package; a tool for the empty name."""
    from openai.types.responses import Response  # noqa: PLC0415 - half a second that usual settings do without
    from openai.types.responses.tool import Tool  # noqa: PLC0415
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415

    declared = Response.model_fields.get(name)
    annotation: Any = declared.annotation if declared else Tool if not name else type(DEFAULTS[name])
    adapter: TypeAdapter[object] = TypeAdapter(annotation)

    def read(value: object) -> object:
        try:
            return adapter.dump_python(adapter.validate_python(value), mode="json", by_alias=True, exclude_unset=True)
        except ValidationError:
            return _UNFIT

    return read


def _without_nulls(value: object) -> dict[str, object]:
    return {name: inner for name, inner in value.items() if inner is not None} if is_mapping(value) else {}


def _plain(value: object) -> object:
    """Return a default as plain JSON, for the caller to keep."""
    if is_mapping(value):
        return {name: _plain(inner) for name, inner in value.items()}
    return [] if value == () else value


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str)
