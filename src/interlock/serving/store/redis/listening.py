"""Notifications from Redis: one connection for the process, however many subscriptions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

from attrs import define, field
from redis.exceptions import RedisError

from interlock.serving.store.notifications import Notifications
from interlock.serving.store.redis.client import PREFIX, Calls, base_of

__all__ = ["Listener"]

AGAIN: Final = 0.5
"""Seconds after which a connection that was lost is tried again. Subscribers look by themselves meanwhile."""

PATIENCE: Final = 10.0
"""Seconds for which a silent connection is listened to before it is done anew."""

Key: TypeAlias = tuple[str, str]
"""Tenant and id."""

ALIVE: Final = f"{PREFIX}:alive"
"""A channel to which nobody publishes: a connection without any cannot listen."""


@define(eq=False)
class Listener:
    """Subscribes to the channels of responses that have subscriptions, and notifies these.

    Args:
        calls: To the server.
        notifications: The subscriptions.
    """

    calls: Calls
    notifications: Notifications
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    def hurry(self) -> None:
        """Notice that there are other subscriptions now."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen())
        self._changed.set()

    async def stop(self) -> None:
        """Listen no longer."""
        task, self._task = self._task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @property
    def _is_on(self) -> bool:
        """Whether the task that asks is to go on: its cancellation alone does not say so, the client may swallow that."""
        return self._task is asyncio.current_task()

    async def _listen(self) -> None:
        """Listen until it is stopped, on one connection after another."""
        while self._is_on:
            try:
                async with cast("Any", self.calls.client).pubsub() as channels:
                    await channels.subscribe(ALIVE)
                    await self._attend(channels)
            except (RedisError, OSError):
                await asyncio.sleep(AGAIN if self._is_on else 0)

    async def _attend(self, channels: Any) -> None:  # noqa: ANN401 - of a class without types
        """Follow the subscriptions on one connection, and notify them."""
        subscribed: dict[bytes, Key] = {}
        hearing, noticing = self._hearing(channels), asyncio.create_task(self._changed.wait())
        self._changed.set()
        try:
            while self._is_on:
                await asyncio.wait({hearing, noticing}, return_when=asyncio.FIRST_COMPLETED)
                if noticing.done():
                    self._changed.clear()
                    await self._follow(channels, subscribed)
                    noticing = asyncio.create_task(self._changed.wait())
                if hearing.done():
                    message = hearing.result()
                    key = None if message is None else subscribed.get(message["channel"])
                    if key is not None:  # a new subscription is notified as well: something may have come before
                        self.notifications.notify(*key)
                    hearing = self._hearing(channels)
        finally:
            hearing.cancel()
            noticing.cancel()
            await asyncio.gather(hearing, noticing, return_exceptions=True)

    def _hearing(self, channels: Any) -> asyncio.Task[Any]:  # noqa: ANN401 - likewise
        return asyncio.create_task(channels.get_message(timeout=PATIENCE))

    async def _follow(self, channels: Any, subscribed: dict[bytes, Key]) -> None:  # noqa: ANN401 - likewise
        """Subscribe to the channels that are needed now, and to no others."""
        wanted = {channel_of(*key): key for key in self.notifications.responses()}
        added, gone = wanted.keys() - subscribed.keys(), subscribed.keys() - wanted.keys()
        if added:
            subscribed.update({channel: wanted[channel] for channel in added})
            await channels.subscribe(*added)
        if gone:
            for channel in gone:
                del subscribed[channel]
            await channels.unsubscribe(*gone)


def channel_of(tenant: str, response_id: str) -> bytes:
    """Return the channel on which changes of a response are told."""
    return f"{base_of(tenant)}:w:{response_id}".encode()
