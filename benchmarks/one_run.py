"""One response outside the limits of a server, for benchmarks and tests."""

from __future__ import annotations

from typing import TypeVar

from interlock.embedding import now, random_id
from interlock.events import Writer
from interlock.fsm import Clock, Ids
from interlock.serving.engines.engine import Engine
from interlock.serving.responses.active_runs import ActiveRuns
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.run import RequestContext, ResponseRun, new_driver
from interlock.serving.tools.tool_runner import NullTools, ToolRunner

__all__ = ["begin_response"]

T = TypeVar("T")


def begin_response(
    context: RequestContext,
    engine: Engine,
    writer: Writer[T],
    *,
    tools: ToolRunner | None = None,
    archive: Archive | None = None,
    ids: Ids = random_id,
    clock: Clock = now,
) -> ResponseRun[T]:
    """Return the run of a resolved request; iterate its `events`. An `archive` stores a foreground response at its end."""

    async def resolve(run: ResponseRun[T]) -> None:
        generation = await engine.begin(context.request, context.items)
        run.resources.push_async_callback(generation.close)
        run.use(context, generation, new_driver(context, generation, {}, writer, ids=ids, clock=clock))

    is_foreground = not context.request.background
    return ResponseRun(context.request, engine, resolve, ActiveRuns(), tools or NullTools(), archive, is_foreground)
