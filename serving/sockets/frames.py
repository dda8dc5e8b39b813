"""Frames: what a client's frame asks for, and how an answer is written as one.

It knows the JSON of single frames and nothing of lanes, connections or sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from attrs import field, frozen

from interlock.events.json import dumps
from interlock.serving.errors import ApiError
from interlock.serving.requests.body import Census, read_object

__all__ = ["Ask", "CancelAsked", "ClientFrame", "FrameError", "error_frame", "event_frame", "read_frame"]

STREAM_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
"""What the name of a lane may be."""


@frozen
class Ask:
    """A frame that asks for a response.

    Args:
        stream_id: The lane that it belongs to; None for the one without a name.
        body: The body of the request, as a POST would carry it.
        generate: Whether output is wanted; without it the request is only validated and rendered.
        size: The size of the frame in bytes.
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


ClientFrame: TypeAlias = Ask | CancelAsked


@frozen
class FrameError(Exception):
    """A frame that gets an error.

    Args:
        error: What is wrong with it.
        stream_id: The lane that it names, if it names one.
    """

    error: ApiError
    stream_id: str | None = None


def read_frame(text: str) -> ClientFrame:
    """Parse a frame.

    Args:
        text: The text of the frame.

    Raises:
        FrameError: The frame is not JSON, too large, not an object, of an unknown type, or has a field that is not allowed.
    """
    data = text.encode("utf-8", "surrogatepass")
    census = Census()
    census.count(data)
    try:
        census.require_few()
        body = read_object(data)
    except ApiError as error:
        raise FrameError(error) from None
    stream_id = _stream_id(body)
    match body.pop("type", None):
        case "response.create":
            return Ask(stream_id, body, _generate(body, stream_id), len(data))
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
