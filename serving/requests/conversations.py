"""The bodies of requests about conversations: what may be in one, and what may be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias, TypeVar

from attrs import field, frozen
from pydantic import Field, ValidationError

from interlock.serving.errors import invalid
from interlock.serving.requests.conversation import Item, read_input
from interlock.serving.requests.items import InputItem
from interlock.serving.requests.parameters import ConversationOrId, Metadata, id_of
from interlock.serving.requests.refusals import refusal
from interlock.serving.requests.shapes import Shape, Some

__all__ = ["MOST_ADDED", "NewConversation", "named_conversation", "read_added", "read_metadata", "read_new", "require_alone"]

S = TypeVar("S", bound=Shape)

MOST_ADDED: Final = 20
"""Items that one request may add to a conversation, in OpenAI's API."""

Added: TypeAlias = Annotated[list[InputItem], Field(fail_fast=True, max_length=MOST_ADDED)]


class Creation(Shape):
    """The body of a request that creates a conversation."""

    items: Added | None = None
    metadata: Metadata | None = None


class Naming(Shape):
    """The body of a request for a response, as far as it names what the response goes on from."""

    conversation: ConversationOrId | None = None
    previous_response_id: Some | None = None
    store: bool | None = None


class Update(Shape):
    """The body of a request that changes what is said of a conversation."""

    metadata: Metadata | None


class Adding(Shape):
    """The body of a request that adds items to a conversation."""

    items: Added


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
    metadata = _judged(Creation, raw).metadata
    return NewConversation(read_input(raw.get("items")), metadata or {})


def read_metadata(raw: Mapping[str, object]) -> Mapping[str, str]:
    """Judge a body that changes what is said of a conversation, and return its metadata.

    Args:
        raw: The body.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    return _judged(Update, raw).metadata or {}


def read_added(raw: Mapping[str, object]) -> tuple[Item, ...]:
    """Judge a body that adds items to a conversation, and return them, each with its type.

    Args:
        raw: The body; it must not change any more.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    _judged(Adding, raw)
    return read_input(raw["items"])


def named_conversation(raw: Mapping[str, object]) -> str | None:
    """Return the id of the conversation that a request for a response names; None if it names none.

    Args:
        raw: The body.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    if raw.get("conversation") is None:
        return None
    given = _judged(Naming, raw)
    name = id_of(given.conversation)
    require_alone(name, given.previous_response_id, stored=given.store is not False)
    return name


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


def _judged(shape: type[S], raw: Mapping[str, object]) -> S:
    try:
        return shape.model_validate(raw)
    except ValidationError as error:
        raise refusal(error) from None
