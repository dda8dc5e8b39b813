"""The errors of serving, and the OpenAI error body of an `ApiError`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from attrs import evolve, frozen

from interlock.dialects import ApiName
from interlock.dialects.messages import error_message
from interlock.events.json import as_json, members
from interlock.fsm.table import InterlockError

MAX_NAME: Final = 100
"""The most characters of a model's name that an error or a log line has."""
MAX_LISTED: Final = 20
"""The most models that an error names."""
LISTING: Final = " This server has: "
"""Begins the list of them."""


@frozen
class ApiError(InterlockError):
    """An error that is sent to the client in place of a response. Its message must not contain secrets.

    `param` is the path of the parameter in the body (`input[2].content[0].type`). `type` and `code` are OpenAI's
    (`invalid_request_error`, `invalid_type`). `retry_after` is in seconds. `details` are for programs, in Messages alone.
    """

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    retry_after: float | None = None
    details: Mapping[str, str] | None = None

    def __str__(self) -> str:
        """Return the message."""
        return self.message

    def body(self, api: ApiName = "responses", request_id: str | None = None) -> dict[str, object]:
        """Return the error body of an API; `request_id` identifies the request in Messages alone."""
        if api != "messages":
            return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}
        answer = error_message(self.status, placed(self.param, self.message))
        answer.request_id = request_id
        if self.details is not None:
            answer.error.details = dict(self.details)
        return dict(members(as_json(answer)))

    def rename(self, names: Mapping[str, str]) -> ApiError:
        """Return the error with the name that its parameter has in another API; items have other places there than messages.

        Args:
            names: The other API's names, by the beginnings of those of the Responses API.
        """
        param = self.param or ""
        for name, other in names.items():
            if re.match(rf"{re.escape(name)}(?![\w])", param):
                renamed = other if name == "input" else other + param.removeprefix(name)
                return evolve(self, param=renamed, message=self.message.replace(f"'{param}'", f"'{renamed}'"))
        return self


def placed(param: str | None, message: str) -> str:
    """Return the message of an error with the parameter that it is about."""
    return message if not param or f"'{param}'" in message else f"{param}: {message}"


def invalid(param: str | None, message: str, code: str | None = "invalid_value") -> ApiError:
    """Return the error for an invalid parameter, or for the body if `param` is None."""
    return ApiError(400, message, param=param, code=code)


def no_such_model(name: str, known: Sequence[str] = ()) -> ApiError:
    """Return the error for a model that the server does not have; its message lists the known ones."""
    message = f"The model '{name[:MAX_NAME]}' does not exist or you do not have access to it.{known_models(known)}"
    return ApiError(404, message, param="model", code="model_not_found")


def known_models(names: Sequence[str]) -> str:
    """Return a sentence with the first names, after a space; it is empty without any."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"{LISTING}{', '.join(names[:MAX_LISTED])}{more}." if names else ""


def missing(param: str) -> ApiError:
    """Return the error for a missing required parameter."""
    return invalid(param, f"Missing required parameter: '{param}'.", "missing_required_parameter")


class EngineError(InterlockError):
    """An engine cannot continue. The response fails with the message, which must not contain secrets.

    `code` is the `error.code` of the response.
    """

    code: str = "server_error"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.code


class PromptError(EngineError):
    """An engine cannot accept a prompt, because of the client's request."""

    code = "invalid_prompt"


def engine_error(error: ApiError) -> EngineError:
    """Return the error that ends a response in progress, for one that would have refused it."""
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return EngineError(error.message, "rate_limit_exceeded")
    if error.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY):
        return PromptError(error.message, error.code)
    return EngineError(error.message, error.code)


class ToolError(InterlockError):
    """A hosted tool cannot be run or listed. Its item fails with the message, which must not contain secrets."""


class ToolFailedError(ToolError):
    """A hosted tool ran and reported an error, which is the message."""
