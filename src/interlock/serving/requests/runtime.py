"""The event loop, and which exceptions are faults.

The other exceptions stop a task, close a generator or end the process. A panic in Rust code raises
`pyo3_runtime.PanicException`, which is not an `Exception`. So `except Exception` does not catch every fault that must fail a
response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from time import perf_counter
from typing import Final, Generic, TypeVar, cast

from attrs import define, field, frozen

from interlock.fsm.table import InterlockError

T = TypeVar("T")

ENDS: Final = (KeyboardInterrupt, SystemExit)
"""The exceptions that ask the process to end."""

STRETCH: Final = 0.005
"""Seconds of work between two yields to the event loop."""


@define
class Yielder:
    """Yields to the event loop every few milliseconds of long work. With thousands of streams, a yield can take 0.1 s."""

    _started_at: float = field(factory=perf_counter, init=False)

    async def checkpoint(self) -> None:
        """Yield to the event loop if the last yield was more than `STRETCH` seconds ago."""
        if perf_counter() - self._started_at > STRETCH:
            await asyncio.sleep(0)
            self._started_at = perf_counter()


@asynccontextmanager
async def alongside(work: Coroutine[object, object, None]) -> AsyncGenerator[None]:
    """Do some work in a task for the duration of the context; at its end, cancel the task and wait for it."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


class PanicError(InterlockError):
    """Wraps a fault that is not an `Exception`, so that a web framework answers with an error."""


def ends_process(error: BaseException) -> bool:
    """Return whether an exception, or one in a group, asks the process to end."""
    return isinstance(error, ENDS) or (
        isinstance(error, BaseExceptionGroup) and cast("BaseExceptionGroup[BaseException]", error).subgroup(ENDS) is not None
    )


def is_fault(error: BaseException) -> bool:
    """Return whether an exception is a fault of the code that raised it. Call this where the exception is caught.

    A `CancelledError` is a fault in a task that is not being cancelled: a library may raise it from a future of its own. A
    `GeneratorExit` is a fault in any task: a coroutine that is closed from outside runs in none.
    """
    match error:
        case asyncio.CancelledError():
            task = _current_task()
            return task is not None and not task.cancelling()
        case GeneratorExit():
            return _current_task() is not None
        case _:
            return not ends_process(error)


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs
        return None


@contextmanager
def panics_as_errors() -> Generator[None]:
    """Raise faults that are not an `Exception` as a `PanicError`."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if not is_fault(error):
            raise
        raise PanicError("The server had an error while processing your request.") from error


@frozen
class Outcome(Generic[T]):
    """The value that an awaitable returned, or the error that it raised."""

    value: T | None = None
    error: BaseException | None = None

    def result(self) -> T:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


async def outcome(work: Awaitable[T]) -> Outcome[T]:
    """Await something and return its outcome; raise only the cancellation or the closing of the current coroutine.

    A task that raises `KeyboardInterrupt` or `SystemExit` stops the event loop at once, in the middle of all responses. As an
    outcome, the exception reaches the run that waits for the task, which first ends its response.
    """
    try:
        return Outcome(value=await work)
    except BaseException as error:
        if is_fault(error) or ends_process(error):
            return Outcome(error=error)
        raise
