"""The server behaves as the pages about serving and about WebSocket mode document."""

import json
import re
from pathlib import Path

import pytest
from openai import OpenAI
from websockets.sync.client import connect

from interlock.serving.engines.embedded import MODEL

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "serving.md").read_text()


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
def test_the_embedded_model_behaves_as_documented(url, user_text, settings, items) -> None:
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


# The session on the page about WebSocket mode


WEBSOCKET_PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "websocket.md").read_text()
SESSION = re.search(r"```text\n(> .*?)```", WEBSOCKET_PAGE, re.DOTALL)[1].splitlines()

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "name": "get_weather", "description": "Get the weather of a city.", "parameters": CITY}]
ID = re.compile(r"_([0-9a-f]{8})[0-9a-f]{24}")


def shortened(text):
    """Return a frame as the page writes it: without long values, and with the first characters of each id."""
    frame = json.loads(text)
    response, marks = frame.get("response", {}), {}
    for name in ("tools", "response", "item"):
        if name in frame and (name != "item" or frame["type"] == "response.output_item.done"):
            marks[name], frame[name] = frame[name], f"<{name}>"
    written = json.dumps(frame, separators=(",", ":"), ensure_ascii=False)
    response_text = f'{{"id":"{response.get("id")}","status":"{response.get("status")}",…}}'
    abbreviated = {"tools": "[…]", "response": response_text, "item": "{…}"}
    for name in marks:
        written = written.replace(f'"<{name}>"', abbreviated[name])
    return ID.sub(r"_\1…", written)


def play(url):
    """Play the session of the page; gives its frames as the page writes them."""
    lines = []
    with connect(url.replace("http", "ws", 1) + "/v1/responses", open_timeout=60) as socket:

        def send(**frame):
            text = json.dumps({"type": "response.create", **frame, "store": False, "model": MODEL})
            lines.append(f"> {shortened(text)}")
            socket.send(text)

        def receive(count):
            while count:
                text = socket.recv(timeout=60)
                lines.append(f"< {shortened(text)}")
                frame = json.loads(text)
                if frame["type"] == "response.completed":
                    yield frame["response"]
                    count -= 1

        send(stream_id="weather", input="Get the weather of: Berlin", tools=TOOLS)
        send(stream_id="chat", input="Hi")
        (request,) = (response for response in [*receive(2)] if response["tools"])
        answer = {"type": "function_call_output", "call_id": request["output"][-1]["call_id"], "output": "18 °C and sunny"}
        send(stream_id="weather", previous_response_id=request["id"], input=[answer], tools=TOOLS)
        list(receive(1))
    return lines


def of_lane(lines, lane):
    """The lines of a lane, without the ids, which differ from run to run."""
    return [re.sub(r"_[0-9a-f]{8}…", "_…", line) for line in lines if f'"stream_id":"{lane}"' in line]


@pytest.mark.parametrize("lane", ["weather", "chat"])
def test_a_server_sends_the_documented_session(url, lane) -> None:
    messages = iter(of_lane(play(url), lane))
    missing = [line for line in of_lane(SESSION, lane) if line not in messages]  # a line is looked for after the one before
    assert (missing, len(of_lane(SESSION, lane)) > 4) == ([], True)
