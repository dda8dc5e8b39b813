"""The interfaces of hosted tools, and two implementations that run nothing: `NullTools` and `ScriptedTools`."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from interlock.events.items import NOTHING
from interlock.fsm.deltas import Delta, Finish
from interlock.fsm.driver import ReadyCall
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.requests.tool_offer import HOSTED_TOOLS, HostedTool

if TYPE_CHECKING:  # a server without a script does not load the modules that read and render it
    from interlock.serving.engines.recordings import ToolResult
    from interlock.serving.engines.scripted_engine import ScriptedEngine


class Tools(Protocol):
    """The tools of one response. Closing one of its generators (`aclose`) cancels the tools that still run."""

    def prepare(self, output: Callable[[], Sequence[JsonItem]]) -> AsyncGenerator[Sequence[Delta], None]:
        """Yield groups of deltas before the model's first turn. Hosted calls that they make ready run before that turn.

        `output` returns the items of the response so far, including items from the deltas that were already yielded.
        """
        ...

    def rewrite(self, deltas: list[Delta]) -> list[Delta]:
        """Return the deltas that replace the parser's deltas for the driver."""
        ...

    def run(self, calls: Sequence[ReadyCall], rejected: Sequence[JsonItem] = ()) -> AsyncGenerator[Delta, None]:
        """Run the tools of one turn's calls, and yield `Run`, `Progress`, `Succeed` and `Fail` as they happen.

        A tool starts after its `Run` was taken and written. A call without deltas is not run, and fails when the response ends.
        `rejected` has the items of calls with invalid arguments, which have already failed but count as calls. After `Finish`, no
        turn follows; nor does one if this yields nothing and `rejected` is empty.
        """
        ...

    def with_outputs(self, items: Iterable[JsonItem]) -> Sequence[JsonItem]:
        """Return items of the response for the model, with the results of tools as `output`, which clients may not receive."""
        ...


class ToolRunner(Protocol):
    """Creates the tools of each response."""

    @property
    def hosted(self) -> Container[HostedTool]:
        """The hosted tools that it runs."""
        ...

    def begin(self, request: ResponseRequest, items: Sequence[JsonItem], tenant: str) -> AbstractAsyncContextManager[Tools]:
        """Return a context manager for the tools of one response; `items` is the conversation, with the request's input."""
        ...

    async def close(self) -> None:
        """End what outlives a response; the server ends."""
        ...


class ToolSession(Protocol):
    """The use of one tool, or of one server with tools, by one response."""

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Call a tool and return its result as text.

        Raises:
            ToolFailedError: The tool reports an error.
            ToolError: The tool cannot be called.
        """
        ...


class LocalTool(Protocol):
    """A hosted tool that the server runs itself, without an MCP server."""

    @property
    def description(self) -> str:
        """What models read about the tool."""
        ...

    def session(
        self, tenant: str, container_id: str, earlier: Sequence[str] = (), domains: Mapping[str, object] = NOTHING
    ) -> ToolSession:
        """Return the session of a response of a tenant.

        Code runs in the container with this id; `earlier` has the results of searches in earlier responses,
        and the messages that cite them. `domains` are the filters of the request's web search.
        """
        ...

    async def close(self) -> None:
        """End what outlives a response."""
        ...


@frozen
class NullTools:
    """No hosted tools: calls of them fail."""

    @property
    def hosted(self) -> Container[HostedTool]:
        return ()

    def begin(self, request: ResponseRequest, items: Sequence[JsonItem], tenant: str) -> AbstractAsyncContextManager[Tools]:
        del request, items, tenant
        return nullcontext(self)

    async def close(self) -> None:
        pass

    async def prepare(self, output: Callable[[], Sequence[JsonItem]]) -> AsyncGenerator[Sequence[Delta], None]:
        del output
        return
        yield

    def rewrite(self, deltas: list[Delta]) -> list[Delta]:
        return deltas

    async def run(self, calls: Sequence[ReadyCall], rejected: Sequence[JsonItem] = ()) -> AsyncGenerator[Delta, None]:
        if calls or rejected:
            yield Finish()

    def with_outputs(self, items: Iterable[JsonItem]) -> Sequence[JsonItem]:
        return [*items]


@frozen
class ScriptedTools:
    """Returns the results that a script has for its hosted calls."""

    engine: ScriptedEngine

    @property
    def hosted(self) -> Container[HostedTool]:
        return HOSTED_TOOLS

    def begin(self, request: ResponseRequest, items: Sequence[JsonItem], tenant: str) -> AbstractAsyncContextManager[Tools]:
        del items, tenant
        return nullcontext(_ScriptedResults(self.engine.results(request)))

    async def close(self) -> None:
        pass


@frozen
class _ScriptedResults(NullTools):
    """The results for one response, in the order of the calls; a call without a result is not run."""

    results: deque[ToolResult]

    async def run(self, calls: Sequence[ReadyCall], rejected: Sequence[JsonItem] = ()) -> AsyncGenerator[Delta, None]:
        from interlock.serving.engines.recordings import tool_deltas  # noqa: PLC0415 - only scripts need it

        del rejected
        for call in calls[: len(self.results)]:
            for delta in tool_deltas(call, self.results.popleft()):
                yield delta
