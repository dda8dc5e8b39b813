"""Translates a request of the Responses API to Messages or Chat Completions, without the parameters that these lack."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from interlock.events.json import as_text, elements, members
from interlock.testing.conformance.answers import Body, TestedApi

PATHS: Final[Mapping[TestedApi, str]] = {
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "chat": "/v1/chat/completions",
}
_THINKING: Final = {"max_tokens": 1500, "thinking": {"type": "enabled", "budget_tokens": 1024}}


def translate(api: TestedApi, fields: Body) -> dict[str, object]:
    """Return the request for an API. `stop`, a list of strings, is for the APIs that have it: Messages and Chat Completions."""
    match api:
        case "responses":
            return {name: value for name, value in fields.items() if name != "stop"}
        case "messages":
            return dict(_messages(fields))
        case "chat":
            return dict(_chat(fields))


def _items(fields: Body) -> list[Body]:
    value = fields.get("input", "")
    return [{"role": "user", "content": value}] if isinstance(value, str) else [members(item) for item in elements(value)]


def _messages(fields: Body) -> Iterator[tuple[str, object]]:
    yield "messages", [_as_messages(item) for item in _items(fields)]
    choice = fields.get("tool_choice", "auto")
    kinds: Mapping[str, Body] = {"auto": {"type": "auto"}, "required": {"type": "any"}, "none": {"type": "none"}}
    for name, value in fields.items():
        match name:
            case "instructions":
                yield "system", value
            case "max_output_tokens":
                yield "max_tokens", value
            case "stop":
                yield "stop_sequences", value
            case "tools":
                tools = map(members, elements(value))
                yield name, [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in tools]
            case "tool_choice" | "parallel_tool_calls":
                named = {"type": "tool", "name": members(choice).get("name")}
                rule = kinds.get(choice, named) if isinstance(choice, str) else named
                single = fields.get("parallel_tool_calls", True) is False
                yield "tool_choice", {**rule, **({"disable_parallel_tool_use": True} if single else {})}
            case "reasoning":
                yield from _THINKING.items()
            case "text":
                form = members(members(value).get("format"))
                yield "output_config", {"format": {"type": "json_schema", "schema": form.get("schema")}}
            case "model" | "temperature":
                yield name, value
            case _:
                pass


def _as_messages(item: Body) -> Body:
    match item:
        case {"arguments": _}:
            block = {
                "type": "tool_use",
                "id": item["call_id"],
                "name": item["name"],
                "input": json.loads(as_text(item["arguments"])),
            }
            return {"role": "assistant", "content": [block]}
        case {"output": _}:
            result = {"type": "tool_result", "tool_use_id": item["call_id"], "content": item["output"]}
            return {"role": "user", "content": [result]}
        case _:
            return {"role": item["role"], "content": item["content"]}


def _chat(fields: Body) -> Iterator[tuple[str, object]]:
    system = [{"role": "system", "content": fields["instructions"]}] if "instructions" in fields else []
    yield "messages", [*system, *map(_as_chat, _items(fields))]
    for name, value in fields.items():
        match name:
            case "max_output_tokens":
                yield "max_completion_tokens", value
            case "tools":
                tools = map(members, elements(value))
                yield name, [{"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}} for tool in tools]
            case "tool_choice":
                rule = members(value)
                yield name, {"type": "function", "function": {"name": rule["name"]}} if rule else value
            case "reasoning":
                yield "reasoning_effort", members(value).get("effort")
            case "text":
                form = members(members(value).get("format"))
                schema = {key: entry for key, entry in form.items() if key != "type"}
                yield "response_format", {"type": form["type"], **({"json_schema": schema} if schema else {})}
            case "include":
                yield "logprobs", True
            case "model" | "temperature" | "parallel_tool_calls" | "stop" | "top_logprobs":
                yield name, value
            case _:
                pass


def _as_chat(item: Body) -> Body:
    match item:
        case {"arguments": _}:
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case {"output": _}:
            return {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
        case _:
            return {"role": item["role"], "content": item["content"]}
