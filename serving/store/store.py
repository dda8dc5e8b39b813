"""What a store of responses is to the server, and what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, cast

from attrs import field, frozen

from interlock.serving.requests.conversation import Item

__all__ = ["ResponseStore", "StoredResponse"]


@frozen
class StoredResponse:
    """A response that has ended.

    Args:
        response: The response object of its terminal event.
        items: The conversation that it answered: what came before its request, and its request's input. Each has an id.
    """

    response: Mapping[str, object] = field(repr=False)
    items: tuple[Item, ...] = field(repr=False)

    @property
    def id(self) -> str:
        """The response's id."""
        return str(self.response["id"])

    @property
    def output(self) -> Sequence[Item]:
        """The response's own items."""
        return cast("Sequence[Item]", self.response["output"])

    @property
    def conversation(self) -> tuple[Item, ...]:
        """What the next request goes on from."""
        return (*self.items, *self.output)


class ResponseStore(Protocol):
    """Holds responses, as long as it can or wants to."""

    async def put(self, stored: StoredResponse) -> None:
        """Store a response."""
        ...

    async def get(self, response_id: str) -> StoredResponse | None:
        """Return a response, or None if it is not held, or no more.

        Args:
            response_id: The response's id.
        """
        ...

    async def delete(self, response_id: str) -> bool:
        """Delete a response, and return whether it was stored.

        Args:
            response_id: The response's id.
        """
        ...

    async def find(self, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return items of the responses that are held, by their ids; one that is not there is left out.

        Args:
            item_ids: The ids of items of conversations or outputs.
        """
        ...
