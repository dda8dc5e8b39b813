"""The hosted tools of a server, and of one response: its servers' lists, the approved calls, and the calls of its turns.

Deltas are yielded as things happen, and tools do not wait for their reader, except with `Run`: a tool starts only when the delta
that announces it was taken. The results of tools are stored for the model even where the items do not show them. This module
knows neither HTTP nor events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
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
from interlock.serving.tools.calling import ServerCall, hosted_tool, result_text, server_call, shown_result
from interlock.serving.tools.declared import DeclaredServer, ListedTool, declared_servers
from interlock.serving.tools.filters import Approvals, Citations, pages_of

if TYPE_CHECKING:
    from interlock.serving.tools.mcp_session import Session

__all__ = ["ResponseTools", "ToolServers", "load_sessions"]

logger = logging.getLogger(__name__)

MOST_CALLS: Final = 128
"""The most calls of a response whose request sets no limit, so that a model that calls for ever comes to an end."""
MOST_SERVERS: Final = 16
"""The most MCP servers of a request."""

OUR_FAULT: Final = "The server had an error while it ran the tool."


def load_sessions() -> type[Session]:
    """Import the client of MCP servers, which takes 23 MB that no other response needs, and return it."""
    session: type[Session] = import_module("interlock.serving.tools.mcp_session").Session
    return session


@frozen
class ToolServers:
    """The tools of a server; every response gets tools of its own from them.

    Args:
        hosted: The URL of the MCP server behind each hosted tool; it is trusted.
        policy: The addresses that the URLs of requests may reach; none by default.
        seconds: Seconds that a call may take.
        open: The tools of the responses that are being made.
    """

    hosted: Mapping[HostedTool, str] = field(factory=dict[HostedTool, str])
    policy: AddressPolicy = field(factory=AddressPolicy)
    seconds: float = CALL_SECONDS
    open: set[ResponseTools] = field(factory=set["ResponseTools"], init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Load the client of MCP servers before a response needs it, if the operator has named any server."""
        if self.hosted or self.policy != AddressPolicy():
            load_sessions()

    @asynccontextmanager
    async def begin(self, request: CreateResponse, items: Sequence[Item]) -> AsyncGenerator[ResponseTools]:
        """Yield the tools of one response, and close their sessions at the end, however it comes."""
        tools = ResponseTools(self.hosted, self.policy, self.seconds, request, items)
        self.open.add(tools)
        try:
            yield tools
        finally:
            self.open.discard(tools)
            await tools.close()


@define(eq=False)
class Race:
    """Concurrent work whose results are yielded as they come; leaving the context cancels the rest."""

    _tasks: set[asyncio.Task[None]] = field(factory=set[asyncio.Task[None]], init=False)
    _ended: asyncio.Queue[Outcome[Delta]] = field(factory=asyncio.Queue[Outcome[Delta]], init=False)

    async def __aenter__(self) -> Self:
        """Start with nothing."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Cancel what has not ended, and wait until it has."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, work: Coroutine[object, object, Delta]) -> None:
        """Start a coroutine."""
        self._tasks.add(asyncio.create_task(self._end(work)))

    async def results(self) -> AsyncGenerator[Delta, None]:
        """Yield the result of every coroutine, in the order in which they end.

        Raises:
            BaseException: A coroutine raised it.
        """
        for _ in range(len(self._tasks)):
            yield (await self._ended.get()).result()

    async def _end(self, work: Coroutine[object, object, Delta]) -> None:
        self._ended.put_nowait(await outcome(work))


@define(eq=False)
class ResponseTools:
    """The tools of one response; see `interlock.serving.tools.tool_runner.Tools` for the purpose of each method.

    Args:
        hosted: The URL of the MCP server behind each hosted tool.
        policy: The addresses that the URLs of the request may reach.
        seconds: Seconds that a call may take.
        request: The request.
        items: The conversation that the model continues.
    """

    _hosted: Mapping[HostedTool, str]
    _policy: AddressPolicy
    _seconds: float
    _request: CreateResponse
    _items: Sequence[Item]
    _servers: Mapping[str, DeclaredServer] = field(init=False)
    _listed: dict[str, dict[str, ListedTool]] = field(factory=dict[str, dict[str, ListedTool]], init=False)
    _sessions: dict[Endpoint, Session] = field(factory=dict[Endpoint, "Session"], init=False)
    _texts: dict[str, str] = field(factory=dict[str, str], init=False)
    """The result of each call, or why there is none, by the item's id."""
    _calls: int = field(default=0, init=False)
    """How many calls the model has made."""
    _approvals: Approvals = field(init=False)
    _citations: Citations = field(factory=Citations, init=False)

    def __attrs_post_init__(self) -> None:
        """Read the request's servers, and the lists that the conversation has already."""
        tools = map(members, elements(self._request.raw.get("tools")))
        self._servers = declared_servers(tool for tool in tools if LABELS.get(tool.get("server_label")) not in self._hosted)
        self._approvals = Approvals(self._has_to_be_approved)
        for item in self._items:
            label = str(item.get("server_label"))
            if item.get("type") == "mcp_list_tools" and label in self._servers and item.get("error") is None:
                self._learn(label, [ListedTool(members(tool)) for tool in elements(item.get("tools"))])

    async def prepare(self, output: Callable[[], Sequence[Item]]) -> AsyncGenerator[Sequence[Delta], None]:
        """List the servers' tools where the conversation has no list yet, then make the approved calls."""
        async with Race() as race:
            for index, server in enumerate(self._unlisted()):
                yield [Open("mcp_list_tools", {"server_label": server.label})]
                race.start(self._list(str(output()[-1]["id"]), server, allowed=index < MOST_SERVERS))
            async for delta in race.results():
                yield [delta]
        for approval in self._approved():
            fields = {name: approval[name] for name in ("server_label", "name")}
            call = Open("mcp_call", {**fields, "approval_request_id": approval["id"]})
            yield [call, str(approval["arguments"]), Close()]

    def rewrite(self, deltas: Iterable[Delta]) -> list[Delta]:
        """Replace calls that have to be approved by approval requests, and add annotations to citations."""
        return self._citations.feed(self._approvals.feed(deltas) if self._servers else deltas)

    async def run(self, calls: Sequence[ReadyCall], rejected: Sequence[Item] = ()) -> AsyncGenerator[Delta, None]:
        """Run the tools of calls, all at once; those that cannot be run fail without starting."""
        made = len(calls) + len(rejected)
        left = (MOST_CALLS if self._request.max_tool_calls is None else self._request.max_tool_calls) - self._calls
        self._calls += made
        self._texts.update((str(item["id"]), f"Error: {NOT_UNDERSTOOD}") for item in rejected)
        async with Race() as race:
            for index, call in enumerate(calls):
                try:
                    session, request = await self._session(self._endpoint(call, allowed=index < left)), server_call(call)
                except ToolError as error:
                    yield self._failed(call, str(error))
                else:
                    yield Run(call.id)
                    race.start(self._call(call, session, request))
            if left <= 0 < made:
                yield Finish()
            async for delta in race.results():
                yield delta

    def with_outputs(self, items: Iterable[Item]) -> list[Item]:
        """Return items with the results of their tools as `output`, for the model, which has to know them in any case."""
        return [{**item, "output": self._texts[str(item["id"])]} if item.get("id") in self._texts else item for item in items]

    async def close(self) -> None:
        """Close the sessions."""
        await asyncio.gather(*(session.close() for session in self._sessions.values()))

    def _has_to_be_approved(self, label: str, name: str) -> bool:
        """Return whether a call has to be approved; a call that will fail anyhow does not."""
        server, tool = self._servers.get(label), self._listed.get(label, {}).get(name)
        return server is not None and tool is not None and server.has_to_approve(tool)

    def _approved(self) -> Iterator[Item]:
        """Yield the approval requests that this request approves, and whose calls were not made."""
        requests = {item.get("id"): item for item in self._items if item.get("type") == "mcp_approval_request"}
        made = {item.get("approval_request_id") for item in self._items if item.get("type") == "mcp_call"}
        for answer in self._request.input:
            if answer.get("type") == "mcp_approval_response" and answer.get("approve") is True:
                request_id = answer.get("approval_request_id")
                if request_id in requests and request_id not in made:
                    made.add(request_id)
                    yield requests[request_id]

    async def _session(self, endpoint: Endpoint) -> Session:
        """Return the session with a server; calls to the same place with the same headers share one while it lives."""
        make = await asyncio.to_thread(load_sessions)  # the first one takes half a second, in which others go on
        session = self._sessions.get(endpoint)
        if session is None or session.ended:
            session = self._sessions[endpoint] = make(endpoint, self._seconds)
        return session

    def _unlisted(self) -> list[DeclaredServer]:
        return [server for server in self._servers.values() if server.label not in self._listed]

    async def _list(self, item_id: str, server: DeclaredServer, *, allowed: bool) -> Delta:
        """List the tools of a server; return how that ended."""
        if not allowed:
            return Fail(item_id, f"A request may have {MOST_SERVERS} MCP servers.")
        try:
            tools = await (await self._session(server.endpoint(self._policy))).list_tools()
        except ToolError as error:
            logger.warning("The tools of %r could not be listed: %r", server.label, str(error))
            return Fail(item_id, str(error))
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("%s: its tools could not be listed", server.label)
            return Fail(item_id, OUR_FAULT)
        self._learn(server.label, map(ListedTool.of, tools))
        return Succeed(item_id, {"tools": [tool.shown for tool in self._listed[server.label].values()]})

    def _learn(self, label: str, tools: Iterable[ListedTool]) -> None:
        self._listed[label] = {tool.name: tool for tool in self._servers[label].allowed(tools)}

    async def _call(self, call: ReadyCall, session: Session, request: ServerCall) -> Delta:
        """Run the tool of a call; return how that ended."""
        try:
            result = await session.call(request.name, request.arguments)
        except ToolError as error:
            logger.warning("The tool %r could not be called: %r", request.name, str(error))
            return self._failed(call, str(error))
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("%s: its tool could not be run", call.id)
            return self._failed(call, OUR_FAULT)
        text = result_text(result)
        if result.is_error:
            return self._failed(call, text or "The tool failed and did not say why.")
        self._texts[call.id] = text
        if call.kind == "web_search_call":
            self._citations.learn(pages_of(text))
        return Succeed(call.id, shown_result(call, text, self._request.include))

    def _endpoint(self, call: ReadyCall, *, allowed: bool) -> Endpoint:
        """Return the destination of a call.

        Raises:
            ToolError: The request does not allow the call, or the server cannot run it.
        """
        if not allowed:
            raise ToolError("The response has made as many tool calls as it may.")
        hosted = hosted_tool(call)
        if hosted is not None and not (hosted == CONTAINER and CONTAINER in self._servers):
            if not any(_is_of(tool, hosted) for tool in self._request.tools):
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
        self._texts[call.id] = f"Error: {message}"
        return Fail(call.id, message)


def _is_of(tool: Mapping[str, object], hosted: HostedTool) -> bool:
    """Return whether a declared tool is a hosted one, by its type or by the label of an MCP server."""
    return str(tool.get("type")).startswith(hosted) or LABELS.get(tool.get("server_label")) == hosted
