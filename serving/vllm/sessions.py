"""The sessions with tool servers that one response has, each apart from the others.

A session of the package `mcp` cancels the task that opened it when its server goes away. So each is held by a task of its own,
which is neither the one that writes the stream nor that of another session; and one that cannot be opened is stood in for, so
that the calls of its tool fail and nothing else does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, Generic, TypeVar, cast

from attrs import define, field

from interlock.serving.faults import is_fault

__all__ = ["ToolSessions"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

GRACE: Final = 5.0
"""Seconds that the sessions have to close; a tool that still runs may hold them."""


@define(eq=False)
class ToolSessions:
    """Opens the sessions of one response, and closes them whatever has become of them.

    Args:
        enter: Enters the sessions into a stack.
        timeout: Seconds that opening one may take.
    """

    _enter: Callable[[AsyncExitStack], Awaitable[None]]
    _timeout: float
    _stack: AsyncExitStack = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the stack that the sessions are entered into."""
        self._stack = _Apart(self._timeout)

    async def open(self) -> None:
        """Open the sessions. Without them a response goes on, and calls of their tools fail."""
        try:
            await self._enter(self._stack)
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("the sessions with tool servers could not be opened")

    async def close(self) -> None:
        """Close the sessions, if they were opened."""
        try:
            async with asyncio.timeout(GRACE):
                await self._stack.aclose()
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("the sessions with tool servers could not be closed")


class _Apart(AsyncExitStack):
    """A stack whose contexts are each held by a task of their own."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout

    async def enter_async_context(self, cm: AbstractAsyncContextManager[T, bool | None]) -> T:
        """Enter a context; gives what stands for it if that fails."""
        held = _Held(cm)
        self.push_async_callback(held.close)
        try:
            async with asyncio.timeout(self._timeout):
                return await held.open()
        except (ConnectionError, TimeoutError) as error:
            logger.warning("a session with a tool server was not opened: %r", error)
            return cast("T", _Missing())


@define(eq=False)
class _Held(Generic[T]):
    """A context in a task of its own.

    Args:
        context: It.
    """

    _context: AbstractAsyncContextManager[T, bool | None]
    _opened: asyncio.Future[T] = field(factory=lambda: asyncio.get_running_loop().create_future(), init=False)
    _closing: asyncio.Event = field(factory=asyncio.Event, init=False)
    _holder: asyncio.Task[None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Begin."""
        self._holder = asyncio.create_task(self._hold())

    async def open(self) -> T:
        """Return what the context gives when it is entered.

        Raises:
            ConnectionError: It cannot be entered.
        """
        try:
            return await self._opened
        finally:
            if self._opened.cancelled():  # nobody waits any more
                self._holder.cancel()

    async def close(self) -> None:
        """Leave the context, and wait until it is left."""
        self._closing.set()
        try:
            await asyncio.wait([self._holder])
        finally:
            self._holder.cancel()

    async def _hold(self) -> None:
        try:
            async with self._context as entered:
                self._opened.set_result(entered)
                await self._closing.wait()
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.warning("a session with a tool server failed", exc_info=error)
        finally:
            if not self._opened.done():
                self._opened.set_exception(ConnectionError("it cannot be entered"))


@define(eq=False, slots=False)
class _Missing:
    """Stands for a session with a server that cannot be reached."""

    _client_info: str = "a server that cannot be reached"
    """What vLLM logs of a session."""

    async def call_tool(self, *_: object, **__: object) -> object:
        """Fail."""
        raise ConnectionError("its server cannot be reached")
