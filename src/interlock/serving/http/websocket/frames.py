"""The frames of WebSocket mode: parses those of clients, and writes those of the server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

from interlock.events.json import dumps
from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.body import JsonBudget, read_object_in_turns
from interlock.serving.requests.yielder import Yielder

__all__ = ["CancelFrame", "CreateFrame", "FrameError", "error_frame", "event_frame", "read_frame"]

STREAM_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")

SLICE: Final = 2**17
"""Characters of a frame that are encoded at once."""

PER_VALUE: Final = 100
"""Bytes of memory that a JSON value takes beside its text."""

STEERING_NOT_SUPPORTED: Final = {
    "type": "invalid_request_error",
    "code": "steering_not_supported",
    "message": "This server steers no responses: send the input with the next request.",
}
INVALID_STEER: Final = {
    "type": "invalid_request_error",
    "code": "invalid_input",
    "message": "A steering needs a 'previous_response_id' and an 'input'.",
}


@frozen
class CreateFrame:
    """A request for a response.

    Args:
        stream_id: The lane of the request; None for the lane without a name.
        body: The body of the request, as a POST would carry it.
        generate: Whether to generate output; without it the request is only validated and rendered.
        size: The bytes of memory that the request takes.
    """

    stream_id: str | None
    body: Mapping[str, object] = field(repr=False)
    generate: bool
    size: int


@frozen
class CancelFrame:
    """A request to cancel the response that a lane generates."""

    stream_id: str | None


@frozen
class FrameError(Exception):
    """A frame that is refused; `answer` is the frame that says why."""

    answer: str


async def read_frame(text: str, yielder: Yielder) -> CreateFrame | CancelFrame | None:
    """Parse a frame, within the limits of a POST's body; other tasks run in between.

    Returns:
        None for a frame that needs no action.

    Raises:
        FrameError: The frame is not a JSON object, too large, of a type that is not supported, or has an invalid field.
    """
    data, budget = bytearray(), JsonBudget()
    for start in range(0, len(text), SLICE):
        part = text[start : start + SLICE].encode("utf-8", "surrogatepass")
        budget.count(part)
        if budget.too_many:
            break
        data += part
        await yielder.checkpoint()
    try:
        budget.require_few()
        body = await read_object_in_turns(bytes(data), yielder)
    except ApiError as error:
        raise FrameError(error_frame(error)) from None
    match body.pop("type", None):
        case "response.processed":
            return None
        case "response.steer":
            raise FrameError(_steer_failed(body.get("previous_response_id"), body.get("input")))
        case "response.create":
            stream_id = _stream_id(body)
            return CreateFrame(stream_id, body, _generate(body, stream_id), len(data) + PER_VALUE * budget.values)
        case "response.cancel":
            return CancelFrame(_stream_id(body))
        case kind:
            message = f"Unknown frame type: {str(kind)[:100]!r}. It must be 'response.create' or 'response.cancel'."
            raise FrameError(error_frame(invalid("type", message), _stream_id(body)))


def _stream_id(body: dict[str, object]) -> str | None:
    """Remove the name of the lane from a body, and return it."""
    stream_id = body.pop("stream_id", None)
    if stream_id is None:
        return None
    if isinstance(stream_id, str) and STREAM_ID.fullmatch(stream_id):
        return stream_id
    message = "Invalid 'stream_id': it must be 1 to 256 of the characters A-Z, a-z, 0-9, '_', '.' and '-'."
    raise FrameError(error_frame(invalid("stream_id", message, "invalid_stream_id")))


def _generate(body: dict[str, object], stream_id: str | None) -> bool:
    """Remove the fields that only frames have from a body, and return whether to generate output."""
    body.pop("stream", None)  # a socket always streams
    generate = body.pop("generate", None)
    if generate is not None and not isinstance(generate, bool):
        error = invalid("generate", "Invalid type for 'generate': expected a boolean.", "invalid_type")
        raise FrameError(error_frame(error, stream_id))
    if body.get("background"):
        error = invalid("background", "A response over a WebSocket cannot be made in the background.", "unsupported_parameter")
        raise FrameError(error_frame(error, stream_id))
    return generate is not False


def event_frame(event: bytes, stream_id: str | None) -> str:
    """Return the frame for a server-sent event, whose data is one line (rule R5)."""
    data = event[event.index(b"\ndata: ") + len(b"\ndata: ") :].strip()
    if stream_id is not None:
        data = b'{"stream_id":"%b",%b' % (stream_id.encode(), data[1:])
    return data.decode()


def error_frame(error: ApiError, stream_id: str | None = None) -> str:
    """Return the frame for an error."""
    lane = {} if stream_id is None else {"stream_id": stream_id}
    return dumps({"type": "error", "status": error.status, **error.body(), **lane}).decode()


def _steer_failed(previous_response_id: object, steer_input: object) -> str:
    """Return the answer to a frame that would steer a response, which no engine can do."""
    has_id, has_input = isinstance(previous_response_id, str), isinstance(steer_input, str | list)
    error = STEERING_NOT_SUPPORTED if has_id and has_input else INVALID_STEER
    unused = {"input": steer_input if has_input else "", "previous_response_id": previous_response_id if has_id else ""}
    return dumps({"type": "response.steer.failed", "sequence_number": 0, "error": error, "steer": unused}).decode()
