"""Tells faults from the exceptions with which Python stops a task, closes a generator or ends the process.

A panic in Rust code raises `pyo3_runtime.PanicException`, which is not an `Exception`. So `except Exception` does not catch every
fault that must fail a response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar, cast

from attrs import frozen

from interlock.fsm.errors import InterlockError

T = TypeVar("T")

ENDS: Final = (KeyboardInterrupt, SystemExit)


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
