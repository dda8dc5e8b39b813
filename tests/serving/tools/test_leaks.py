"""Responses with tools leave no session, no task and no connection."""

import asyncio
import gc
from contextlib import aclosing

import pytest
from live.agents import ANSWER, calling, mcp, servers
from live.engines import StagedEngine, step
from live.mcp_servers import answer, plain, result, running
from one_run import begin_response

from interlock.serving.requests.create import read_request
from interlock.serving.responses.run import NullWriter, RequestContext
from interlock.serving.tools.mcp_session import Session

REQUESTS = 1_000
AT_ONCE = 25
ECHO = calling("mcp.shop.echo", '{"text": "a"}')
FATES = ("whole", "whole", "left", "failing", "cancelled")
"""How the responses end, in turn."""


async def respond(base, by, index):
    """Make a response, or begin to, and return its items."""
    fate = FATES[index % len(FATES)]
    engine = StagedEngine([step(ECHO, "stop")], [step(ANSWER, "stop")])
    url = "http://127.0.0.1:1/mcp" if fate == "failing" else f"{base}/mcp"
    request = read_request({"model": "staged", "input": "Hi", "tools": [mcp(url)]})
    run = begin_response(RequestContext(request, request.input), engine, NullWriter(), tools=by)

    async def read_events():
        async with aclosing(run.events()) as events:
            async for _ in events:
                if fate == "left" and len(run.driver.response["output"]) > 1:
                    return

    reading = asyncio.create_task(read_events())
    if fate == "cancelled":
        await asyncio.sleep(0.001 * (index % 20))
        reading.cancel()
    await asyncio.wait([reading])
    return run.driver.response["output"]


def sessions():
    """Return how many sessions there are in this process."""
    gc.collect()
    return sum(isinstance(each, Session) for each in gc.get_objects())


@pytest.mark.long
def test_a_thousand_responses_leave_nothing_behind() -> None:
    calls = []

    async def speak(request, send):
        calls.append(request)
        await answer(send, 200, result(request, {"content": [{"type": "text", "text": "said"}]}))

    async def count(base):
        by, before = servers(), asyncio.all_tasks()
        ends = set()
        for start in range(0, REQUESTS, AT_ONCE):
            many = await asyncio.gather(*(respond(base, by, start + index) for index in range(AT_ONCE)))
            ends |= {tuple((item["type"], item.get("status")) for item in output) for output in many}
        if late := asyncio.all_tasks() - before:
            await asyncio.wait(late, timeout=30)  # on a busy machine the last sessions may still be closing
        assert (by.open, asyncio.all_tasks()) == (set(), before)
        return ends

    others = sessions()
    with running(plain(speak)) as base:
        ends = asyncio.run(count(base))
    assert sessions() == others
    assert (("mcp_list_tools", None), ("mcp_call", "completed"), ("message", "completed")) in ends
    assert (("mcp_list_tools", None), ("mcp_call", "failed"), ("message", "completed")) in ends
    assert len(calls) >= REQUESTS * 2 / 5
