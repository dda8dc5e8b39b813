"""What an error is answered with, whatever was raised: always an OpenAI error body, and nothing that is not for clients."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from interlock.serving.http import decoding
from interlock.serving.http.intake import JSON, error_response
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.responses.archive import store_error

__all__ = ["answer_error"]

OUR_FAULT: Final = "The server had an error while processing your request."

HEADERS: Final[Mapping[int, dict[str, str]]] = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: {"connection": "close"},  # what is left of the body is not waited for
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: {"accept": JSON, "accept-encoding": decoding.ACCEPTED},
    HTTPStatus.TOO_MANY_REQUESTS: {"retry-after": "1"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"retry-after": "1"},
}
"""What an error says beside its body, by its status."""


def answer_error(request: Request, error: Exception) -> Response:
    """Return the answer to a request that raised an error.

    Args:
        request: The request.
        error: What it raised.
    """
    match store_error(error):
        case ApiError() as said:
            return error_response(said, HEADERS.get(said.status))
        case HTTPException(status_code=status, headers=headers):
            what = f"{request.method} {request.url.path}"
            message = f"Invalid URL ({what})" if status == HTTPStatus.NOT_FOUND else f"Not allowed to {what}"
            return error_response(ApiError(status, message), dict(headers or {}))
        case ClientDisconnect():
            return Response(status_code=HTTPStatus.BAD_REQUEST)  # which nobody reads
        case _:
            return error_response(ApiError(500, OUR_FAULT, "server_error"))
