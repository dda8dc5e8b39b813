"""A driver with defaults: ids that nobody can guess, and the real time.

`interlock.fsm` has neither chance nor a clock, so its driver has to be given both. This module, above it, gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast, overload

from interlock.events import SseWriter, Writer, response_settings
from interlock.fsm import Clock, Ids, ResponseDriver
from interlock.serving.requests.identity import now, random_id

__all__ = ["driver_for", "now", "random_id"]

T = TypeVar("T")


@overload
def driver_for(
    request: Mapping[str, object], *, ids: Ids = ..., clock: Clock = ..., response_id: str | None = ...
) -> ResponseDriver[bytes]: ...


@overload
def driver_for(
    request: Mapping[str, object], *, writer: Writer[T], ids: Ids = ..., clock: Clock = ..., response_id: str | None = ...
) -> ResponseDriver[T]: ...


def driver_for(
    request: Mapping[str, object],
    *,
    writer: Writer[T] | None = None,
    ids: Ids = random_id,
    clock: Clock = now,
    response_id: str | None = None,
) -> ResponseDriver[T]:
    """Create the driver of one response.

    Args:
        request: The body of `POST /v1/responses`, already found valid.
        writer: The form of the events; frames of server-sent events in OpenAI's dialect by default.
        ids: Makes ids; 128 random bits each by default.
        clock: Tells the time in seconds since the epoch; the system's clock by default.
        response_id: The id of the response, where it is known already.
    """
    chosen = cast("Writer[T]", SseWriter()) if writer is None else writer  # without a writer, T is bytes: see the overloads
    return ResponseDriver(response_settings(request), writer=chosen, ids=ids, clock=clock, response_id=response_id)
