"""What hosted tools are to the server: something that is begun for each response, and runs the calls of its turns.

The protocols know deltas and items, and nothing of where tools are. `interlock.serving.tools` has the ones that run; a
server without any takes `NoTools`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from attrs import frozen

from interlock.fsm.deltas import Delta, Finish
from interlock.fsm.driver import ReadyCall
from interlock.serving.requests.conversation import Item
from interlock.serving.requests.create import CreateResponse

__all__ = ["NoTools", "ToolRunner", "Tools"]


class Tools(Protocol):
    """The tools of one response. Closing one of its generators (`aclose`) stops the tools that are still running."""

    def prepare(self, output: Callable[[], Sequence[Item]]) -> AsyncGenerator[Sequence[Delta], None]:
        """Yield what happens before the model's first turn; hosted calls that are ready then are run.

        Args:
            output: Returns the items that the response has so far, those of what was yielded before included.

        Yields:
            Deltas that belong together.
        """
        ...

    def heard(self, told: Iterable[Delta]) -> list[Delta]:
        """Return what the driver is to be told of what a parser said.

        Args:
            told: What the parser said, in order.
        """
        ...

    def run(self, calls: Sequence[ReadyCall], rejected: Sequence[Item] = ()) -> AsyncGenerator[Delta, None]:
        """Run the tools of one turn's calls, and tell what happens when it happens.

        A call without a delta was not run: it fails when the response ends. If none of them is, and none was
        rejected, the response ends.

        Args:
            calls: In the order in which the model made them.
            rejected: The turn's calls whose arguments make no sense. They have failed already, and count as calls all the same.

        Yields:
            `Run`, `Progress`, `Succeed` and `Fail` of those calls, and `Finish` if no turn may follow. A tool does not start
            before its `Run` was taken, and whoever takes it writes it before the next delta is asked for.
        """
        ...

    def recalled(self, items: Iterable[Item]) -> Sequence[Item]:
        """Return items as the model is to know them: with what their tools said as `output`, even if they do not show it.

        Args:
            items: Of the response.
        """
        ...


class ToolRunner(Protocol):
    """Gives every response its tools."""

    def begin(self, request: CreateResponse, items: Sequence[Item]) -> AbstractAsyncContextManager[Tools]:
        """Return the tools of one response; what they hold is freed at the end of the context.

        Args:
            request: What is asked for; it declares the tools.
            items: The conversation that the model goes on from, the request's input included.
        """
        ...


@frozen
class NoTools:
    """No hosted tools: calls of them fail."""

    def begin(self, request: CreateResponse, items: Sequence[Item]) -> AbstractAsyncContextManager[Tools]:
        """Return the same to every response."""
        del request, items
        return nullcontext(self)

    async def prepare(self, output: Callable[[], Sequence[Item]]) -> AsyncGenerator[Sequence[Delta], None]:
        """Do nothing."""
        del output
        return
        yield

    def heard(self, told: Iterable[Delta]) -> list[Delta]:
        """Return the same value for everything."""
        return [*told]

    async def run(self, calls: Sequence[ReadyCall], rejected: Sequence[Item] = ()) -> AsyncGenerator[Delta, None]:
        """Run nothing, so that no turn can follow."""
        if calls or rejected:
            yield Finish()

    def recalled(self, items: Iterable[Item]) -> Sequence[Item]:
        """Return the same value for everything."""
        return [*items]
