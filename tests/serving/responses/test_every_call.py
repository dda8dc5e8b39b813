"""An exception at any call or await of a run ends the answer legally (rule R4).

The tests record the places that a run goes through, and raise an exception at the first and the last visit of each.
"""

import asyncio
import gc
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from live.engines import HOSTED_CALL, REASONING, ScriptedTools, StagedEngine, step
from live.injection import Injector, PanicException, ask
from live.wire import bodies

from interlock.fsm.deltas import Run, Succeed
from interlock.serving.build import build
from interlock.serving.settings import Settings

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    # A generator that is dropped is resumed once more, and may be raised in then.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <generator object:pytest.PytestUnraisableExceptionWarning"),
]

ANSWER = [step("<|channel|>final<|message|>Hi"), step(" there."), step("<|return|>", "stop")]
TURNS = [step(REASONING), step(f"{HOSTED_CALL}<|call|>"), step("", "stop")], [step(REASONING), *ANSWER]
PATH = "/v1/responses"
ENDED = {"completed", "failed"}

SEND = "wrap_app_handling_exceptions.<locals>.wrapped_app.<locals>.sender"
EXEMPT = {SEND, "Shield.__call__", "panics_as_errors"}
"""Calls of the server itself: when its `send` raises, it is unknown what was sent, and nothing more can be sent."""

STRIDE = int(os.environ.get("INTERLOCK_STRIDE", "23"))
"""The stride through the places; 1 tries all of them, which takes minutes."""
LAST = 3
"""The number of last places that are always tried: there, the response has ended."""


def tool_deltas(call):
    yield Run(call.id)
    yield Succeed(call.id, {"output": "42"})


def started_app(engine, tool_deltas):
    """Return an application that has built its middleware, as it does when a server starts."""
    app = build(Settings(), engine, tools=ScriptedTools(tool_deltas))
    app.middleware_stack = app.build_middleware_stack()
    return app


async def streamed(injector):
    """Ask for a stream."""
    engine = StagedEngine(*TURNS)
    app = started_app(engine, tool_deltas)
    with injector.active():
        answered = await ask(app, "POST", PATH, request(stream=True))
    return answered, app, engine


async def whole(injector):
    """Ask for the response in one piece."""
    engine = StagedEngine(*TURNS)
    app = started_app(engine, tool_deltas)
    with injector.active():
        answered = await ask(app, "POST", PATH, request())
    return answered, app, engine


async def background(injector):
    """Begin a response in the background, and read its stream; no item may stay in progress."""
    engine = StagedEngine(*TURNS)
    app = started_app(engine, tool_deltas)
    with injector.active():
        created = await ask(app, "POST", PATH, request(background=True))
        for _ in range(1000):
            await asyncio.sleep(0)
    if created.status != 200:
        return created, app, engine
    one = f"{PATH}/{json.loads(created.body)['id']}"
    streamed = await ask(app, "GET", one, query=b"stream=true")
    retrieved = await ask(app, "GET", one)
    assert json.loads(retrieved.body)["status"] in ENDED
    return streamed, app, engine


def request(**fields):
    return json.dumps({"model": "staged", "input": "Hi", **fields}).encode()


def judge(answered):
    """Return how an answer ended, after a check that a client understands it."""
    assert answered.whole
    if answered.content_type == "application/json":
        body = json.loads(answered.body)
        if answered.status == 200:
            return body["status"]
        assert (answered.status, body["error"]["type"]) == (500, "server_error")
        assert "secret" not in str(body)
        return "error"
    assert (answered.status, answered.content_type) == (200, "text/event-stream")
    events = bodies(answered.body)
    assert "secret" not in str(events)
    return events[-1]["response"]["status"]


async def check_next_request(app, engine):
    """Check that the server answers the next request, and that the engine's generation is closed."""
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(app.api.service.active_runs) == 0
    if engine.turns:
        assert engine.closed.is_set()
    engine.turns.clear()
    after = await ask(app, "POST", PATH, request(stream=True))
    assert judge(after) == "completed"


def run_in_thread(work):
    """Run a coroutine in a thread of its own, because CPython 3.11 miscounts a thread's recursion when a profiler raises."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def find_places(scenario):
    """Find the places that a run goes through."""

    async def look(injector):
        answered, app, engine = await scenario(injector)
        assert judge(answered) == "completed"
        await check_next_request(app, engine)

    run_in_thread(look(Injector()))  # the first fills caches
    injector = Injector()
    run_in_thread(look(injector))
    return [place for place in injector.places() if not (EXEMPT & {place.function, place.callee} or _is_store(place))]


def places(scenario):
    """Choose from the places that a run goes through."""
    all_places = find_places(scenario)
    return [*all_places[::STRIDE], *all_places[-LAST:]]


def _is_store(place):
    """Return whether a place is in a store, which itself reports what a fault leaves of a commit."""
    return place.file.startswith("serving/store/")


async def raise_at(scenario, place, error):
    """Raise at a place; return how the answer ended and what the server saw raised, or None if the place was not reached."""
    injector = Injector(place, error)
    answered, app, engine = await scenario(injector)
    if not injector.raised:
        return None
    ended = judge(answered)
    await check_next_request(app, engine)
    return ended, answered.raised


@pytest.fixture(autouse=True)
def quiet():
    """Disable the log, because of so many faults."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("scenario", [streamed, whole, background], ids=lambda scenario: scenario.__name__)
def test_a_panic_at_any_call_or_await_ends_the_answer_legally(scenario) -> None:
    all_places = places(scenario)
    assert len(all_places) > 300 / STRIDE
    ends = []
    for place in all_places:
        try:
            ends.append(run_in_thread(asyncio.wait_for(raise_at(scenario, place, PanicException("a secret")), 30)))
        except BaseException as error:
            raise AssertionError(f"{place}: {error!r}") from error
    reached = [end for end, _ in filter(None, ends)]
    assert len(reached) > 0.9 * len(all_places)
    assert set(reached) == {"completed", "failed", "error"}


def test_a_fault_while_a_message_is_made_still_ends_the_stream() -> None:
    all_places = [place for place in find_places(streamed) if place.callee == "_message"]
    ends = [run_in_thread(raise_at(streamed, place, PanicException("a secret")))[0] for place in all_places]
    assert ends == ["failed"] * (len(all_places) - 1) + ["completed"]


def test_a_background_response_completes_even_if_conclude_raises() -> None:
    all_places = [place for place in find_places(background) if place.callee.endswith(".conclude")]
    ends = [run_in_thread(raise_at(background, place, PanicException("a secret")))[0] for place in all_places]
    assert ends == ["completed", "completed"]


@pytest.mark.parametrize(
    "error",
    [RuntimeError("a secret"), asyncio.CancelledError(), GeneratorExit(), BaseExceptionGroup("a", [PanicException("secret")])],
    ids=lambda error: type(error).__name__,
)
def test_any_other_exception_ends_the_answer_legally(error) -> None:
    for place in places(streamed)[::2]:
        try:
            run_in_thread(asyncio.wait_for(raise_at(streamed, place, error), 30))
        except BaseException as caught:
            raise AssertionError(f"{place}: {caught!r}") from caught
