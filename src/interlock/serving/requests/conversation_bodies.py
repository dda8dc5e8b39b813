"""The bodies of requests about conversations: what may be in one, and what may be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

from interlock.events.response_object import Metadata
from interlock.serving.requests.api_errors import invalid, missing
from interlock.serving.requests.input_items import Item, read_items
from interlock.serving.requests.limits import CONVERSATION, SOME_TEXT
from interlock.serving.requests.refusals import require

__all__ = ["MOST_ADDED", "NewConversation", "named_conversation", "read_added", "read_metadata", "read_new", "require_alone"]

MOST_ADDED: Final = 20
"""Items that one request may add to a conversation, in OpenAI's API."""


@frozen
class NewConversation:
    """A valid request for a conversation.

    Args:
        items: What it begins with, each item with its type.
        metadata: What its client wants to find with it.
    """

    items: tuple[Item, ...] = field(repr=False)
    metadata: Mapping[str, str]


def read_new(raw: Mapping[str, object]) -> NewConversation:
    """Judge a body that creates a conversation.

    Args:
        raw: The body; it must not change any more.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    items = raw.get("items")
    return NewConversation(() if items is None else read_items(items, MOST_ADDED, "items"), _metadata(raw.get("metadata")))


def _metadata(value: object) -> Mapping[str, str]:
    return {} if value is None else require(value, Metadata, "metadata")


def read_metadata(raw: Mapping[str, object]) -> Mapping[str, str]:
    """Judge a body that changes what is said of a conversation, and return its metadata.

    Args:
        raw: The body.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    if "metadata" not in raw:
        raise missing("metadata")
    return _metadata(raw["metadata"])


def read_added(raw: Mapping[str, object]) -> tuple[Item, ...]:
    """Judge a body that adds items to a conversation, and return them, each with its type.

    Args:
        raw: The body; it must not change any more.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    if "items" not in raw:
        raise missing("items")
    return read_items(raw["items"], MOST_ADDED, "items")


def named_conversation(raw: Mapping[str, object]) -> str | None:
    """Return the id of the conversation that a request for a response names; None if it names none.

    Args:
        raw: The body.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    name, previous, store = (raw.get(parameter) for parameter in ("conversation", "previous_response_id", "store"))
    if name is None:
        return None
    named = require(name, CONVERSATION, "conversation")
    before = None if previous is None else require(previous, SOME_TEXT, "previous_response_id")
    stored = require(store, bool | None, "store")
    conversation_id: str = named if isinstance(named, str) else named.id
    require_alone(conversation_id, before, stored=stored is not False)
    return conversation_id


def require_alone(conversation_id: str | None, previous_response_id: str | None, *, stored: bool) -> None:
    """Refuse a conversation beside a previous response, and one that a response which is not stored cannot be added to.

    Args:
        conversation_id: The conversation; None for none.
        previous_response_id: The previous response; None for none.
        stored: Whether the response will be stored.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    if conversation_id is None:
        return
    if previous_response_id is not None:
        message = "Only one of 'previous_response_id' and 'conversation' can be given."
        raise invalid("previous_response_id", message, "mutually_exclusive_parameters")
    if not stored:
        raise invalid("conversation", "A response in a conversation needs 'store' to be true.")
