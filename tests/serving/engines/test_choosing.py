"""The embedded model calls the hosted tools that a user's words request."""

import pytest

from interlock.serving.engines.embedded import turn_calls, turn_messages
from interlock.serving.engines.engine import Turn
from interlock.serving.requests.create import read_request

HOSTED = [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
WEATHER = {"type": "function", "name": "get_weather", "description": "Tell the weather", "parameters": {"type": "object"}}
LISTED = {
    "type": "mcp_list_tools",
    "id": "mcpl_1",
    "server_label": "rail",
    "tools": [{"name": "departures", "description": "When trains depart.", "input_schema": {"type": "object"}}],
}
RAIL = {"type": "mcp", "server_label": "rail", "server_url": "http://h"}


def turn(words, *, tools=(), items=(), **settings):
    request = read_request({"model": "m", "input": words, "tools": [*HOSTED, *tools], **settings})
    return Turn(request, [*request.input, *items])


def called(words, **settings):
    return [(call.recipient, call.text) for call in turn_calls(turn(words, **settings))]


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ("Hello there", []),
        ("What is 6 * 7?", [("python", "print(6 * 7)")]),
        ("Compute (1 + 2) * 3.5, please.", [("python", "print((1 + 2) * 3.5)")]),
        ("Calculate in 2026: 2 ** 10", [("python", "print(2 ** 10)")]),
        ("Run this: hello", [("python", "print('hello')")]),
        ("Search for lever frames, please.", [("browser.search", '{"query": "lever frames"}')]),
        ("Look up signal boxes", [("browser.search", '{"query": "signal boxes"}')]),
        ("The latest: trains", [("browser.search", '{"query": "trains"}')]),
        ("Any news today?", [("browser.search", '{"query": "Any news today?"}')]),
        ("Search the web for points and compute 1+1", [("browser.search", '{"query": "points and compute 1+1"}')]),
    ],
)
def test_words_and_arithmetic_request_hosted_tools(words, calls) -> None:
    assert called(words)[: len(calls)] == calls
    assert bool(called(words)) == bool(calls)


def test_other_tools_whose_name_fits_are_called_too() -> None:
    assert [name for name, _ in called("Compute 1 + 1", tools=[WEATHER])] == ["python"]
    assert [name for name, _ in called("Compute 1 + 1 and the weather", tools=[WEATHER])] == ["python", "functions.get_weather"]
    assert [name for name, _ in called("Hello", tools=[WEATHER])] == []
    both = called("Compute 1 + 1: which departures are next?", tools=[RAIL], items=[LISTED])
    assert [name for name, _ in both] == ["python", "rail.departures"]


def test_tool_choice_and_parallel_calls_are_respected() -> None:
    words = "Search for trains, compute 1 + 1"
    assert [name for name, _ in called(words)] == ["browser.search", "python"]
    assert [name for name, _ in called(words, parallel_tool_calls=False)] == ["browser.search"]
    assert called(words, tool_choice="none") == []
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "code_interpreter"}]}
    assert [name for name, _ in called(words, tool_choice=allowed)] == ["python"]
    assert [name for name, _ in called("Hello", tool_choice={"type": "code_interpreter"})] == ["python"]
    assert [name for name, _ in called("Hello", tool_choice="required")] == ["browser.search"]


def test_the_answer_has_the_tools_outputs_with_citation_marks() -> None:
    items = [
        {"type": "web_search_call", "id": "ws_1", "output": "[4] Frames (https://f.example)\nL0: They hold levers.\nL1: Many."},
        {"type": "code_interpreter_call", "id": "ci_1", "outputs": None, "output": "42"},
        {"type": "code_interpreter_call", "id": "ci_2", "outputs": [{"type": "logs", "logs": "43"}]},
        {"type": "web_search_call", "id": "ws_2", "output": "Nothing."},
    ]
    *_, answer = turn_messages(turn("Hello", items=items))
    assert answer.text == "Frames: They hold levers.【4†L0】\npython says: 42\npython says: 43\nbrowser says: Nothing."
