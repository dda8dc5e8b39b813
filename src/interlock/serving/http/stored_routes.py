"""The routes of stored responses and conversations, and of their items.

They work alike in every process that shares the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from interlock.embedding import now, random_id
from interlock.events.dialects import Dialect
from interlock.events.items import ITEMS
from interlock.serving.http.answers import BackgroundStream, JsonResponse
from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.api_keys import tenant_of
from interlock.serving.requests.create import read_conversation, read_conversation_items, read_metadata
from interlock.serving.requests.input_items import JsonItem, add_ids, join
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.conversation_lease import lock_error, no_such_conversation
from interlock.serving.responses.sealing import require_openable
from interlock.serving.responses.service import ResponseService
from interlock.serving.store import Conflict, StoredConversation, StoredResponse

DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 100


def _route(path: str, **endpoints: Callable[[Request], Awaitable[ASGIApp]]) -> Route:
    """Return one route for all methods of a path, so that `Allow` lists all of them."""

    async def endpoint(request: Request) -> ASGIApp:
        try:
            return await endpoints["GET" if request.method == "HEAD" else request.method](request)
        except Conflict:  # only conversations have several writers
            raise lock_error(request.path_params["id"]) from None

    return Route(path, endpoint, methods=[*endpoints])


@frozen(eq=False)
class ResponseRoutes:
    """The endpoints of stored responses."""

    archive: Archive
    dialect_of: Callable[[Request], Dialect]
    keep_alive: float

    def routes(self) -> list[Route]:
        return [
            _route("/v1/responses/{id}", GET=self.retrieve, DELETE=self.delete),
            _route("/v1/responses/{id}/cancel", POST=self.cancel),
            _route("/v1/responses/{id}/input_items", GET=self.list_input),
        ]

    async def retrieve(self, request: Request) -> ASGIApp:
        """Return a response, or stream the events of a background response."""
        stored = await self._find_stored(request)
        if request.query_params.get("stream") != "true":
            return self._response(request, stored)
        after, start = request.query_params.get("starting_after"), 0
        if after is not None:
            if not (after.isascii() and after.isdigit()):
                raise invalid("starting_after", "Invalid 'starting_after': it must be the sequence number of an event.")
            start = int(after.lstrip("0")[:9] or "0") + 1
        return BackgroundStream(await self.archive.tail(tenant_of(request), stored, start), self.keep_alive)

    async def cancel(self, request: Request) -> ASGIApp:
        """Cancel a background response; an ended one stays as it is."""
        stored = await self._find_stored(request)
        if stored.response["background"] is not True:
            raise invalid(None, "Only a background response can be cancelled.")
        await self.archive.cancel(tenant_of(request), stored.id)
        return self._response(request, await self._find_stored(request))

    async def delete(self, request: Request) -> ASGIApp:
        """Delete a response, after cancelling it if it has not ended."""
        stored = await self._find_stored(request)
        await self.archive.delete(tenant_of(request), stored)
        return JsonResponse({"id": stored.id, "object": "response", "deleted": True})

    async def list_input(self, request: Request) -> ASGIApp:
        """Return a page of the items that precede a response."""
        stored = await self._find_stored(request)
        return _page(stored.items, request.query_params)

    async def _find_stored(self, request: Request) -> StoredResponse:
        response_id = request.path_params["id"]
        stored = await self.archive.get(tenant_of(request), response_id)
        if stored is None:
            raise ApiError(404, f"Response with id '{response_id[:100]}' not found.")
        return stored

    def _response(self, request: Request, stored: StoredResponse) -> Response:
        response = {**stored.response, "output": [_show(item) for item in stored.output]}
        return JsonResponse(self.dialect_of(request).convert(response))


@frozen(eq=False)
class ConversationRoutes:
    """The endpoints of conversations."""

    service: ResponseService
    read: Callable[[Request], Awaitable[Mapping[str, object]]]
    """Reads the body of a request."""

    def routes(self) -> list[Route]:
        path = "/v1/conversations"
        return [
            _route(path, POST=self.create),
            _route(f"{path}/{{id}}", GET=self.retrieve, POST=self.update, DELETE=self.delete),
            _route(f"{path}/{{id}}/items", GET=self.list_items, POST=self.add_items),
            _route(f"{path}/{{id}}/items/{{item_id}}", GET=self.retrieve_item, DELETE=self.delete_item),
        ]

    async def create(self, request: Request) -> ASGIApp:
        """Create a conversation."""
        first_items, metadata = read_conversation(await self.read(request))
        items = await self._resolve(request, (), first_items)
        conversation = StoredConversation(random_id("conv"), now(), metadata)
        await self.service.archive.store.create_conversation(tenant_of(request), conversation, items)
        return _conversation(conversation, conversation.id)

    async def retrieve(self, request: Request) -> ASGIApp:
        """Return a conversation, without its items."""
        conversation_id = request.path_params["id"]
        return _conversation(await self.service.archive.store.conversation(tenant_of(request), conversation_id), conversation_id)

    async def update(self, request: Request) -> ASGIApp:
        """Replace the metadata of a conversation, and return the conversation."""
        metadata, conversation_id = read_metadata(await self.read(request)), request.path_params["id"]
        conversation = await self.service.archive.store.update_conversation(tenant_of(request), conversation_id, metadata)
        return _conversation(conversation, conversation_id)

    async def delete(self, request: Request) -> ASGIApp:
        """Delete a conversation, but not its responses."""
        conversation_id = request.path_params["id"]
        if not await self.service.archive.store.delete_conversation(tenant_of(request), conversation_id):
            raise no_such_conversation(conversation_id)
        return JsonResponse({"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    async def list_items(self, request: Request) -> ASGIApp:
        """Return a page of the items of a conversation."""
        return _page(await self._items(request), request.query_params)

    async def add_items(self, request: Request) -> ASGIApp:
        """Append items to a conversation, and return the new items as a list."""
        items, conversation_id = read_conversation_items(await self.read(request)), request.path_params["id"]
        added = await self._resolve(request, await self._items(request), items)
        if await self.service.archive.store.add_items(tenant_of(request), conversation_id, added) is None:
            raise no_such_conversation(conversation_id)
        return _page(added, {"order": "asc", "limit": str(MAX_LIMIT)})

    async def retrieve_item(self, request: Request) -> ASGIApp:
        """Return an item of a conversation."""
        item_id = request.path_params["item_id"]
        for item in await self._items(request):
            if item["id"] == item_id:
                return JsonResponse(_list_item(item))
        raise _no_such_item(item_id)

    async def delete_item(self, request: Request) -> ASGIApp:
        """Remove an item from a conversation, and return the conversation."""
        conversation_id, item_id = request.path_params["id"], request.path_params["item_id"]
        await self._items(request)
        conversation = await self.service.archive.store.delete_item(tenant_of(request), conversation_id, item_id)
        if conversation is None:
            raise _no_such_item(item_id)
        return _conversation(conversation, conversation_id)

    async def _items(self, request: Request) -> Sequence[JsonItem]:
        conversation_id = request.path_params["id"]
        items = await self.service.archive.store.conversation_items(tenant_of(request), conversation_id)
        if items is None:
            raise no_such_conversation(conversation_id)
        return items

    async def _resolve(self, request: Request, history: Sequence[JsonItem], items: Sequence[JsonItem]) -> tuple[JsonItem, ...]:
        """Return new items for a conversation, each with an id, and references replaced with the items that they name."""
        tenant = tenant_of(request)
        await require_openable(items, self.service.sealing_keys, await self.service.engine.names(), tenant)
        references = [str(item["id"]) for item in items if item["type"] == "item_reference"]
        joined = join(history, items, await self.service.archive.store.find(tenant, references))
        return add_ids(joined[len(history) :])


def _conversation(conversation: StoredConversation | None, conversation_id: str) -> Response:
    if conversation is None:
        raise no_such_conversation(conversation_id)
    return JsonResponse(
        {
            "id": conversation.id,
            "object": "conversation",
            "created_at": conversation.created_at,
            "metadata": conversation.metadata,
        }
    )


def _no_such_item(item_id: str) -> ApiError:
    return ApiError(404, f"Item with id '{item_id[:100]}' not found in the conversation.", param="item_id")


def _page(items: Sequence[JsonItem], query: Mapping[str, str]) -> Response:
    """Return the page of `items` that `limit`, `order` and `after` select; `items` are the oldest first, each with an id."""
    order = query.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise invalid("order", f"Invalid value: '{order[:100]}'. Supported values are: 'asc', 'desc'.")
    limit = query.get("limit", str(DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdigit() and len(limit) <= len(str(MAX_LIMIT)) and 1 <= int(limit) <= MAX_LIMIT):
        raise invalid("limit", f"Invalid 'limit': it must be an integer from 1 to {MAX_LIMIT}.")
    ordered = [_list_item(item) for item in (items if order == "asc" else reversed(items))]
    ids, after = [item["id"] for item in ordered], query.get("after")
    if after is not None and after not in ids:
        raise invalid("after", "Invalid 'after': no item of this list has this id.")
    rest = ordered if after is None else ordered[ids.index(after) + 1 :]
    page = rest[: int(limit)]
    return JsonResponse(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(rest) > len(page),
        }
    )


def _show(item: JsonItem) -> JsonItem:
    """Return an item without the output of code that is stored for the model."""
    result = getattr(ITEMS.get(str(item["type"])), "tool_result", None)
    keep = result is None or "output" in result
    return item if keep else {name: value for name, value in item.items() if name != "output"}


def _list_item(item: JsonItem) -> JsonItem:
    """Return an item as the API lists it: a message gets a status, and a part in place of a string."""
    if item["type"] != "message":
        return _show(item)
    content = item.get("content")
    if not isinstance(content, str):
        return {"status": "completed", **item}
    part: JsonItem = {"type": "input_text", "text": content}
    if item["role"] == "assistant":
        part = {"type": "output_text", "text": content, "annotations": ()}
    return {"status": "completed", **item, "content": (part,)}
