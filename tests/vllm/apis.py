"""The three APIs as a client sees them: the request that plays a turn, and what its answer says, streamed and whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import evolve
from playing import body
from turns import Output, Turn

from interlock.fsm.acceptor.dialects import ApiName

Json: TypeAlias = Mapping[str, Any]
Part: TypeAlias = tuple[str, str, str]
"""A part of an answer: `text`, `reasoning` or `call`; the name of what is called; the text or the arguments."""

PATHS: Final[Mapping[ApiName, str]] = {
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "chat": "/v1/chat/completions",
}
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


def streamed(api: ApiName, events: Sequence[Json]) -> tuple[Output, str]:
    """Return what a stream says, and the reason or status with which it ended: `error` after an error, empty without any."""
    match api:
        case "responses":
            items = [event["item"] for event in events if event.get("type") == "response.output_item.done"]
            last = events[-1].get("response", {}) if events else {}
            return output_of(_items(items)), str(last.get("status", ""))
        case "messages":
            parts = list(_deltas(events))
            reasons = [event["delta"]["stop_reason"] for event in events if event.get("type") == "message_delta"]
        case "chat":
            choices = [choice for event in events for choice in event.get("choices", ())]
            parts = [part for choice in choices for part in _message(choice["delta"])]
            reasons = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    failed = bool(events) and "error" in events[-1]
    return output_of(parts), "error" if failed else "".join(map(str, reasons))


def whole(api: ApiName, answer: Json) -> tuple[Output, str]:
    """Return what an answer that was not streamed says, and its reason or status."""
    if answer.get("error"):
        return output_of(_items(answer.get("output", ()))), "error"
    match api:
        case "responses":
            return output_of(_items(answer["output"])), str(answer["status"])
        case "messages":
            return output_of(_blocks(answer["content"])), str(answer["stop_reason"])
        case "chat":
            (choice,) = answer["choices"]
            return output_of(_message(choice["message"])), str(choice["finish_reason"])


def output_of(parts: Iterator[Part] | Sequence[Part]) -> Output:
    """Return what the parts of an answer add up to; a part that is not new, but more of a call, has no name."""
    texts = {"text": "", "reasoning": ""}
    calls: list[tuple[str, str]] = []
    for kind, name, text in parts:
        if kind in texts:
            texts[kind] += text
        elif name or not calls:
            calls.append((name, text))
        else:
            calls[-1] = calls[-1][0], calls[-1][1] + text
    return Output(texts["text"], texts["reasoning"], calls)


def _items(items: Sequence[Json]) -> Iterator[Part]:
    for item in items:
        if item["type"] == "function_call":
            yield "call", item["name"], item["arguments"]
        elif item["type"] in ("message", "reasoning"):
            kind = "text" if item["type"] == "message" else "reasoning"
            yield from ((kind, "", part["text"]) for part in item.get("content") or ())


def _blocks(blocks: Sequence[Json]) -> Iterator[Part]:
    for block in blocks:
        match block["type"]:
            case "tool_use":
                yield "call", block["name"], json.dumps(block["input"])
            case "text":
                yield "text", "", block["text"]
            case "thinking":
                yield "reasoning", "", block["thinking"]
            case _:
                pass


def _deltas(events: Sequence[Json]) -> Iterator[Part]:
    """Yield the parts of a stream of Messages; the JSON of the server's tools is none."""
    open_block = ""
    for event in events:
        if event.get("type") == "content_block_start":
            open_block = event["content_block"]["type"]
            if open_block == "tool_use":
                yield "call", event["content_block"]["name"], ""
        delta = event["delta"] if event.get("type") == "content_block_delta" else {}
        match delta.get("type"):
            case "text_delta":
                yield "text", "", delta["text"]
            case "thinking_delta":
                yield "reasoning", "", delta["thinking"]
            case "input_json_delta" if open_block == "tool_use":
                yield "call", "", delta["partial_json"]
            case _:
                pass


def _message(message: Json) -> Iterator[Part]:
    """Yield the parts of a message of Chat Completions, or of a delta."""
    yield "reasoning", "", message.get("reasoning_content") or message.get("reasoning") or ""
    yield "text", "", message.get("content") or ""
    for call in message.get("tool_calls") or ():
        yield "call", call["function"].get("name") or "", call["function"].get("arguments") or ""


def matches(content: Output, expected: Output | None) -> bool:
    """Return whether an answer says what is expected, white space aside; no arguments are an empty object."""
    return expected is None or _bare(content) == _bare(expected)


def _bare(content: Output) -> Output:
    calls = [(name, _joined(arguments) or "{}") for name, arguments in content.calls]
    return Output(_joined(content.text), _joined(content.reasoning), calls)


def _joined(text: str) -> str:
    return "".join(text.split())


def is_same(api: ApiName, stream: tuple[Output, str], answer: Json) -> bool:
    """Return whether an answer in one piece equals what its stream adds up to (rules M13 and C9)."""
    (content, reason), (whole_content, whole_reason) = stream, whole(api, answer)
    if reason == "error" or whole_reason == "error":
        return reason == whole_reason
    if api == "messages":  # input that is no object adds up to an empty one
        content = evolve(content, calls=[(name, json.dumps(_input(arguments))) for name, arguments in content.calls])
    elif not ({"refusal", "annotations"} <= answer["choices"][0]["message"].keys() and "logprobs" in answer["choices"][0]):
        return False
    return (content, reason) == (whole_content, whole_reason)


def _input(arguments: str) -> object:
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
