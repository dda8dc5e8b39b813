"""Responses with hosted tools, created without HTTP, judged, and timed."""

import asyncio
from contextlib import asynccontextmanager
from time import monotonic

from attrs import field, frozen
from live.engines import StagedEngine, step
from one_run import begin_response

from interlock.events.json import as_json
from interlock.events.sse import EventWriter
from interlock.serving.requests.create import read_request
from interlock.serving.responses.run import RequestContext
from interlock.serving.tools.address import AddressPolicy
from interlock.serving.tools.hosting import ToolServers
from interlock.verify.oracle import check

ANSWER = "<|channel|>final<|message|>Done."


def calling(recipient, text, then="<|call|>"):
    """Return the harmony of a call to a tool."""
    kind = " <|constrain|>json" if text.startswith("{") else ""
    return f"<|channel|>commentary to={recipient}{kind}<|message|>{text}{then}"


def several(*calls):
    """Return the harmony of a turn with several calls."""
    return "<|start|>assistant".join(calls)


def mcp(url, label="shop", **members):
    """Return the declaration of an MCP server as a tool of a request."""
    return {"type": "mcp", "server_label": label, "server_url": url, "require_approval": "never", **members}


@frozen(eq=False)
class WatchedServers(ToolServers):
    """Servers whose attribute `open` has the tools of unfinished responses."""

    open: set = field(factory=set, init=False)

    @asynccontextmanager
    async def begin(self, request, items, tenant):
        """Begin the tools of a response."""
        async with ToolServers.begin(self, request, items, tenant) as tools:
            self.open.add(tools)
            try:
                yield tools
            finally:
                self.open.discard(tools)


def servers(seconds=5.0, allowed=("127.0.0.1",), **hosted):
    return WatchedServers(hosted, AddressPolicy.of(allowed), seconds)


class Outcome:
    """The events that a client received, with the time of each; always legal."""

    def __init__(self, events, engine, tools):
        self.events = [event for event, _ in events]
        self.times = [time for _, time in events]
        self.engine = engine
        self.tools = tools
        assert check(self.events) == []
        assert not tools.open

    @property
    def response(self):
        return self.events[-1]["response"]

    @property
    def output(self):
        return self.response["output"]

    def of(self, kind):
        """The items of a kind."""
        return [item for item in self.output if item["type"] == kind]

    @property
    def names(self):
        return [event["type"].removeprefix("response.") for event in self.events]

    def time(self, name):
        """When an event of a name came."""
        return self.times[self.names.index(name)]


def ask(*turns, tools=(), runner=None, items="Hi", tenant="", **settings):
    """Request a response whose model writes these turns of harmony."""
    engine = StagedEngine(*([step(turn, "stop")] for turn in (*turns, ANSWER)))
    runner = runner or servers()

    async def collect():
        before = asyncio.all_tasks()
        request = read_request({"model": "staged", "input": items, "tools": list(tools), **settings})
        run = begin_response(RequestContext(request, request.input, tenant), engine, EventWriter(), tools=runner)
        timed = [(as_json(event), monotonic()) async for events in run.events() for event in events]
        for _ in range(5):  # generators that a broken connection has left are closed by tasks of the event loop
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        return timed

    return Outcome(asyncio.run(collect()), engine, runner)
