"""Random ids, the system clock, and a driver with both.

`interlock.fsm` uses neither, to keep its output reproducible.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TypeVar, cast, overload

from interlock.events import SseWriter, Writer, response_settings
from interlock.fsm import Clock, Ids, ResponseDriver

__all__ = ["driver_for", "now", "random_id"]

T = TypeVar("T")


def random_id(prefix: str) -> str:
    """Create an id: a prefix such as `msg`, `call` or `resp`, an underscore, and 128 random bits in hex."""
    return f"{prefix}_{os.urandom(16).hex()}"


def now() -> int:
    """Return the time in whole seconds since the epoch."""
    return int(time.time())


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

    Raises:
        TypeError: The request is no mapping.
    """
    if not isinstance(request, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - of callers without a type checker
        raise TypeError(f"driver_for takes the body of a request, such as {{'model': 'my-model'}}, not {request!r:.80}")
    event_writer = cast("Writer[T]", SseWriter()) if writer is None else writer  # without a writer, T is bytes
    return ResponseDriver(response_settings(request), writer=event_writer, ids=ids, clock=clock, response_id=response_id)
