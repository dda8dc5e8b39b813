"""Runs a response step by step: the engine accepts it and generates turns, a parser reads them, and tools run between them.

The table `TURNS` in `turns_table` defines the steps, and how an interrupted run ends. One task drives a run from its
first step, and an error of the first steps refuses the request. Later, if a step raises, the response fails, and its stream still
ends with a terminal event. The same run makes a stream or a JSON response, so both have the same content. `ActiveRuns`
tracks the runs of a process, and limits their number.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, nullcontext
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, assert_never, cast

from attrs import Factory, define, evolve, field, frozen
from msgspec import to_builtins

from interlock.embedding import now, random_id
from interlock.events.items import ITEMS
from interlock.events.json import elements, members
from interlock.events.response_object import InputTransformation
from interlock.events.sse import Writer
from interlock.events.stream import StreamEvent
from interlock.fsm import deltas
from interlock.fsm.deltas import Cancel, Delta, EndTurn, Enqueue, Fault, Finish, FinishReason, Silence, Start, Usage
from interlock.fsm.driver import ReadyCall, ResponseDriver
from interlock.fsm.ids import Clock, Ids
from interlock.fsm.table import Machine
from interlock.parsers import Chunk, Parser
from interlock.serving import metrics
from interlock.serving.engines.engine import Engine, EngineOutput, Generation, Turn
from interlock.serving.engines.generation import fitting
from interlock.serving.engines.shortcut import Shortcut
from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError, engine_error
from interlock.serving.requests.context_window import compact, summary_message
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import JsonItem, add_ids, waits_for_client
from interlock.serving.requests.runtime import alongside, ends_process, is_fault
from interlock.serving.responses.active_runs import ABANDONED, ActiveRuns, NotBegunError
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.conversation_lease import ConversationLease, commit_end
from interlock.serving.responses.observation import observe_run, observe_turn, report_turn
from interlock.serving.responses.sealing import Seals
from interlock.serving.responses.turns_table import TURNS, TurnEffect, TurnTrigger
from interlock.serving.store import SHARED, StoredResponse, StoreError
from interlock.serving.tools.tool_runner import NullTools, ToolRunner, Tools

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

T = TypeVar("T")

logger = logging.getLogger(__name__)

INTERNAL_ERROR: Final = "The server had an error while it generated the response."
"""Replaces the message of an error that may contain private details."""

MAX_TURNS: Final = 128
"""The turns after which a response ends although its last call is async, so that a model cannot call forever."""

SLICE: Final = 512
"""The most deltas that are turned into events in one go, before other streams have their turn."""

NOT_COMPACTED: Final = "The conversation could not be compacted: "


class CompactionError(EngineError):
    """A conversation could not be compacted. The response fails instead of losing part of the conversation."""


@frozen
class NullWriter:
    """Writes nothing, for a response without a stream."""

    def write(self, event: StreamEvent) -> None:
        pass

    def repeat(self, event: StreamEvent) -> Callable[[str, int], None]:
        del event
        return lambda _text, _number: None


@frozen
class RequestContext:
    """A request, and the conversation that it continues, with references replaced by items."""

    request: ResponseRequest
    items: Sequence[JsonItem]
    """The conversation with the request's input, as clients and stores see it."""
    tenant: str = SHARED
    model_items: Sequence[JsonItem] = field(default=Factory(lambda self: self.items, takes_self=True))
    """The same conversation as the model reads it; see `Seals.unseal`."""
    removed: Sequence[InputTransformation] = ()
    """The reasoning of other models that is not among `model_items`."""
    lease: ConversationLease | None = None
    """The lease on the conversation that the response is added to."""
    seals: Seals | None = None
    """The seals for reasoning and summaries. If None, nothing is sealed or compacted."""
    connection: HTTPConnection | None = field(default=None, repr=False)
    """The client's connection, for a host engine."""
    stored_items: tuple[JsonItem, ...] = field(default=Factory(lambda self: add_ids(self.items), takes_self=True), repr=False)
    """The conversation as a store needs it: each item has an id."""


RunSteps: TypeAlias = AsyncGenerator[Sequence[Delta] | TurnTrigger, None]
"""The work of a run in one state of the loop.

It yields the deltas of each step, whose events are delivered before the next step, and finally the trigger to fire, unless its
deltas have ended the response.
"""


@define(eq=False)
class TurnProgress:
    """The last turn of a run, or what comes before the first one."""

    remaining_tokens: int | None
    """The output tokens that the request still allows."""
    count: int = 0
    first_item: int = 0
    """The index of its first item."""
    usage: Usage = field(factory=Usage)
    calls: Sequence[ReadyCall] = ()
    """The calls whose tools run next: those of the turn, or before the first turn the calls that the client has approved."""
    rejected: Sequence[JsonItem] = ()
    """Its calls with invalid arguments."""
    stop_sequence: str | None = None
    """The stop string that ended it, if the engine names it. Only Messages shows it."""
    first_output_at: float | None = None
    """When the model wrote the first output of the run, by the monotonic clock."""
    turn_output_at: float = 0.0
    """When it wrote the first output of the turn, or 0."""
    finish_reason: FinishReason | None = None

    def begin(self, first_item: int) -> None:
        """Begin another turn."""
        self.first_item, self.turn_output_at, self.finish_reason = first_item, 0.0, None


@define(eq=False)
class Delivery(Generic[T]):
    """The events of a run that nobody has taken yet."""

    events: list[T] = field(factory=list[T])
    first_at: float | None = None
    """When the first events were taken, by the monotonic clock."""
    taken_at: float = inf
    """When the last events were taken, by the same clock."""
    _writing: asyncio.Lock = field(factory=asyncio.Lock)
    """Is locked while a keep-alive is written, so that later events wait for it."""

    def take(self) -> list[T]:
        """Return the events, and forget them."""
        if self.first_at is None:
            self.first_at = monotonic()
        events, self.events = self.events, []
        return events

    async def until_written(self) -> None:
        """Wait while a keep-alive is being written."""
        if self._writing.locked():
            async with self._writing:
                pass

    async def keep_alive(self, seconds: float, write: Callable[[], Awaitable[None]], is_waiting: Callable[[], bool]) -> None:
        """Call `write` whenever no events were taken for some seconds and the run is waiting for a step, until cancelled."""
        while True:
            remaining = min(seconds, self.taken_at + seconds - monotonic()) if is_waiting() else seconds
            if remaining > 0:
                await asyncio.sleep(remaining)
                continue
            async with self._writing:
                await write()
            metrics.count("interlock_keep_alives_total")
            self.taken_at = monotonic()


@define(eq=False)
class StepWait:
    """The wait for the next step of a run, which can be stopped without cancelling the task of the run."""

    task: asyncio.Task[object] | None = None
    """The task that iterates the events."""
    is_active: bool = False

    def stop(self) -> None:
        """End the wait, if there is one."""
        if self.is_active and self.task is not None:
            self.task.cancel()

    async def next_step(self, steps: RunSteps, goes_on: Callable[[], bool]) -> Sequence[Delta] | TurnTrigger | None:
        """Return the next step, or None if the run no longer `goes_on`, after which `stop` may have been called."""
        step: Sequence[Delta] | TurnTrigger = ()
        self.is_active = True
        try:
            step = await anext(steps)
        except asyncio.CancelledError:
            if goes_on():
                raise
        finally:
            self.is_active, may_go_on = False, goes_on()
            if not may_go_on and self.task is not None and self.task.uncancel():
                raise asyncio.CancelledError  # the task was also cancelled from outside
        return step if may_go_on else None


@define(eq=False)
class ResponseRun(Generic[T]):
    """Makes one response; `driver` turns its deltas into events."""

    request: ResponseRequest
    engine: Engine
    _resolve: Callable[[ResponseRun[T]], Awaitable[None]]
    """Resolves the request, prepares its generation and calls `use`; raises an error to refuse the request."""
    _active_runs: ActiveRuns
    _tool_runner: ToolRunner = field(factory=NullTools)
    _archive: Archive | None = None
    _waits: bool = True
    """Whether the response begins only after the engine has accepted its first turn."""
    context: RequestContext = field(init=False)
    generation: Generation = field(init=False)
    driver: ResponseDriver[T] = field(init=False)
    is_steered: Callable[[], bool] = field(default=lambda: False, init=False)
    """Returns whether the response should end at the next boundary of its output, because its client has sent further input."""
    is_part: bool = field(default=False, kw_only=True)
    """Whether it makes a part of another response, such as its compaction."""
    resources: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    """What the run closes at its end before the tools: the engine's generation and the conversation lease."""
    _turns: Machine[TurnTrigger, TurnEffect] = field(factory=lambda: Machine.at_start(TURNS), init=False)
    _steps: RunSteps | None = field(default=None, init=False)
    _ending: Fault | Cancel = field(default=ABANDONED, init=False)
    """The delta with which the effect `BREAK_OFF` ends the response: of an interruption or a fault."""
    _error: BaseException | None = field(default=None, init=False)
    """The error that `events` raises at its end: a refusal, or an error that asks the process to end."""
    _wait: StepWait = field(factory=StepWait, init=False)
    delivery: Delivery[T] = field(factory=Delivery[T], init=False)
    shortcut: Shortcut[list[T]] | None = field(default=None, init=False)
    """Takes the events of a step, instead of the one that iterates `events`, from when that one has had the first."""
    _tools: Tools = field(factory=NullTools, init=False)
    _tool_sessions: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    progress: TurnProgress = field(
        default=Factory(lambda self: TurnProgress(self.request.max_output_tokens), takes_self=True), init=False
    )

    def use(self, context: RequestContext, generation: Generation, driver: ResponseDriver[T]) -> None:
        """Set what the request was resolved to, such as its settings after updates in its conversation."""
        self.request, self.context, self.generation, self.driver = context.request, context, generation, driver

    @property
    def stored(self) -> StoredResponse:
        """The response as it is now, for a store. A call that does not show its result has it as `output`, for the model."""
        response = self.driver.response
        items = cast("Sequence[JsonItem]", response["output"])
        results = zip(items, self._tools.with_outputs(items), strict=True)
        kept = [with_output if ITEMS[str(item["type"])].result_text(item) is None else item for item, with_output in results]
        return StoredResponse({**response, "output": kept}, self.context.stored_items)

    async def events(self) -> AsyncGenerator[list[T], None]:
        """Run the response and yield the events of each step, to send in one write. Iterate once, in one task.

        The run has a slot of the server until the generator ends. The first events come once the request is accepted. Closing
        the generator (`aclose`), or cancelling its task, stops the engine and the tools; `conclude` then returns the last
        events. A `KeyboardInterrupt` or `SystemExit` is raised again after the response ends.

        Raises:
            Exception: The server or the engine refuses the request, and there are no events: `ApiError`, `StoreDown` or an error
                of a host engine.
        """
        trigger: TurnTrigger | None = TurnTrigger.BEGIN
        self._wait.task = asyncio.current_task()
        with self._active_runs.track(self.interrupt), observe_run(self):  # the effects `TAKE` and `FREE`
            try:
                while True:
                    if trigger is not None:
                        await self._fire(trigger)
                    if self.delivery.events:
                        await self.delivery.until_written()
                        yield self.delivery.take()
                        self.delivery.taken_at = monotonic()
                    if TurnTrigger.FAIL not in self._turns.state.rows:
                        return
                    trigger = await self._step()
            finally:
                try:
                    await self._close()
                finally:
                    self._fire_at_once(TurnTrigger.LEAVE)
                if self._error is not None:
                    raise self._take_error(self._error)

    def conclude(self) -> list[T]:
        """End a response whose `events` were not exhausted, and return the remaining events."""
        self._fire_at_once(TurnTrigger.LEAVE)
        return self.delivery.take()

    def kept_alive(self, seconds: float, write: Callable[[], Awaitable[None]]) -> AbstractAsyncContextManager[None]:
        """Call `write` within the context whenever the response has had no events for some seconds since the last; 0 for never.

        It is called only while the run waits for a step, and later events wait for it, so nothing else is written meanwhile. With
        a shortcut, whose events do not wait, it is called only while that is open, and so writes at once.
        """

        def is_waiting() -> bool:
            return self._wait.is_active and (self.shortcut is None or self.shortcut.is_open())

        return alongside(self.delivery.keep_alive(seconds, write, is_waiting)) if seconds else nullcontext()

    def break_silence(self) -> list[T]:
        """Return the `keepalive` event, for `write` of `kept_alive`."""
        return self.driver.feed([Silence()])

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End the run without waiting for the engine: with a terminal event, or an error if its response has not started.

        Only the first call counts. Call this in the run's event loop. Pass a `Cancel` if no client wants the response, or a
        `Fault` if the server ends it.
        """
        if self._goes_on:
            self._ending = ending
            self._fire_at_once(TurnTrigger.INTERRUPT)

    async def _admit(self) -> RunSteps:
        """Resolve the request, and wait until a host engine has accepted the first turn, unless the response begins before."""
        await self._resolve(self)
        lists_tools = any(tool.get("type") == "mcp" for tool in self.request.tools)
        if not self._waits or lists_tools:
            yield TurnTrigger.OPEN
        elif await self._needs_compaction():
            yield TurnTrigger.COMPACT
        else:
            await self.generation.admit(self._turn())
            yield TurnTrigger.PREPARE

    async def _open(self) -> RunSteps:
        yield [Enqueue(), Start()] if self.request.background else [Start()]
        yield TurnTrigger.COMPACT if await self._needs_compaction() else TurnTrigger.PREPARE

    async def _needs_compaction(self) -> bool:
        threshold = self.request.compact_threshold
        if self.context.seals is None or (threshold is None and not self.request.compacts_only):
            return False
        if threshold is None or self.request.compacts_only:
            return True
        turn = await fitting(self.generation, Turn(self.request, self.context.model_items, self.progress.remaining_tokens))
        return await self.generation.count(turn) > threshold

    async def _compact(self) -> RunSteps:
        """Replace the conversation with a summary."""
        seals = cast("Seals", self.context.seals)  # `_needs_compaction` requires them
        yield [Start()]
        yield [deltas.Open("compaction")]
        item = next(call for call in self.driver.ready if call.kind == "compaction")
        yield [deltas.Run(item.id)]
        context = self.context
        try:
            summary = await summarize(begin_summary(self.request, self.engine, lambda: _return(context)))
        except ApiError as error:
            raise CompactionError(f"{NOT_COMPACTED}{error.message}") from error
        yield [EndTurn("stop", summary.usage)]
        if summary.fault is not None:
            raise summary.fault
        model_items = (*compact(self.context.model_items), summary_message(summary.text))
        self.context = evolve(context, model_items=model_items)
        yield [deltas.Succeed(item.id, {"encrypted_content": seals.seal_summary(summary.text)})]
        yield TurnTrigger.ANSWER if self.request.compacts_only else TurnTrigger.PREPARE

    async def _prepare(self) -> RunSteps:
        """Begin the response, list the tools of MCP servers, and add the calls that the client has approved, which run next."""
        yield [Start()]
        tools = self._tool_runner.begin(self.request, self.context.items, self.context.tenant)
        self._tools = await self._tool_sessions.enter_async_context(tools)
        async with aclosing(self._tools.prepare(self.driver.items)) as preparation:
            async for step in preparation:
                yield step
        self.progress.calls = self.driver.ready
        yield TurnTrigger.CALL if self.progress.calls else TurnTrigger.GO_ON

    def _turn(self) -> Turn:
        output = self.driver.items()
        items = self._tools.with_outputs(item for item in output if item["type"] != "compaction") if output else ()
        return Turn(self.request, (*self.context.model_items, *items), self.progress.remaining_tokens, index=self.progress.count)

    async def _generate(self) -> RunSteps:
        """Generate one turn."""
        progress = self.progress
        progress.begin(self.driver.item_count)
        parser = self.generation.parser
        if self.shortcut is not None:
            self.generation.shorten(Shortcut(self.shortcut.is_open, partial(self._take, self.shortcut, parser)))
        turn = await fitting(self.generation, self._turn())
        async with observe_turn(turn.index), aclosing(await self.generation.start(turn)) as outputs:
            async for output in outputs:
                rewritten = self._read(parser, (output.chunk, *output.more))
                progress.finish_reason, progress.stop_sequence = output.finish_reason, output.stop_sequence
                if output.input_tokens or output.cached_tokens or output.output_tokens:
                    progress.usage = _update_usage(progress.usage, output)
                while len(rewritten) > SLICE:
                    yield rewritten[:SLICE]
                    rewritten = rewritten[SLICE:]
                    await asyncio.sleep(0)
                if self.is_steered():
                    for step in self._until_boundary(rewritten):
                        yield step
                elif rewritten:
                    yield rewritten
        if progress.finish_reason is None:
            raise EngineError("The engine stopped without a finish reason.")
        progress.first_output_at = progress.first_output_at or progress.turn_output_at
        end = self._end_turn(progress.finish_reason)
        tokens = sum(delta.usage.output_tokens for delta in end if isinstance(delta, EndTurn) and delta.usage)
        report_turn(self, progress.turn_output_at, tokens)
        progress.count += 1
        if progress.remaining_tokens is not None:
            progress.remaining_tokens -= tokens
        yield self._tools.rewrite(end)
        progress.calls = self.driver.ready
        items = self.driver.items(progress.first_item)
        rejected = self.driver.rejected
        progress.rejected = [item for item in items if item.get("status") == "failed" and item["id"] in rejected]
        goes_on = bool(items) and items[-1].get("async") is True and progress.count < MAX_TURNS
        yield TurnTrigger.CALL if progress.calls or progress.rejected or goes_on else TurnTrigger.ANSWER

    def _read(self, parser: Parser, chunks: Sequence[Chunk]) -> list[Delta]:
        """Return the deltas of chunks."""
        progress = self.progress
        changes: list[Delta] = []
        for chunk in chunks:
            changes += parser.feed(chunk)
        if not progress.turn_output_at:
            progress.turn_output_at = monotonic()
        return self._tools.rewrite(changes)

    def _take(self, shortcut: Shortcut[list[T]], parser: Parser, chunks: Sequence[Chunk]) -> bool:
        """Deliver the events of chunks over a shortcut. If that fails, the task of the run delivers them."""
        delivery = self.delivery
        delivery.events += self.driver.feed(self._read(parser, chunks))
        if delivery.events:
            shortcut.take(delivery.events)
            delivery.events, delivery.taken_at = [], monotonic()
        return True

    def _until_boundary(self, changes: Sequence[Delta]) -> Iterator[Sequence[Delta] | TurnTrigger]:
        """Yield each delta, and `STEER` before the first one at which no item is open and no call waits for the client."""
        for delta in changes:
            if self.driver.all_items_ended and not self._waits_for_client:
                yield TurnTrigger.STEER
            yield [delta]

    def _end_turn(self, reason: FinishReason) -> list[Delta]:
        """End the parser's turn; its usage is that of the engine, or what stands for none if nobody counted a token."""
        end, self.progress.usage = self.generation.parser.end(reason, self.progress.usage), Usage()
        no_usage = self.generation.no_usage
        return [evolve(each, usage=no_usage) if isinstance(each, EndTurn) and each.usage == Usage() else each for each in end]

    async def _run_tools(self) -> RunSteps:
        """Run the tools of the pending calls."""
        progress = self.progress
        calls, rejected = progress.calls, progress.rejected
        async with aclosing(self._tools.run(calls, rejected)) as results:
            async for delta in results:
                yield [delta]
        none_ran = bool(calls) and self.driver.ready == calls and not rejected
        if none_ran or self._waits_for_client:
            yield TurnTrigger.ANSWER
        elif self.is_steered():
            yield TurnTrigger.STEER
        elif progress.remaining_tokens is None or progress.remaining_tokens > 0:
            yield TurnTrigger.GO_ON
        else:
            yield TurnTrigger.EXHAUST

    @property
    def _waits_for_client(self) -> bool:
        """Whether a call waits for the client. Its turn is the last one, so earlier turns have none."""
        return any(map(waits_for_client, self.driver.items(self.progress.first_item)))

    async def _settle(self) -> None:
        """Log the response, and store it unless it was cancelled or a `BackgroundResponse` stores it."""
        try:
            self.generation.log(self.driver.response)
        finally:
            if self._archive is not None and not self.request.background and self.driver.status != "cancelled":
                await self._store(self._archive)

    async def _store(self, archive: Archive) -> None:
        """Store the response; if that fails, replace its last event with one that has `store: false`."""
        stored = self.stored
        try:
            await commit_end(self.context.lease, stored, partial(archive.put, self.context.tenant, stored))
        except BaseException as error:
            if not is_fault(error):
                raise
            self.delivery.events[-1] = self.driver.mark_unstored()
            if not isinstance(error, StoreError):
                raise
            logger.warning("%s: could not be stored: %s", stored.id, error)

    async def _fire(self, trigger: TurnTrigger) -> None:
        for effect in self._turns.fire(trigger):
            if effect is TurnEffect.STORE:
                try:
                    await self._settle()
                except BaseException as error:  # noqa: BLE001 - `_record` reraises what stops the task
                    self._record(error, "the response could not be stored or logged")
                await self._fire(TurnTrigger.SETTLE)
            else:
                self._apply(effect)

    def _fire_at_once(self, trigger: TurnTrigger) -> None:
        """Fire a trigger whose effects wait for nothing, if the state has an edge for it."""
        if trigger in self._turns.state.rows:
            for effect in self._turns.fire(trigger):
                self._apply(effect)

    def _apply(self, effect: TurnEffect) -> None:  # noqa: C901, PLR0912 - one case for each effect, in one place
        match effect:
            case TurnEffect.ADMIT:
                self._steps = self._admit()
            case TurnEffect.REFUSE:
                self._error = self._error or NotBegunError.of(self._ending)
            case TurnEffect.OPEN:
                self._steps = self._open()
            case TurnEffect.COMPACT:
                self._steps = self._compact()
            case TurnEffect.PREPARE:
                self._steps = self._prepare()
            case TurnEffect.GENERATE:
                self._steps = self._generate()
            case TurnEffect.RUN:
                self._steps = self._run_tools()
            case TurnEffect.FINISH:
                self._steps = _end_with(Finish())
            case TurnEffect.CUT:
                self._steps = _end_with(EndTurn("length"))
            case TurnEffect.YIELD:
                *_, end = self._abort(EndTurn("steered"))
                self._steps = _end_with(end)
            case TurnEffect.BREAK_OFF:
                self._break_off(self._ending)
            case TurnEffect.STOP:
                self._wait.stop()
            case TurnEffect.TAKE | TurnEffect.FREE | TurnEffect.STORE:
                pass  # see `events` and `_fire`
            case _:
                assert_never(effect)

    @property
    def _goes_on(self) -> bool:
        """Whether the run was not interrupted."""
        return TurnTrigger.INTERRUPT in self._turns.state.rows

    async def _step(self) -> TurnTrigger | None:
        """Take one step; return the trigger to fire next, or None if the same work continues."""
        steps = self._steps
        try:
            if self._goes_on:
                assert steps is not None  # noqa: S101 - the edge into this state set them
                step = await self._wait.next_step(steps, lambda: self._goes_on)
                if isinstance(step, TurnTrigger):
                    await steps.aclose()
                    return step
                if step is not None:
                    self.delivery.events += self.driver.feed(step)
                    return TurnTrigger.END if self.driver.ended else None
        except BaseException as error:  # noqa: BLE001 - what stops the task is raised again
            self._note(error)
        return TurnTrigger.FAIL

    def _note(self, error: BaseException) -> None:
        """Note the error of a step, for the effect `REFUSE` or `BREAK_OFF`; an interruption comes before it."""
        _, effects = self._turns.state.rows[TurnTrigger.FAIL]
        if TurnEffect.REFUSE not in effects:
            fault = self._fault(error)
            self._ending = fault if self._goes_on else self._ending
        elif not is_fault(error) and not ends_process(error):
            raise error
        elif self._goes_on or ends_process(error):
            self._error = error

    def _break_off(self, ending: Fault | Cancel) -> None:
        """Abort the turn and end the response; if the abort fails, feed only the ending."""
        attempts: Sequence[Callable[[], Sequence[Delta]]] = (lambda: self._abort(ending), lambda: [ending])
        for attempt in attempts:
            try:
                self.delivery.events += self.driver.feed(attempt())
            except BaseException as error:  # noqa: BLE001 - `_record` reraises what stops the task
                self._record(error, "text of the aborted turn is lost")
            if self.driver.ended:
                return
        self.delivery.events += self.driver.feed([ending])

    def _abort(self, ending: Fault | Cancel | EndTurn) -> Sequence[Delta]:
        *pending, end = self._end_turn("abort")
        return [*pending, evolve(ending, usage=end.usage) if isinstance(end, EndTurn) else ending]

    def _fault(self, error: BaseException) -> Fault:
        failure = engine_error(error) if isinstance(error, ApiError) else error
        if not isinstance(failure, PromptError):  # the client caused it, so do not log it
            self._record(error, "the response failed")
        return Fault(failure.code, str(failure)) if isinstance(failure, EngineError) else Fault("server_error", INTERNAL_ERROR)

    def _record(self, error: BaseException, consequence: str) -> None:
        """Log an error. Keep one that asks the process to end, and reraise one that stops the current task."""
        if ends_process(error):
            self._error = error
        elif not is_fault(error):
            raise error
        driver: ResponseDriver[T] | None = getattr(self, "driver", None)
        name = "a request without a response" if driver is None else driver.id
        logger.error("%s: %s", name, consequence, exc_info=error)

    def _take_error(self, error: BaseException) -> BaseException:
        """Return the error to raise, and drop it, because its traceback refers to the run."""
        self._error = None
        return error

    async def _close(self) -> None:
        """Stop the engine and the tools, and release the conversation."""
        try:
            if self._steps is not None:
                await self._try_to_close(self._steps.aclose)
        finally:
            for close in (self.resources.aclose, self._tool_sessions.aclose):
                await self._try_to_close(close)

    async def _try_to_close(self, close: Callable[[], Awaitable[None]]) -> None:
        try:
            await close()
        except BaseException as error:  # noqa: BLE001 - `_record` reraises what stops the task
            self._record(error, "the engine or a tool could not be closed")


async def _return(value: T) -> T:
    return value


async def _end_with(delta: Delta) -> RunSteps:
    yield [delta]


def new_driver(
    context: RequestContext,
    generation: Generation,
    settings: Mapping[str, object],
    writer: Writer[T],
    *,
    ids: Ids = random_id,
    clock: Clock = now,
) -> ResponseDriver[T]:
    """Return the driver of a response, which echoes the request and the `settings` that its engine has resolved."""
    request, seals = context.request, context.seals
    transformations = {"input_transformations": to_builtins(context.removed)} if context.removed else {}
    return ResponseDriver(
        {**request.settings, **settings, **transformations},
        writer=writer,
        ids=ids,
        clock=clock,
        response_id=generation.response_id or (None if context.lease is None else context.lease.response_id),
        late=seals.late_fields if seals is not None and request.wants_encrypted_reasoning else None,
        additions=generation.additions,
    )


def begin_summary(
    request: ResponseRequest,
    engine: Engine,
    find_context: Callable[[], Awaitable[RequestContext]],
    active_runs: ActiveRuns | None = None,
) -> ResponseRun[None]:
    """Return the run in which the model summarizes the conversation of a request; without `active_runs`, a part of another run.

    Raises:
        ApiError: The engine refuses the parameters.
    """
    summary = engine.read(request.summary())

    async def resolve(run: ResponseRun[None]) -> None:
        context = await find_context()
        model_items = (*context.model_items, *summary.input)
        generation = await engine.begin(summary, model_items, context.tenant, context.connection)
        run.resources.push_async_callback(generation.close)
        settings = await generation.prepare(Turn(summary, model_items))
        summarized = RequestContext(summary, context.items, model_items=model_items)
        run.use(summarized, generation, new_driver(summarized, generation, settings, NullWriter()))

    if active_runs is None:
        return ResponseRun(summary, engine, resolve, ActiveRuns(), NullTools(), None, False, is_part=True)  # noqa: FBT003 - it does not wait
    return ResponseRun(summary, engine, resolve, active_runs)


@frozen
class CompactionSummary:
    """The summary of a conversation, its usage, and why it failed if it did."""

    text: str
    usage: Usage | None
    fault: EngineError | None = None


async def summarize(run: ResponseRun[None]) -> CompactionSummary:
    """Execute a run from `begin_summary`, and return the summary; a truncated, failed or empty summary has a fault.

    Raises:
        ApiError: The engine refuses the request.
    """
    async with aclosing(run.events()) as events:
        async for _ in events:
            pass
    response, usage = run.driver.response, run.driver.usage
    output = cast("Sequence[JsonItem]", response["output"])
    parts = [members(part) for item in output if item["type"] == "message" for part in elements(item["content"])]
    text = "".join(str(part["text"]) for part in parts if part["type"] == "output_text").strip()
    error = members(response["error"])
    match response["status"]:
        case "completed" if text:
            return CompactionSummary(text, usage)
        case "completed":
            fault: EngineError = CompactionError(f"{NOT_COMPACTED}the model wrote no summary.")
        case "failed" if error.get("code") == PromptError.code:
            fault = PromptError(str(error.get("message")))
        case "failed":
            fault = CompactionError(f"{NOT_COMPACTED}{error.get('message')}")
        case status:
            fault = CompactionError(f"{NOT_COMPACTED}the model did not finish the summary (status '{status}').")
    return CompactionSummary("", usage, fault)


def _update_usage(usage: Usage, output: EngineOutput) -> Usage:
    """Return the usage of a turn after an output, in which 0 means unchanged."""
    return Usage(
        input_tokens=output.input_tokens or usage.input_tokens,
        cached_tokens=output.cached_tokens or usage.cached_tokens,
        cache_write_tokens=output.cache_write_tokens or usage.cache_write_tokens,
        output_tokens=output.output_tokens or usage.output_tokens,
        reasoning_tokens=output.reasoning_tokens or usage.reasoning_tokens,
    )
