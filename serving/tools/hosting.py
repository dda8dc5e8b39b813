"""The hosted tools of one response: its servers' lists, the calls that the client approved, and the calls of its turns.

It tells deltas as things happen, and waits for nobody to read them but with `Run`: a tool starts only when the delta that
says so was taken. What the tools said is kept for the model even where the items do not show it. It knows neither HTTP nor
events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, Self

from attrs import define, field

from interlock.events.items import NOT_UNDERSTOOD
from interlock.fsm.deltas import Close, Delta, Fail, Finish, Open, Run, Succeed
from interlock.fsm.driver import ReadyCall
from interlock.serving.errors import ToolError
from interlock.serving.faults import Outcome, is_fault, outcome
from interlock.serving.requests.conversation import Item
from interlock.serving.requests.create import CreateResponse
from interlock.serving.requests.values import elements, members
from interlock.serving.tools.approval import Approvals
from interlock.serving.tools.calling import Wanted, hosted_tool, result_text, shown_result, wanted
from interlock.serving.tools.citation import Citations, pages_of
from interlock.serving.tools.declared import DeclaredServer, ListedTool, declared_servers
from interlock.serving.tools.endpoint import Endpoint
from interlock.serving.tools.hosted import CONTAINER, LABELS, HostedTool
from interlock.serving.tools.reach import Reach

if TYPE_CHECKING:
    from interlock.serving.tools.session import Session

__all__ = ["ResponseTools", "load_sessions"]

logger = logging.getLogger(__name__)

MOST_CALLS: Final = 128
"""How many calls a response may make whose request sets no limit: a model that calls for ever comes to an end."""
MOST_SERVERS: Final = 16
"""How many MCP servers a request may have."""

OUR_FAULT: Final = "The server had an error while it ran the tool."


def load_sessions() -> type[Session]:
    """Import what speaks to MCP servers, 23 MB that no other response needs, and return it."""
    made: type[Session] = import_module("interlock.serving.tools.session").Session
    return made


@define(eq=False)
class Race:
    """Works that go on at once and are told as they end; those that have not ended are cancelled when it is left."""

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
        """Start a work.

        Args:
            work: It gives what is told when it ends.
        """
        self._tasks.add(asyncio.create_task(self._end(work)))

    async def ends(self) -> AsyncGenerator[Delta, None]:
        """Yield the end of every work, in the order in which they come.

        Raises:
            BaseException: A work raised it.
        """
        for _ in range(len(self._tasks)):
            yield (await self._ended.get()).result()

    async def _end(self, work: Coroutine[object, object, Delta]) -> None:
        self._ended.put_nowait(await outcome(work))


@define(eq=False)
class ResponseTools:
    """The tools of one response; see `interlock.serving.runs.turns.Tools` for what each method is for.

    Args:
        hosted: The URL of the MCP server behind each hosted tool.
        reach: What the URLs of the request may reach.
        seconds: How long a call may take.
        request: What is asked for.
        items: The conversation that the model goes on from.
    """

    _hosted: Mapping[HostedTool, str]
    _reach: Reach
    _seconds: float
    _request: CreateResponse
    _items: Sequence[Item]
    _servers: Mapping[str, DeclaredServer] = field(init=False)
    _listed: dict[str, dict[str, ListedTool]] = field(factory=dict[str, dict[str, ListedTool]], init=False)
    _sessions: dict[Endpoint, Session] = field(factory=dict[Endpoint, "Session"], init=False)
    _said: dict[str, str] = field(factory=dict[str, str], init=False)
    """What the tool of each call said, or why there is nothing, by the item's id."""
    _made: int = field(default=0, init=False)
    _approvals: Approvals = field(init=False)
    _citations: Citations = field(factory=Citations, init=False)

    def __attrs_post_init__(self) -> None:
        """Read the request's servers, and the lists that the conversation has already."""
        declared = map(members, elements(self._request.raw.get("tools")))
        self._servers = declared_servers(tool for tool in declared if LABELS.get(tool.get("server_label")) not in self._hosted)
        self._approvals = Approvals(self._asks_for)
        for item in self._items:
            label = str(item.get("server_label"))
            if item.get("type") == "mcp_list_tools" and label in self._servers and item.get("error") is None:
                self._learn(label, [ListedTool(members(tool)) for tool in elements(item.get("tools"))])

    async def prepare(self, output: Callable[[], Sequence[Item]]) -> AsyncGenerator[Sequence[Delta], None]:
        """List the servers' tools where the conversation has no list yet, then put the approved calls."""
        async with Race() as race:
            for index, server in enumerate(self._unlisted()):
                yield [Open("mcp_list_tools", {"server_label": server.label})]
                race.start(self._list(str(output()[-1]["id"]), server, allowed=index < MOST_SERVERS))
            async for delta in race.ends():
                yield [delta]
        for asked in self._approved():
            fields = {name: asked[name] for name in ("server_label", "name")}
            call = Open("mcp_call", {**fields, "approval_request_id": asked["id"]})
            yield [call, str(asked["arguments"]), Close()]

    def heard(self, told: Iterable[Delta]) -> list[Delta]:
        """Replace calls that have to be approved by approval requests, and add annotations beside citations."""
        return self._citations.feed(self._approvals.feed(told) if self._servers else told)

    async def run(self, calls: Sequence[ReadyCall], rejected: Sequence[Item] = ()) -> AsyncGenerator[Delta, None]:
        """Run the tools of calls, all at once; those that cannot be run fail without having been started."""
        made = len(calls) + len(rejected)
        left = (MOST_CALLS if self._request.max_tool_calls is None else self._request.max_tool_calls) - self._made
        self._made += made
        self._said.update((str(item["id"]), f"Error: {NOT_UNDERSTOOD}") for item in rejected)
        async with Race() as race:
            for index, call in enumerate(calls):
                try:
                    session, want = await self._planned(call, allowed=index < left)
                except ToolError as error:
                    yield self._failed(call, str(error))
                else:
                    yield Run(call.id)
                    race.start(self._call(call, session, want))
            if left <= 0 < made:
                yield Finish()
            async for delta in race.ends():
                yield delta

    def recalled(self, items: Iterable[Item]) -> list[Item]:
        """Return items with what their tools said as `output`, for the model, which has to know it in any case."""
        return [{**item, "output": self._said[str(item["id"])]} if item.get("id") in self._said else item for item in items]

    async def close(self) -> None:
        """Close the sessions."""
        await asyncio.gather(*(session.close() for session in self._sessions.values()))

    def _asks_for(self, label: str, name: str) -> bool:
        """Return whether a call has to be approved; one that will fail anyhow has not."""
        server, tool = self._servers.get(label), self._listed.get(label, {}).get(name)
        return server is not None and tool is not None and server.asks_for(tool)

    def _approved(self) -> Iterator[Item]:
        """Yield the questions that this request answers with yes, and whose calls have not been made."""
        asked = {item.get("id"): item for item in self._items if item.get("type") == "mcp_approval_request"}
        made = {item.get("approval_request_id") for item in self._items if item.get("type") == "mcp_call"}
        answers = [item for item in self._request.input if item.get("type") == "mcp_approval_response"]
        for answer in answers:
            about = answer.get("approval_request_id")
            if answer.get("approve") is True and about in asked and about not in made:
                made.add(about)
                yield asked[about]

    async def _session(self, endpoint: Endpoint) -> Session:
        """Return the session with a server; what goes to the same place in the same name shares one, as long as it lives."""
        make = await asyncio.to_thread(load_sessions)  # the first one takes half a second, in which others go on
        session = self._sessions.get(endpoint)
        if session is None or session.ended:
            session = self._sessions[endpoint] = make(endpoint, self._seconds)
        return session

    def _unlisted(self) -> list[DeclaredServer]:
        return [server for server in self._servers.values() if server.label not in self._listed]

    async def _list(self, item_id: str, server: DeclaredServer, *, allowed: bool) -> Delta:
        """List the tools of a server, and say how that ended."""
        if not allowed:
            return Fail(item_id, f"A request may have {MOST_SERVERS} MCP servers.")
        try:
            tools = await (await self._session(server.endpoint(self._reach))).list_tools()
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

    async def _planned(self, call: ReadyCall, *, allowed: bool) -> tuple[Session, Wanted]:
        """Return the session that a call needs, and what it asks for there.

        Raises:
            ToolError: It cannot be run, or may not.
        """
        if not allowed:
            raise ToolError("The response has made as many tool calls as it may.")
        return await self._session(self._endpoint(call)), wanted(call)

    async def _call(self, call: ReadyCall, session: Session, want: Wanted) -> Delta:
        """Run the tool of a call, and say how that ended."""
        try:
            result = await session.call(want.name, want.arguments)
        except ToolError as error:
            logger.warning("The tool %r could not be called: %r", want.name, str(error))
            return self._failed(call, str(error))
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("%s: its tool could not be run", call.id)
            return self._failed(call, OUR_FAULT)
        text = result_text(result)
        if result.is_error:
            return self._failed(call, text or "The tool failed and did not say why.")
        self._said[call.id] = text
        if call.kind == "web_search_call":
            self._citations.learn(pages_of(text))
        return Succeed(call.id, shown_result(call, text, self._request.include))

    def _endpoint(self, call: ReadyCall) -> Endpoint:
        """Return where a call goes, if it may go there."""
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
        return server.endpoint(self._reach)

    def _failed(self, call: ReadyCall, message: str) -> Fail:
        self._said[call.id] = f"Error: {message}"
        return Fail(call.id, message)


def _is_of(tool: Mapping[str, object], hosted: HostedTool) -> bool:
    """Return whether a declared tool is a hosted one, by its type or by the label of an MCP server."""
    return str(tool.get("type")).startswith(hosted) or LABELS.get(tool.get("server_label")) == hosted
