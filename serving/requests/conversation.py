"""The items of a conversation: what a request may give as its input, and how that goes on from what came before.

It knows the shapes of input items and of their parts, and which tool output answers which call. Types of items that it
does not know pass as they are: hosted tools and later releases bring new ones, and a conversation must carry them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from interlock.serving.requests.checks import (
    Check,
    anything,
    array,
    by_type,
    elements,
    flag,
    invalid,
    members,
    missing,
    one_of,
    record,
    text,
    text_or,
    under,
)

__all__ = ["INPUT", "Item", "join", "read_input"]

Item: TypeAlias = Mapping[str, object]

STORED_NOWHERE: Final[Mapping[str, Item]] = MappingProxyType({})

_some_text: Final = text()
_name: Final = text(at_least=1)
_objects: Final = array(record())

IMAGE: Final = record(
    others={"image_url": _some_text, "file_id": _some_text, "detail": one_of("low", "high", "auto", "original")}
)
PARTS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "input_text": record({"text": _some_text}),
        "input_image": IMAGE,
        "input_file": record(others=dict.fromkeys(("file_id", "file_data", "file_url", "filename"), _some_text)),
        "input_audio": record({"input_audio": record({"data": _some_text, "format": _some_text})}),
        "input_video": record({"video_url": _some_text}),
        "output_text": record({"text": _some_text}, {"annotations": _objects, "logprobs": _objects}),
        "refusal": record({"refusal": _some_text}),
        "text": record({"text": _some_text}),
        "summary_text": record({"text": _some_text}),
        "reasoning_text": record({"text": _some_text}),
        "computer_screenshot": IMAGE,
    }
)
"""The parts of a message, of a reasoning item, and of a tool's output."""

CONTENT: Final = text_or(array(by_type(PARTS)))

IDENTITY: Final[Mapping[str, Check]] = MappingProxyType({"id": _some_text, "status": _some_text})
CALL: Final[Mapping[str, Check]] = MappingProxyType({"call_id": _name, "name": _name})
OUTPUT: Final[Mapping[str, Check]] = MappingProxyType({"call_id": _name, "output": CONTENT})
ITEMS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "message": record(
            {"role": one_of("user", "assistant", "system", "developer"), "content": CONTENT},
            {**IDENTITY, "phase": _some_text},
        ),
        "reasoning": record(
            others={
                **IDENTITY,
                "summary": array(by_type(PARTS)),
                "content": array(by_type(PARTS)),
                "encrypted_content": _some_text,
            }
        ),
        "function_call": record({**CALL, "arguments": _some_text}, {**IDENTITY, "namespace": _some_text}),
        "function_call_output": record(OUTPUT, IDENTITY),
        "custom_tool_call": record({**CALL, "input": _some_text}, {**IDENTITY, "namespace": _some_text}),
        "custom_tool_call_output": record(OUTPUT, IDENTITY),
        "item_reference": record({"id": _name}),
        "mcp_approval_request": record({"server_label": _name, "name": _name, "arguments": _some_text}, IDENTITY),
        "mcp_approval_response": record({"approval_request_id": _name, "approve": flag}, IDENTITY),
    }
)
"""The items whose shape is checked."""

KNOWN_OR_NOT: Final = by_type(ITEMS, otherwise=anything)

ANSWERED: Final = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "computer_call_output",
        "shell_call_output",
        "apply_patch_call_output",
    }
)
"""The items that answer a call by its `call_id`, and make no sense without it."""


def _item(param: str, value: object) -> None:
    """Accept an input item; one without a type is a message if it has a role, or the reference that its id makes."""
    record()(param, value)
    item = members(value)
    if _type_of(item) is None:
        raise missing(under(param, "type"))
    KNOWN_OR_NOT(param, {**item, "type": _type_of(item)})


INPUT: Final = text_or(array(_item))
"""The check of a request's `input`."""


def _type_of(item: Item) -> object:
    given = item.get("type")
    return given if given is not None else "message" if "role" in item else "item_reference" if "id" in item else None


def read_input(value: object) -> tuple[Item, ...]:
    """Give a valid `input` as items that all have their type; a string is a user's message."""
    if isinstance(value, str):
        return ({"type": "message", "role": "user", "content": value},)
    return tuple({**item, "type": _type_of(item)} for item in map(members, elements(value)))


def join(previous: Sequence[Item], given: Sequence[Item], stored: Mapping[str, Item] = STORED_NOWHERE) -> tuple[Item, ...]:
    """Go on with a conversation.

    References are replaced by the items that they mean, or go if those are there already. A reference to an item that
    nobody has stays as it is: an engine passes it over.

    Args:
        previous: The conversation until the previous response, its output included.
        given: The request's own input.
        stored: Other items that references may mean, by their ids.

    Raises:
        ApiError: 400; a tool's output answers no call of the conversation, or an approval no question.
    """
    known = {str(item["id"]) for item in (*previous, *given) if "id" in item and item.get("type") != "item_reference"}
    items = [*previous]
    for item in given:
        if item.get("type") != "item_reference":
            items.append(item)
        elif item.get("id") not in known:
            items.append(stored.get(str(item["id"]), item))
    if not any(item.get("type") == "item_reference" for item in items):  # behind which anything may be
        _require_calls(items, given)
        _require_questions(items, given)
    return tuple(items)


def _require_questions(items: Sequence[Item], given: Sequence[Item]) -> None:
    """Refuse an approval that nobody asked for."""
    asked = {item.get("id") for item in items if item.get("type") == "mcp_approval_request"}
    for index, item in enumerate(given):
        if item.get("type") == "mcp_approval_response" and item.get("approval_request_id") not in asked:
            message = f"No approval request found with id {item.get('approval_request_id')!r}."
            raise invalid(f"input[{index}].approval_request_id", message)


def _require_calls(items: Sequence[Item], given: Sequence[Item]) -> None:
    """Refuse a tool's output whose call is not in the conversation."""
    calls = {item.get("call_id") for item in items if item.get("type") not in ANSWERED}
    for index, item in enumerate(given):
        if item.get("type") in ANSWERED and item.get("call_id") not in calls:
            message = f"No tool call found for the tool output with call_id {item.get('call_id')!r}."
            raise invalid(f"input[{index}].call_id", message)
