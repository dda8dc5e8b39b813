"""Validates the input of a request, and appends it to the items of the conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Final, TypeAlias

from interlock.embedding import random_id
from interlock.events.items import ITEMS as ITEM_TYPES
from interlock.events.items import FunctionCallOutput
from interlock.events.json import as_text, is_array, is_object, members
from interlock.serving.requests.api_errors import ApiError, invalid, missing
from interlock.serving.requests.limits import ITEMS, MAX_INPUT_ITEMS, TEXT, Kinds, shape_of
from interlock.serving.requests.refusals import require, require_list, too_long, unsupported_value, wrong_type

JsonItem: TypeAlias = Mapping[str, object]

ReasoningOpener: TypeAlias = Callable[[str, str], Awaitable[object]]
"""Opens a model's encrypted reasoning, or raises an `ApiError` if it is not this server's."""

MAX_ITEMS: Final = 20_000
"""The most items in a conversation, over all its requests; no context window holds as many."""

CALL_OUTPUTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "computer_call_output", "shell_call_output", "apply_patch_call_output"}
)
"""The types of items that must follow a call with the same `call_id`, unless they are standalone."""

INPUT_TEXT: TypeAlias = Annotated[str, TEXT]

LINKS: Final = ("call_id", "approval_request_id")
"""The fields by which items are linked, which must be strings even where an engine validates the items."""

ID_PREFIXES: Final[Mapping[str, str]] = {"message": "msg", "reasoning": "rs"}
"""The prefixes of new item ids, by the type of the item; all other types have `fc`."""


def read_input(value: object, kinds: Kinds = ITEMS) -> tuple[JsonItem, ...]:
    """Validate an `input` and return its items, each with its type; a string is a user's message, and null is empty.

    Raises:
        ApiError: 400 for an invalid item, too many of them, or a string that is too long.
    """
    if isinstance(value, str):
        return ({"type": "message", "role": "user", "content": require(value, INPUT_TEXT, "input")},)
    return () if value is None else read_items(value, MAX_INPUT_ITEMS, "input", kinds)


def read_items(value: object, most: int, param: str, kinds: Kinds = ITEMS) -> tuple[JsonItem, ...]:
    """Validate an array of at most `most` items and return them, each with its type.

    Raises:
        ApiError: 400 for an invalid item, or too many of them.
    """
    return tuple(_item(item, f"{param}[{index}]", kinds) for index, item in enumerate(require_list(value, most, param)))


def _item(item: object, param: str, kinds: Kinds) -> JsonItem:
    if not is_object(item):
        raise wrong_type(param, "an object", item)
    kind = item.get("type")
    if kind is None:  # an item with a role is a message; any other item with an id is a reference
        kind = "message" if "role" in item else "item_reference" if "id" in item else None
    struct = kinds.get(require_type(kind, f"{param}.type"))
    if struct is None:
        raise unsupported_value(f"{param}.type", str(kind), kinds)
    typed = {**item, "type": kind}
    require(typed, shape_of(struct), param)
    if struct is FunctionCallOutput and item.get("call_id") is None and not is_standalone(typed):
        raise missing(f"{param}.call_id")
    for name in LINKS:
        if not isinstance(item.get(name) or "", str):
            raise wrong_type(f"{param}.{name}", "a string", item[name])
    return typed


def is_standalone(item: JsonItem) -> bool:
    """Return whether an item is the output of a function that answers no call, such as news of a task that Codex delegated."""
    return item.get("type") == FunctionCallOutput.type and item.get("call_id") is None and bool(as_text(item.get("name")))


def require_type(kind: object, param: str) -> str:
    """Return the `type` of an item or tool; raise an `ApiError` if it is missing or not a string."""
    if kind is None or kind == "":
        raise missing(param)
    if not isinstance(kind, str):
        raise wrong_type(param, "a string", kind)
    return kind


def add_ids(items: Iterable[JsonItem]) -> tuple[JsonItem, ...]:
    """Return the items, with a new id for those without one."""
    return tuple(
        item if item.get("id") else {**item, "id": random_id(ID_PREFIXES.get(str(item["type"]), "fc"))} for item in items
    )


def require_input(items: Sequence[JsonItem], *, continues: bool) -> None:
    """Refuse an empty input, unless the request continues a response or conversation.

    Raises:
        ApiError: 400 if the input is empty and `continues` is false.
    """
    if not items and not continues:
        message = "The request needs a non-empty 'input', a 'previous_response_id' or a 'conversation'."
        raise invalid("input", message, "missing_required_parameter")


def join(previous: Sequence[JsonItem], new: Sequence[JsonItem], stored: Mapping[str, JsonItem]) -> tuple[JsonItem, ...]:
    """Return a conversation with new items appended.

    A reference is replaced by its item in `stored`, or dropped if the conversation has that item.

    Raises:
        ApiError: 404 for a reference to an unknown item; 400 for too many items, an output that follows no call, or an approval
            that follows no request.
    """
    if len(previous) + len(new) > MAX_ITEMS:
        raise too_long("input", MAX_ITEMS, len(previous) + len(new))
    ids = {item["id"] for item in (*previous, *new) if "id" in item and item.get("type") != "item_reference"}
    items = [*previous]
    call_ids = {item.get("call_id") for item in previous if item.get("type") not in CALL_OUTPUTS}
    approval_ids = {item.get("id") for item in previous if item.get("type") == "mcp_approval_request"}
    for index, element in enumerate(new):
        item = _resolve_reference(element, ids, stored)
        if item is None:
            continue
        items.append(item)
        kind, call_id, approval_id = str(item.get("type")), item.get("call_id"), item.get("approval_request_id")
        if kind not in CALL_OUTPUTS:
            call_ids.add(call_id)
        elif call_id not in call_ids and not is_standalone(item):
            raise invalid("input", f"No tool call found for {kind.replace('_', ' ')} with call_id {str(call_id)[:100]}.", None)
        if kind == "mcp_approval_request":
            approval_ids.add(item.get("id"))
        elif kind == "mcp_approval_response" and approval_id not in approval_ids:
            message = f"No approval request found with id '{str(approval_id)[:100]}'."
            raise invalid(f"input[{index}].approval_request_id", message)
    return tuple(items)


def _resolve_reference(item: JsonItem, ids: AbstractSet[object], stored: Mapping[str, JsonItem]) -> JsonItem | None:
    """Return the item that a reference names (None if the conversation has it), or any other item unchanged."""
    if item.get("type") != "item_reference":
        return item
    if item["id"] in ids:
        return None
    item_id = str(item["id"])
    if item_id not in stored:
        message = f"Item with id '{item_id[:100]}' not found. Items are not persisted when `store` is set to false."
        raise ApiError(404, message, param="input")
    return stored[item_id]


def waits_for_client(item: JsonItem) -> bool:
    """Return whether an item of a response needs an answer of the client before the model can go on.

    A call of an async tool does not. The server has answered a tool search without a `call_id` itself.
    """
    return bool(ITEM_TYPES[str(item["type"])].answer) and bool(item.get("call_id", item["id"])) and item.get("async") is not True


def text_of(content: object) -> str:
    """Return a string, or the text of content parts; a part without text becomes its type in square brackets."""
    if is_array(content):
        return "\n".join(_text_of_part(members(part)) for part in content)
    return as_text(content)


def _text_of_part(part: Mapping[str, object]) -> str:
    text = part.get("text", part.get("refusal"))
    return text if isinstance(text, str) else f"[{part.get('type')}]"
