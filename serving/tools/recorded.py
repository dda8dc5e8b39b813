"""Tools that give recorded results: what runs the hosted calls of `interlock serve --script`.

It knows recordings, and runs nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from attrs import frozen

from interlock.fsm.deltas import Delta
from interlock.fsm.driver import ReadyCall
from interlock.serving.engines.script import rounds
from interlock.serving.recordings import RecordedTurn, ToolResult, tool_deltas
from interlock.serving.requests.conversation import Item
from interlock.serving.requests.create import CreateResponse
from interlock.serving.tools.protocol import NoTools, Tools

__all__ = ["RecordedTools"]


@frozen
class RecordedTools:
    """Gives every response the results that were recorded from its first turn on; see `ToolRunner`.

    Args:
        turns: The turns of the recording.
    """

    turns: Sequence[RecordedTurn]

    def begin(self, request: CreateResponse, items: Sequence[Item]) -> AbstractAsyncContextManager[Tools]:
        """Return the results from the turn on that the conversation has come to."""
        del request
        results = (result for turn in self.turns[rounds(items) :] for result in turn.results)
        return nullcontext(RecordedResults(results))


@frozen
class RecordedResults(NoTools):
    """The results for one response; a call for which there is none is not run.

    Args:
        results: In the order of the calls.
    """

    results: Iterator[ToolResult]

    async def run(self, calls: Sequence[ReadyCall], rejected: Sequence[Item] = ()) -> AsyncGenerator[Delta, None]:
        """Yield each call the next result; a call that was rejected had none."""
        del rejected
        for call, result in zip(calls, self.results, strict=False):  # the calls first, so that no result is taken in vain
            for delta in tool_deltas(call, result):
                yield delta
