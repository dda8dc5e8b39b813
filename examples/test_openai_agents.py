"""An agent of the OpenAI Agents SDK, tested without a model: the fixture `interlock` stands in for it.

    pip install '.[testing]' openai-agents      # from a checkout of Interlock
    pytest examples/test_openai_agents.py

docs/guides/mock.md explains the fixture.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeAlias

import pytest

from interlock.testing import Mock

pytest.importorskip("agents")

from agents import Agent, Runner, function_tool, set_tracing_disabled
from openai import BadRequestError

RunFunction: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]

set_tracing_disabled(disabled=True)


@function_tool
def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 18 °C"


def new_agent() -> Agent[None]:
    """Return the agent under test."""
    return Agent(name="Weather", instructions="Answer in one sentence.", tools=[get_weather], model="gpt-5")


@pytest.fixture(scope="module")
def run() -> Generator[RunFunction]:
    """Run all coroutines in one event loop, because the SDK keeps its connections."""
    with asyncio.Runner() as runner:
        yield runner.run


def test_the_agent_uses_its_tool(interlock: Mock, run: RunFunction) -> None:
    interlock.when("weather", tools="get_weather").calls("get_weather", city="Berlin").then.says("It is 18 °C in Berlin.")
    result = run(Runner.run(new_agent(), "What is the weather in Berlin?"))
    assert result.final_output == "It is 18 °C in Berlin."
    outputs = [item for item in interlock.requests[1].json["input"] if item.get("type") == "function_call_output"]
    assert [item["output"] for item in outputs] == ["Berlin: 18 °C"]


async def ask_at_once(cities: list[str]) -> list[str]:
    """Ask about several cities at once, and stream the answers."""

    async def ask(city: str) -> str:
        result = Runner.run_streamed(new_agent(), f"What is the weather in {city}?")
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    return await asyncio.gather(*map(ask, cities))


def test_concurrent_conversations_do_not_mix(interlock: Mock, run: RunFunction) -> None:
    cities = [f"city {number}" for number in range(20)]
    for city in reversed(cities):  # `city 1` is a part of `city 10`, and the first rule that matches answers
        interlock.when(city).calls("get_weather", city=city).then.says(f"Fine in {city}.")
    assert run(ask_at_once(cities)) == [f"Fine in {city}." for city in cities]


def test_the_sdk_retries_after_an_error(interlock: Mock, run: RunFunction) -> None:
    interlock.when("weather").fails(429, retry_after=0).then.disconnects().then.says("18 °C")
    assert run(Runner.run(new_agent(), "The weather, please.")).final_output == "18 °C"
    assert len(interlock.requests) == 3


def test_the_agent_raises_the_error_of_a_refused_request(interlock: Mock, run: RunFunction) -> None:
    interlock.when("weather").fails(400, "No.")
    with pytest.raises(BadRequestError, match=r"No\."):
        run(Runner.run(new_agent(), "The weather, please."))
