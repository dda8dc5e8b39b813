"""The errors of serving, and how an API error looks on the wire.

It knows the OpenAI error body. It does not know HTTP: whoever answers takes the status and the body from here.
"""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from interlock.fsm.errors import InterlockError

__all__ = ["ApiError", "EngineError", "PromptError", "ToolError", "invalid", "missing"]


@frozen
class ApiError(InterlockError):
    """A request that gets an error instead of a response.

    Args:
        status: The HTTP status, 400 to 599.
        message: For the developer of the client; it says what was wrong and carries no secrets.
        type: The OpenAI class of error, such as `invalid_request_error`.
        param: The parameter at fault, with its path from the body's root (`input[2].content[0].type`), or None.
        code: A word for programs, such as `invalid_type`, or None.
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
        """Return the body of the HTTP answer, in OpenAI's shape."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def invalid(param: str | None, message: str, code: str | None = "invalid_value") -> ApiError:
    """Return the error for a parameter that is not as it must be.

    Args:
        param: The path of the parameter, or None for the body as a whole.
        message: What is wrong with it.
        code: A word for programs; None where OpenAI's API has none.
    """
    return ApiError(400, message, param=param, code=code)


def missing(param: str) -> ApiError:
    """Return the error for a required parameter that is not given.

    Args:
        param: The path of the parameter.
    """
    return invalid(param, f"Missing required parameter: '{param}'.", "missing_required_parameter")


class EngineError(InterlockError):
    """An engine could not go on with a generation; the response fails with this message (rule R4).

    The message reaches the client, so it must not carry secrets.
    """

    code: ClassVar[str] = "server_error"
    """The code of the response's error."""


class PromptError(EngineError):
    """An engine cannot take a prompt; that is the client's fault."""

    code: ClassVar[str] = "invalid_prompt"


class ToolError(InterlockError):
    """A hosted tool could not be run or listed; its item fails with this message, and the stream goes on.

    The message reaches the client, so it must not carry secrets.
    """
