"""The three APIs as a client sees them: the request that plays a turn, and the content of its answer, streamed and whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from playing import body
from turns import Turn

from interlock.dialects import ApiName
from interlock.testing.conformance.apis import PATHS, Output, parse_arguments, read_stream, read_whole

__all__ = ["PATHS", "STREAMED", "difference", "is_same", "read_stream", "read_whole", "request", "shown"]

Json: TypeAlias = Mapping[str, Any]

STREAMED: Final[Mapping[ApiName, Json]] = {
    "responses": {},
    "messages": {},
    "chat": {"stream_options": {"include_usage": True}},
}
"""Further fields of a request for a stream."""
SERVER_TOOLS: Final[Mapping[str, Json]] = {
    "code_interpreter": {"type": "code_execution_20250825", "name": "code_execution"},
    "web_search_preview": {"type": "web_search_20250305", "name": "web_search"},
}
"""The tools of the server in Messages, by their types in the Responses API."""
LONGEST: Final = 80
"""The most characters of a value that a page shows."""


def request(api: ApiName, model: str, turn: Turn) -> dict[str, Any]:
    """Return the request that plays a turn, without the fields that the API lacks."""
    fields: dict[str, Any] = body(model, turn)
    if api == "responses":
        return fields
    question = [{"role": "user", "content": fields["input"]}]
    settings = _messages(fields) if api == "messages" else _chat(fields)
    return {"model": fields["model"], "messages": question, "vllm_xargs": fields["vllm_xargs"], **settings}


def _messages(fields: Json) -> dict[str, Any]:
    settings: dict[str, Any] = {"max_tokens": fields.get("max_output_tokens", 500)}
    if "tools" in fields:
        settings["tools"] = [SERVER_TOOLS.get(tool["type"]) or _tool(tool) for tool in fields["tools"]]
    if not fields.get("parallel_tool_calls", True):
        settings["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
    if not fields.get("include_reasoning", True):
        settings["thinking"] = {"type": "adaptive", "display": "omitted"}
    return settings


def _tool(tool: Json) -> Json:
    return {"name": tool["name"], "description": tool.get("description", ""), "input_schema": tool["parameters"]}


def _chat(fields: Json) -> dict[str, Any]:
    settings = {name: fields[name] for name in ("parallel_tool_calls", "include_reasoning", "top_logprobs") if name in fields}
    if "include" in fields:
        settings["logprobs"] = True
    if "max_output_tokens" in fields:
        settings["max_completion_tokens"] = fields["max_output_tokens"]
    if "tools" in fields:
        settings["tools"] = [_function(tool) if tool["type"] == "function" else tool for tool in fields["tools"]]
    return settings


def _function(tool: Json) -> Json:
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def difference(content: Output, expected: Output | None) -> str:
    """Return how an answer differs from what is expected, white space aside; empty if it does not. No arguments are `{}`."""
    if expected is None:
        return ""
    for name, verb in (("text", "is"), ("reasoning", "is"), ("calls", "are")):
        has, needed = getattr(content, name), getattr(expected, name)
        if _bare(has) != _bare(needed):
            return f"the {name} {verb} {shown(has)} instead of {shown(needed)}"
    return ""


def shown(value: object) -> str:
    """Return a value as JSON in the code of a page."""
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text if len(text) <= LONGEST else f'{text[:LONGEST]} …'}`"


def _bare(content: str | Sequence[tuple[str, str]]) -> object:
    if isinstance(content, str):
        return _joined(content)
    return [(name, _joined(arguments) or "{}") for name, arguments in content]


def _joined(text: str) -> str:
    return "".join(text.split())


def is_same(api: ApiName, stream: tuple[Output, str], answer: Json) -> bool:
    """Return whether an answer in one piece equals its accumulated stream (rules M13 and C9)."""
    (content, reason), (whole_content, whole_reason) = stream, read_whole(api, answer)
    if reason == "error" or whole_reason == "error":
        return reason == whole_reason
    if api == "messages":
        content = parse_arguments(content)
    elif not ({"refusal", "annotations"} <= answer["choices"][0]["message"].keys() and "logprobs" in answer["choices"][0]):
        return False
    return (content, reason) == (whole_content, whole_reason)
