"""Reduces a conversation to the items that every engine can render: messages, reasoning, function calls and outputs.

A call of any other tool becomes a call of the function that represents the tool (`interlock.serving.requests.tool_offer`). A call
that a server ran becomes a call and its output. Items that a model cannot read are dropped. docs/api.md has a table
of the input items.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import Final

from interlock.events.json import dumps, elements, is_array, members
from interlock.parsers.routing import flat_name
from interlock.serving.requests.input_items import Item, text_of

UNKNOWN_OUTPUT: Final = "[The output is not in the conversation.]"
"""What the model reads if a client sends a call of the code interpreter back without its `outputs`."""


def normalize(items: Iterable[Item], *, images: bool = True, files: bool = False) -> tuple[Item, ...]:
    """Return a conversation as messages, reasoning, function calls and their outputs.

    Args:
        items: Items of known types, each with its type; references are resolved and encrypted content is unsealed.
        images: Whether a tool's output keeps its images; if not, `[input_image]` replaces each.
        files: Whether it keeps its files, and all else that is not text.
    """
    conversation = [*items]
    denied = {item.get("approval_request_id") for item in conversation if item.get("approve") is False}
    kept = frozenset({"input_image"} if images else ())
    normalized = (each for item in conversation for each in _normalize(item, denied))
    return tuple(each if files else _flatten(each, kept) for each in normalized)


def _normalize(item: Item, denied: AbstractSet[object]) -> Iterable[Item]:
    """Normalize one item; a call that the client denied becomes a failed call."""
    if item["type"] == "mcp_approval_request" and item.get("id") in denied:
        return _mcp({**item, "error": "The user did not approve this call. It was not made."})
    normalizer = NORMALIZERS.get(str(item["type"]))
    return () if normalizer is None else normalizer(item)


def _flatten(item: Item, kept: AbstractSet[object]) -> Item:
    """Join the parts of a tool's output into one text, unless it has a part of a type to keep. Other items are unchanged."""
    output = item.get("output")
    if item["type"] != "function_call_output" or not is_array(output):
        return item
    return item if any(members(part).get("type") in kept for part in output) else {**item, "output": text_of(output)}


def _message(item: Item) -> Iterable[Item]:
    """Yield a message. The parts of an assistant's message become one text, unless its only part is an `output_text`."""
    parts = [members(part) for part in elements(item.get("content"))]
    if (
        item.get("role") != "assistant"
        or not is_array(item.get("content"))
        or [part.get("type") for part in parts] == ["output_text"]
    ):
        yield item
    elif parts:
        text = "".join(str(part.get("text", part.get("refusal", ""))) for part in parts)
        yield {"type": "message", "role": "assistant", "content": text}


def _reasoning(item: Item) -> Iterable[Item]:
    """Yield reasoning with its text, or its summary if it has no text; yield nothing if it has neither."""
    text = text_of(item.get("content")) or text_of(item.get("summary"))
    if text:
        yield {"type": "reasoning", **_identity(item), "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def _client_call(name: str, field: str) -> Callable[[Item], Iterable[Item]]:
    """Return the normalizer for calls of a client's tool, with the arguments in `field`."""

    def normalizer(item: Item) -> Iterable[Item]:
        if item.get("call_id"):  # without one, the server ran it
            arguments = {key: value for key, value in members(item.get(field)).items() if value is not None}
            if name == "local_shell":
                arguments.pop("type", None)
            yield _call(item["call_id"], name, arguments)

    return normalizer


def _output(item: Item) -> Iterable[Item]:
    yield {**_call_output(item.get("call_id"), item.get("output")), **_identity(item)}


def _structured_output(field: str) -> Callable[[Item], Iterable[Item]]:
    """Return the normalizer for outputs whose `field` becomes JSON text."""

    def normalizer(item: Item) -> Iterable[Item]:
        if item.get("call_id"):
            yield _call_output(item["call_id"], dumps(item.get(field)).decode())

    return normalizer


def _screenshot(item: Item) -> Iterable[Item]:
    url = members(item.get("output")).get("image_url")
    image = [{"type": "input_image", "image_url": url, "detail": "auto"}] if url else "[computer_screenshot]"
    yield _call_output(item.get("call_id"), image)


def _code(item: Item) -> Iterable[Item]:
    logs = "\n".join(str(members(each).get("logs", "")) for each in elements(item.get("outputs")))
    output = item.get("output", UNKNOWN_OUTPUT if item.get("outputs") is None else logs)
    yield from _server_call(item, "python", {"code": item.get("code")}, output)


def _mcp(item: Item) -> Iterable[Item]:
    output = item.get("output") if item.get("error") is None else item["error"]
    result = output if isinstance(output, str) or output is None else dumps(output).decode()
    yield from _server_call(item, _name(item), item.get("arguments"), result)


def _files(item: Item) -> Iterable[Item]:
    if item.get("results"):
        yield from _server_call(item, "file_search", {"queries": item.get("queries")}, dumps(item["results"]).decode())


def _agent_message(item: Item) -> Iterable[Item]:
    text = f"[{item.get('author')} to {item.get('recipient')}]\n{text_of(item.get('content'))}"
    yield {"type": "message", "role": "user", "content": text}


def _search(item: Item) -> Iterable[Item]:
    if item.get("output"):  # the tool's result, which is not in the API's item
        yield from _server_call(item, "web_search", item.get("action"), item["output"])


def _server_call(item: Item, name: str, arguments: object, output: object) -> Iterable[Item]:
    call_id = _made_id(str(item.get("id")))
    return _call(call_id, name, arguments), _call_output(call_id, output or "")


def _made_id(item_id: str) -> str:
    """Return a call id of nine letters and digits, the only form that all services and chat templates accept."""
    return b32encode(sha256(item_id.encode(errors="replace")).digest())[:9].decode()


def _call(call_id: object, name: str, arguments: object) -> dict[str, object]:
    name = name.replace("<|", "<")  # a model may have written a control token, which a prompt cannot quote
    text = arguments if isinstance(arguments, str) else dumps(arguments or {}).decode()
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text or "{}"}


def _call_output(call_id: object, output: object) -> dict[str, object]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _name(item: Item) -> str:
    return flat_name(item.get("namespace") or item.get("server_label"), item.get("name"))


def _identity(item: Item) -> dict[str, object]:
    return {name: item[name] for name in ("id", "status") if item.get(name) is not None}


NORMALIZERS: Final[Mapping[str, Callable[[Item], Iterable[Item]]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": lambda item: [{**_call(item.get("call_id"), _name(item), item.get("arguments")), **_identity(item)}],
    "function_call_output": _output,
    "custom_tool_call": lambda item: [_call(item.get("call_id"), _name(item), {"input": item.get("input")})],
    "custom_tool_call_output": _output,
    "local_shell_call": _client_call("local_shell", "action"),
    # this output's `id` is the id of the call
    "local_shell_call_output": lambda item: [_call_output(item.get("call_id") or item.get("id"), item.get("output"))],
    "shell_call": _client_call("shell", "action"),
    "shell_call_output": _structured_output("output"),
    "apply_patch_call": _client_call("apply_patch", "operation"),
    "apply_patch_call_output": lambda item: [_call_output(item.get("call_id"), item.get("output") or item.get("status"))],
    "tool_search_call": _client_call("tool_search", "arguments"),
    "tool_search_output": _structured_output("tools"),
    "computer_call": _client_call("computer", "action"),
    "computer_call_output": _screenshot,
    "program": lambda item: [_call(item.get("call_id"), "program", {"code": item.get("code")})],
    "program_output": lambda item: [_call_output(item.get("call_id"), item.get("result"))],
    "code_interpreter_call": _code,
    "mcp_call": _mcp,
    "web_search_call": _search,
    "file_search_call": _files,
    "agent_message": _agent_message,
    "multi_agent_call": lambda item: [_call(item.get("call_id"), str(item.get("action")), item.get("arguments"))],
    "multi_agent_call_output": lambda item: [_call_output(item.get("call_id"), text_of(item.get("output")))],
}
"""The normalizer of each type of item that a model can read."""
