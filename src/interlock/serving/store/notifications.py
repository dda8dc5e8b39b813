"""Notifications of changes: a subscription to a response hears of every write about it, and of none from before it began."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress

from attrs import define, field

__all__ = ["Notifications", "Subscription"]


@define(eq=False)
class Subscription:
    """Waits for changes of one response; a change between two waits is not missed."""

    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def wait(self, seconds: float) -> None:
        """Wait until the response has changed since the last wait, but not for ever.

        Args:
            seconds: How long at most. A notification may get lost, as when the store cannot be reached; so look again after it.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    def notify(self) -> None:
        """End the wait; from any thread."""
        with suppress(RuntimeError):  # its loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._changed.set)


@define(eq=False)
class Notifications:
    """The subscriptions of a process, by response."""

    _subscriptions: dict[tuple[str, str], set[Subscription]] = field(factory=dict[tuple[str, str], set[Subscription]], init=False)

    def __bool__(self) -> bool:
        """Return whether there is any subscription."""
        return bool(self._subscriptions)

    @contextmanager
    def subscribe(self, tenant: str, response_id: str) -> Generator[Subscription]:
        """Subscribe to the changes of a response."""
        key, subscription = (tenant, response_id), Subscription()
        self._subscriptions.setdefault(key, set()).add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions[key].discard(subscription)
            if not self._subscriptions[key]:
                del self._subscriptions[key]

    def notify(self, tenant: str, response_id: str) -> None:
        """Notify the subscriptions of a response; from any thread."""
        for subscription in [*self._subscriptions.get((tenant, response_id), ())]:
            subscription.notify()

    def responses(self) -> list[tuple[str, str]]:
        """Return tenant and id of the responses that have subscriptions; from any thread."""
        return [*self._subscriptions]
