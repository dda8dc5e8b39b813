"""Frames: what a client's frame asks for, and how an answer is written as one.

It knows the JSON of single frames and nothing of lanes, connections or sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from attrs import field, frozen

from interlock.events.json import dumps
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.body import JsonBudget, read_object_in_turns
from interlock.serving.requests.yielder import Yielder

__all__ = ["Ask", "CancelAsked", "ClientFrame", "FrameError", "Steer", "error_frame", "event_frame", "read_frame", "steer_frame"]

STREAM_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
"""What the name of a lane may be."""

SLICE: Final = 2**17
"""Characters of a frame that are read at once."""

PER_VALUE: Final = 100
"""Bytes that a JSON value takes beside its text."""

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
class Ask:
    """A frame that asks for a response.

    Args:
        stream_id: The lane that it belongs to; None for the one without a name.
        body: The body of the request, as a POST would carry it.
        generate: Whether output is wanted; without it the request is only validated and rendered.
        size: The bytes of memory that it takes.
    """

    stream_id: str | None
    body: Mapping[str, object] = field(repr=False)
    generate: bool
    size: int


@frozen
class CancelAsked:
    """A frame that cancels what a lane generates.

    Args:
        stream_id: The lane; None for the one without a name.
    """

    stream_id: str | None


@frozen
class Steer:
    """A frame that would steer a response, which no engine can.

    Args:
        previous_response_id: The response.
        input: What it should be told.
    """

    previous_response_id: object
    input: object = field(repr=False)


ClientFrame: TypeAlias = Ask | CancelAsked | Steer


@frozen
class FrameError(Exception):
    """A frame that gets an error.

    Args:
        error: What is wrong with it.
        stream_id: The lane that it names, if it names one.
    """

    error: ApiError
    stream_id: str | None = None


async def read_frame(text: str, yielder: Yielder) -> ClientFrame | None:
    """Parse a frame as the body of a POST is read: with its limits, and others in between.

    Args:
        text: The text of the frame.
        yielder: Of the work that this is a part of.

    Returns:
        None for a frame that wants nothing.

    Raises:
        FrameError: The frame is not JSON, too large, not an object, of an unknown type, or has a field that is not allowed.
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
        raise FrameError(error) from None
    kind = body.pop("type", None)
    match kind:
        case "response.processed":
            return None
        case "response.steer":
            return Steer(body.get("previous_response_id"), body.get("input"))
        case _:
            pass
    stream_id = _stream_id(body)
    match kind:
        case "response.create":
            return Ask(stream_id, body, _generate(body, stream_id), len(data) + PER_VALUE * budget.values)
        case "response.cancel":
            return CancelAsked(stream_id)
        case other:
            message = f"Unknown frame type: {str(other)[:100]!r}. It must be 'response.create' or 'response.cancel'."
            raise FrameError(ApiError(400, message, param="type", code="invalid_value"), stream_id)


def _stream_id(body: dict[str, object]) -> str | None:
    """Remove the name of the lane from a body, and return it."""
    given = body.pop("stream_id", None)
    if given is None:
        return None
    if isinstance(given, str) and STREAM_ID.fullmatch(given):
        return given
    message = "Invalid 'stream_id': it must be 1 to 256 of the characters A-Z, a-z, 0-9, '_', '.' and '-'."
    raise FrameError(ApiError(400, message, param="stream_id", code="invalid_stream_id"))


def _generate(body: dict[str, object], stream_id: str | None) -> bool:
    """Remove the fields from a body that only frames have, and return whether output is wanted."""
    body.pop("stream", None)  # a socket always streams
    generate = body.pop("generate", None)
    if generate is not None and not isinstance(generate, bool):
        message = "Invalid type for 'generate': expected a boolean."
        raise FrameError(ApiError(400, message, param="generate", code="invalid_type"), stream_id)
    if body.get("background"):
        message = "A response over a WebSocket cannot be made in the background."
        raise FrameError(ApiError(400, message, param="background", code="unsupported_parameter"), stream_id)
    return generate is not False


def event_frame(event: bytes, stream_id: str | None) -> str:
    """Return an event as the text of a frame.

    Args:
        event: The event as a server-sent event, with its one line of data (rule R5).
        stream_id: The lane that it belongs to; None for the one without a name.
    """
    data = event[event.index(b"\ndata: ") + len(b"\ndata: ") :].strip()
    if stream_id is not None:
        data = b'{"stream_id":"%b",%b' % (stream_id.encode(), data[1:])
    return data.decode()


def error_frame(error: ApiError, stream_id: str | None = None) -> str:
    """Return an error as the text of a frame.

    Args:
        error: What went wrong.
        stream_id: The lane that it belongs to, if it belongs to a named one.
    """
    lane = {} if stream_id is None else {"stream_id": stream_id}
    return dumps({"type": "error", "status": error.status, **error.body(), **lane}).decode()


def steer_frame(steer: Steer) -> str:
    """Return the answer to a frame that would steer, as the text of a frame: its input was not used.

    Args:
        steer: The frame.
    """
    named, listed = isinstance(steer.previous_response_id, str), isinstance(steer.input, str | list)
    error = STEERING_NOT_SUPPORTED if named and listed else INVALID_STEER
    unused = {"input": steer.input if listed else "", "previous_response_id": steer.previous_response_id if named else ""}
    return dumps({"type": "response.steer.failed", "sequence_number": 0, "error": error, "steer": unused}).decode()
