"""Hosted tools: their interfaces, and those of one response: MCP servers, their lists, approvals, calls and citations.

`ToolServers` runs tools, `NullTools` runs none, and `ScriptedTools` returns the results of a script. Filters rewrite the parser's
deltas before they become events: calls that need approval become requests, and citations get annotations. The pages in the text
of a search have numbers, by which marks in the text of the model cite them. A tool starts only after the consumer of
`ResponseTools.run` takes its `Run` delta; then it no longer waits for the consumer.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, nullcontext
from functools import cached_property
from inspect import iscoroutinefunction, signature
from typing import TYPE_CHECKING, Final, Protocol, cast
from urllib.parse import urlsplit

import orjson
from attrs import define, field, frozen

from interlock.embedding import random_id
from interlock.events.items import ITEMS, NOT_UNDERSTOOD, NOTHING, ItemKind, result_fields
from interlock.events.json import as_text, dumps, elements, is_array, is_object, members
from interlock.fsm.deltas import Annotate, Close, Delta, EndTurn, Fail, Finish, Open, Reject, Run, Succeed, Text
from interlock.fsm.driver import ReadyCall
from interlock.fsm.table import DeclarationError
from interlock.parsers.hosted_tools import CONTAINER, HOSTED_CALLS, HOSTED_TOOLS, LABELS, SEARCHES, HostedTool
from interlock.serving import metrics, traces
from interlock.serving.engines.pages import Page, action_fields, pages_of
from interlock.serving.metrics import OTHER
from interlock.serving.requests.api_errors import ToolError, ToolFailedError, invalid
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.requests.runtime import Outcome, is_fault, outcome
from interlock.serving.requests.tool_offer import CALL_SECONDS
from interlock.serving.tools.address import AddressPolicy, Endpoint

if TYPE_CHECKING:
    from mcp_types import Tool

    from interlock.serving.engines.recordings import ToolResult
    from interlock.serving.engines.script import ScriptedEngine
    from interlock.serving.tools.mcp_session import Session

logger = logging.getLogger(__name__)

MAX_CALLS: Final = 128
"""The most calls of a response whose request sets no limit, so that a model cannot call forever."""
MAX_SERVERS: Final = 16

TOOL_ERROR: Final = "The server had an error while it ran the tool."

FRAMING: Final = frozenset({"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"})
"""The headers that frame an HTTP message, which a request may not set."""
TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header (RFC 9110, section 5.6.2)."""
VALUE: Final = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?")
"""The value of a header, limited to the characters that every server accepts (RFC 9110, section 5.5)."""

FUNCTION_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

MARK: Final = re.compile(r"【(\d{1,6})†[^【】]*】")
"""A citation of a page by its number: `【3†L5-L7】`."""
MAX_MARK: Final = 80


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
class LocalFunction:
    """A function of this server that models call as the tool of an MCP server.

    Args:
        name: Its name.
        description: What models read about it.
        parameters: The JSON Schema of its arguments: an object.
        function: Gets the arguments by name, and returns the result as text, or as a value that becomes JSON. The model and the
            client read the message of a `ToolFailedError`.

    Raises:
        DeclarationError: The name has other characters than letters, digits, `_` and `-`, `function` is not declared with
            `async def`, or it does not take the properties of `parameters`.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    function: Callable[..., Awaitable[object]]

    def __attrs_post_init__(self) -> None:
        _require_name(self.name)
        if not iscoroutinefunction(self.function):
            raise DeclarationError(f"the function of the tool {self.name!r} is declared with 'async def'")
        if not is_object(self.parameters):
            raise DeclarationError(f"the parameters of the tool {self.name!r} are a JSON Schema, not {self.parameters!r:.100}")
        try:
            signature(self.function).bind_partial(**members(self.parameters.get("properties")))
        except TypeError as error:
            raise DeclarationError(f"the function of the tool {self.name!r} does not fit its parameters: it {error}") from None


def _require_name(name: object) -> None:
    if not isinstance(name, str) or FUNCTION_NAME.fullmatch(name) is None:
        raise DeclarationError(f"{name!r} is not the name of a tool or server: 1 to 64 letters, digits, '_' and '-'")


@frozen
class LocalServer:
    """Functions of this server as an MCP server, whose calls may take `seconds`; see `Session`."""

    functions: Mapping[str, LocalFunction]
    seconds: float

    def list_tools(self) -> Iterator[ListedTool]:
        for each in self.functions.values():
            fields = {"name": each.name, "description": each.description, "input_schema": each.parameters, "annotations": None}
            yield ListedTool(fields)

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Call a function and return its result.

        Raises:
            ToolFailedError: It says so, or it has other arguments.
            ToolError: There is no such function, or it takes too long.
        """
        if name not in self.functions:  # the client has sent a list with another tool
            raise ToolError(f"This server has no tool '{name}'.")
        function = self.functions[name].function
        try:
            signature(function).bind(**arguments)
        except TypeError as error:
            raise ToolFailedError(f"The arguments are wrong: {error}.") from None
        limit = asyncio.timeout(self.seconds)
        try:
            async with limit:
                result = await function(**arguments)
        except TimeoutError:
            if limit.expired():
                raise ToolError(f"The tool did not answer within {self.seconds:g} seconds.") from None
            raise
        return result if isinstance(result, str) else dumps(result).decode()


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
class ScriptedTools(NullTools):
    """Returns the results that a script has for its hosted calls, in their order; a call without a result is not run."""

    engine: ScriptedEngine
    results: deque[ToolResult] = field(factory=deque["ToolResult"])  # for one response

    @property
    def hosted(self) -> Container[HostedTool]:
        return HOSTED_TOOLS

    def begin(self, request: ResponseRequest, items: Sequence[JsonItem], tenant: str) -> AbstractAsyncContextManager[Tools]:
        del items, tenant
        return nullcontext(ScriptedTools(self.engine, self.engine.results(request)))

    async def run(self, calls: Sequence[ReadyCall], rejected: Sequence[JsonItem] = ()) -> AsyncGenerator[Delta, None]:
        from interlock.serving.engines.recordings import tool_deltas  # noqa: PLC0415 - only scripts need it

        del rejected
        for call in calls[: len(self.results)]:
            for delta in tool_deltas(call, self.results.popleft()):
                yield delta


def load_session_class() -> type[Session]:
    """Import and return `Session`. The import takes 23 MB, which servers without tools do not need."""
    from interlock.serving.tools.mcp_session import Session  # noqa: PLC0415

    return Session


@frozen
class ListedTool:
    """A tool, with the fields that an `mcp_list_tools` item shows."""

    fields: Mapping[str, object]

    @classmethod
    def of(cls, tool: Tool) -> ListedTool:
        hints = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations is not None else None
        return cls({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema, "annotations": hints})

    @property
    def name(self) -> str:
        return str(self.fields.get("name"))

    @property
    def read_only(self) -> bool:
        return members(self.fields.get("annotations")).get("readOnlyHint") is True


@frozen
class DeclaredServer:
    """An MCP server that a request declares."""

    label: str
    tool: Mapping[str, object] = field(repr=False)  # it may hold secrets

    def endpoint(self, policy: AddressPolicy) -> Endpoint:
        """Return the destination of a session, or raise `ToolError` for an unusable URL or header."""
        url = self.tool.get("server_url")
        if not isinstance(url, str):
            raise ToolError("The tool has no 'server_url', and this server has no connectors.")
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ToolError("The 'server_url' is not the URL of a web server.")
        return Endpoint(url, tuple(self._headers()), policy)

    def _headers(self) -> Iterable[tuple[str, str]]:
        for name, value in members(self.tool.get("headers")).items():
            if name.lower() in FRAMING or not isinstance(value, str):
                raise ToolError(f"The header '{name}' cannot be set.")
            yield _require_sendable(name, value)
        authorization = self.tool.get("authorization")
        if isinstance(authorization, str):
            yield _require_sendable("Authorization", f"Bearer {authorization}")

    def filter_allowed(self, tools: Iterable[ListedTool]) -> Iterable[ListedTool]:
        rule = self.tool.get("allowed_tools")
        return tools if rule is None else filter(_matcher(rule), tools)

    def needs_approval(self, tool: ListedTool) -> bool:
        """Return whether calls of a tool need approval, as they do by default."""
        rule = self.tool.get("require_approval")
        if not is_object(rule):
            return rule != "never"
        if "always" in rule and _matcher(rule["always"])(tool):
            return True
        if "never" in rule and _matcher(rule["never"])(tool):
            return False
        return "never" in rule or "always" not in rule


def _require_sendable(name: str, value: str) -> tuple[str, str]:
    """Return a header, or raise `ToolError` if it is invalid: the HTTP client's own error would repeat it in the log."""
    if TOKEN.fullmatch(name) is None or VALUE.fullmatch(value) is None:
        raise ToolError("A header for the server has an invalid name or value.")
    return name, value


def _matcher(rule: object) -> Callable[[ListedTool], bool]:
    """Return the predicate for a rule: a list of names, or an object with `tool_names` and `read_only`."""
    conditions: Mapping[str, object] = {"tool_names": rule} if is_array(rule) else members(rule)
    read_only, tool_names = conditions.get("read_only"), conditions.get("tool_names")
    names = None if tool_names is None else {name for name in elements(tool_names) if isinstance(name, str)}
    return lambda tool: (names is None or tool.name in names) and (read_only is None or read_only == tool.read_only)


def cited_numbers(text: str) -> Iterator[int]:
    """Yield the numbers of the pages that the marks in a text cite."""
    for mark in MARK.finditer(text):
        yield int(mark[1])


@define(eq=False)
class Citations:
    """Adds an annotation for each mark that cites a known page. The driver computes the position of the mark."""

    pages: dict[int, Page] = field(factory=dict[int, Page], init=False)
    _tail: str = field(default="", init=False)
    """The end of the text so far, from a `【` that may begin a mark."""

    def add_pages(self, pages: Iterable[Page]) -> None:
        self.pages.update((page.number, page) for page in pages)

    def feed(self, deltas: Iterable[Delta]) -> list[Delta]:
        result: list[Delta] = []
        for delta in deltas:
            result.append(delta)
            match delta:
                case str(text) | Text(text):
                    result += self._marks(text)
                case _:
                    self._tail = ""
        return result

    def _marks(self, text: str) -> Iterator[Annotate]:
        text = self._tail + text
        end = 0
        for mark in MARK.finditer(text):
            end = mark.end()
            page = self.pages.get(int(mark[1]))
            if page is not None and len(mark[0]) <= MAX_MARK:
                yield Annotate({"type": "url_citation", "url": page.url, "title": page.title}, mark[0])
        start = text.rfind("【", end)
        self._tail = text[start:] if start >= 0 and len(text) - start < MAX_MARK else ""


@define(eq=False)
class Approvals:
    """Replaces each call that needs approval with an `mcp_approval_request`.

    A call is pending until its arguments are complete, because the request shows them; a truncated or invalid call stays a call.
    """

    _needs_approval: Callable[[str, str], bool]
    _pending: Open | None = field(default=None, init=False)
    _text: list[str] = field(factory=list[str], init=False)

    def feed(self, deltas: Iterable[Delta]) -> list[Delta]:
        result: list[Delta] = []
        for delta in deltas:
            match delta:
                case str(text) | Text(text) if self._pending is not None:
                    self._text.append(text)
                case Open(kind, fields) if (tool := mcp_tool(kind, fields)) is not None and self._needs_approval(*tool):
                    result += self._request()
                    self._pending = delta
                case Close():
                    result += self._request() if self._pending is not None else [delta]
                case EndTurn(reason) if reason != "stop" and self._pending is not None:
                    result += [self._pending, self._take_text(), delta]
                case Reject() if self._pending is not None:
                    result += [self._pending, self._take_text(), delta]
                case _:
                    result += [*self._request(), delta]
        return result

    def _request(self) -> list[Delta]:
        if self._pending is None:
            return []
        call, text = self._pending, self._take_text()
        label, name = mcp_tool(call.kind, call.fields) or ("", "")  # `feed` has found it
        code = _code_field(call.kind)
        arguments = dumps({code: text}).decode() if code else call.text or text
        return [Open("mcp_approval_request", {"server_label": label, "name": name, "arguments": arguments})]

    def _take_text(self) -> str:
        text = "".join(self._text)
        self._pending, self._text = None, []
        return text


@frozen
class ToolServers:
    """Creates the tools of each response.

    `hosted` maps each hosted tool to the trusted URL of its MCP server, or to a tool of this server; `policy` limits the
    addresses that the URLs in requests can reach, and `seconds` limits each call of an MCP server. `functions` are tools of this
    server, by the label of the MCP server that requests name to use them.

    Raises:
        DeclarationError: A hosted tool or a label cannot have this name, or two functions have one name.
    """

    hosted: Mapping[HostedTool, str | LocalTool] = field(factory=dict[HostedTool, str | LocalTool])
    policy: AddressPolicy = field(factory=AddressPolicy)
    seconds: float = CALL_SECONDS
    functions: Mapping[str, Sequence[LocalFunction]] = field(factory=dict[str, Sequence[LocalFunction]], kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Load the MCP client before a response needs it, if the operator allows any server."""
        if unknown := [*self.hosted.keys() - {*HOSTED_TOOLS}]:
            names = ", ".join(HOSTED_TOOLS)
            raise DeclarationError(f"{unknown[0]!r} is no hosted tool, which is one of {names}; give other tools as functions")
        servers: object = self.functions
        if not is_object(servers):
            raise DeclarationError(f"functions are a mapping of labels to lists, not {servers!r:.100}")
        for label, given in servers.items():
            _require_name(label)
            if not is_array(given) or not all(isinstance(each, LocalFunction) for each in given):
                raise DeclarationError(f"the server {label!r} has a list of LocalFunction, not {given!r:.100}")
        for label, functions in self.functions.items():
            if label in LABELS:
                raise DeclarationError(f"the label {label!r} is the one of a hosted tool")
            if len({each.name for each in functions}) < len(functions):
                raise DeclarationError(f"two functions of the server {label!r} have the same name")
        if any(isinstance(tool, str) for tool in self.hosted.values()) or self.policy != AddressPolicy():
            load_session_class()

    @property
    def descriptions(self) -> Mapping[str, str]:
        """What models read about each hosted tool; empty for the usual text."""
        return {kind: "" if isinstance(tool, str) else tool.description for kind, tool in self.hosted.items()}

    def local_server(self, label: str) -> LocalServer | None:
        """Return the functions with the label of an MCP server, if there are any."""
        functions = self.functions.get(label)
        return None if functions is None else LocalServer({each.name: each for each in functions}, self.seconds)

    def begin(
        self, request: ResponseRequest, items: Sequence[JsonItem], tenant: str
    ) -> AbstractAsyncContextManager[ResponseTools]:
        for tool in request.declared_servers if self.functions else ():
            label = tool.get("server_label")
            if tool.get("server_url") is None and label not in self.functions and label not in LABELS:
                labels = ", ".join(self.functions)
                raise invalid("tools", f"This server has no functions with the label '{label}'; it has: {labels}.")
        return aclosing(ResponseTools(self, request, items, tenant))

    async def close(self) -> None:
        for tool in self.hosted.values():
            if not isinstance(tool, str):
                await tool.close()


@asynccontextmanager
async def _tasks() -> AsyncGenerator[list[asyncio.Task[Outcome[Delta]]]]:
    """Return a list for tasks; tasks that still run at the end of the context are cancelled."""
    tasks: list[asyncio.Task[Outcome[Delta]]] = []
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@define(eq=False)
class ResponseTools:
    """The tools of one response; `ToolRunner.begin` explains the arguments, and `Tools` the methods."""

    _runner: ToolServers
    _request: ResponseRequest
    _items: Sequence[JsonItem]
    _tenant: str
    _servers: dict[str, DeclaredServer] = field(factory=dict[str, DeclaredServer], init=False)
    _listed: dict[str, dict[str, ListedTool]] = field(factory=dict[str, dict[str, ListedTool]], init=False)
    _sessions: dict[Endpoint, Session] = field(factory=dict[Endpoint, "Session"], init=False)
    _local_sessions: dict[LocalTool, ToolSession] = field(factory=dict[LocalTool, ToolSession], init=False)
    _results: dict[str, str] = field(factory=dict[str, str], init=False)
    """The result or error of each call, by the id of its item."""
    _calls: int = field(default=0, init=False)
    _rewrites: list[Callable[[list[Delta]], list[Delta]]] = field(factory=list[Callable[[list[Delta]], list[Delta]]], init=False)
    """What `rewrite` does before citations get their annotations."""
    _citations: Citations = field(factory=Citations, init=False)

    def __attrs_post_init__(self) -> None:
        for tool in self._request.declared_servers:
            label = str(tool.get("server_label"))
            if not self._offers(LABELS.get(label)):
                self._servers.setdefault(label, DeclaredServer(label, tool))
        if self._servers:
            self._rewrites.append(Approvals(self._needs_approval).feed)
        if not isinstance(self._runner.hosted.get("code_interpreter", ""), str):
            self._rewrites.append(lambda deltas: [*map(self._with_container, deltas)])
        for text in self._earlier:
            self._citations.add_pages(pages_of(text))
        for item in self._items:
            label = str(item.get("server_label"))
            if item.get("type") == "mcp_list_tools" and label in self._servers and item.get("error") is None:
                self._set_list(label, [ListedTool(members(tool)) for tool in elements(item.get("tools"))])

    async def prepare(self, output: Callable[[], Sequence[JsonItem]]) -> AsyncGenerator[Sequence[Delta], None]:
        unlisted = [server for label, server in self._servers.items() if not (label in self._listed or self._hosts(label))]
        if unlisted:  # most requests have none, and an empty group of tasks takes 0.1 ms
            async with _tasks() as tasks:
                for index, server in enumerate(unlisted):
                    yield [Open("mcp_list_tools", {"server_label": server.label})]
                    listing = self._list(str(output()[-1]["id"]), server, allowed=index < MAX_SERVERS)
                    tasks.append(asyncio.create_task(outcome(listing)))
                for ended in asyncio.as_completed(tasks):
                    yield [(await ended).result()]
        for request in self._approved_requests():
            fields = {name: request[name] for name in ("server_label", "name")}
            call = Open("mcp_call", {**fields, "approval_request_id": request["id"]})
            yield [call, str(request["arguments"]), Close()]

    def rewrite(self, deltas: list[Delta]) -> list[Delta]:
        for rewrite in self._rewrites:
            deltas = rewrite(deltas)
        return self._citations.feed(deltas) if self._citations.pages else deltas

    async def run(self, calls: Sequence[ReadyCall], rejected: Sequence[JsonItem] = ()) -> AsyncGenerator[Delta, None]:
        count = len(calls) + len(rejected)
        remaining = (MAX_CALLS if self._request.max_tool_calls is None else self._request.max_tool_calls) - self._calls
        self._calls += count
        self._results.update((str(item["id"]), f"Error: {NOT_UNDERSTOOD}") for item in rejected)
        async with _tasks() as tasks:
            for index, call in enumerate(calls):
                try:
                    session = await self._session(call, allowed=index < remaining)
                    name, arguments = server_call(call)
                except ToolError as error:
                    yield self._failed(call, str(error))
                else:
                    yield Run(call.id)
                    tasks.append(asyncio.create_task(outcome(self._call(call, session, name, arguments))))
            for ended in asyncio.as_completed(tasks):
                yield (await ended).result()
        if count > remaining:
            yield Finish()

    def with_outputs(self, items: Iterable[JsonItem]) -> list[JsonItem]:
        return [{**item, "output": self._results[str(item["id"])]} if item.get("id") in self._results else item for item in items]

    async def aclose(self) -> None:
        if self._sessions:  # to gather nothing takes a step of the event loop
            await asyncio.gather(*(session.close() for session in self._sessions.values()))

    def _needs_approval(self, label: str, name: str) -> bool:
        server, tool = self._servers.get(label), self._tool(label, name)
        return server is not None and tool is not None and server.needs_approval(tool)

    def _offers(self, kind: HostedTool | None) -> bool:
        """Return whether the request offers a hosted tool by its type, and so without rules for its calls."""
        return kind is not None and any(str(tool.get("type")).startswith(kind) for tool in self._request.tools)

    def _hosts(self, label: str) -> bool:
        """Return whether a server of the operator runs the calls of an MCP server with this label."""
        return LABELS.get(label) in self._runner.hosted

    def _tool(self, label: str, name: str) -> ListedTool | None:
        """Return a tool of an MCP server in the request, if it may be called. The servers of the operator are not listed."""
        if not self._hosts(label):
            return self._listed.get(label, {}).get(name)
        server = self._servers.get(label)
        return None if server is None else next(iter(server.filter_allowed([ListedTool({"name": name})])), None)

    def _approved_requests(self) -> Iterator[JsonItem]:
        requests = {item.get("id"): item for item in self._items if item.get("type") == "mcp_approval_request"}
        done = {item.get("approval_request_id") for item in self._items if item.get("type") == "mcp_call"}
        for item in self._request.input:
            if item.get("type") == "mcp_approval_response" and item.get("approve") is True:
                request_id = item.get("approval_request_id")
                if request_id in requests and request_id not in done:
                    done.add(request_id)
                    yield requests[request_id]

    @cached_property
    def _earlier(self) -> Sequence[str]:
        """The results of searches in earlier responses, and the messages that cite their pages; none without a web search."""
        if not self._offers("web_search"):
            return ()
        results = [as_text(item.get("output")) for item in self._items if _cites(item)]
        parts = [part for item in self._items if item.get("role") == "assistant" for part in elements(item.get("content"))]
        return [*results, *(as_text(members(part).get("text")) for part in parts)]

    @cached_property
    def _container(self) -> str:
        """The id of the container that the request names, or else that of the last call, or else a new one."""
        named = (tool.get("container") for tool in self._request.tools if tool.get("type") == "code_interpreter")
        last = (item.get("container_id") for item in reversed(self._items) if item.get("type") == "code_interpreter_call")
        return next((each for each in (*named, *last) if isinstance(each, str)), None) or random_id("cntr")

    def _with_container(self, delta: Delta) -> Delta:
        if isinstance(delta, Open) and delta.kind == "code_interpreter_call":
            return Open(delta.kind, {**delta.fields, "container_id": self._container}, delta.text)
        return delta

    @cached_property
    def _domains(self) -> Mapping[str, object]:
        """The filters of the web search, which are empty if it may read all pages."""
        filters = (members(tool.get("filters")) for tool in self._request.tools if tool.get("type") in SEARCHES)
        return {name: value for each in filters for name, value in each.items() if value is not None}

    async def _session(self, call: ReadyCall, *, allowed: bool) -> ToolSession:
        target = self._target(call, allowed=allowed)
        if isinstance(target, LocalServer):
            return target
        if isinstance(target, Endpoint):
            if self._domains and call.kind == "web_search_call":
                raise ToolError("The web search of this server cannot be limited to domains.")
            return await self._mcp_session(target)
        if target not in self._local_sessions:
            self._local_sessions[target] = target.session(self._tenant, self._container, self._earlier, self._domains)
        return self._local_sessions[target]

    async def _mcp_session(self, endpoint: Endpoint) -> Session:
        session_class = await asyncio.to_thread(load_session_class)  # the first import takes half a second
        session = self._sessions.get(endpoint)
        if session is None or session.ended:
            session = self._sessions[endpoint] = session_class(endpoint, self._runner.seconds)
        return session

    async def _list(self, item_id: str, server: DeclaredServer, *, allowed: bool) -> Delta:
        if not allowed:
            return Fail(item_id, f"A request may have at most {MAX_SERVERS} MCP servers whose tools are not listed yet.")
        try:
            tools = await self._list_tools(server)
        except ToolError as error:
            logger.warning("The tools of %r could not be listed: %r", server.label, str(error))
            return Fail(item_id, str(error))
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("%s: its tools could not be listed", server.label)
            return Fail(item_id, TOOL_ERROR)
        self._set_list(server.label, tools)
        return Succeed(item_id, {"tools": [tool.fields for tool in self._listed[server.label].values()]})

    async def _list_tools(self, server: DeclaredServer) -> Iterable[ListedTool]:
        local = self._runner.local_server(server.label)
        if local is not None:
            return local.list_tools()
        session = await self._mcp_session(server.endpoint(self._runner.policy))
        return map(ListedTool.of, await session.list_tools())

    def _set_list(self, label: str, tools: Iterable[ListedTool]) -> None:
        self._listed[label] = {tool.name: tool for tool in self._servers[label].filter_allowed(tools)}

    async def _call(self, call: ReadyCall, session: ToolSession, name: str, arguments: Mapping[str, object]) -> Delta:
        try:
            with observe_tool(call, name):
                text = await session.call(name, arguments)
        except ToolFailedError as error:
            return self._failed(call, str(error))
        except ToolError as error:
            logger.warning("The tool %r could not be called: %r", name, str(error))
            return self._failed(call, str(error))
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("%s: its tool could not be run", call.id)
            return self._failed(call, TOOL_ERROR)
        self._results[call.id] = text
        hosted = HOSTED_CALLS.get(call.kind)
        if hosted is not None and hosted.cites:
            self._citations.add_pages(pages_of(text))
        return Succeed(call.id, result_item_fields(call, text, self._request.include))

    def _target(self, call: ReadyCall, *, allowed: bool) -> Endpoint | LocalTool | LocalServer:
        if not allowed:
            raise ToolError("The response has reached its limit of tool calls.")
        tool = mcp_tool(call.kind, call.fields)
        if tool is None:
            raise ToolError(f"This server does not run calls of the kind '{call.kind}'.")
        label, name = tool
        hosted, server = LABELS.get(label), self._servers.get(label)
        runner = None if hosted is None else self._runner.hosted.get(hosted)
        if server is None:
            if call.kind not in HOSTED_CALLS and label != CONTAINER:
                raise ToolError(f"The request has no MCP server '{label}'.")
            if not self._offers(hosted):
                raise ToolError(f"The request does not offer the tool '{hosted}'.")
            if runner is None:
                raise ToolError(f"This server has no tool server for '{hosted}'.")
            return Endpoint(runner) if isinstance(runner, str) else runner
        if runner is None and label not in self._listed:
            raise ToolError(f"The MCP server '{label}' has not listed its tools.")
        if self._tool(label, name) is None:
            raise ToolError(f"The MCP server '{label}' has no tool '{name}' that may be called.")
        if runner is None:
            return self._runner.local_server(label) or server.endpoint(self._runner.policy)
        return Endpoint(runner) if isinstance(runner, str) else runner

    def _failed(self, call: ReadyCall, message: str) -> Fail:
        self._results[call.id] = f"Error: {message}"
        return Fail(call.id, message)


@contextmanager
def observe_tool(call: ReadyCall, name: str) -> Generator[None]:
    """Record the duration and the span of a call; the names of tools on servers of the client are no labels."""
    hosted = HOSTED_CALLS.get(call.kind)
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": call.id}
    duration = metrics.measure("gen_ai_execute_tool_duration_seconds", "execute_tool", OTHER if hosted is None else hosted.tool)
    with traces.record(f"execute_tool {name}", "INTERNAL", attributes), duration:
        yield


def mcp_tool(kind: ItemKind, fields: Mapping[str, object]) -> tuple[str, str] | None:
    """Return the label of the MCP server and the name of the tool that run a call; None if no MCP server runs such calls."""
    if kind == "mcp_call":
        return str(fields["server_label"]), str(fields["name"])
    hosted = HOSTED_CALLS.get(kind)
    return None if hosted is None else (hosted.label, hosted.mcp_tool(fields))


def server_call(call: ReadyCall) -> tuple[str, Mapping[str, object]]:
    """Translate a call of the model into the name and arguments of an MCP tool.

    Raises:
        ToolError: The model wrote arguments that are not a JSON object.
    """
    hosted, code = HOSTED_CALLS.get(call.kind), _code_field(call.kind)
    name = str(call.fields["name"]) if hosted is None else hosted.mcp_tool(call.fields)
    if code:
        return name, {code: call.text}
    renamed = NOTHING if hosted is None else hosted.renamed
    return name, {renamed.get(argument, argument): value for argument, value in _arguments(call.text).items()}


def _cites(item: JsonItem) -> bool:
    """Return whether an item is a call whose results are pages."""
    hosted = next((each for kind, each in HOSTED_CALLS.items() if kind == item.get("type")), None)
    return hosted is not None and hosted.cites


def _code_field(kind: ItemKind) -> str:
    """Return the field with the text of a call that the model does not write as arguments in JSON; empty for any other call."""
    return "".join(name for name in ITEMS[kind].text_path if name != "arguments")


def _arguments(text: str) -> Mapping[str, object]:
    try:
        arguments: object = orjson.loads(text) if text.strip() else {}
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise ToolError("The arguments are not a JSON object.")
    return cast("dict[str, object]", arguments)


def result_item_fields(call: ReadyCall, text: str, include: Sequence[str]) -> dict[str, object]:
    """Return the fields of a call's item that show its result, as the parameter `include` of the request selects them."""
    hosted, action = HOSTED_CALLS.get(call.kind), members(call.fields.get("action"))
    if opened := action_fields(action, text):
        return opened
    if hosted is not None and hosted.include and hosted.include not in include:
        return {}
    if action.get("type") == "search":
        sources = [{"type": "url", "url": page.url} for page in pages_of(text)]
        return {"action": {**action, "sources": sources}}
    return result_fields(call.kind, text)
