"""The sessions with tool servers that one response has.

They are held by a task of their own: a session of the package `mcp` cancels the task that opened it when its server goes away,
and that must not be the one that writes the stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

from attrs import define, field

__all__ = ["ToolSessions"]

logger = logging.getLogger(__name__)

GRACE: Final = 5.0
"""Seconds that the sessions have to close; a tool that still runs may hold them."""


@define(eq=False)
class ToolSessions:
    """Opens the sessions of one response, and closes them whatever has become of them.

    Args:
        enter: Enters the sessions into a stack.
        timeout: Seconds that this may take.
    """

    _enter: Callable[[AsyncExitStack], Awaitable[None]]
    _timeout: float
    _tried: asyncio.Event = field(factory=asyncio.Event, init=False)
    _closing: asyncio.Event = field(factory=asyncio.Event, init=False)
    _holder: asyncio.Task[None] | None = field(default=None, init=False)

    async def open(self) -> None:
        """Open the sessions. Without them a response goes on, and calls of their tools fail."""
        self._holder = asyncio.create_task(self._hold())
        await self._tried.wait()

    async def close(self) -> None:
        """Close the sessions, if they were opened."""
        if self._holder is not None:
            self._closing.set()
            _, pending = await asyncio.wait([self._holder], timeout=GRACE)
            if pending:
                self._holder.cancel()

    async def _hold(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._timeout):
                    await self._enter(stack)
                self._tried.set()
                await self._closing.wait()
        except (Exception, BaseExceptionGroup) as error:
            logger.warning("a session with a tool server failed: %s", error, exc_info=error)
        finally:
            self._tried.set()
