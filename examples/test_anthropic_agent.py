"""An agent loop on Anthropic's SDK, tested without a model: the fixture `interlock` stands in for it.

    pip install '.[testing]' anthropic      # from a checkout of Interlock
    pytest examples/test_anthropic_agent.py

docs/guides/mock.md explains the fixture.
"""

from __future__ import annotations

import pytest

from interlock.testing import Mock

anthropic = pytest.importorskip("anthropic")

WEATHER = {
    "name": "get_weather",
    "description": "Returns the weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
MOST_TURNS = 5


def run_agent(question: str) -> str:
    """Answer a question with the tool, and stream every turn: the agent under test."""
    messages: list[dict[str, object]] = [{"role": "user", "content": question}]
    with anthropic.Anthropic() as client:
        for _ in range(MOST_TURNS):
            with client.messages.stream(model="claude", max_tokens=500, tools=[WEATHER], messages=messages) as stream:
                message = stream.get_final_message()
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in message.content if block.type == "text")
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": f"{call.input['city']}: 18 °C"} for call in calls
            ]
            messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    raise RuntimeError("the agent does not come to an end")


def test_the_agent_calls_two_tools_in_one_turn(interlock: Mock) -> None:
    interlock.when("weather").calls("get_weather", city="Berlin").calls("get_weather", city="Rome").then.says("18 °C in both.")
    assert run_agent("Compare the weather in Berlin and Rome.") == "18 °C in both."
    last = interlock.requests[1].json["messages"][-1]
    assert [result["content"] for result in last["content"]] == ["Berlin: 18 °C", "Rome: 18 °C"]


def test_the_sdk_retries_when_the_model_is_overloaded(interlock: Mock) -> None:
    interlock.when("weather").fails(529, "Overloaded", retry_after=0).then.says("18 °C")
    assert run_agent("The weather?") == "18 °C"


def test_an_interrupted_stream_raises_an_error(interlock: Mock) -> None:
    interlock.when("weather").says("It is 18 °C in Berlin.").disconnects(after=4)
    with pytest.raises(Exception, match="peer closed connection"):
        run_agent("The weather?")


def test_an_endless_agent_raises_an_error(interlock: Mock) -> None:
    rule = interlock.when("loop")
    for _ in range(MOST_TURNS):
        rule = rule.calls("get_weather", city="Berlin").then
    with pytest.raises(RuntimeError, match="does not come to an end"):
        run_agent("Please loop.")
