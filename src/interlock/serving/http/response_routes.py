"""The routes about responses that are stored: shown, streamed again, cancelled, deleted, their input listed.

Every process that shares the store answers them alike. It knows paths and statuses; what is done is in
`interlock.serving.responses.archive`.
"""

from __future__ import annotations

from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from interlock.events.dialects import OPEN_RESPONSES, Dialect
from interlock.events.json import dumps
from interlock.serving.http.answers import KeptAnswer
from interlock.serving.http.intake import JSON
from interlock.serving.http.listing import page_of
from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.api_keys import tenant_of
from interlock.serving.responses.archive import Archive
from interlock.serving.store import StoredResponse

__all__ = ["StoredRoutes", "no_such_response"]


@frozen(eq=False)
class StoredRoutes:
    """The answers to each route.

    Args:
        archive: The stored responses.
        dialect: The dialect of requests that ask for none.
    """

    archive: Archive
    dialect: Dialect

    async def retrieve_or_delete(self, request: Request) -> ASGIApp:
        """Answer by the method: two routes of one path would each name only its own methods in `Allow`."""
        return await (self.delete(request) if request.method == "DELETE" else self.retrieve(request))

    async def retrieve(self, request: Request) -> ASGIApp:
        """Return a response that was stored or is made in the background, or stream one of the background."""
        stored = await self._stored(request)
        if request.query_params.get("stream") != "true":
            return self._shown(request, stored)
        return KeptAnswer(await self.archive.tail(tenant_of(request), stored, _first_wanted(request)))

    async def cancel(self, request: Request) -> Response:
        """Cancel a response that is made in the background; one that has ended stays what it is."""
        stored = await self._stored(request)
        if stored.response["background"] is not True:
            raise invalid(None, "Only a response that is made in the background can be cancelled.")
        await self.archive.cancel(tenant_of(request), stored.id)
        return self._shown(request, await self._stored(request))

    async def delete(self, request: Request) -> Response:
        """Delete a response; one that is still made in the background is cancelled first."""
        stored = await self._stored(request)
        await self.archive.delete(tenant_of(request), stored)
        return _json({"id": stored.id, "object": "response", "deleted": True})

    async def list_input(self, request: Request) -> Response:
        """List what a stored response answered."""
        stored = await self._stored(request)
        return _json(page_of(stored.items, request.query_params))

    async def _stored(self, request: Request) -> StoredResponse:
        """Return a response as it is now."""
        response_id = request.path_params["id"]
        stored = await self.archive.get(tenant_of(request), response_id)
        if stored is None:
            raise no_such_response(response_id)
        return stored

    def _shown(self, request: Request, stored: StoredResponse) -> Response:
        dialect = OPEN_RESPONSES if "openresponses-version" in request.headers else self.dialect
        return _json(dialect.spoken(stored.response))


def no_such_response(response_id: str) -> ApiError:
    """Return the error for a response that is not stored, or not for this tenant.

    Args:
        response_id: Its id.
    """
    return ApiError(404, f"Response with id '{response_id[:100]}' not found.")


def _json(value: object) -> Response:
    return Response(dumps(value), media_type=JSON)


def _first_wanted(request: Request) -> int:
    """Return the number of the first event that a reader wants."""
    after = request.query_params.get("starting_after")
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit()):
        raise invalid("starting_after", "Invalid 'starting_after': it must be the sequence number of an event.")
    return int(after.lstrip("0")[:9] or "0") + 1
