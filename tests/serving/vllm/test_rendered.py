"""A response that is rendered and not generated ends legally, whatever happens to it."""

import asyncio
import json

from attrs import define

from interlock.events.resource import response_settings
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Cancel, Fault
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.fsm.oracle import check
from interlock.serving.vllm.rendered import RenderedRun


@define
class Steps:
    """vLLM's loop, of which only the end is looked at."""

    closed: int = 0

    async def aclose(self):
        self.closed += 1


def made(ending=None, *, breaks=False):
    """The events of a run that is interrupted, or whose response cannot be kept; and how often vLLM's loop was closed."""
    steps = Steps()

    async def settle(_):
        if breaks:
            raise RuntimeError("no room")

    async def run():
        driver = ResponseDriver(response_settings({}), writer=SseWriter(), ids=SequentialIds(), clock=lambda: 0)
        rendered = RenderedRun(driver, steps, 7, settle)
        await rendered.admitted()
        if ending is not None:
            rendered.interrupt(ending)
        return [frame async for frames in rendered.events() for frame in frames]

    events = [json.loads(frame.split(b"\ndata: ")[1]) for frame in asyncio.run(run())]
    assert check(events) == []
    last = events[-1]["response"]
    return last["status"], last["usage"]["input_tokens"], steps.closed


def test_it_completes_with_what_its_prompt_costs() -> None:
    assert made() == ("completed", 7, 1)


def test_it_is_cancelled_or_failed_like_any_other() -> None:
    assert made(Cancel()) == ("cancelled", 7, 1)
    assert made(Fault("server_error", "It shuts down.")) == ("failed", 7, 1)


def test_a_response_that_cannot_be_kept_completes_all_the_same() -> None:
    assert made(breaks=True) == ("completed", 7, 1)
