"""Runs a response step by step: the engine generates turns, a parser reads them, and tools run between them.

The table `TURNS` defines the steps, and how an interrupted run ends. One task iterates a run from its first step to its last. If
a step raises, the response fails, and its stream still ends with a terminal event. The same run makes a stream or a JSON
response, so both have the same content. `interlock.serving.responses.service` admits runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, nullcontext
from functools import cached_property, partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypeVar, assert_never, cast

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
from interlock.fsm.driver import Clock, Ids, ReadyCall, ResponseDriver
from interlock.fsm.lifecycle import FinalFields
from interlock.fsm.table import Machine
from interlock.parsers import Chunk, Parser
from interlock.parsers.chunk import ChunkError, ListReader
from interlock.serving import metrics, traces
from interlock.serving.engines.engine import (
    Engine,
    EngineOutput,
    Generation,
    Turn,
    explain_fields,
    explain_output,
    fit_logprobs,
    fitting,
)
from interlock.serving.engines.prompt import estimate_prompt
from interlock.serving.engines.shortcut import ClientSocket, Shortcut
from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError, engine_error
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import (
    JsonItem,
    add_ids,
    answer_async_calls,
    compact,
    summary_message,
    waits_for_client,
)
from interlock.serving.requests.runtime import alongside, ends_process, is_fault
from interlock.serving.responses.active_runs import ABANDONED
from interlock.serving.responses.archive import Archive, ConversationLease, commit_end
from interlock.serving.responses.sealing import Seals
from interlock.serving.responses.turns_table import TURNS, TurnEffect, TurnTrigger
from interlock.serving.store.values import SHARED, StoredResponse, StoreError
from interlock.serving.tools.hosting import NullTools, Tools

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

T = TypeVar("T")

logger = logging.getLogger(__name__)

RunSteps: TypeAlias = AsyncGenerator[Sequence[Delta] | TurnTrigger, None]
"""The work of a run in one state of the loop.

It yields the deltas of each step, whose events are delivered before the next step, and finally the trigger to fire, unless its
deltas have ended the response.
"""

NOT_COMPACTED: Final = "The conversation could not be compacted: "

GENERATION_ERROR: Final = "The server had an error while it generated the response."
"""Replaces the message of an error that may contain private details."""

READING_ERRORS: Final = (AttributeError, TypeError, ValueError)
"""The errors that an output may cause which is not what its type says.

Outputs are not checked before, which takes too long: parsers and deltas refuse what they cannot read, and a turn its last output.
"""

MAX_TURNS: Final = 128
"""The turns after which a response ends although its last call is async, so that a model cannot call forever."""

DELTAS_AT_ONCE: Final = 512
"""The most deltas that are turned into events in one go, before other streams have their turn."""


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
    summarizes: bool = False
    """Whether the text of the reasoning is sent as its summary."""

    @cached_property
    def stored_items(self) -> tuple[JsonItem, ...]:
        """The conversation as a store needs it: each item has an id."""
        return add_ids(self.items)


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
        final_fields=None if seals is None else _final_fields(seals, request, generation),
        additions=generation.additions,
        summarizes=context.summarizes,
    )


def _final_fields(seals: Seals, request: ResponseRequest, generation: Generation) -> FinalFields | None:
    """Return what seals reasoning: all of it on request, and always what its engine wants back."""
    if request.wants_encrypted_reasoning:
        return seals.late_fields
    return seals.kept_fields if generation.encrypts else None


class CompactionError(EngineError):
    """The model did not complete a summary. The response fails instead of losing part of the conversation."""


async def needs_compaction(context: RequestContext, generation: Generation, turn: Turn) -> bool:
    """Return whether the conversation of a turn is compacted before the model answers."""
    if context.seals is None:
        return False
    if context.request.compacts_only:
        return True
    threshold = context.request.compact_threshold
    return threshold is not None and await generation.count(await fitting(generation, turn)) > threshold


def summary_context(context: RequestContext, engine: Engine) -> RequestContext:
    """Return the request for a summary of a conversation; raise `ApiError` if the engine refuses its parameters."""
    request = engine.read(context.request.summary())
    model_items = (*context.model_items, *request.input)
    return RequestContext(request, context.items, context.tenant, model_items, connection=context.connection)


def summary_of(driver: ResponseDriver[Any]) -> str:
    """Return the summary that an ended response has written; raise `EngineError` if it is truncated, failed or empty."""
    response = driver.response
    output = cast("Sequence[JsonItem]", response["output"])
    parts = [members(part) for item in output if item["type"] == "message" for part in elements(item["content"])]
    text = "".join(str(part["text"]) for part in parts if part["type"] == "output_text").strip()
    error = members(response["error"])
    match response["status"]:
        case "completed" if text:
            return text
        case "completed":
            raise CompactionError(f"{NOT_COMPACTED}the model wrote no summary.")
        case "failed" if error.get("code") == PromptError.code:
            raise PromptError(str(error.get("message")))
        case "failed":
            raise EngineError(f"{NOT_COMPACTED}{error.get('message')}")
        case status:
            raise CompactionError(f"{NOT_COMPACTED}the model did not finish the summary (status '{status}').")


@define(eq=False)
class Delivery(Generic[T]):
    """The events of a run that are not sent yet."""

    events: list[T] = field(factory=list[T])
    first_at: float | None = None
    """When the first events were taken, by the monotonic clock."""
    taken_at: float = inf
    """When the last events were written, by the same clock."""
    writing: asyncio.Lock = field(factory=asyncio.Lock)
    """Is locked while a keep-alive is written, so that later events wait for it."""

    def take(self) -> list[T]:
        """Return the events, and forget them."""
        if self.first_at is None:
            self.first_at = monotonic()
        events, self.events = self.events, []
        return events

    async def keep_alive(self, seconds: float, write: Callable[[], Awaitable[None]], is_waiting: Callable[[], bool]) -> None:
        """Call `write` whenever no events were taken for some seconds and the run is waiting for a step, until cancelled."""
        while True:
            remaining = min(seconds, self.taken_at + seconds - monotonic()) if is_waiting() else seconds
            if remaining > 0:
                await asyncio.sleep(remaining)
                continue
            async with self.writing:
                await write()
            metrics.count("interlock_keep_alives_total")
            self.taken_at = monotonic()


@define(eq=False)
class RunControl:
    """Where a run stands in `TURNS`, from before its admission to its end, and what it is doing there.

    `interrupt` may be called at any time in the event loop of the run; `wait` then stops waiting.
    """

    turns: Machine[TurnTrigger, TurnEffect] = field(factory=partial(Machine.at_start, TURNS), init=False)
    steps: RunSteps | None = field(default=None, init=False)
    """The work of the state."""
    ending: Fault | Cancel = field(default=ABANDONED, init=False)
    """The delta with which the effect `BREAK_OFF` ends the response: of an interruption or a fault."""
    exit: BaseException | None = field(default=None, init=False)
    """The error that asks the process to end. It is raised when the response has ended."""
    free: Callable[[], object] = field(default=lambda: None, init=False)
    """Gives back the slot of the run, if it has one."""
    is_waiting: bool = field(default=False, init=False)
    _task: asyncio.Task[object] | None = field(default=None, init=False)
    """The task that waits."""

    @property
    def goes_on(self) -> bool:
        """Whether the run was not interrupted, and has not ended."""
        return TurnTrigger.INTERRUPT in self.turns.state.rows

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End the run without waiting for the engine: with a terminal event, or an error if its response has not started.

        Only the first call counts. Pass a `Cancel` if no client wants the response, or a `Fault` if the server ends it.
        """
        if self.goes_on:
            self.ending = ending
            if TurnEffect.STOP in self.turns.fire(TurnTrigger.INTERRUPT) and self.is_waiting and self._task is not None:
                self._task.cancel()

    async def wait(self, work: Awaitable[T]) -> T | None:
        """Return the result of some work, or None if the run is interrupted meanwhile. The task itself is not cancelled then."""
        result: T | None = None
        self._task, self.is_waiting = asyncio.current_task(), True
        try:
            result = await work
        except asyncio.CancelledError:
            if self.goes_on:
                raise
        finally:
            self.is_waiting, may_go_on = False, self.goes_on
            if not may_go_on and self._task is not None and self._task.uncancel():
                raise asyncio.CancelledError  # the task was also cancelled from outside
        return result if may_go_on else None

    def record(self, error: BaseException, name: str, consequence: str) -> None:
        """Log an error. Keep one that asks the process to end, and reraise one that stops the current task."""
        if ends_process(error):
            self.exit = error
        elif not is_fault(error):
            raise error
        logger.error("%s: %s", name, consequence, exc_info=error)

    def take_exit(self) -> BaseException | None:
        """Return the error that asks the process to end, if any, and drop it, because its traceback refers to the run."""
        error, self.exit = self.exit, None
        return error

    async def close(self, close: Callable[[], Awaitable[object]], name: str) -> None:
        """Close something, and record an error."""
        try:
            await close()
        except BaseException as error:  # noqa: BLE001 - `record` reraises what stops the task
            self.record(error, name, "the engine or a tool could not be closed")


@define(eq=False)
class TurnProgress:
    """The progress of a run through its turns; before the first turn, zeros."""

    history: Sequence[JsonItem]
    """The conversation before the response, as the model reads it now: perhaps compacted."""
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
    token_seconds: list[float] = field(factory=list[float])
    """The mean time of an output token after the first, of each turn with several."""
    turn_output_at: float = 0.0
    """When it wrote the first output of the turn, or 0."""
    finish_reason: FinishReason | None = None
    output: EngineOutput = field(factory=lambda: EngineOutput(Chunk()))
    """The last output of the engine."""

    def begin(self, first_item: int) -> None:
        """Begin another turn."""
        self.first_item, self.turn_output_at, self.finish_reason = first_item, 0.0, None

    def end(self, tokens: int) -> None:
        """Count a turn that has ended, and its output tokens."""
        self.first_output_at = self.first_output_at or self.turn_output_at
        if tokens > 1:
            self.token_seconds.append((monotonic() - self.turn_output_at) / (tokens - 1))
        self.count += 1
        if self.remaining_tokens is not None:
            self.remaining_tokens -= tokens


@frozen(eq=False)
class ResponseRun(Generic[T]):
    """Makes one response, whose engine has begun it; `driver` turns its deltas into events.

    Iterate it once, in one task: it yields the events of each step, to send in one write. Then close it with `aclose`, which
    stops the engine and the tools, as the cancellation of the task does; `conclude` then returns the last events.
    """

    context: RequestContext
    engine: Engine
    generation: Generation
    driver: ResponseDriver[T]
    control: RunControl
    resources: AsyncExitStack
    """What the run closes at its end: the engine's generation, the tools and the conversation lease."""
    tools: Tools = field(factory=NullTools)
    archive: Archive | None = None
    is_steered: Callable[[], bool] = field(default=lambda: False)
    """Returns whether the response should end at the next boundary of its output, because its client has sent further input."""
    client: ClientSocket[T] | None = None
    """Takes the events of a shortcut, instead of the one that iterates, while it is open."""
    delivery: Delivery[T] = field(factory=Delivery, init=False)  # pyright: ignore[reportAssignmentType] - `Delivery[T]()` is slow
    progress: TurnProgress = field(
        default=Factory(
            lambda self: TurnProgress(self.context.model_items, self.context.request.max_output_tokens), takes_self=True
        ),
        init=False,
    )

    @property
    def stored(self) -> StoredResponse:
        """The response as it is now, for a store. A call that does not show its result has it as `output`, for the model."""
        response = self.driver.response
        items = cast("Sequence[JsonItem]", response["output"])
        results = zip(items, self.tools.with_outputs(items), strict=True)
        kept = [with_output if ITEMS[str(item["type"])].result_text(item) is None else item for item, with_output in results]
        return StoredResponse({**response, "output": kept}, self.context.stored_items)

    async def aclose(self) -> None:
        """Close what the run has opened, and end a response that has not ended.

        Raises:
            BaseException: A `KeyboardInterrupt` or `SystemExit` that came before the response ended.
        """
        control = self.control
        try:
            if control.steps is not None:
                await control.close(control.steps.aclose, self.driver.id)
            await control.close(self.resources.aclose, self.driver.id)
        finally:
            self._fire_at_once(TurnTrigger.LEAVE)
        if (exiting := control.take_exit()) is not None:
            raise exiting

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[T]:
        """Return the next events."""
        delivery, turns = self.delivery, self.control.turns
        if delivery.first_at is not None:
            delivery.taken_at = monotonic()  # the iterator has written them
        while not delivery.events:
            if TurnTrigger.FAIL not in turns.state.rows:
                raise StopAsyncIteration
            trigger = await self._step()
            if trigger is not None:
                await self.fire(trigger)
        if delivery.writing.locked():
            async with delivery.writing:
                pass
        return delivery.take()

    async def _step(self) -> TurnTrigger | None:
        """Take one step; return the trigger to fire next, or None if the same work continues."""
        control = self.control
        steps = control.steps
        try:
            if control.goes_on:
                assert steps is not None  # noqa: S101 - the edge into this state set them
                step = await control.wait(anext(steps))
                if isinstance(step, TurnTrigger):
                    await steps.aclose()
                    return step
                if step is not None:
                    self.delivery.events += self.driver.feed(step)
                    return TurnTrigger.END if self.driver.ended else None
        except BaseException as error:  # noqa: BLE001 - `_fault` reraises what stops the task
            fault = self._fault(error)
            if control.goes_on:  # an interruption came before the fault
                control.ending = fault
        return TurnTrigger.FAIL

    async def fire(self, trigger: TurnTrigger) -> None:
        """Fire an edge of `TURNS`, and carry out its effects."""
        for effect in self.control.turns.fire(trigger):
            if effect is TurnEffect.STORE:
                try:
                    await self._settle()
                except BaseException as error:  # noqa: BLE001 - `record` reraises what stops the task
                    self.control.record(error, self.driver.id, "the response could not be stored or logged")
                await self.fire(TurnTrigger.SETTLE)
            else:
                self._apply(effect)

    def _fire_at_once(self, trigger: TurnTrigger) -> None:
        """Fire a trigger whose effects wait for nothing, if the state has an edge for it."""
        turns = self.control.turns
        if trigger in turns.state.rows:
            for effect in turns.fire(trigger):
                self._apply(effect)

    def _apply(self, effect: TurnEffect) -> None:  # noqa: C901 - one case for each effect, in one place
        control = self.control
        match effect:
            case TurnEffect.OPEN:
                control.steps = self._open()
            case TurnEffect.COMPACT:
                control.steps = self._compact()
            case TurnEffect.PREPARE:
                control.steps = self._prepare()
            case TurnEffect.GENERATE:
                control.steps = self._generate()
            case TurnEffect.RUN:
                control.steps = self._run_tools()
            case TurnEffect.FINISH:
                control.steps = _end_with(Finish())
            case TurnEffect.CUT:
                control.steps = _end_with(EndTurn("length"))
            case TurnEffect.YIELD:
                *_, end = self._abort(EndTurn("steered"))
                control.steps = _end_with(end)
            case TurnEffect.BREAK_OFF:
                self._break_off(control.ending)
            case TurnEffect.FREE:
                control.free()
            case TurnEffect.TAKE | TurnEffect.ADMIT | TurnEffect.REFUSE | TurnEffect.STOP | TurnEffect.STORE:
                pass  # see `PendingRun`, `RunControl` and `fire`
            case _:
                assert_never(effect)

    async def _open(self) -> RunSteps:
        yield [Enqueue(), Start()] if self.context.request.background else [Start()]
        compacts = await needs_compaction(self.context, self.generation, self.next_turn())
        yield TurnTrigger.COMPACT if compacts else TurnTrigger.PREPARE

    async def _compact(self) -> RunSteps:
        seals = cast("Seals", self.context.seals)  # `needs_compaction` requires them
        yield [Start()]
        yield [deltas.Open("compaction")]
        item = next(call for call in self.driver.ready if call.kind == "compaction")
        yield [deltas.Run(item.id)]
        try:
            summarizing = await self._summarize()
        except ApiError as error:
            raise EngineError(f"{NOT_COMPACTED}{error.message}") from error
        yield [EndTurn("stop", summarizing.usage)]
        summary = summary_of(summarizing)
        self.progress.history = (*compact(self.context.model_items), summary_message(summary))
        yield [deltas.Succeed(item.id, {"encrypted_content": seals.seal_summary(summary)})]
        yield TurnTrigger.ANSWER if self.context.request.compacts_only else TurnTrigger.PREPARE

    async def _summarize(self) -> ResponseDriver[Any]:
        """Return the ended response of a run within this one, in which the model writes a summary of the conversation."""
        context, control = summary_context(self.context, self.engine), RunControl()
        async with AsyncExitStack() as resources:
            generation = await self.engine.begin(context.request, context.model_items, context.tenant, context.connection)
            resources.push_async_callback(generation.close)
            settings = await generation.prepare(Turn(context.request, context.model_items))
            driver = new_driver(context, generation, settings, NullWriter())
            control.turns.fire(TurnTrigger.BEGIN)
            async with aclosing(ResponseRun(context, self.engine, generation, driver, control, resources)) as run:
                await run.fire(TurnTrigger.OPEN)
                async for _ in run:
                    pass
        return driver

    async def _prepare(self) -> RunSteps:
        """Begin the response, list the tools of MCP servers, and add the calls that the client has approved, which run next."""
        yield [Start()]
        async with aclosing(self.tools.prepare(self.driver.items)) as preparation:
            async for step in preparation:
                yield step
        self.progress.calls = self.driver.ready
        yield TurnTrigger.CALL if self.progress.calls else TurnTrigger.GO_ON

    def next_turn(self) -> Turn:
        """Return the next turn, which may not fit the engine."""
        progress, output = self.progress, self.driver.items()
        items = self.tools.with_outputs(item for item in output if item["type"] != "compaction") if output else ()
        conversation = answer_async_calls((*progress.history, *items))
        return Turn(self.context.request, conversation, progress.remaining_tokens, index=progress.count)

    async def count_prompt(self, turn: Turn | None = None) -> int:
        """Return the number of tokens in the prompt of a turn (the next one), or an estimate, without asking another server."""
        turn = turn or self.next_turn()
        try:
            return await self.generation.count_locally(turn)
        except Exception as error:
            if not is_fault(error):
                raise
            if not isinstance(error, ApiError | EngineError):  # what is wrong with the turn, its generation says
                logger.exception("%s: its prompt could not be counted", self.driver.id)
            return estimate_prompt(turn)

    async def _counted_usage(self, turn: Turn) -> Usage:
        """Return the usage of a turn that has ended, with the engine's own count of a prompt that no output counts."""
        usage = self.progress.usage
        if usage.input_tokens or self.generation.no_usage is None:
            return usage
        return evolve(usage, input_tokens=await self.count_prompt(turn))

    async def _generate(self) -> RunSteps:
        progress, generation = self.progress, self.generation
        progress.begin(self.driver.item_count)
        read = partial(self._read, generation.parser)
        if self.client is not None:
            generation.shorten(Shortcut(self.client, self.driver, read, self.delivery))
        turn = self.next_turn()
        if isinstance(generation.parser, ListReader):
            generation.parser.read_lists(turn.items)
        turn = await fitting(generation, turn)
        reason: FinishReason | None = None
        with traces.record("turn", "INTERNAL", {"interlock.turn.index": turn.index}):
            async with aclosing(await generation.start(turn)) as outputs:
                async for output in outputs:
                    progress.output = output
                    rewritten = read((output.chunk, *output.more))
                    reason = output.finish_reason or reason
                    progress.finish_reason, progress.stop_sequence = output.finish_reason, output.stop_sequence
                    if output.finish_reason or output.input_tokens or output.cached_tokens or output.output_tokens:
                        progress.usage = _update_usage(progress.usage, output)
                    while len(rewritten) > DELTAS_AT_ONCE:
                        yield rewritten[:DELTAS_AT_ONCE]
                        rewritten = rewritten[DELTAS_AT_ONCE:]
                        await asyncio.sleep(0)
                    if self.is_steered():
                        for step in self._until_boundary(rewritten):
                            yield step
                    elif rewritten:
                        yield rewritten
        finish_reason = self._read_end(reason)
        progress.usage = await self._counted_usage(turn)
        end = self._end_turn(finish_reason)
        progress.end(sum(delta.usage.output_tokens for delta in end if isinstance(delta, EndTurn) and delta.usage))
        yield self.tools.rewrite(end)
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
            changes += parser.feed(chunk if chunk.logprobs is None else fit_logprobs(chunk, self.context.request))
        if not progress.turn_output_at:
            progress.turn_output_at = monotonic()
        return self.tools.rewrite(changes)

    def _read_end(self, reason: FinishReason | None) -> FinishReason:
        """Return the reason in the last output of a turn; `reason` is the last one that any output of the turn has."""
        progress = self.progress
        if explain_fields(progress.output) is not None:
            raise TypeError(progress.output)
        if progress.finish_reason is None:
            without = f"yielded an output after its finish reason '{reason}'" if reason else "stopped without a finish reason"
            raise EngineError(f"The engine {without}.")
        return progress.finish_reason

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
        progress = self.progress
        calls, rejected = progress.calls, progress.rejected
        async with aclosing(self.tools.run(calls, rejected)) as results:
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
            if self.archive is not None and not self.context.request.background and self.driver.status != "cancelled":
                await self._store(self.archive)

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

    def conclude(self) -> list[T]:
        """End a response whose events were not exhausted, and return the remaining events."""
        self._fire_at_once(TurnTrigger.LEAVE)
        return self.delivery.take()

    def kept_alive(self, seconds: float, write: Callable[[], Awaitable[None]]) -> AbstractAsyncContextManager[None]:
        """Call `write` within the context whenever the response has had no events for some seconds since the last; 0 for never.

        It is called only while the run waits for a step, and later events wait for it, so nothing else is written meanwhile. With
        a `client`, whose events do not wait, it is called only while that is open, and so writes at once.
        """

        def is_waiting() -> bool:
            return self.control.is_waiting and (self.client is None or self.client.is_open())

        return alongside(self.delivery.keep_alive(seconds, write, is_waiting)) if seconds else nullcontext()

    def break_silence(self) -> list[T]:
        """Return the `keepalive` event, for `write` of `kept_alive`."""
        return self.driver.feed([Silence()])

    def _break_off(self, ending: Fault | Cancel) -> None:
        """Abort the turn and end the response; if the abort fails, feed only the ending."""
        attempts: Sequence[Callable[[], Sequence[Delta]]] = (lambda: self._abort(ending), lambda: [ending])
        for attempt in attempts:
            try:
                self.delivery.events += self.driver.feed(attempt())
            except BaseException as error:  # noqa: BLE001 - `record` reraises what stops the task
                self.control.record(error, self.driver.id, "text of the aborted turn is lost")
            if self.driver.ended:
                return
        self.delivery.events += self.driver.feed([ending])

    def _abort(self, ending: Fault | Cancel | EndTurn) -> Sequence[Delta]:
        *pending, end = self._end_turn("abort")
        return [*pending, evolve(ending, usage=end.usage) if isinstance(end, EndTurn) else ending]

    def _fault(self, error: BaseException) -> Fault:
        failure = engine_error(error) if isinstance(error, ApiError) else error
        if isinstance(failure, PromptError):
            pass  # the client caused it, so do not log it
        elif isinstance(error, ApiError) or isinstance(error.__cause__, ApiError):  # an upstream caused it: no traceback
            logger.warning("%s: the response failed: %s", self.driver.id, failure)
        elif isinstance(error, READING_ERRORS) and (problem := self._explain(error)) is not None:
            name = type(self.engine).__name__
            logger.error("%s: the response failed: 'generate' of %s yielded %s", self.driver.id, name, problem)
        else:
            self.control.record(error, self.driver.id, "the response failed")
        return Fault(failure.code, str(failure)) if isinstance(failure, EngineError) else Fault("server_error", GENERATION_ERROR)

    def _explain(self, error: BaseException) -> str | None:
        return f"a wrong chunk: {error}" if isinstance(error, ChunkError) else explain_output(self.progress.output)


async def _end_with(delta: Delta) -> RunSteps:
    yield [delta]


def _update_usage(usage: Usage, output: EngineOutput) -> Usage:
    """Return the usage of a turn after an output, in which 0 means unchanged."""
    return Usage(
        input_tokens=output.input_tokens or usage.input_tokens,
        cached_tokens=output.cached_tokens or usage.cached_tokens,
        cache_write_tokens=output.cache_write_tokens or usage.cache_write_tokens,
        output_tokens=output.output_tokens or usage.output_tokens,
        reasoning_tokens=output.reasoning_tokens or usage.reasoning_tokens,
    )
