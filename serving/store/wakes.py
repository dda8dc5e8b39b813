"""Wake-ups: whoever waits for a response is woken by what is written about it, and by nothing that came before he watched."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress

from attrs import define, field

__all__ = ["Wakes", "Watch"]


@define(eq=False)
class Watch:
    """Waits for changes of one response; a change between two waits is not missed."""

    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def wait(self, seconds: float) -> None:
        """Wait until the response has changed since the last wait, but not for ever.

        Args:
            seconds: How long at most. A change may go by unheard, as when the store cannot be reached; so look again after it.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    def wake(self) -> None:
        """Wake who waits; from any thread."""
        with suppress(RuntimeError):  # its loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._changed.set)


@define(eq=False)
class Wakes:
    """Those who watch, by what they watch."""

    _watches: dict[tuple[str, str], set[Watch]] = field(factory=dict[tuple[str, str], set[Watch]], init=False)

    def __bool__(self) -> bool:
        """Return whether anybody watches anything."""
        return bool(self._watches)

    @contextmanager
    def watching(self, tenant: str, response_id: str) -> Generator[Watch]:
        """Watch a response.

        Args:
            tenant: To whom it belongs.
            response_id: The response; there need be none.
        """
        key, watch = (tenant, response_id), Watch()
        self._watches.setdefault(key, set()).add(watch)
        try:
            yield watch
        finally:
            self._watches[key].discard(watch)
            if not self._watches[key]:
                del self._watches[key]

    def wake(self, tenant: str, response_id: str) -> None:
        """Wake those who watch a response; from any thread."""
        for watch in [*self._watches.get((tenant, response_id), ())]:
            watch.wake()

    def watched(self) -> list[tuple[str, str]]:
        """Return tenant and id of the responses that are watched; from any thread."""
        return [*self._watches]
