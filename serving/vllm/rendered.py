"""A response that is rendered and not generated: its prompt is counted, and it ends at once, without output.

It knows how long the prompt is, and nothing of vLLM but its loop over rounds, which is never begun.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

from attrs import define

from interlock.fsm.deltas import Delta, EndTurn, Usage
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.processes.turns import TurnTrigger
from interlock.serving.runs.run import Run, Work
from interlock.serving.vllm.shapes import Steps

__all__ = ["RenderedRun"]

T = TypeVar("T")


@define(eq=False)
class RenderedRun(Run[T]):
    """One response without output.

    Args:
        driver: Makes the events.
        steps: vLLM's loop over rounds, not begun.
        input_tokens: Tokens of the prompt.
        settled: Stores and logs the response when it has ended.
    """

    _steps: Steps
    input_tokens: int
    _settled: Callable[[ResponseDriver[T]], Awaitable[None]]

    async def admitted(self) -> None:
        """Return at once: the engine is not asked."""

    async def abandon(self) -> None:
        """Close a run that nobody will iterate."""
        await self._steps.aclose()

    def _prepare(self) -> Work:
        return _told([], TurnTrigger.GO_ON)

    def _generate(self) -> Work:
        return _told([EndTurn("stop", Usage(self.input_tokens))], TurnTrigger.ANSWER)

    def _run_tools(self) -> Work:
        """Return the end of the response: nothing was generated that could have called a tool."""
        return self._generate()

    def _break_off(self) -> Sequence[Delta]:
        return [EndTurn("abort", Usage(self.input_tokens))]

    def _is_for_clients(self, error: BaseException) -> bool:
        """Return False: whatever is raised here is a fault of ours."""
        del error
        return False

    async def _settle(self) -> None:
        await self._settled(self.driver)

    async def _close(self) -> None:
        try:
            await super()._close()
        finally:
            await self._steps.aclose()


def _told(deltas: Sequence[Delta], trigger: TurnTrigger) -> Work:
    """Return the work of feeding some deltas at once."""

    async def steps() -> AsyncGenerator[Sequence[Delta], None]:
        yield deltas

    return Work(steps(), lambda: trigger)
