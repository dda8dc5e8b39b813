"""One response of vLLM while it is being made: vLLM's loop yields outputs, a reader reads them, a driver makes the events.

It knows the order of things and neither HTTP nor how events are written, so that a stream and an answer in one piece come from
the same run (rule R19). How a run is waited for, interrupted and ended is `interlock.serving.runs.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, Protocol, TypeVar

from attrs import define, evolve, field

from interlock.fsm.deltas import Delta, Fault, Start
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.processes.turns import TurnTrigger
from interlock.serving.errors import EngineError
from interlock.serving.faults import Outcome, outcome
from interlock.serving.runs.membership import Membership
from interlock.serving.runs.run import Run, Work
from interlock.serving.vllm.admission import END, Admission
from interlock.serving.vllm.reading import Reader, finish_reason
from interlock.serving.vllm.rounds import Rounds
from interlock.serving.vllm.sessions import ToolSessions
from interlock.serving.vllm.shapes import Steps

__all__ = ["REFUSALS", "VllmRun", "admitted", "is_any_of"]

T = TypeVar("T")

CLIENTS: Final = frozenset({"VLLMClientError", "VLLMValidationError", "VLLMNotFoundError", "VLLMUnprocessableEntityError"})
"""vLLM's errors, with all that derive from them, that are the client's fault; newer releases derive the others from the first."""

REFUSALS: Final = frozenset({*CLIENTS, "ValueError", "NotImplementedError"})
"""What vLLM raises before a response begins if its request is wrong; its handlers answer it with an error body over HTTP."""

SPOKEN: Final = frozenset({*CLIENTS, "GenerationError", "EngineDeadError", "EngineGenerateError"})
"""vLLM's errors whose messages are made for clients, with all that derive from them."""


@define(eq=False)
class VllmRun(Run[T]):
    """One response of vLLM.

    Args:
        driver: Makes the events.
        steps: vLLM's loop over rounds.
        admission: Its first step.
        rounds: The hooks in it.
        reader: Reads its outputs.
        tools: The sessions with tool servers.
        additions: Returns what vLLM adds to the response when it has ended.
        settled: Stores and logs the response when it has ended, before its client knows that it has.
        beginning: How it begins.
    """

    _steps: Steps
    _admission: Admission
    _rounds: Rounds
    _reader: Reader
    _tools: ToolSessions
    additions: Callable[[], Mapping[str, object]]
    _settled: Callable[[ResponseDriver[T]], Awaitable[None]]
    _beginning: Sequence[Delta]
    membership: Membership | None = field(default=None, init=False)
    """The response's part in a conversation, which is held while it is made."""
    _held: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    _step_made: object = field(default=None, init=False)
    """What the last step of vLLM's loop gave, or `END`."""

    async def admitted(self) -> None:
        """Wait until the engine has taken the request; before, no answer should begin.

        Raises:
            Exception: Why it is not taken, as vLLM says it.
        """
        if self.compaction is None:  # else the engine is given another prompt, once there is one
            await self._admission.wait()

    async def take_over(self, again: VllmRun[T]) -> None:
        """Go on with what vLLM has begun for another prompt, in the place of what it had begun for this one.

        Args:
            again: A run with the same driver, not begun.
        """
        await self._admission.close()
        self._steps, self._admission, self._rounds = again._steps, again._admission, again._rounds
        self._reader, self._tools, self.additions = again._reader, again._tools, again.additions

    async def abandon(self) -> None:
        """Close a run that nobody will iterate."""
        await self._admission.close()

    def _opening(self) -> Sequence[Delta]:
        return self._beginning

    async def _enter(self) -> None:
        if self.membership is not None:
            await self._held.enter_async_context(self.membership.kept(self.interrupt))

    def _prepare(self) -> Work:
        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            await self._tools.open()
            yield [Start()]
            self._step_made = await self._admission.first_step()

        return Work(steps(), lambda: TurnTrigger.GO_ON)

    def _generate(self) -> Work:
        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            while self._step_made is not END:
                output = self._rounds.output
                if output is not None:
                    yield self._reader.read(output)
                    if output.finished or self._rounds.exhausted:
                        # A round that goes on although its tokens are spent (see `Rounds`) is cut here.
                        yield self._reader.end(finish_reason(output) if output.finished else "length")
                        return
                self._step_made = await anext(self._steps, END)

        return Work(steps(), lambda: TurnTrigger.ANSWER if self._step_made is END else TurnTrigger.CALL)

    def _run_tools(self) -> Work:
        """Return the work of vLLM's next step; vLLM runs a tool in it if the round called one, and the loop ends if not."""

        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            following = asyncio.create_task(outcome(anext(self._steps, END)))
            try:
                async for told in self._between_rounds(following):
                    yield told
                self._step_made = (await following).result()
            finally:
                following.cancel()
                await asyncio.wait([following])

        def look() -> TurnTrigger:
            if self._step_made is not END:
                return TurnTrigger.GO_ON
            return TurnTrigger.EXHAUST if self._rounds.exhausted and self.driver.ready else TurnTrigger.ANSWER

        return Work(steps(), look)

    async def _between_rounds(self, step: asyncio.Task[Outcome[object]]) -> AsyncGenerator[Sequence[Delta], None]:
        """Yield what happens to tools until vLLM's next step is made; vLLM runs a tool in it."""
        told = self._rounds.told
        step.add_done_callback(lambda _: told.put_nowait(()))
        while deltas := await told.get():
            yield deltas

    def _break_off(self) -> Sequence[Delta]:
        return self._reader.end("abort")

    def _is_for_clients(self, error: BaseException) -> bool:
        return isinstance(error, EngineError) or is_any_of(error, SPOKEN)

    def _fault(self, error: BaseException) -> Fault:
        fault = super()._fault(error)
        return evolve(fault, code="invalid_prompt") if is_any_of(error, CLIENTS) else fault

    async def _settle(self) -> None:
        await self._settled(self.driver)

    async def _close(self) -> None:
        """Close vLLM's loop, which aborts a request that is still in the engine, and then the tools' sessions."""
        try:
            await super()._close()
            await self._admission.close()
        except BaseException as error:  # noqa: BLE001 - `_caught` raises what is no fault
            self._caught(error, "vLLM's loop could not be closed")
        finally:
            await self._tools.close()
            await self._held.aclose()


def is_any_of(error: BaseException, names: frozenset[str]) -> bool:
    """Return whether the class of an error has one of these names, since vLLM's own classes may not be importable.

    Args:
        error: What was raised.
        names: Of classes.
    """
    return any(kind.__name__ in names for kind in type(error).__mro__)


class Admitted(Protocol):
    """A run that can be given up before anybody iterates it."""

    async def admitted(self) -> None:
        """Wait until the engine has taken the request."""
        ...

    async def abandon(self) -> None:
        """Close the run."""
        ...


async def admitted(run: Admitted) -> None:
    """Wait until the engine has taken the request of a run, and give the run up if that fails.

    Args:
        run: Nobody iterates it yet.

    Raises:
        BaseException: Why it is not taken; vLLM has words for it.
    """
    try:
        await run.admitted()
    except BaseException:
        await run.abandon()
        raise
