"""What the operator configured, from which every response gets tools of its own.

It knows the tool servers, what requests may reach, and which responses have tools at the moment.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

from attrs import field, frozen

from interlock.serving.requests.conversation import Item
from interlock.serving.requests.create import CreateResponse
from interlock.serving.tools.hosted import CALL_SECONDS, HostedTool
from interlock.serving.tools.hosting import ResponseTools, load_sessions
from interlock.serving.tools.reach import Reach

__all__ = ["ToolServers"]


@frozen
class ToolServers:
    """The tools of a server.

    Args:
        hosted: The URL of the MCP server behind each hosted tool; it is trusted.
        reach: What the URLs of requests may reach; nothing by default.
        seconds: How many seconds a call may take.
        open: The tools of the responses that are being made.
    """

    hosted: Mapping[HostedTool, str] = field(factory=dict[HostedTool, str])
    reach: Reach = field(factory=Reach)
    seconds: float = CALL_SECONDS
    open: set[ResponseTools] = field(factory=set[ResponseTools], init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Load what speaks to servers, if the operator has named any, before a response needs it."""
        if self.hosted or self.reach != Reach():
            load_sessions()

    @asynccontextmanager
    async def begin(self, request: CreateResponse, items: Sequence[Item]) -> AsyncGenerator[ResponseTools]:
        """Yield the tools of one response; what they hold open is closed at the end, however that comes.

        Args:
            request: What is asked for.
            items: The conversation that the model goes on from.
        """
        tools = ResponseTools(self.hosted, self.reach, self.seconds, request, items)
        self.open.add(tools)
        try:
            yield tools
        finally:
            self.open.discard(tools)
            await tools.close()
