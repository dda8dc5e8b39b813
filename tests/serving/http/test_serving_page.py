"""What the server's page of the documentation shows is what happens."""

import json
from pathlib import Path

import pytest
from openai import OpenAI

PAGE = (Path(__file__).parents[3] / "docs" / "serving.md").read_text()


def function(name: str, description: str) -> dict:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


BOTH = [function("get_weather", "Get the weather of a city."), function("get_time", "Get the time in a city.")]
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}


@pytest.mark.parametrize(
    ("user_text", "settings", "items"),
    [
        ("Hello", {}, ["reasoning", "message"]),
        ("Hello", {"reasoning": {"effort": "none"}}, ["message"]),
        ("Hello", {"max_output_tokens": 16}, ["reasoning", "message"]),
        ("Get the weather of: Berlin", {"tools": BOTH}, ["reasoning", "message", "get_weather Berlin"]),
        (
            "Call get_weather and get_time for: Berlin",
            {"tools": BOTH},
            ["reasoning", "message", "get_weather Berlin", "get_time Berlin"],
        ),
        (
            "Call get_weather and get_time for: Berlin",
            {"tools": BOTH, "parallel_tool_calls": False},
            ["reasoning", "message", "get_weather Berlin"],
        ),
        ("Hello", {"tools": BOTH}, ["reasoning", "message"]),
        ("Hello", {"tools": BOTH, "tool_choice": "required"}, ["reasoning", "get_weather text"]),
        ("calculate 6 * 7", {"tools": [CODE]}, ["reasoning", "message", "print(6 * 7) failed", "reasoning", "message"]),
        (
            "Search for trains",
            {"tools": [{"type": "web_search"}]},
            ["reasoning", "message", "trains failed", "reasoning", "message"],
        ),
        ("Draw trains", {"tools": [{"type": "image_generation"}, {"type": "shell"}]}, ["reasoning", "message"]),
    ],
)
def test_the_embedded_model_does_what_the_page_says(url, user_text, settings, items) -> None:
    with OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        response = client.responses.create(model="interlock-embedded", input=user_text, **settings)
    assert response.status == ("incomplete" if "max_output_tokens" in settings else "completed")
    assert [item_line(item) for item in response.output] == items
    assert user_text.startswith("Draw") or f"| `{user_text}` |" in PAGE


def item_line(item) -> str:
    match item.type:
        case "function_call":
            return f"{item.name} {json.loads(item.arguments)['city']}"
        case "code_interpreter_call":
            return f"{item.code} {item.status}"
        case "web_search_call":
            return f"{item.action.query} {item.status}"
        case kind:
            return kind
