"""Whatever may be raised while a response is made, and what it means.

Code in Rust panics with an exception that is no `Exception` (`pyo3_runtime.PanicException`), so `except Exception` is not
enough to end a response by its failure edges (rule R4). A few exceptions are no faults but messages of Python's own: that a task
shall stop, that a generator is closed, that the process shall end. This module tells them apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar, cast

from attrs import frozen

from interlock.fsm.errors import InterlockError

__all__ = ["Outcome", "PanicError", "ends_process", "is_fault", "outcome", "panics_as_errors"]

T = TypeVar("T")

ENDS: Final = (KeyboardInterrupt, SystemExit)


class PanicError(InterlockError):
    """A fault that is no `Exception`, raised again as one, so that a web framework answers with an error."""


def ends_process(error: BaseException) -> bool:
    """Return whether an exception asks the process to end; a group does if one of its exceptions does.

    Args:
        error: What was raised.
    """
    return isinstance(error, ENDS) or (
        isinstance(error, BaseExceptionGroup) and cast("BaseExceptionGroup[BaseException]", error).subgroup(ENDS) is not None
    )


def is_fault(error: BaseException) -> bool:
    """Return whether an exception is a fault of what raised it, to be called where it is caught.

    A `CancelledError` is one unless somebody cancels the task at hand: a library may raise it out of a future of its own. A
    `GeneratorExit` is one while a task runs: a coroutine that is closed from outside runs in none.

    Args:
        error: What was raised.
    """
    match error:
        case asyncio.CancelledError():
            task = _task()
            return task is not None and not task.cancelling()
        case GeneratorExit():
            return _task() is not None
        case _:
            return not ends_process(error)


def _task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs
        return None


@contextmanager
def panics_as_errors() -> Generator[None]:
    """Raise a fault that is no `Exception` as one.

    Raises:
        PanicError: Its cause was raised.
    """
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
    """What became of something that was awaited in a task of its own.

    Args:
        value: What it returned; None if it raised.
        error: What it raised; None if it returned.
    """

    value: T | None = None
    error: BaseException | None = None

    def result(self) -> T:
        """Return the value.

        Raises:
            BaseException: What was raised instead.
        """
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


async def outcome(work: Awaitable[T]) -> Outcome[T]:
    """Await something, and return whatever comes of it.

    A task that raises `KeyboardInterrupt` or `SystemExit` stops the event loop at once, in the middle of all responses. As an
    outcome it reaches the run that waits for the task, which ends its response first.

    Args:
        work: What is awaited.

    Raises:
        CancelledError: The task at hand is cancelled.
    """
    try:
        return Outcome(value=await work)
    except BaseException as error:
        if is_fault(error) or ends_process(error):
            return Outcome(error=error)
        raise
