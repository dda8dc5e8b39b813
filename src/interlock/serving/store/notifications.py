"""Notifications: a subscription to a response wakes its waiter after every change of the response."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from attrs import define, field

__all__ = ["Key", "Notifications", "Subscription"]

Key: TypeAlias = tuple[str, str]
"""The tenant and the id of a response."""


@define(eq=False)
class Subscription:
    """Waits for changes of one response. A change between two waits is not missed."""

    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def wait(self, seconds: float) -> None:
        """Wait until the response has changed since the last wait, up to a number of seconds.

        A notification can get lost, for example when the store is down; read again after the wait in any case.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    def notify(self) -> None:
        """End the wait. Thread-safe."""
        with suppress(RuntimeError):  # the loop is closed: nothing waits
            self._loop.call_soon_threadsafe(self._changed.set)


@define(eq=False)
class Notifications:
    """The subscriptions of a process."""

    _subscriptions: dict[Key, set[Subscription]] = field(factory=dict[Key, set[Subscription]], init=False)

    def responses(self) -> list[Key]:
        """Return the responses that have subscriptions. Thread-safe."""
        return [*self._subscriptions]

    @contextmanager
    def subscribe(self, key: Key) -> Generator[Subscription]:
        """Subscribe to the changes of a response."""
        subscription = Subscription()
        subscriptions = self._subscriptions.setdefault(key, set())
        subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            subscriptions.discard(subscription)
            if not subscriptions:
                self._subscriptions.pop(key, None)

    def notify(self, key: Key) -> None:
        """Notify the subscriptions of a response. Thread-safe."""
        for subscription in [*self._subscriptions.get(key, ())]:
            subscription.notify()
