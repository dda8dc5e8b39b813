"""The routes of conversations: a client makes one, fills it, reads it and deletes it; responses add to it by themselves.

They are the same in both servers, so they answer their errors themselves. Of a server they know its store, its envelope and the
names of its models.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, TypeAlias

from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from interlock.events.json import dumps
from interlock.serving.http.error_responses import answer_error
from interlock.serving.http.intake import JSON, read_body
from interlock.serving.http.listing import page_of, shown_item
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.api_keys import tenant_of
from interlock.serving.requests.body import read_object_in_turns
from interlock.serving.requests.create import read_conversation, read_conversation_items, read_metadata
from interlock.serving.requests.identity import now, random_id
from interlock.serving.requests.input_items import Item, join, with_ids
from interlock.serving.requests.yielder import Yielder
from interlock.serving.responses.conversation_lease import locked, no_such_conversation
from interlock.serving.responses.sealing import Envelope, require_openable
from interlock.serving.store import Conflict, Conversation, ResponseStore, StoreError

__all__ = ["Conversations", "conversation_routes"]

Answer: TypeAlias = Callable[["Conversations", Request], Awaitable[object]]

PATH: Final = "/v1/conversations"


@frozen(eq=False)
class Conversations:
    """The answers to the routes of conversations.

    Args:
        store: Holds them.
        max_body_bytes: How large the body of a request may be.
        envelope: Opens compactions.
        models: Returns the names of the models that these may be for.
    """

    store: ResponseStore
    max_body_bytes: int
    envelope: Envelope
    models: Callable[[], Awaitable[Sequence[str]]]

    async def create(self, request: Request) -> object:
        """Create a conversation."""
        asked = read_conversation(await self._body(request))
        tenant = tenant_of(request)
        items = await self._joined(tenant, (), asked.items)
        conversation = Conversation(random_id("conv"), now(), asked.metadata)
        await self.store.create_conversation(tenant, conversation, items)
        return _shown(conversation)

    async def retrieve(self, request: Request) -> object:
        """Show a conversation."""
        name = request.path_params["id"]
        return _found(await self.store.conversation(tenant_of(request), name), name)

    async def update(self, request: Request) -> object:
        """Give a conversation other metadata."""
        metadata, name = read_metadata(await self._body(request)), request.path_params["id"]
        return _found(await self.store.update_conversation(tenant_of(request), name, metadata), name)

    async def delete(self, request: Request) -> object:
        """Delete a conversation; responses that were made in it stay."""
        name = request.path_params["id"]
        if not await self.store.delete_conversation(tenant_of(request), name):
            raise no_such_conversation(name)
        return {"id": name, "object": "conversation.deleted", "deleted": True}

    async def list_items(self, request: Request) -> object:
        """List the items of a conversation, page by page."""
        return page_of(await self._items(request), request.query_params)

    async def add(self, request: Request) -> object:
        """Add items to the end of a conversation, and list them."""
        given, name = read_conversation_items(await self._body(request)), request.path_params["id"]
        tenant = tenant_of(request)
        added = await self._joined(tenant, await self._items(request), given)
        if await self.store.add_items(tenant, name, added) is None:
            raise no_such_conversation(name)
        return page_of(added, {"order": "asc", "limit": "100"})

    async def retrieve_item(self, request: Request) -> object:
        """Show an item of a conversation."""
        wanted = request.path_params["item_id"]
        for item in await self._items(request):
            if item["id"] == wanted:
                return shown_item(item)
        raise _no_such_item(wanted)

    async def delete_item(self, request: Request) -> object:
        """Remove an item from a conversation, and show the conversation."""
        name, wanted = request.path_params["id"], request.path_params["item_id"]
        await self._items(request)
        left = await self.store.delete_item(tenant_of(request), name, wanted)
        if left is None:
            raise _no_such_item(wanted)
        return _shown(left)

    async def _items(self, request: Request) -> Sequence[Item]:
        name = request.path_params["id"]
        items = await self.store.conversation_items(tenant_of(request), name)
        if items is None:
            raise no_such_conversation(name)
        return items

    async def _joined(self, tenant: str, before: Sequence[Item], given: Sequence[Item]) -> tuple[Item, ...]:
        """Return items that follow others, each with an id, and references replaced by what they mean."""
        await require_openable(given, self.envelope, await self.models(), tenant)
        referred = [str(item["id"]) for item in given if item["type"] == "item_reference"]
        joined = join(before, given, await self.store.find(tenant, referred))
        return with_ids(joined[len(before) :])

    async def _body(self, request: Request) -> Mapping[str, object]:
        yielder = Yielder()
        return await read_object_in_turns(await read_body(request, self.max_body_bytes, yielder), yielder)


def conversation_routes(asked: Callable[[Request], Conversations]) -> list[Route]:
    """Return the routes.

    Args:
        asked: Returns what answers a request; it may raise an `ApiError`.
    """
    answers: Mapping[str, Mapping[str, Answer]] = {
        PATH: {"POST": Conversations.create},
        f"{PATH}/{{id}}": {"GET": Conversations.retrieve, "POST": Conversations.update, "DELETE": Conversations.delete},
        f"{PATH}/{{id}}/items": {"GET": Conversations.list_items, "POST": Conversations.add},
        f"{PATH}/{{id}}/items/{{item_id}}": {"GET": Conversations.retrieve_item, "DELETE": Conversations.delete_item},
    }
    return [_route(path, by_method, asked) for path, by_method in answers.items()]


def _route(path: str, answers: Mapping[str, Answer], asked: Callable[[Request], Conversations]) -> Route:
    """Return the route of a path, which answers what its methods raise on purpose; the rest is the server's to answer."""

    async def answer(request: Request) -> Response:
        try:
            said = await answers["GET" if request.method == "HEAD" else request.method](asked(request), request)
        except Conflict:
            return answer_error(request, locked(request.path_params["id"]))
        except (ApiError, StoreError) as error:
            return answer_error(request, error)
        return Response(dumps(said), media_type=JSON)

    return Route(path, answer, methods=[*answers])


def _found(conversation: Conversation | None, conversation_id: str) -> dict[str, object]:
    if conversation is None:
        raise no_such_conversation(conversation_id)
    return _shown(conversation)


def _shown(conversation: Conversation) -> dict[str, object]:
    """Return a conversation as the API shows it."""
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": conversation.created_at,
        "metadata": conversation.metadata,
    }


def _no_such_item(item_id: str) -> ApiError:
    return ApiError(HTTPStatus.NOT_FOUND, f"Item with id '{item_id[:100]}' not found in the conversation.", param="item_id")
