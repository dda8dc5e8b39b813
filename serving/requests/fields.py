"""The parameters of `POST /v1/responses`, each with what it may be: the shape of a request as one table.

It knows every parameter by itself; rules that tie two of them together are in `interlock.serving.requests.create`. What the
table does not name passes unread, as do tools of unknown types: clients are ahead of servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from interlock.serving.requests.checks import (
    Check,
    anything,
    array,
    by_type,
    elements,
    flag,
    integer,
    invalid,
    json_schema,
    members,
    number,
    one_of,
    record,
    text,
    text_or,
    under,
)
from interlock.serving.requests.conversation import INPUT

__all__ = ["CALLED", "FIELDS"]

NAME: Final = text(at_least=1, at_most=64, pattern=r"[a-zA-Z0-9_-]+")
"""The name of a function, a custom tool or a schema."""

CALLED: Final = frozenset({"function", "custom"})
"""The types of tools that the model calls by name and the client runs."""

METADATA_PAIRS: Final = 16
METADATA_KEY: Final = 64
METADATA_VALUE: Final = 512


def _metadata(param: str, value: object) -> None:
    """Accept an object of strings, within the API's limits."""
    record()(param, value)
    pairs = members(value)
    if len(pairs) > METADATA_PAIRS:
        message = f"Invalid '{param}': it has {len(pairs)} pairs, and {METADATA_PAIRS} are the most."
        raise invalid(param, message, "object_above_max_properties")
    for key, inner in pairs.items():
        text(at_most=METADATA_KEY)(param, key)
        text(at_most=METADATA_VALUE)(under(param, key), inner)


def _unsupported(param: str, _value: object) -> None:
    """Refuse a parameter that would change what the model is told, and that is not served here."""
    raise invalid(param, f"'{param}' is not supported by this server.", "unsupported_parameter")


def _function(param: str, value: object) -> None:
    """Accept a function; its parameters must be a JSON schema if it is strict, and an object in any case."""
    strict = members(value).get("strict") is True
    record({"name": NAME}, {"parameters": json_schema if strict else record(), "description": text(), "strict": flag})(
        param, value
    )


def _tools(param: str, value: object) -> None:
    """Accept an array of tools whose names differ."""
    array(TOOL)(param, value)
    seen: set[object] = set()
    for index, tool in enumerate(map(members, elements(value))):
        name = tool.get("name") if tool.get("type") in CALLED else None
        if name is not None and name in seen:
            raise invalid(f"{param}[{index}].name", f"Two tools are named '{name}'.", "duplicate_tool_name")
        seen.add(name)


TOOL: Final = by_type(
    {
        "function": _function,
        "custom": record({"name": NAME}, {"description": text(), "format": record()}),
        "namespace": record({"name": text(at_least=1)}, {"description": text(), "tools": _tools}),
        "mcp": record(
            {"server_label": text(at_least=1)},
            {
                "server_url": text(),
                "headers": record(),
                "authorization": text(),
                "allowed_tools": anything,
                "require_approval": text_or(record()),
            },
        ),
        "file_search": record({"vector_store_ids": array(text())}),
        "code_interpreter": record(others={"container": text_or(record())}),
    },
    otherwise=anything,
)
TOOL_CHOICE: Final = by_type(
    {
        "function": record({"name": text(at_least=1)}),
        "custom": record({"name": text(at_least=1)}),
        "mcp": record({"server_label": text(at_least=1)}, {"name": text()}),
        "allowed_tools": record({"mode": one_of("auto", "required"), "tools": array(record({"type": text()}))}),
    },
    otherwise=anything,
)
FORMAT: Final = by_type(
    {
        "text": anything,
        "json_object": anything,
        "json_schema": record({"name": NAME, "schema": json_schema}, {"description": text(), "strict": flag}),
    }
)
EFFORT: Final = one_of("none", "minimal", "low", "medium", "high", "xhigh", "max")
SUMMARY: Final = one_of("auto", "concise", "detailed")


def _tool_choice(param: str, value: object) -> None:
    (one_of("none", "auto", "required") if isinstance(value, str) else TOOL_CHOICE)(param, value)


FIELDS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "background": flag,
        "client_metadata": record(),
        "conversation": _unsupported,
        "frequency_penalty": number(-2, 2),
        "include": array(text()),
        "input": INPUT,
        "instructions": text(),
        "max_output_tokens": integer(1),
        "max_tool_calls": integer(0),
        "metadata": _metadata,
        "model": text(at_least=1),
        "parallel_tool_calls": flag,
        "presence_penalty": number(-2, 2),
        "previous_response_id": text(at_least=1),
        "prompt": _unsupported,
        "prompt_cache_key": text(),
        "prompt_cache_retention": text(),
        "reasoning": record(others={"effort": EFFORT, "summary": SUMMARY, "generate_summary": SUMMARY}),
        "safety_identifier": text(),
        "service_tier": one_of("auto", "default", "flex", "scale", "priority", "fast", "ultrafast"),
        "store": flag,
        "stream": flag,
        "stream_options": record(others={"include_obfuscation": flag}),
        "temperature": number(0, 2),
        "text": record(others={"format": FORMAT, "verbosity": one_of("low", "medium", "high")}),
        "tool_choice": _tool_choice,
        "tools": _tools,
        "top_logprobs": integer(0, 20),
        "top_p": number(0, 1),
        "truncation": one_of("auto", "disabled"),
        "user": text(),
    }
)
"""What each parameter may be; null always means that it is not given."""
