"""The way of a read from an upstream to the client's socket without a change of tasks.

A task that streams a response waits at the end of a chain of coroutines: those of the HTTP server, its middleware, the run and
the engine. To wake the chain for each read and to send it back to wait takes longer than to read, drive and write a delta. So
each link gives the one before it a shortcut, which that one may use while the task waits for it. Whatever ends a stream, fails
or has to wait goes to the task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from attrs import frozen

T = TypeVar("T")


@frozen(eq=False)
class Shortcut(Generic[T]):
    """Takes values at once, instead of the task that waits for them.

    Args:
        is_open: Returns whether a value can be taken now.
        take: Takes a value while the shortcut is open; returns whether the task goes on waiting, which has the error if it fails.
    """

    is_open: Callable[[], bool]
    take: Callable[[T], bool]
