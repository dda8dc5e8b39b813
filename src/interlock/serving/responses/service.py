"""Turns a request into a run: its conversation is resolved, and the engine begins and accepts it. Reports the ended run.

HTTP routes and WebSockets share it. docs/design/request.md describes the stations of a request.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from attrs import define, evolve, field, frozen

from interlock.embedding import now, random_id
from interlock.events.json import members
from interlock.events.sse import Writer
from interlock.fsm.deltas import Cancel, Start
from interlock.fsm.driver import Clock, Ids
from interlock.parsers import parser_for
from interlock.serving import metrics, traces
from interlock.serving.engines.engine import Engine, Generation, Silence, Turn, fitting, prepare_later
from interlock.serving.engines.shortcut import ClientSocket
from interlock.serving.metrics import known_code
from interlock.serving.requests.api_errors import PromptError, invalid
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import JsonItem, answer_async_calls, join
from interlock.serving.requests.logs import FIELDS, log_with
from interlock.serving.requests.runtime import Yielder, is_fault
from interlock.serving.responses.active_runs import ActiveRuns, NotBegunError
from interlock.serving.responses.archive import Archive, ConversationLease, no_such_conversation
from interlock.serving.responses.run import (
    NullWriter,
    RequestContext,
    ResponseRun,
    RunControl,
    needs_compaction,
    new_driver,
    summary_context,
)
from interlock.serving.responses.sealing import SealingKeys, Seals
from interlock.serving.responses.turns_table import TurnEffect, TurnTrigger
from interlock.serving.store.values import StoredResponse
from interlock.serving.tools.hosting import NullTools, ToolRunner

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from interlock.parsers.chunk import Recoveries

T = TypeVar("T")

logger = logging.getLogger(__name__)

OPERATION: Final = "chat"
"""The operation of every response, by the conventions for generative AI."""


@frozen(eq=False)
class ResponseService:
    """Begins the responses of one server.

    `raw_reasoning` is whether requests for a summary of the reasoning get the reasoning itself instead.
    """

    engine: Engine
    archive: Archive
    tools: ToolRunner
    sealing_keys: SealingKeys
    active_runs: ActiveRuns = field(factory=ActiveRuns)
    raw_reasoning: bool = False
    ids: Ids = random_id
    clock: Clock = now

    async def count(self, request: ResponseRequest, tenant: str, connection: HTTPConnection | None = None) -> int:
        """Return the number of tokens in the prompt of a request, and of the tools of its MCP servers; see `begin` for errors."""
        context = await self.resolve(request, tenant)
        generation = await self.engine.begin(context.request, context.items, tenant, connection)
        try:
            lists = await self._tool_lists(context, generation)
            turn = await fitting(
                generation, Turn(context.request, answer_async_calls((*context.model_items, *lists)), request.max_output_tokens)
            )
            return await generation.count(turn)
        except PromptError as error:
            raise invalid("input", str(error), error.code) from None

    async def _tool_lists(self, context: RequestContext, generation: Generation) -> list[JsonItem]:
        """Return the lists of tools with which a response would begin."""
        driver = new_driver(context, generation, {}, NullWriter())
        driver.feed([Start()])
        session = self.tools.begin(context.request, context.items, context.tenant)
        async with session as tools, aclosing(tools.prepare(driver.items)) as preparation:
            async for step in preparation:
                driver.feed(step)
        return [item for item in driver.items() if item["type"] == "mcp_list_tools"]

    async def resolve(
        self,
        request: ResponseRequest,
        tenant: str,
        *,
        lease: ConversationLease | None = None,
        latest: StoredResponse | None = None,
        connection: HTTPConnection | None = None,
    ) -> RequestContext:
        """Resolve the history, references and encrypted content of a request."""
        store, previous_id, conversation_id = self.archive.store, request.previous_response_id, request.conversation_id
        previous: Sequence[JsonItem] = ()
        if lease is not None:
            previous = lease.items
        elif conversation_id is not None:
            conversation = await store.conversation_items(tenant, conversation_id)
            if conversation is None:
                raise no_such_conversation(conversation_id)
            previous = conversation
        elif previous_id is not None:
            previous = (latest or await self.archive.previous(tenant, previous_id)).conversation
        references = [str(item["id"]) for item in request.input if item["type"] == "item_reference"]
        items = join(previous, request.input, await store.find(tenant, references) if references else {})
        seals = Seals(self.sealing_keys, request.model, tenant)
        unsealed, removed = await seals.unseal(items, request.input)
        summarizes = request.wants_summary and not self.raw_reasoning
        return RequestContext(
            request.apply_updates(items), items, tenant, unsealed, removed, lease, seals, connection, summarizes
        )


@define(eq=False)
class PendingRun(Generic[T]):
    """A request whose response has not begun.

    `admitted` refuses it with:

    - `ApiError`, if the engine refuses it; 400 for an unknown previous response or an input that does not fit; 404 for an unknown
      conversation or item; 409 if the conversation has another response in progress; 429 if the server has too many;
    - `StoreDown`, if the store is not available, and the request needs it;
    - an error of a host engine.
    """

    service: ResponseService
    request: ResponseRequest
    tenant: str
    writer: Writer[T]
    latest: StoredResponse | None = field(default=None, kw_only=True)
    """The previous response, if the caller has it."""
    generates: bool = field(default=True, kw_only=True)
    """If not, the engine only renders the prompt, or warms its cache if the request wants that."""
    connection: HTTPConnection | None = field(default=None, kw_only=True)  # for a host engine
    summarizes: bool = field(default=False, kw_only=True)
    """Whether the response is a summary of the request's conversation, instead of an answer to it."""
    is_steered: Callable[[], bool] = field(default=lambda: False, kw_only=True)
    """Returns whether the response should end at the next boundary of its output."""
    control: RunControl = field(factory=RunControl, init=False)

    @asynccontextmanager
    async def admitted(self, client: ClientSocket[T] | None = None) -> AsyncGenerator[ResponseRun[T]]:
        """Return the run of the request once the engine accepts it. It has a slot of the server until its response is stored."""
        service, model = self.service, self.request.model
        with (
            service.active_runs.track(self.control.interrupt) as self.control.free,  # the effects `TAKE` and, if refused, `FREE`
            observe_run(model, service.engine.model_label, service.archive.name) as report,
        ):
            run = await self._admit(client)
            try:
                async with aclosing(run):
                    yield run
            finally:
                report(run)

    async def run_to_end(self) -> ResponseRun[T]:
        """Make the whole response, and return its run."""
        async with self.admitted() as run:
            async for _ in run:
                pass
        return run

    async def _admit(self, client: ClientSocket[T] | None) -> ResponseRun[T]:
        """Begin the run, and wait until the engine accepts its first turn, unless the response begins before; or refuse it."""
        control, resources = self.control, AsyncExitStack()
        admits = TurnEffect.ADMIT in control.turns.fire(TurnTrigger.BEGIN)
        try:
            begun = await control.wait(self._begin(resources, client)) if admits else None
            if begun is not None:
                run, trigger = begun
                await run.fire(trigger)
                return run
            refusal: BaseException = NotBegunError.of(control.ending)
        except BaseException as error:  # noqa: BLE001 - it is raised below, or is of an interruption
            refusal = error if control.goes_on or not is_fault(error) else NotBegunError.of(control.ending)
        try:
            control.turns.fire(TurnTrigger.FAIL)
            await control.close(resources.aclose, "a request without a response")
        finally:
            control.turns.fire(TurnTrigger.LEAVE)
        raise control.take_exit() or refusal

    async def _begin(self, resources: AsyncExitStack, client: ClientSocket[T] | None) -> tuple[ResponseRun[T], TurnTrigger]:
        """Return the run of the resolved request, and the trigger of its first work, once the engine accepts that."""
        service, yielder = self.service, Yielder()
        generates = self.generates and not self.request.prewarms
        async with AsyncExitStack() as undo:
            if self.request.store:
                service.archive.require_store()
            conversation_id = None if self.summarizes else self.request.conversation_id
            lease = None if conversation_id is None else await self._acquire_lease(conversation_id, resources, undo)
            context = await service.resolve(
                self.request, self.tenant, lease=lease, latest=self.latest, connection=self.connection
            )
            await yielder.checkpoint()
            if self.summarizes:
                context = summary_context(context, service.engine)
            request = context.request
            runner = service.tools if generates and not self.summarizes else NullTools()
            generation = await service.engine.begin(request, context.items, self.tenant, self.connection)
            resources.push_async_callback(generation.close)
            # After the engine has begun: the tools of a script return the results of its generation.
            tools = await resources.enter_async_context(runner.begin(request, context.items, self.tenant))
            turn = Turn(request, answer_async_calls(context.model_items), request.max_output_tokens)
            if request.background:
                turn, settings = await prepare_later(generation, turn)
            else:
                turn = await fitting(generation, turn)
                settings = await generation.prepare(turn)
            context = evolve(context, model_items=turn.items, seals=context.seals if generates else None)
            if not generates:
                parser = parser_for(service.engine.format, {})
                warms = request.prewarms
                generation = Silence(service.engine, parser, generation.response_id, generation=generation, warms=warms)
            driver = new_driver(context, generation, settings, self.writer, ids=service.ids, clock=service.clock)
            log_with(response_id=driver.id, model=request.model)
            archive = service.archive if request.store else None
            run = ResponseRun(
                context, service.engine, generation, driver, self.control, resources, tools, archive, self.is_steered, client
            )
            if request.background or any(tool.get("type") == "mcp" for tool in request.tools):
                trigger = TurnTrigger.OPEN
            elif await needs_compaction(context, generation, turn):
                trigger = TurnTrigger.COMPACT
            else:
                await generation.admit(turn)
                trigger = TurnTrigger.PREPARE
            undo.pop_all()
        return run, trigger

    async def _acquire_lease(self, conversation_id: str, resources: AsyncExitStack, undo: AsyncExitStack) -> ConversationLease:
        """Acquire the lease on the conversation of the request.

        A run keeps the lease alive until its end; a `BackgroundResponse`, until the last commit.
        """
        lease = await ConversationLease.acquire(self.service.archive.store, self.tenant, conversation_id)
        if self.request.background:
            undo.push_async_callback(lease.release)
        else:
            await resources.enter_async_context(lease.keep_alive(self.control.interrupt))
        return lease


@contextmanager
def observe_run(model: str, label: Callable[[str], str], owner: str) -> Generator[Callable[[ResponseRun[Any]], None]]:
    """Observe a run of a model within the context. The value reports the ended run.

    `label` gives the model's name in metrics, and `owner` is that of the process in the store.
    """
    started_at, attributes = monotonic(), {"gen_ai.operation.name": OPERATION, "gen_ai.request.model": model}
    metrics.count("interlock_open_streams")
    try:
        with traces.record(f"{OPERATION} {label(model)}", "SERVER", attributes) as span:
            yield lambda run: _report(label(model), owner, started_at, span, run)  # an upstream may have listed it meanwhile
    except NotBegunError as error:
        if isinstance(error.ending, Cancel):  # else the server has said that it shuts down
            seconds = round(monotonic() - started_at, 3)
            fields = {"status": error.code, "seconds": seconds}
            logger.info("cancelled before the answer began, after %.3f s", seconds, extra={FIELDS: fields})
        raise
    finally:
        metrics.count("interlock_open_streams", amount=-1)


def _report(model: str, owner: str, started_at: float, span: traces.Span, run: ResponseRun[T]) -> None:
    """Report a response that has ended, and began at this time by the monotonic clock."""
    driver, seconds = run.driver, monotonic() - started_at
    if not driver.ended:
        return
    response, status, usage = driver.response, driver.status, driver.usage
    reason = _reason(run)
    _log_end(run, reason, owner, seconds, None if run.delivery.first_at is None else run.delivery.first_at - started_at)
    if status == "failed":
        reason = known_code(reason)
    error_type = "" if status in {"completed", "incomplete"} else reason or status
    labels = (OPERATION, "interlock", model)
    if run.progress.first_output_at is not None:
        metrics.observe("gen_ai_server_time_to_first_token_seconds", run.progress.first_output_at - started_at, *labels)
    for token_seconds in run.progress.token_seconds:
        metrics.observe("gen_ai_server_time_per_output_token_seconds", token_seconds, *labels)
    metrics.observe("gen_ai_server_request_duration_seconds", seconds, *labels, error_type)
    metrics.count("interlock_responses_total", status, reason, model)
    for kind, amount in driver.event_counts.items():
        metrics.count("interlock_events_total", kind, amount=amount)
    for item in driver.items():
        metrics.count("interlock_items_total", str(item["type"]), str(item.get("status") or "completed"))
    if usage is not None:
        metrics.count("interlock_tokens_total", "input", model, amount=usage.input_tokens)
        metrics.count("interlock_tokens_total", "output", model, amount=usage.output_tokens)
        span.set({"gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens})
    _count_recoveries(run)
    span.set(
        {
            "gen_ai.response.id": driver.id,
            "gen_ai.response.model": str(response["model"]),
            "gen_ai.response.finish_reasons": [reason or status],
        }
    )
    if error_type:
        span.fail(error_type)


def _count_recoveries(run: ResponseRun[T]) -> None:
    recoveries: Recoveries | None = getattr(run.generation.parser, "recoveries", None)
    for (family, kind), amount in () if recoveries is None else recoveries.items():
        if family == "responses":
            metrics.count("interlock_upstream_repairs_total", kind, amount=amount)
        else:
            metrics.count("interlock_parser_recoveries_total", family, kind, amount=amount)


def _reason(run: ResponseRun[T]) -> str:
    """Return why a response is incomplete or has failed: the API's reason or an error code; else nothing."""
    response, status = run.driver.response, run.driver.status
    if status == "incomplete":
        return str(members(response["incomplete_details"]).get("reason") or "cut_call")
    return str(members(response["error"]).get("code") or "") if status == "failed" else ""


def _log_end(run: ResponseRun[T], reason: str, owner: str, seconds: float, first: float | None) -> None:
    """Log how and why a response has ended, after how many seconds, and when its first event came."""
    if not logger.isEnabledFor(logging.INFO):
        return
    tenant = run.context.tenant
    status, count, usage = run.driver.status, run.driver.item_count, run.driver.usage
    fields: dict[str, object] = {
        "status": status,
        "reason": reason or None,
        "items": count,
        "input_tokens": usage and usage.input_tokens,
        "output_tokens": usage and usage.output_tokens,
        "first_event_seconds": None if first is None else round(first, 3),
        "seconds": round(seconds, 3),
        "tenant": tenant or None,
        "owner": owner,
    }
    parts = [
        f"{status} ({reason})" if reason else status,
        f"{count} {'item' if count == 1 else 'items'}",
        *([] if usage is None else [f"{usage.input_tokens} tokens in, {usage.output_tokens} out"]),
        *([] if first is None else [f"first event after {first:.3f} s"]),
        f"{seconds:.3f} s",
        *([f"tenant {tenant}"] if tenant else []),
        f"owner {owner}",
    ]
    known = {name: value for name, value in fields.items() if value is not None}
    logger.info("%s: %s", run.driver.id, ", ".join(parts), extra={FIELDS: known})
