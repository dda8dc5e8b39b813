"""Items as the API lists them, page by page: those that a stored response answered, and those of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from interlock.serving.requests.api_errors import invalid
from interlock.serving.requests.input_items import Item

__all__ = ["page_of", "shown_item"]

LIMIT: Final = 20
MOST: Final = 100


def page_of(items: Sequence[Item], query: Mapping[str, str]) -> dict[str, object]:
    """Return a page of items.

    Args:
        items: All items, oldest first; each has an id.
        query: `limit` (1 to 100, 20 if not given), `order` (`desc`, the default, or `asc`), `after` (the id of the item
            before the page), as strings.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    order = query.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise invalid("order", f"Invalid value: '{order[:MOST]}'. Supported values are: 'asc', 'desc'.")
    limit = query.get("limit", str(LIMIT))
    if not (limit.isascii() and limit.isdigit() and len(limit) <= len(str(MOST)) and 1 <= int(limit) <= MOST):
        raise invalid("limit", f"Invalid 'limit': it must be an integer from 1 to {MOST}.")
    ordered = [shown_item(item) for item in (items if order == "asc" else reversed(items))]
    rest = ordered[_start(ordered, query.get("after")) :]
    page = rest[: int(limit)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(rest) > len(page),
    }


def _start(items: Sequence[Item], after: str | None) -> int:
    if after is None:
        return 0
    for index, item in enumerate(items, 1):
        if item["id"] == after:
            return index
    raise invalid("after", "There is no item with the id that 'after' gives.")


def shown_item(item: Item) -> Item:
    """Return an item as the API lists it: a message is whole, and has parts where its content may be a string.

    Args:
        item: It, with its id.
    """
    if item["type"] != "message":
        return item
    content = item.get("content")
    if not isinstance(content, str):
        return {"status": "completed", **item}
    part: Item = {"type": "input_text", "text": content}
    if item["role"] == "assistant":
        part = {"type": "output_text", "text": content, "annotations": ()}
    return {"status": "completed", **item, "content": (part,)}
