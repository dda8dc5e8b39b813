"""The interface of hosted tools to the server: they begin for each response, and run the calls of its turns.

The protocols know deltas and items, not where tools are. The other tools here run nothing: `NullTools` of a server without tools,
and `RecordedTools` of `interlock serve --script`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from attrs import frozen

from interlock.fsm.deltas import Delta, Finish
from interlock.fsm.driver import ReadyCall
from interlock.serving.engines.recordings import RecordedTurn, ToolResult, tool_deltas
from interlock.serving.engines.script import rounds
from interlock.serving.requests.create import CreateResponse
from interlock.serving.requests.input_items import Item

__all__ = ["NullTools", "RecordedTools", "ToolRunner", "Tools"]


class Tools(Protocol):
    """The tools of one response. Closing one of its generators (`aclose`) stops the tools that are still running."""

    def prepare(self, output: Callable[[], Sequence[Item]]) -> AsyncGenerator[Sequence[Delta], None]:
        """Yield what happens before the model's first turn; hosted calls that are ready then are run.

        Args:
            output: Returns the items that the response has so far, including those of the deltas yielded before.

        Yields:
            Deltas that belong together.
        """
        ...

    def rewrite(self, deltas: Iterable[Delta]) -> list[Delta]:
        """Return the deltas for the driver in place of those of the parser."""
        ...

    def run(self, calls: Sequence[ReadyCall], rejected: Sequence[Item] = ()) -> AsyncGenerator[Delta, None]:
        """Run the tools of one turn's calls, and yield what happens when it happens.

        A call without a delta was not run: it fails when the response ends. If none of them is, and none was
        rejected, the response ends.

        Args:
            calls: In the order in which the model made them.
            rejected: The turn's calls with arguments that cannot be understood. They have failed already, but count as calls.

        Yields:
            `Run`, `Progress`, `Succeed` and `Fail` of those calls, and `Finish` if no turn may follow. A tool does not start
            before its `Run` was taken, and whoever takes it writes it before the next delta is asked for.
        """
        ...

    def with_outputs(self, items: Iterable[Item]) -> Sequence[Item]:
        """Return items of the response for the model: with the results of their tools as `output`, shown or not."""
        ...


class ToolRunner(Protocol):
    """Gives every response its tools."""

    def begin(self, request: CreateResponse, items: Sequence[Item]) -> AbstractAsyncContextManager[Tools]:
        """Return the tools of one response; their resources are freed at the end of the context.

        Args:
            request: The request, which declares the tools.
            items: The conversation that the model continues, including the request's input.
        """
        ...


@frozen
class NullTools:
    """No hosted tools: calls of them fail."""

    def begin(self, request: CreateResponse, items: Sequence[Item]) -> AbstractAsyncContextManager[Tools]:
        """Return the same tools for every response."""
        del request, items
        return nullcontext(self)

    async def prepare(self, output: Callable[[], Sequence[Item]]) -> AsyncGenerator[Sequence[Delta], None]:
        """Do nothing."""
        del output
        return
        yield

    def rewrite(self, deltas: Iterable[Delta]) -> list[Delta]:
        """Return the deltas unchanged."""
        return [*deltas]

    async def run(self, calls: Sequence[ReadyCall], rejected: Sequence[Item] = ()) -> AsyncGenerator[Delta, None]:
        """Run nothing, so that no turn can follow."""
        if calls or rejected:
            yield Finish()

    def with_outputs(self, items: Iterable[Item]) -> Sequence[Item]:
        """Return the items unchanged."""
        return [*items]


@frozen
class RecordedTools:
    """Gives every response the recorded results, from the turn on that its conversation has come to.

    Args:
        turns: The turns of the recording.
    """

    turns: Sequence[RecordedTurn]

    def begin(self, request: CreateResponse, items: Sequence[Item]) -> AbstractAsyncContextManager[Tools]:
        """Return the results that are left."""
        del request
        return nullcontext(_RecordedResults(result for turn in self.turns[rounds(items) :] for result in turn.results))


@frozen
class _RecordedResults(NullTools):
    """The results for one response, in the order of the calls; a call for which there is none is not run."""

    results: Iterator[ToolResult]

    async def run(self, calls: Sequence[ReadyCall], rejected: Sequence[Item] = ()) -> AsyncGenerator[Delta, None]:
        """Yield the next result of each call; a rejected call had none."""
        del rejected
        for call, result in zip(calls, self.results, strict=False):  # the calls first, so that no result is taken in vain
            for delta in tool_deltas(call, result):
                yield delta
