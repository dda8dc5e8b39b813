"""One response outside the limits of a server, for benchmarks and tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from attrs import define, evolve, field, frozen
from msgspec.structs import replace

from interlock.embedding import now, random_id
from interlock.events import Writer
from interlock.fsm import Clock, Ids
from interlock.fsm.driver import ResponseDriver
from interlock.serving.engines.engine import Engine
from interlock.serving.engines.shortcut import ClientSocket
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.run import RequestContext, ResponseRun
from interlock.serving.responses.sealing import SealingKeys
from interlock.serving.responses.service import PendingRun, ResponseService
from interlock.serving.store.sqlite import MemoryStore
from interlock.serving.store.values import StoredResponse
from interlock.serving.tools.hosting import NullTools, ToolRunner

__all__ = ["OneRun", "begin_response"]

T = TypeVar("T")


@frozen(eq=False)
class Resolved(ResponseService):
    """A service for one request, which is resolved already."""

    context: RequestContext = field(kw_only=True)

    async def resolve(self, *_arguments: Any, **_options: Any) -> RequestContext:  # noqa: ANN401 - they are not used
        """Return the context."""
        return self.context


@define(eq=False)
class OneRun(PendingRun[T], Generic[T]):
    """A run that yields its events without a context manager."""

    run: ResponseRun[T] = field(init=False)
    """The run, once it is admitted."""

    @asynccontextmanager
    async def admitted(self, client: ClientSocket[T] | None = None) -> AsyncGenerator[ResponseRun[T]]:
        """Keep the run, too."""
        async with PendingRun.admitted(self, client) as self.run:
            yield self.run

    async def events(self) -> AsyncGenerator[list[T], None]:
        """Yield the events of each step."""
        async with self.admitted() as run:
            async for events in run:
                yield events

    @property
    def driver(self) -> ResponseDriver[T]:
        """The driver."""
        return self.run.driver

    @property
    def stored(self) -> StoredResponse:
        """The response as it is stored."""
        return self.run.stored


def begin_response(
    context: RequestContext,
    engine: Engine,
    writer: Writer[T],
    *,
    tools: ToolRunner | None = None,
    archive: Archive | None = None,
    ids: Ids = random_id,
    clock: Clock = now,
) -> OneRun[T]:
    """Return the run of a resolved request; iterate its `events`. An `archive` stores a foreground response at its end."""
    if archive is None:
        context = evolve(context, request=replace(context.request, store=False))
    stored = archive or Archive(MemoryStore())
    service = Resolved(engine, stored, tools or NullTools(), SealingKeys.random(), ids=ids, clock=clock, context=context)
    return OneRun(service, context.request, context.tenant, writer)
