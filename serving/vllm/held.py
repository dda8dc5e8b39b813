"""The routes of responses that are held, which vLLM does not have: deleting one, and listing what it answered."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from interlock.events.json import dumps
from interlock.serving.errors import ApiError
from interlock.serving.http.intake import JSON, error_response
from interlock.serving.http.listing import page_of
from interlock.serving.vllm.serving import Hooks

__all__ = ["deleted", "input_items"]


async def deleted(hooks: Hooks | None, response_id: str) -> Response:
    """Delete a response; one that is still made in the background is cancelled first.

    Args:
        hooks: Of the instance that serves responses, if there are any.
        response_id: The id of the response.
    """
    if hooks is None or hooks.shown(response_id) is None:
        return _not_found(response_id)
    record = hooks.records.get(response_id)
    if record is not None:
        await record.cancel()
    await hooks.forget(response_id)
    return _json({"id": response_id, "object": "response", "deleted": True})


async def input_items(hooks: Hooks | None, response_id: str, request: HttpRequest) -> Response:
    """List what a response answered.

    Args:
        hooks: Of the instance that serves responses, if there are any.
        response_id: The id of the response.
        request: Its query says which page.
    """
    items = None if hooks is None else hooks.items(response_id)
    if items is None:
        return _not_found(response_id)
    try:
        return _json(page_of(items, request.query_params))
    except ApiError as error:
        return error_response(error)


def _not_found(response_id: str) -> Response:
    return error_response(ApiError(404, f"Response with id '{response_id[:100]}' not found."))


def _json(value: object) -> Response:
    return Response(dumps(value), media_type=JSON)
