"""A conversation in the four kinds of items that every engine can render: messages, reasoning, function calls and their outputs.

A call of any other tool becomes the call of the function that stands for the tool (`interlock.serving.requests.tool_offer`), and
a call that a server ran becomes a call and its output. What says nothing that a model could use is passed over. docs/api.md has
the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final, TypeAlias

from interlock.events.json import dumps
from interlock.parsers.routing import SEPARATOR
from interlock.serving.requests.input_items import Item
from interlock.serving.requests.json_values import elements, is_array, members, text_of

__all__ = ["OpenSealed", "plain", "unopened"]

OpenSealed: TypeAlias = Callable[[Item], Item]
"""Takes an item with `encrypted_content`, and returns what is rendered in its place (`interlock.serving.responses.sealing`)."""


def unopened(item: Item) -> Item:
    """Return a sealed item as far as it can be read by anybody: of a compaction, that is nothing.

    Args:
        item: Reasoning or a compaction.
    """
    return {name: value for name, value in item.items() if name != "encrypted_content"}


def plain(items: Iterable[Item], open_sealed: OpenSealed = unopened, *, pictures: bool = True) -> tuple[Item, ...]:
    """Return a conversation as messages, reasoning, function calls and their outputs.

    Args:
        items: Items of known types, each with its type; references are resolved.
        open_sealed: Opens those with encrypted content.
        pictures: Whether the output of a tool may have parts that are no text; else these are named in square brackets.
    """
    opened = [open_sealed(item) if item.get("encrypted_content") else item for item in items]
    refused = {item.get("approval_request_id") for item in opened if item.get("approve") is False}
    return tuple(_flat(each, pictures=pictures) for item in opened for each in _rendered(item, refused))


def _rendered(item: Item, refused: AbstractSet[object]) -> Iterable[Item]:
    """Return what stands for an item; a call that the client has refused is a call that failed."""
    if item["type"] == "mcp_approval_request" and item.get("id") in refused:
        return _mcp({**item, "error": "The user did not approve this call. It was not made."})
    return RENDERED.get(str(item["type"]), _nothing)(item)


def _flat(item: Item, *, pictures: bool) -> Item:
    """Return an item whose output is a text, if it is the output of a tool and can be one."""
    output = item.get("output")
    if item["type"] != "function_call_output" or not is_array(output):
        return item
    shown = pictures and any(members(part).get("type") == "input_image" for part in output)
    return item if shown else {**item, "output": text_of(output)}


def _message(item: Item) -> Iterable[Item]:
    """Yield a message; an answer of several parts, or a refusal, as one text."""
    parts = [members(part) for part in elements(item.get("content"))]
    if item.get("role") != "assistant" or not is_array(item.get("content")) or [*map(_kind, parts)] == ["output_text"]:
        yield item
    elif parts:
        said = "".join(str(part.get("text", part.get("refusal", ""))) for part in parts)
        yield {"type": "message", "role": "assistant", "content": said}


def _kind(part: Mapping[str, object]) -> object:
    return part.get("type")


def _reasoning(item: Item) -> Iterable[Item]:
    """Yield reasoning with its text, or its summary where it has no other; nothing without either."""
    text = text_of(item.get("content")) or text_of(item.get("summary"))
    if text:
        kept = {name: item[name] for name in ("id", "status") if item.get(name) is not None}
        yield {"type": "reasoning", **kept, "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def _function_call(item: Item) -> Iterable[Item]:
    yield {**_call(item.get("call_id"), _name(item), item.get("arguments")), **_about(item)}


def _custom_call(item: Item) -> Iterable[Item]:
    yield _call(item.get("call_id"), _name(item), {"input": item.get("input")})


def _client_call(name: str, field: str) -> Callable[[Item], Iterable[Item]]:
    """Return what renders the call of a tool that the client runs.

    Args:
        name: Of its function.
        field: The field that holds its arguments.
    """

    def rendered(item: Item) -> Iterable[Item]:
        if item.get("call_id"):  # without one, the server ran it
            given = {key: value for key, value in members(item.get(field)).items() if value is not None}
            if name == "local_shell":
                given.pop("type", None)
            yield _call(item["call_id"], name, given)

    return rendered


def _output(item: Item) -> Iterable[Item]:
    yield {**_answer(item.get("call_id"), item.get("output")), **_about(item)}


def _local_output(item: Item) -> Iterable[Item]:
    yield _answer(item.get("call_id") or item.get("id"), item.get("output"))  # the API has the id of the call there


def _structured_output(field: str) -> Callable[[Item], Iterable[Item]]:
    """Return what renders an output that is no text: as JSON."""

    def rendered(item: Item) -> Iterable[Item]:
        if item.get("call_id"):
            yield _answer(item["call_id"], dumps(item.get(field)).decode())

    return rendered


def _patch_output(item: Item) -> Iterable[Item]:
    yield _answer(item.get("call_id"), item.get("output") or item.get("status"))


def _screen(item: Item) -> Iterable[Item]:
    picture = members(item.get("output")).get("image_url")
    shown = [{"type": "input_image", "image_url": picture, "detail": "auto"}] if picture else "[computer_screenshot]"
    yield _answer(item.get("call_id"), shown)


def _program_output(item: Item) -> Iterable[Item]:
    yield _answer(item.get("call_id"), item.get("result"))


def _code(item: Item) -> Iterable[Item]:
    logs = "\n".join(str(members(each).get("logs", "")) for each in elements(item.get("outputs")))
    yield from _pair(item, "python", {"code": item.get("code")}, item.get("output", logs))


def _mcp(item: Item) -> Iterable[Item]:
    said = item.get("output") if item.get("error") is None else item["error"]
    result = said if isinstance(said, str) or said is None else dumps(said).decode()
    yield from _pair(item, f"{item.get('server_label')}{SEPARATOR}{item.get('name')}", item.get("arguments"), result)


def _files(item: Item) -> Iterable[Item]:
    if item.get("results"):
        yield from _pair(item, "file_search", {"queries": item.get("queries")}, dumps(item["results"]).decode())


def _agent_message(item: Item) -> Iterable[Item]:
    text = f"[{item.get('author')} to {item.get('recipient')}]\n{text_of(item.get('content'))}"
    yield {"type": "message", "role": "user", "content": text}


def _agent_call(item: Item) -> Iterable[Item]:
    yield _call(item.get("call_id"), str(item.get("action")), item.get("arguments"))


def _agent_output(item: Item) -> Iterable[Item]:
    yield _answer(item.get("call_id"), text_of(item.get("output")))


def _search(item: Item) -> Iterable[Item]:
    if item.get("output"):  # what its tool said, which the API's item does not show
        yield from _pair(item, "web_search", item.get("action"), item["output"])


def _nothing(_item: Item) -> Iterable[Item]:
    return ()


def _pair(item: Item, name: str, arguments: object, output: object) -> Iterable[Item]:
    """Yield a call that a server ran, and its output."""
    call_id = f"call_{item.get('id')}"
    return _call(call_id, name, arguments), _answer(call_id, output or "")


def _call(call_id: object, name: str, arguments: object) -> dict[str, object]:
    name = name.replace("<|", "<")  # a model may have spelled a control token there, which a prompt cannot quote
    written = arguments if isinstance(arguments, str) else dumps(arguments or {}).decode()
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": written or "{}"}


def _answer(call_id: object, output: object) -> dict[str, object]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _name(item: Item) -> str:
    """Return the name of a function, with its namespace."""
    space, name = item.get("namespace"), str(item.get("name"))
    return f"{space}{SEPARATOR}{name}" if space else name


def _about(item: Item) -> dict[str, object]:
    return {name: item[name] for name in ("id", "status") if item.get(name) is not None}


RENDERED: Final[Mapping[str, Callable[[Item], Iterable[Item]]]] = MappingProxyType(
    {
        "message": _message,
        "reasoning": _reasoning,
        "function_call": _function_call,
        "function_call_output": _output,
        "custom_tool_call": _custom_call,
        "custom_tool_call_output": _output,
        "local_shell_call": _client_call("local_shell", "action"),
        "local_shell_call_output": _local_output,
        "shell_call": _client_call("shell", "action"),
        "shell_call_output": _structured_output("output"),
        "apply_patch_call": _client_call("apply_patch", "operation"),
        "apply_patch_call_output": _patch_output,
        "tool_search_call": _client_call("tool_search", "arguments"),
        "tool_search_output": _structured_output("tools"),
        "computer_call": _client_call("computer", "action"),
        "computer_call_output": _screen,
        "program": lambda item: [_call(item.get("call_id"), "program", {"code": item.get("code")})],
        "program_output": _program_output,
        "code_interpreter_call": _code,
        "mcp_call": _mcp,
        "web_search_call": _search,
        "file_search_call": _files,
        "agent_message": _agent_message,
        "multi_agent_call": _agent_call,
        "multi_agent_call_output": _agent_output,
    }
)
"""How an item is rendered, for each type of which a chat model reads anything."""
