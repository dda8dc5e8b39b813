"""Whether vLLM's engine takes a request, which its first step decides: what it refuses is refused before anything is answered.

vLLM validates the parameters of a generation in the first step of its loop, when its own route may have sent a head already.
Here that step is begun apart, and the engine's client tells when the request is with the engine; nobody waits for a token,
but for a grammar: the engine compiles it after it has taken the request, and ends the request if it cannot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context
from typing import Final, Protocol, cast

from attrs import define, field

from interlock.serving.faults import Outcome, outcome
from interlock.serving.vllm.shapes import Steps

__all__ = ["END", "Admission", "announce_admissions"]

END: Final = object()
"""What follows the last step of vLLM's loop."""

_TAKEN: Final[ContextVar[asyncio.Event | None]] = ContextVar("interlock_taken", default=None)
"""What is set when the engine has taken the request of the task at hand."""


class Client(Protocol):
    """vLLM's way to its engine, as far as it hands requests over."""

    add_request: Callable[..., Awaitable[object]]


def announce_admissions(client: object) -> None:
    """Have the engine's client announce each request that the engine has taken; one that cannot is left alone.

    Args:
        client: vLLM's way to its engine.
    """
    if not callable(getattr(client, "add_request", None)):
        return
    hooked = cast("Client", client)
    add_request = hooked.add_request

    async def announced(*arguments: object, **options: object) -> object:
        added = await add_request(*arguments, **options)
        taken = _TAKEN.get()
        if taken is not None:
            taken.set()
        return added

    hooked.add_request = announced


@define(eq=False)
class Admission:
    """The first step of vLLM's loop.

    Args:
        steps: vLLM's loop over rounds.
        check: Raises an error if what the first step gave is the end of a request that generated nothing.
        announced: Whether the announcement admits, or the first step alone.
    """

    _steps: Steps
    _check: Callable[[], None]
    _announced: bool = field(default=True, alias="announced", kw_only=True)
    _taken: asyncio.Event = field(factory=asyncio.Event, init=False)
    """Set when the engine has taken the request, and when the first step is over, whatever came of it."""
    _first: asyncio.Task[Outcome[object]] | None = field(default=None, init=False)

    async def wait(self) -> None:
        """Wait until the engine has taken the request: until its client announces it, or else until the first output.

        Raises:
            Exception: Why it is not taken, as vLLM says it.
        """
        first = self._begin()
        await self._taken.wait()
        if first.done():
            first.result().result()

    async def first_step(self) -> object:
        """Return what the first step gives, or `END`."""
        return (await self._begin()).result()

    async def close(self) -> None:
        """Close vLLM's loop, which aborts a request that is still in the engine."""
        if self._first is not None:
            self._first.cancel()
            await asyncio.gather(self._first, return_exceptions=True)
        await self._steps.aclose()

    def _begin(self) -> asyncio.Task[Outcome[object]]:
        if self._first is None:
            context = copy_context()
            context.run(_TAKEN.set, self._taken if self._announced else None)
            self._first = asyncio.create_task(outcome(self._step()), context=context)
            self._first.add_done_callback(lambda _: self._taken.set())
        return self._first

    async def _step(self) -> object:
        step = await anext(self._steps, END)
        self._check()
        return step
