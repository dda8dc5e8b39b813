"""The three APIs: the content of an answer, streamed or whole, and a request of the Responses API translated to the others.

The translation leaves out the parameters that Messages and Chat Completions lack.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from attrs import field, frozen

from interlock.events.items import CustomToolCall, FunctionCall
from interlock.events.json import as_text, elements, members, parse
from interlock.events.shapes import name_of

Body: TypeAlias = Mapping[str, object]
TestedApi: TypeAlias = Literal["responses", "messages", "chat"]
"""An API whose servers can be tested."""
Part: TypeAlias = tuple[str, str, str]
"""A part of an answer: `text`, `reasoning` or `call`; the name of the tool; the text or the arguments."""

PATHS: Final[Mapping[TestedApi, str]] = {
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "chat": "/v1/chat/completions",
}
_THINKING: Final = {"max_tokens": 1500, "thinking": {"type": "enabled", "budget_tokens": 1024}}
_CALLS: Final = frozenset(name_of(kind) for kind in (FunctionCall, CustomToolCall))
"""The calls that a client runs, by the name of their tool."""


@frozen
class Output:
    """The content of an answer, in any API; `calls` has the name and arguments of each call of a function or custom tool."""

    text: str = ""
    reasoning: str = ""
    calls: Sequence[tuple[str, str]] = field(default=(), converter=tuple[tuple[str, str], ...])


def read_stream(api: TestedApi, events: Sequence[Body]) -> tuple[Output, str]:
    """Return the content of a stream, and the reason or status with which it ended: `error` after an error, empty without any."""
    match api:
        case "responses":
            items = [event.get("item") for event in events if event.get("type") == "response.output_item.done"]
            _, reason = read_whole(api, members(events[-1].get("response") if events else None))
            return output_of(_items(items)), reason
        case "messages":
            parts = list(_deltas(events))
            deltas = (members(event.get("delta")) for event in events if event.get("type") == "message_delta")
            reasons = [as_text(delta.get("stop_reason")) for delta in deltas]
        case "chat":
            choices = [members(choice) for event in events for choice in elements(event.get("choices"))]
            parts = [part for choice in choices for part in _message(choice.get("delta"))]
            reasons = [as_text(choice.get("finish_reason")) for choice in choices]
    failed = bool(events) and "error" in events[-1]
    return output_of(parts), "error" if failed else "".join(reasons)


def read_whole(api: TestedApi, answer: Body) -> tuple[Output, str]:
    """Return the content of an answer that was not streamed, and its reason or status."""
    if answer.get("error"):
        return output_of(_items(elements(answer.get("output")))), "error"
    match api:
        case "responses":
            return output_of(_items(elements(answer.get("output")))), as_text(answer.get("status"))
        case "messages":
            return output_of(_blocks(elements(answer.get("content")))), as_text(answer.get("stop_reason"))
        case "chat":
            choice = members(next(iter(elements(answer.get("choices"))), None))
            return output_of(_message(choice.get("message"))), as_text(choice.get("finish_reason"))


def output_of(parts: Iterable[Part]) -> Output:
    """Join the parts of an answer. A part of a call without a name continues the last call."""
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


def parse_arguments(output: Output) -> Output:
    """Return an output with the arguments of each call as Messages has them: an object, which is empty if they are not one."""
    return Output(output.text, output.reasoning, [(name, json.dumps({**members(parse(text))})) for name, text in output.calls])


def _items(items: Iterable[object]) -> Iterator[Part]:
    for item in map(members, items):
        match as_text(item.get("type")):
            case "message" | "reasoning":
                kind = "text" if item["type"] == "message" else "reasoning"
                yield from ((kind, "", as_text(members(part).get("text"))) for part in elements(item.get("content")))
            case kind if kind in _CALLS:
                yield "call", as_text(item.get("name")), as_text(item.get("arguments", item.get("input")))
            case _:
                pass


def _blocks(blocks: Iterable[object]) -> Iterator[Part]:
    for block in map(members, blocks):
        match block.get("type"):
            case "tool_use":
                yield "call", as_text(block.get("name")), json.dumps(block.get("input"))
            case "text":
                yield "text", "", as_text(block.get("text"))
            case "thinking":
                yield "reasoning", "", as_text(block.get("thinking"))
            case _:
                pass


def _deltas(events: Iterable[Body]) -> Iterator[Part]:
    """Yield the parts of a stream of Messages, without the input of the server's own tools."""
    open_block: object = ""
    for event in events:
        block, delta = members(event.get("content_block")), members(event.get("delta"))
        if event.get("type") == "content_block_start":
            open_block = block.get("type")
            if open_block == "tool_use":
                yield "call", as_text(block.get("name")), ""
        if event.get("type") != "content_block_delta":
            continue
        match delta.get("type"):
            case "text_delta":
                yield "text", "", as_text(delta.get("text"))
            case "thinking_delta":
                yield "reasoning", "", as_text(delta.get("thinking"))
            case "input_json_delta" if open_block == "tool_use":
                yield "call", "", as_text(delta.get("partial_json"))
            case _:
                pass


def _message(message: object) -> Iterator[Part]:
    """Yield the parts of a message of Chat Completions, or of a delta."""
    fields = members(message)
    yield "reasoning", "", as_text(fields.get("reasoning_content")) or as_text(fields.get("reasoning"))
    yield "text", "", as_text(fields.get("content"))
    for call in map(members, elements(fields.get("tool_calls"))):
        function = members(call.get("function"))
        yield "call", as_text(function.get("name")), as_text(function.get("arguments"))


def translate(api: TestedApi, fields: Body) -> dict[str, object]:
    """Return the request for an API. `stop`, a list of strings, is for the APIs that have it: Messages and Chat Completions."""
    match api:
        case "responses":
            return {name: value for name, value in fields.items() if name != "stop"}
        case "messages":
            return dict(_messages(fields))
        case "chat":
            return dict(_chat(fields))


def _input_items(fields: Body) -> list[Body]:
    value = fields.get("input", "")
    return [{"role": "user", "content": value}] if isinstance(value, str) else [members(item) for item in elements(value)]


def _messages(fields: Body) -> Iterator[tuple[str, object]]:
    yield "messages", [_as_messages(item) for item in _input_items(fields)]
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
    yield "messages", [*system, *map(_as_chat, _input_items(fields))]
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
