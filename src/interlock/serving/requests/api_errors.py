"""The errors of serving, and the OpenAI error body of an `ApiError`."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from interlock.fsm.errors import InterlockError

__all__ = ["ApiError", "EngineError", "PromptError", "ToolError", "invalid", "missing"]


@frozen
class ApiError(InterlockError):
    """An error that answers a request instead of a response. Clients read the message, so it must not contain secrets.

    `param` is the path of the parameter from the body's root (`input[2].content[0].type`). `type` and `code` are OpenAI's
    (`invalid_request_error`, `invalid_type`).
    """

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None

    def __str__(self) -> str:
        """Return the message."""
        return self.message

    def body(self) -> dict[str, object]:
        """Return the error body in OpenAI's format."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def invalid(param: str | None, message: str, code: str | None = "invalid_value") -> ApiError:
    """Return the error for an invalid parameter, or for the body if `param` is None."""
    return ApiError(400, message, param=param, code=code)


def missing(param: str) -> ApiError:
    """Return the error for a missing required parameter."""
    return invalid(param, f"Missing required parameter: '{param}'.", "missing_required_parameter")


class EngineError(InterlockError):
    """An engine cannot continue, and the response fails with the message (rule R4), which must not contain secrets."""

    code: ClassVar[str] = "server_error"
    """The `error.code` of the response."""


class PromptError(EngineError):
    """An engine cannot accept a prompt, which is the client's fault."""

    code: ClassVar[str] = "invalid_prompt"


class ToolError(InterlockError):
    """A hosted tool cannot be run or listed, and its item fails with the message, which must not contain secrets."""
