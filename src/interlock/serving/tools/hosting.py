"""Hosted tools on MCP servers: listing, approved calls, and the calls of each turn of one response.

A tool starts only when its `Run` delta was taken; from then on it does not wait for the reader of the deltas.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Self

from attrs import define, field, frozen

from interlock.events.items import NOT_UNDERSTOOD
from interlock.fsm.deltas import Close, Delta, Fail, Finish, Open, Run, Succeed
from interlock.fsm.driver import ReadyCall
from interlock.serving.requests.api_errors import ToolError
from interlock.serving.requests.containment import Outcome, is_fault, outcome
from interlock.serving.requests.create import CreateResponse
from interlock.serving.requests.hosted_tools import CALL_SECONDS, CONTAINER, LABELS, HostedTool
from interlock.serving.requests.input_items import Item
from interlock.serving.requests.json_values import elements, members
from interlock.serving.tools.address import AddressPolicy, Endpoint
from interlock.serving.tools.calling import hosted_tool, result_item_fields, result_text, server_call
from interlock.serving.tools.declared import DeclaredServer, ListedTool, declared_servers
from interlock.serving.tools.filters import Approvals, Citations, pages_of

if TYPE_CHECKING:
    from interlock.serving.tools.mcp_session import Session

__all__ = ["ResponseTools", "ToolServers", "load_sessions"]

logger = logging.getLogger(__name__)

MAX_CALLS: Final = 128
"""The most calls of a response whose request sets no limit, so that a model cannot call for ever."""
MAX_SERVERS: Final = 16

INTERNAL_ERROR: Final = "The server had an error while it ran the tool."


def load_sessions() -> type[Session]:
    """Return the class of sessions; its import takes 23 MB, which servers without tools do not need."""
    from interlock.serving.tools.mcp_session import Session  # noqa: PLC0415

    return Session


@frozen
class ToolServers:
    """The tools of a server, which creates those of each response; `open` has the unfinished ones.

    `hosted` has the trusted URL of the MCP server behind each hosted tool, and `policy` the addresses that the URLs of requests
    may reach; a call may take `seconds`.
    """

    hosted: Mapping[HostedTool, str] = field(factory=dict[HostedTool, str])
    policy: AddressPolicy = field(factory=AddressPolicy)
    seconds: float = CALL_SECONDS
    open: set[ResponseTools] = field(factory=set["ResponseTools"], init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Load the MCP client before a response needs it, if the operator allows any server."""
        if self.hosted or self.policy != AddressPolicy():
            load_sessions()

    @asynccontextmanager
    async def begin(self, request: CreateResponse, items: Sequence[Item]) -> AsyncGenerator[ResponseTools]:
        tools = ResponseTools(self.hosted, self.policy, self.seconds, request, items)
        self.open.add(tools)
        try:
            yield tools
        finally:
            self.open.discard(tools)
            await tools.close()


@define(eq=False)
class Race:
    """Concurrent coroutines, whose results are yielded in the order in which they end."""

    _tasks: set[asyncio.Task[None]] = field(factory=set[asyncio.Task[None]], init=False)
    _outcomes: asyncio.Queue[Outcome[Delta]] = field(factory=asyncio.Queue[Outcome[Delta]], init=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, work: Coroutine[object, object, Delta]) -> None:
        self._tasks.add(asyncio.create_task(self._run(work)))

    async def results(self) -> AsyncGenerator[Delta, None]:
        """Yield the results; a coroutine's exception is raised."""
        for _ in range(len(self._tasks)):
            yield (await self._outcomes.get()).result()

    async def _run(self, work: Coroutine[object, object, Delta]) -> None:
        self._outcomes.put_nowait(await outcome(work))


@define(eq=False)
class ResponseTools:
    """The tools of one response; `ToolServers` and `Tools` of `interlock.serving.tools.tool_runner` explain the arguments."""

    _hosted: Mapping[HostedTool, str]
    _policy: AddressPolicy
    _seconds: float
    _request: CreateResponse
    _items: Sequence[Item]
    _servers: Mapping[str, DeclaredServer] = field(init=False)
    _listed: dict[str, dict[str, ListedTool]] = field(factory=dict[str, dict[str, ListedTool]], init=False)
    _sessions: dict[Endpoint, Session] = field(factory=dict[Endpoint, "Session"], init=False)
    _results: dict[str, str] = field(factory=dict[str, str], init=False)
    """The result of each call, or its error, by the item's id."""
    _calls: int = field(default=0, init=False)
    _approvals: Approvals = field(init=False)
    _citations: Citations = field(factory=Citations, init=False)

    def __attrs_post_init__(self) -> None:
        tools = map(members, elements(self._request.raw.get("tools")))
        self._servers = declared_servers(tool for tool in tools if LABELS.get(tool.get("server_label")) not in self._hosted)
        self._approvals = Approvals(self._needs_approval)
        for item in self._items:
            label = str(item.get("server_label"))
            if item.get("type") == "mcp_list_tools" and label in self._servers and item.get("error") is None:
                self._set_list(label, [ListedTool(members(tool)) for tool in elements(item.get("tools"))])

    async def prepare(self, output: Callable[[], Sequence[Item]]) -> AsyncGenerator[Sequence[Delta], None]:
        async with Race() as race:
            unlisted = [server for server in self._servers.values() if server.label not in self._listed]
            for index, server in enumerate(unlisted):
                yield [Open("mcp_list_tools", {"server_label": server.label})]
                race.start(self._list(str(output()[-1]["id"]), server, allowed=index < MAX_SERVERS))
            async for delta in race.results():
                yield [delta]
        for request in self._approved_requests():
            fields = {name: request[name] for name in ("server_label", "name")}
            call = Open("mcp_call", {**fields, "approval_request_id": request["id"]})
            yield [call, str(request["arguments"]), Close()]

    def rewrite(self, deltas: Iterable[Delta]) -> list[Delta]:
        return self._citations.feed(self._approvals.feed(deltas) if self._servers else deltas)

    async def run(self, calls: Sequence[ReadyCall], rejected: Sequence[Item] = ()) -> AsyncGenerator[Delta, None]:
        """Run the tools of calls concurrently; calls that cannot be run fail without a `Run`."""
        count = len(calls) + len(rejected)
        remaining = (MAX_CALLS if self._request.max_tool_calls is None else self._request.max_tool_calls) - self._calls
        self._calls += count
        self._results.update((str(item["id"]), f"Error: {NOT_UNDERSTOOD}") for item in rejected)
        async with Race() as race:
            for index, call in enumerate(calls):
                try:
                    session = await self._session(self._endpoint(call, allowed=index < remaining))
                    name, arguments = server_call(call)
                except ToolError as error:
                    yield self._failed(call, str(error))
                else:
                    yield Run(call.id)
                    race.start(self._call(call, session, name, arguments))
            if remaining <= 0 < count:
                yield Finish()
            async for delta in race.results():
                yield delta

    def with_outputs(self, items: Iterable[Item]) -> list[Item]:
        return [{**item, "output": self._results[str(item["id"])]} if item.get("id") in self._results else item for item in items]

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in self._sessions.values()))

    def _needs_approval(self, label: str, name: str) -> bool:
        server, tool = self._servers.get(label), self._listed.get(label, {}).get(name)
        return server is not None and tool is not None and server.needs_approval(tool)

    def _approved_requests(self) -> Iterator[Item]:
        requests = {item.get("id"): item for item in self._items if item.get("type") == "mcp_approval_request"}
        done = {item.get("approval_request_id") for item in self._items if item.get("type") == "mcp_call"}
        for item in self._request.input:
            if item.get("type") == "mcp_approval_response" and item.get("approve") is True:
                request_id = item.get("approval_request_id")
                if request_id in requests and request_id not in done:
                    done.add(request_id)
                    yield requests[request_id]

    async def _session(self, endpoint: Endpoint) -> Session:
        session_class = await asyncio.to_thread(load_sessions)  # the first import takes half a second
        session = self._sessions.get(endpoint)
        if session is None or session.ended:
            session = self._sessions[endpoint] = session_class(endpoint, self._seconds)
        return session

    async def _list(self, item_id: str, server: DeclaredServer, *, allowed: bool) -> Delta:
        if not allowed:
            return Fail(item_id, f"A request may have {MAX_SERVERS} MCP servers.")
        try:
            tools = await (await self._session(server.endpoint(self._policy))).list_tools()
        except ToolError as error:
            logger.warning("The tools of %r could not be listed: %r", server.label, str(error))
            return Fail(item_id, str(error))
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("%s: its tools could not be listed", server.label)
            return Fail(item_id, INTERNAL_ERROR)
        self._set_list(server.label, map(ListedTool.of, tools))
        return Succeed(item_id, {"tools": [tool.fields for tool in self._listed[server.label].values()]})

    def _set_list(self, label: str, tools: Iterable[ListedTool]) -> None:
        self._listed[label] = {tool.name: tool for tool in self._servers[label].allowed(tools)}

    async def _call(self, call: ReadyCall, session: Session, name: str, arguments: Mapping[str, object]) -> Delta:
        try:
            result = await session.call(name, arguments)
        except ToolError as error:
            logger.warning("The tool %r could not be called: %r", name, str(error))
            return self._failed(call, str(error))
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("%s: its tool could not be run", call.id)
            return self._failed(call, INTERNAL_ERROR)
        text = result_text(result)
        if result.is_error:
            return self._failed(call, text or "The tool failed and did not say why.")
        self._results[call.id] = text
        if call.kind == "web_search_call":
            self._citations.add_pages(pages_of(text))
        return Succeed(call.id, result_item_fields(call, text, self._request.include))

    def _endpoint(self, call: ReadyCall, *, allowed: bool) -> Endpoint:
        if not allowed:
            raise ToolError("The response has made as many tool calls as it may.")
        hosted = hosted_tool(call)
        if hosted is not None and not (hosted == CONTAINER and CONTAINER in self._servers):
            if not any(_declares(tool, hosted) for tool in self._request.tools):
                raise ToolError(f"The request does not offer the tool '{hosted}'.")
            if hosted not in self._hosted:
                raise ToolError(f"This server has no tool server for '{hosted}'.")
            return Endpoint(self._hosted[hosted])
        label, name = str(call.fields["server_label"]), str(call.fields["name"])
        server = self._servers.get(label)
        if server is None:
            raise ToolError(f"The request has no MCP server '{label}'.")
        if label not in self._listed:
            raise ToolError(f"The MCP server '{label}' has not listed its tools.")
        if name not in self._listed[label]:
            raise ToolError(f"The MCP server '{label}' has no tool '{name}' that may be called.")
        return server.endpoint(self._policy)

    def _failed(self, call: ReadyCall, message: str) -> Fail:
        self._results[call.id] = f"Error: {message}"
        return Fail(call.id, message)


def _declares(tool: Mapping[str, object], hosted: HostedTool) -> bool:
    return str(tool.get("type")).startswith(hosted) or LABELS.get(tool.get("server_label")) == hosted
