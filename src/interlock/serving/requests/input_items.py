"""The items of a conversation: what a request may give as its input, and how that goes on from what came before.

It knows which tool's output answers which call, and what a reference means. What is read of each item is in
`interlock.serving.requests.limits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Annotated, Final, TypeAlias

from interlock.serving.requests.api_errors import ApiError, invalid, missing
from interlock.serving.requests.identity import random_id
from interlock.serving.requests.json_values import is_object
from interlock.serving.requests.limits import ITEMS, MOST_GIVEN, TEXT, Shapes
from interlock.serving.requests.refusals import require, require_list, too_long, unsupported, wrong_type

__all__ = ["Item", "identified", "join", "read_input", "read_items", "require_input", "resolved"]

Item: TypeAlias = Mapping[str, object]

STORED_NOWHERE: Final[Mapping[str, Item]] = MappingProxyType({})

MOST_ITEMS: Final = 20_000
"""Items of a conversation, over all its requests: more than any context window holds."""

ANSWERED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "function_call_output": "function call output",
        "custom_tool_call_output": "custom tool call output",
        "computer_call_output": "computer call output",
        "shell_call_output": "shell call output",
        "apply_patch_call_output": "apply patch call output",
    }
)
"""The items that answer a call by its `call_id` and make no sense without it, as OpenAI's API names them."""


ID_PREFIXES: Final[Mapping[str, str]] = MappingProxyType({"message": "msg", "reasoning": "rs"})
"""What the ids of items begin with; those of calls and their results follow the API as `fc`."""


def type_of(item: Mapping[str, object]) -> object:
    """Return the type of an item; one without it is a message if it has a role, or the reference that its id makes.

    Args:
        item: An object of a request's input.

    Returns:
        The type as it was given or as it is understood; None for an item that has neither type nor role nor id.
    """
    given = item.get("type")
    return given if given is not None else "message" if "role" in item else "item_reference" if "id" in item else None


def read_input(value: object, shapes: Shapes = ITEMS) -> tuple[Item, ...]:
    """Judge an `input` and return its items, each with its type; a string is a user's message, and null is nothing.

    Args:
        value: Any JSON.
        shapes: What is read of items, by their types.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    if isinstance(value, str):
        return ({"type": "message", "role": "user", "content": require(value, Annotated[str, TEXT], "input")},)
    return () if value is None else read_items(value, MOST_GIVEN, "input", shapes)


def read_items(value: object, most: int, param: str, shapes: Shapes = ITEMS) -> tuple[Item, ...]:
    """Judge an array of items and return them, each with its type.

    Args:
        value: Any JSON.
        most: How many there may be.
        param: The parameter that holds them.
        shapes: What is read of items, by their types.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    return tuple(_item(item, f"{param}[{index}]", shapes) for index, item in enumerate(require_list(value, most, param)))


def _item(item: object, param: str, shapes: Shapes) -> Item:
    if not is_object(item):
        raise wrong_type(param, "an object", item)
    kind = type_of(item)
    shape = shapes.get(require_type(kind, f"{param}.type"))
    if shape is None:
        raise unsupported(f"{param}.type", str(kind), shapes)
    typed = {**item, "type": kind}
    require(typed, shape, param)
    return typed


def require_type(kind: object, param: str) -> str:
    """Return the `type` of an object.

    Args:
        kind: Any JSON.
        param: Its path.

    Raises:
        ApiError: 400; it is missing or no string.
    """
    if kind is None or kind == "":
        raise missing(param)
    if not isinstance(kind, str):
        raise wrong_type(param, "a string", kind)
    return kind


def identified(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return items that all have an id: those that lack one get it."""
    return tuple(item if item.get("id") else {**item, "id": _item_id(item)} for item in items)


def _item_id(item: Item) -> str:
    return random_id(ID_PREFIXES.get(str(item["type"]), "fc"))


def require_input(items: Sequence[Item], *, continues: bool) -> None:
    """Refuse a request that says nothing and continues nothing.

    Args:
        items: Its input.
        continues: Whether it names what it goes on from.

    Raises:
        ApiError: 400.
    """
    if not items and not continues:
        message = (
            "One of 'input', 'previous_response_id' and 'conversation' must be given, "
            "and 'input' must not be empty without one of the others."
        )
        raise invalid("input", message, "missing_required_parameter")


def join(previous: Sequence[Item], given: Sequence[Item], stored: Mapping[str, Item] = STORED_NOWHERE) -> tuple[Item, ...]:
    """Return a conversation that goes on.

    References are replaced by the items that they mean, or go if those are there already.

    Args:
        previous: The conversation until the previous response, its output included.
        given: The request's own input.
        stored: Other items that references may mean, by their ids.

    Raises:
        ApiError: 404 if a reference means no item that there is; 400 if a tool's output answers no call before it, or an
            approval no question before it, or if there are too many items.
    """
    if len(previous) + len(given) > MOST_ITEMS:
        raise too_long("input", MOST_ITEMS, len(previous) + len(given))
    known = {item["id"] for item in (*previous, *given) if "id" in item and item.get("type") != "item_reference"}
    items = [*previous]
    calls = {item.get("call_id") for item in previous if item.get("type") not in ANSWERED}
    asked = {item.get("id") for item in previous if item.get("type") == "mcp_approval_request"}
    for index, item in enumerate(given):
        said = resolved(item, known, stored)
        if said is None:
            continue
        _require_call(said, calls)
        _require_question(index, said, asked)
        items.append(said)
        if said.get("type") not in ANSWERED:
            calls.add(said.get("call_id"))
        if said.get("type") == "mcp_approval_request":
            asked.add(said.get("id"))
    return tuple(items)


def resolved(item: Item, known: AbstractSet[object], stored: Mapping[str, Item]) -> Item | None:
    """Return the item that a reference means, or None if it is there already; any other item as it is.

    Args:
        item: An item of a request's input.
        known: The ids of the items that are there.
        stored: Other items that references may mean, by their ids.

    Raises:
        ApiError: 404; a reference means no item that there is.
    """
    if item.get("type") != "item_reference":
        return item
    if item["id"] in known:
        return None
    item_id = str(item["id"])
    if item_id not in stored:
        message = f"Item with id '{item_id[:100]}' not found. Items are not persisted when `store` is set to false."
        raise ApiError(404, message, param="input")
    return stored[item_id]


def _require_call(item: Item, calls: AbstractSet[object]) -> None:
    """Refuse a tool's output whose call does not come before it."""
    answered = ANSWERED.get(str(item.get("type")))
    if answered is not None and item.get("call_id") not in calls:
        raise invalid("input", f"No tool call found for {answered} with call_id {str(item.get('call_id'))[:100]}.", None)


def _require_question(index: int, item: Item, asked: AbstractSet[object]) -> None:
    """Refuse an approval that nobody asked for."""
    if item.get("type") == "mcp_approval_response" and item.get("approval_request_id") not in asked:
        message = f"No approval request found with id '{str(item.get('approval_request_id'))[:100]}'."
        raise invalid(f"input[{index}].approval_request_id", message)
