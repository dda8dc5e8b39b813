"""The cases of Open Responses' compliance suite, written from the specification, for any server with its dialect.

Each case is a function of a `Suite`, which knows where the server is and what its model has to be told to answer in some way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx
from attrs import frozen
from open_responses_oracle import check_open_responses
from websockets.sync.client import ClientConnection, connect

from interlock.events.sse import SseDecoder

PATIENCE: Final = 60
DIALECT: Final = "open_responses"
ENDS: Final = {"response.completed", "response.incomplete", "response.failed", "error"}

RESPONSE_FIELDS: Final = frozenset(
    {
        *("id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id"),
        *("instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p"),
        *("presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "max_output_tokens"),
        *("max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key"),
    }
)
"""The fields that the specification requires of a response."""

WEATHER: Final[Mapping[str, Any]] = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather at a place.",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}
HEART: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)

Body = Mapping[str, Any]


def message(role: str, content: object) -> dict[str, object]:
    """Return a message."""
    return {"type": "message", "role": role, "content": content}


@frozen
class Suite:
    """The requests of the suite to a server.

    Args:
        url: Where it is, without a path.
        model: The name of its model.
        scripted: Returns what a body needs beside, so that the model answers with `text` or with a `call` of the weather.
        headers: Of every request.
    """

    url: str
    model: str
    scripted: Callable[[str], Body] = lambda _: {}
    headers: Mapping[str, str] = {}

    def body(self, text: object, answer: str = "text", **fields: object) -> dict[str, Any]:
        """Return the body of a request; a text is the user's message."""
        items = [message("user", text)] if isinstance(text, str) else text
        return {"model": self.model, "input": items, **self.scripted(answer), **fields}

    def post(self, body: Body, path: str = "") -> httpx.Response:
        """Post a body."""
        return httpx.post(f"{self.url}/v1/responses{path}", json=body, headers=dict(self.headers), timeout=PATIENCE)

    def response(self, body: Body) -> dict[str, Any]:
        """Return the response to a request that is not streamed, which must be whole."""
        answer = self.post(body)
        assert answer.status_code == 200, answer.text
        return whole(answer.json())

    def events(self, body: Body) -> list[dict[str, Any]]:
        """Return the events of a stream, which must be legal in the dialect."""
        answer = self.post({**body, "stream": True})
        assert answer.status_code == 200, answer.text
        decoder = SseDecoder()
        messages = [*decoder.feed(answer.content), *decoder.end()]
        events = [json.loads(message.data) for message in messages[:-1]]
        assert [message.event for message in messages[:-1]] == [event["type"] for event in events]
        assert check_open_responses(events) == []
        whole(events[-1]["response"])
        return events

    @contextmanager
    def socket(self) -> Iterator[Turns]:
        """Open a connection."""
        url = self.url.replace("http", "ws", 1) + "/v1/responses"
        with connect(url, additional_headers=dict(self.headers), open_timeout=PATIENCE) as opened:
            yield Turns(opened)


@frozen
class Turns:
    """A connection, on which one turn follows the other."""

    socket: ClientConnection

    def ask(self, body: Body) -> list[dict[str, Any]]:
        """Return the frames of a turn, which must be legal in the dialect, or one error in its envelope."""
        self.socket.send(json.dumps({"type": "response.create", **body}))
        frames = [json.loads(self.socket.recv(timeout=PATIENCE))]
        while frames[-1]["type"] not in ENDS:
            frames.append(json.loads(self.socket.recv(timeout=PATIENCE)))
        if frames[-1]["type"] == "error":
            (error,) = frames
            assert type(error["status"]) is int
            assert error["error"]["message"]
        else:
            assert check_open_responses(frames) == []
        return frames

    def completed(self, body: Body) -> dict[str, Any]:
        """Return the response of a turn, which must have completed."""
        last = self.ask(body)[-1]
        assert last["type"] == "response.completed", last
        return whole(last["response"])

    def refused(self, body: Body) -> object:
        """Return the code of a turn that is one error."""
        (error,) = self.ask(body)
        return error["error"]["code"]


def whole(response: dict[str, Any]) -> dict[str, Any]:
    """Return a response that has ended, with every field that is required."""
    assert RESPONSE_FIELDS - response.keys() == set()
    assert response["object"] == "response"
    assert response["usage"]["total_tokens"] == response["usage"]["input_tokens"] + response["usage"]["output_tokens"]
    return response


def require_answer(response: Body) -> None:
    """Require that a response has completed with a message."""
    assert response["status"] == "completed"
    assert response["completed_at"] >= response["created_at"]
    assert [item["type"] for item in response["output"]][-1:] == ["message"]


def kinds(items: list[Body]) -> set[object]:
    """Return the types of items."""
    return {item["type"] for item in items}


def _basic(suite: Suite) -> None:
    require_answer(suite.response(suite.body("Say hello in three words.")))


def _streaming(suite: Suite) -> None:
    events = suite.events(suite.body("Count to five."))
    assert {"response.created", "response.output_text.delta", "response.completed"} <= kinds(events)
    require_answer(events[-1]["response"])


def _system(suite: Suite) -> None:
    require_answer(suite.response(suite.body([message("system", "You are a pirate."), message("user", "Say hello.")])))


def _tool(suite: Suite) -> None:
    response = suite.response(suite.body("Get the weather of: Rome", "call", tools=[WEATHER]))
    assert response["status"] == "completed"
    (call,) = [item for item in response["output"] if item["type"] == "function_call"]
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"location": "Rome"})


def _streamed_tool(suite: Suite) -> None:
    events = suite.events(suite.body("Get the weather of: Rome", "call", tools=[WEATHER]))
    calls = [event for event in events if event.get("item", {}).get("type") == "function_call"]
    assert [event["type"] for event in calls] == ["response.output_item.added", "response.output_item.done"]
    assert {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= kinds(events)


def _image(suite: Suite) -> None:
    parts = [{"type": "input_text", "text": "What is in this image?"}, {"type": "input_image", "image_url": HEART}]
    require_answer(suite.response(suite.body([message("user", parts)])))


def _turns(suite: Suite) -> None:
    earlier = [message("user", "My name is Alice."), message("assistant", "Hello Alice!")]
    require_answer(suite.response(suite.body([*earlier, message("user", "What is my name?")])))


def _echo(suite: Suite) -> None:
    settings: dict[str, Any] = {"temperature": 0.5, "metadata": {"a": "b"}, "instructions": "Be brief.", "tools": [WEATHER]}
    response = suite.response(suite.body("Hello", **settings))
    assert {name: response[name] for name in ("temperature", "metadata", "instructions")} == {
        name: settings[name] for name in ("temperature", "metadata", "instructions")
    }
    assert [tool["name"] for tool in response["tools"]] == ["get_weather"]


def _socket(suite: Suite) -> None:
    with suite.socket() as turns:
        require_answer(turns.completed(suite.body("Say hello.")))


def _socket_twice(suite: Suite) -> None:
    with suite.socket() as turns:
        first, second = (turns.completed(suite.body(text, store=False)) for text in ("Hello.", "Hello again."))
    assert first["id"] != second["id"]


def _socket_goes_on(suite: Suite) -> None:
    with suite.socket() as turns:
        first = turns.completed(suite.body("My name is Alice.", store=False))
        second = turns.completed(suite.body("What is my name?", store=False, previous_response_id=first["id"]))
    assert second["previous_response_id"] == first["id"]


def _another_socket(suite: Suite) -> None:
    with suite.socket() as turns:
        first = turns.completed(suite.body("Hello.", store=False))
    with suite.socket() as turns:
        going_on = suite.body("And now?", store=False, previous_response_id=first["id"])
        assert turns.refused(going_on) == "previous_response_not_found"
        require_answer(turns.completed(suite.body("Hello.", store=False)))


def _unknown_response(suite: Suite) -> None:
    with suite.socket() as turns:
        unknown = suite.body("Hello.", store=False, previous_response_id="resp_that_nobody_made")
        assert turns.refused(unknown) == "previous_response_not_found"


def _failed_continuation(suite: Suite) -> None:
    wrong = [{"type": "function_call_output", "call_id": "call_that_nobody_made", "output": "1"}]
    with suite.socket() as turns:
        first = turns.completed(suite.body("Hello.", store=False))["id"]
        assert turns.ask(suite.body(wrong, store=False, previous_response_id=first))[-1]["type"] in {"error", "response.failed"}
        second = suite.body("And now?", store=False, previous_response_id=first)
        assert turns.refused(second) == "previous_response_not_found"


def compacted(suite: Suite) -> dict[str, Any]:
    """Return a compacted conversation."""
    earlier = [message("user", "My name is Alice."), message("assistant", [{"type": "output_text", "text": "Hello Alice!"}])]
    answer = suite.post(suite.body([*earlier, message("user", "And I am 7.")], prompt_cache_key="a"), "/compact")
    assert answer.status_code == 200, answer.text
    return answer.json()


def _compact(suite: Suite) -> None:
    response = compacted(suite)
    assert response["object"] == "response.compaction"
    assert response["id"]
    assert type(response["created_at"]) is int
    assert response["usage"]["total_tokens"] > 0
    assert "compaction" in kinds(response["output"])


def _compact_without_model(suite: Suite) -> None:
    body = suite.body("Hello.")
    del body["model"]
    assert suite.post(body, "/compact").status_code in {400, 422}


def _compacted_goes_on(suite: Suite) -> None:
    output = compacted(suite)["output"]
    with suite.socket() as turns:
        require_answer(turns.completed(suite.body([*output, message("user", "What is my name?")], store=False)))


CASES: Final[Mapping[str, Callable[[Suite], None]]] = {
    "a plain answer": _basic,
    "a stream": _streaming,
    "a system message": _system,
    "a call": _tool,
    "a call in a stream": _streamed_tool,
    "an image": _image,
    "several turns in one input": _turns,
    "every setting is echoed": _echo,
    "a turn on a socket": _socket,
    "two turns on a socket, nothing stored": _socket_twice,
    "a socket goes on from what was not stored": _socket_goes_on,
    "another socket does not": _another_socket,
    "a response that nobody made": _unknown_response,
    "a continuation that fails evicts": _failed_continuation,
    "a compaction": _compact,
    "a compaction without a model": _compact_without_model,
    "what was compacted goes on": _compacted_goes_on,
}
