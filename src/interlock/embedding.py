"""`driver_for`: a driver with random ids and the system clock.

`interlock.fsm` uses neither, to keep its output reproducible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast, overload

from interlock.events import SseWriter, Writer, response_settings
from interlock.fsm import Clock, Ids, ResponseDriver
from interlock.serving.requests.runtime import now, random_id

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
    """Create a driver for one response.

    Args:
        request: The validated body of a `POST /v1/responses`.
        writer: Writes the events; by default, as server-sent events in OpenAI's dialect.
        ids: Creates ids; by default, from 128 random bits.
        clock: Returns the time in seconds since the epoch.
        response_id: The id of the response; by default, a new one.
    """
    event_writer = cast("Writer[T]", SseWriter()) if writer is None else writer  # without a writer, T is bytes
    return ResponseDriver(response_settings(request), writer=event_writer, ids=ids, clock=clock, response_id=response_id)
