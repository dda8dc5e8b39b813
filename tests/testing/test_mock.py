"""A mock answers by its rules over every API, and records the requests."""

import asyncio
import gzip
import json
import re
import sys
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial

import httpx
import pytest
from live.sockets import socket_client
from msgspec.structs import replace
from openai import AsyncOpenAI, BadRequestError, InternalServerError, OpenAI, RateLimitError
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from interlock.events.json import dumps
from interlock.events.sse import SseDecoder
from interlock.events.stream import TERMINAL
from interlock.fsm.deltas import Cancel
from interlock.serving.build import build
from interlock.serving.engines import script
from interlock.serving.engines.script import ScriptedEngine, ScriptRule, ScriptStep
from interlock.serving.http.answers import error_response
from interlock.serving.http.script_faults import ScriptFaults
from interlock.serving.http.server import ServerThread
from interlock.serving.responses.active_runs import NotBegunError
from interlock.serving.settings import Settings
from interlock.serving.view.web import RecentStreams, ViewerMiddleware
from interlock.testing import RULES, Mock, MockServer, assert_legal, findings

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def server():
    with MockServer() as running:
        yield running


@pytest.fixture
def mock(server):
    with Mock(server=server) as running:
        yield running


def ask(mock, text="Hi", **fields):
    return httpx.post(f"{mock.base_url}/responses", json={"model": "m", "input": text, **fields})


def text_of(answer):
    return "".join(part["text"] for item in answer.json()["output"] if item["type"] == "message" for part in item["content"])


def used_until_failure(server, use):
    """Use a mock; return the result of `use`, and the error at the end of the mock."""
    ended = Mock(server=server)
    ended.__enter__()
    result = use(ended)
    with pytest.raises(AssertionError) as failure:
        ended.__exit__(None)
    return result, str(failure.value)


def events(data):
    return [json.loads(message.data) for message in SseDecoder().feed(data) if message.data.startswith("{")]


def names(data):
    return [event["type"] for event in events(data)]


def test_a_script_calls_a_tool_and_answers_the_result(mock) -> None:
    mock.when("weather").calls("get_weather", city="Berlin").then.thinks("Warm.").says("18 °C")
    with OpenAI(base_url=mock.base_url, api_key="any") as client:
        first = client.responses.create(model="gpt", input="What is the Weather?", tools=[WEATHER])
        call = first.output[0]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "weather: 18"}
        second = client.responses.create(model="gpt", previous_response_id=first.id, input=[result], tools=[WEATHER])
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Berlin"})
    assert ([item.type for item in second.output], second.output_text) == (["reasoning", "message"], "18 °C")
    assert [(each.turn, each.text, each.tools, each.model, each.rule) for each in mock.requests] == [
        (turn, "What is the Weather?", ["get_weather"], "gpt", "text 'weather'") for turn in (1, 2)
    ]
    assert mock.requests[0].json["input"] == "What is the Weather?"


def test_the_first_matching_rule_answers(mock) -> None:
    mock.when("a", model="big").says("model")
    mock.when("a", tools="get_weather").says("tools")
    mock.when(re.compile(r"\bcat\b")).says("pattern")
    mock.when("a").says("text")
    mock.when().says("any")
    questions = [("a", {"model": "big"}), ("a", {"tools": [WEATHER]}), ("a cat", {}), ("concat", {}), ("b", {})]
    assert [text_of(ask(mock, text, **fields)) for text, fields in questions] == ["model", "tools", "pattern", "text", "any"]


def call_tools(mock, api, answer):
    """Ask by an API until no tool is called; `answer` returns the messages for the calls of an answer. Return each answer."""
    path = {"responses": "responses", "chat": "chat/completions", "messages": "messages"}[api]
    key, history, answers = "input" if api == "responses" else "messages", [USER], []
    while not answers or answers[-1]:
        body = httpx.post(f"{mock.base_url}/{path}", json={"model": "m", "max_tokens": 99, key: history}).json()
        match api:
            case "responses":
                calls = [item["call_id"] for item in body["output"] if item["type"] == "function_call"]
            case "chat":
                calls = [call["id"] for call in body["choices"][0]["message"].get("tool_calls", [])]
            case _:
                calls = [block["id"] for block in body["content"] if block["type"] == "tool_use"]
        history = [*history, *answer(api, calls)]
        answers.append(calls)
    return answers


def written_call(api, call_id):
    """Return the items or the message with a call."""
    if api == "responses":
        return {"type": "function_call", "call_id": call_id, "name": "get_weather", "arguments": "{}"}
    if api == "chat":
        function = {"name": "get_weather", "arguments": "{}"}
        return {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]}
    return {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": "get_weather", "input": {}}]}


def written_output(api, call_id):
    """Return the item or the message with the output of a call."""
    if api == "responses":
        return {"type": "function_call_output", "call_id": call_id, "output": "18"}
    if api == "chat":
        return {"role": "tool", "tool_call_id": call_id, "content": "18"}
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "18"}]}


def one_by_one(api, calls):
    return [write(api, call) for call in calls for write in (written_call, written_output)]


@pytest.mark.parametrize("api", ["responses", "chat", "messages"])
def test_parallel_calls_are_one_turn_although_each_stands_with_its_output(mock, api) -> None:
    mock.when("Hi").calls("get_weather").calls("get_weather").then.calls("get_weather").then.calls("get_weather").then.says("18")
    assert [len(calls) for calls in call_tools(mock, api, one_by_one)] == [2, 1, 1, 0]
    assert [(each.turn, each.steps) for each in mock.requests] == [(1, [1]), (2, [2]), (3, [3]), (4, [4])]


def calls_of(api, event):
    """Return the calls that an event of a stream names, and whether it is the last with something for the agent."""
    match api:
        case "responses":
            item = event.get("item", {})
            begins = event["type"] == "response.output_item.done" and item["type"] == "function_call"
            return [item["call_id"]] if begins else [], event["type"] == "response.completed"
        case "chat":
            choices = event["choices"]
            return [call["id"] for each in choices for call in each["delta"].get("tool_calls", []) if call.get("id")], any(
                each["finish_reason"] for each in choices
            )
        case _:
            block = event.get("content_block", {})
            return [block["id"]] if block.get("type") == "tool_use" else [], event["type"] == "message_delta"


async def call_tools_at_once(client, api, url, text):
    """Do as `call_tools` with streams, each of which is left as soon as the agent knows enough for the next request."""
    key, history, answers = "input" if api == "responses" else "messages", [{"role": "user", "content": text}], []
    while not answers or answers[-1]:
        body, decoder, calls = {"model": "m", "max_tokens": 99, "stream": True, key: history}, SseDecoder(), []
        async with client.stream("POST", f"{url}{PATHS[api]}", json=body) as answer:
            async for data in answer.aiter_bytes():
                found = [calls_of(api, json.loads(each.data)) for each in decoder.feed(data) if each.data.startswith("{")]
                calls += [call for some, _ in found for call in some]
                if any(is_last for _, is_last in found):
                    break
        history = [*history, *one_by_one(api, calls)]
        answers.append(calls)
    return [len(calls) for calls in answers]


def test_twenty_requests_at_once_to_one_test_know_the_turn_of_each_call(mock) -> None:
    mock.when("Hi").calls("get_weather").calls("get_weather").then.calls("get_weather").then.says("18")
    talks = [(api, f"Hi {number}") for number, api in enumerate([*PATHS] * 7)][:20]

    async def talk_all():
        async with httpx.AsyncClient(timeout=60) as client:
            return await asyncio.gather(*(call_tools_at_once(client, api, mock.url, text) for api, text in talks))

    assert asyncio.run(talk_all()) == [[2, 1, 0]] * 20
    taken = Counter((each.text, each.turn, *each.steps) for each in mock.requests)
    assert taken == Counter((text, turn, turn) for _, text in talks for turn in (1, 2, 3))
    assert mock.verdict == {"problems": [], "unoffered": ["get_weather"], "unused": []}


PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}


AND = {"role": "user", "content": "And?"}


@pytest.mark.parametrize(
    ("api", "answered", "then"),
    [
        *((api, *case) for api in PATHS for case in [(1, []), (1, [AND]), (0, [AND])]),
        *((api, 0, []) for api in ("responses", "chat")),  # Messages refuses a conversation that the model ends
    ],
)
def test_a_call_without_an_output_is_a_problem_when_the_model_is_asked_again(server, api, answered, then) -> None:
    calls = ["call_1", "call_2"]
    written = [*map(partial(written_call, api), calls), *map(partial(written_output, api), calls[:answered])]
    mock = Mock(server=server).__enter__()
    mock.when("Hi").calls("get_weather").calls("get_weather").then.says("18")
    mock.when("And").says("18")
    url, key = f"{mock.url}{PATHS[api]}", "input" if api == "responses" else "messages"
    for _ in range(2):
        body = {"model": "m", "max_tokens": 99, key: [USER, *written, *then]}
        assert httpx.post(url, json=body).status_code == 200
    problems = mock.verdict["problems"]
    with pytest.raises(AssertionError, match="has no output"):
        mock.__exit__(None)
    assert problems == [f"{PATHS[api]}: {call} (get_weather) has no output" for call in calls[answered:]]


def test_an_output_is_missing_after_a_stored_response(server) -> None:
    mock = Mock(server=server).__enter__()
    mock.when("Hi").calls("get_weather").calls("get_weather").then.says("18")
    first = ask(mock).json()
    ids = [item["call_id"] for item in first["output"]]
    ask(mock, [written_output("responses", ids[0])], previous_response_id=first["id"])
    problems = mock.verdict["problems"]
    mock.requests.clear()
    mock.__exit__(None)
    assert problems == [f"/v1/responses: {ids[1]} (get_weather) has no output"]


def test_calls_that_need_no_output_are_no_problem(mock) -> None:
    mock.when("replaced by a summary").says("Warm.")
    mock.when("Hi").calls("get_weather")
    mock.when("And").says("18").then.says("19")
    call = written_call("responses", "call_1")
    hosted = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
    searched = {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}, "status": "completed"}
    outputs = [
        ask(mock),
        ask(mock, [USER, {**call, "async": True}, AND]),
        ask(mock, [USER, {**call, "status": "incomplete"}, AND]),
        ask(mock, [USER, hosted, searched, AND]),
        ask(mock, [USER, call, written_output("responses", "call_1"), AND]),
        httpx.post(f"{mock.base_url}/responses/compact", json={"model": "m", "input": [USER, AND, call]}),
        httpx.post(f"{mock.base_url}/responses/input_tokens", json={"model": "m", "input": [USER, call]}),
    ]
    assert [(each.status_code, each.json().get("error")) for each in outputs] == [(200, None)] * 7
    assert mock.verdict["problems"] == []


def test_the_last_message_that_matches_a_rule_selects_the_step(mock) -> None:
    mock.when("hi").says("Hello").then.says("again")
    mock.when("bye").says("Bye")
    mock.when(turn=4).says("four")
    history = []
    answers = []
    for text in ("Hi", "what?", "bye", "what?"):
        history.append({"role": "user", "content": text})
        answers.append(text_of(ask(mock, history)))
        history.append({"role": "assistant", "content": answers[-1]})
    assert answers == ["Hello", "again", "Bye", "four"]


def test_twenty_concurrent_conversations_have_their_own_turns_and_faults(mock) -> None:
    mock.when("weather").fails(503).then.calls("get_weather", city="Berlin").then.fails(429, retry_after=0).then.says("18 °C")

    async def talk(client, number):
        asked = [{"role": "user", "content": f"Weather {number}"}]
        refused = []
        for _ in range(2):
            try:
                await client.responses.create(model="m", input=asked)
            except (InternalServerError, RateLimitError) as error:
                refused.append(error.status_code)
            first = await client.responses.create(model="m", input=asked)
            call = first.output[0]
            if call.type == "message":
                return refused, call.content[0].text
            result = {"type": "function_call_output", "call_id": call.call_id, "output": "18"}
            asked += [{"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}, result]
        return None

    async def talk_all():
        async with AsyncOpenAI(base_url=mock.base_url, api_key="any", max_retries=0) as client:
            return await asyncio.gather(*(talk(client, number) for number in range(20)))

    assert asyncio.run(talk_all()) == [([503, 429], "18 °C")] * 20


def test_a_rule_per_server_gives_each_step_once(mock) -> None:
    rule = mock.when("next", per="server")
    for number in range(20):
        rule = (rule.then if number else rule).says(str(number))

    async def ask_all():
        async with httpx.AsyncClient(base_url=mock.base_url) as client:
            body = {"model": "m", "input": "next"}
            return await asyncio.gather(*(client.post("/responses", json=body) for _ in range(20)))

    assert Counter(map(text_of, asyncio.run(ask_all()))) == Counter(map(str, range(20)))


def test_a_request_without_a_rule_is_refused_and_fails_the_test(server) -> None:
    def use(mock):
        mock.when("weather", tools=["get_weather"]).says("18 °C")
        mock.when(re.compile("^a"), model="big", turn=2).says("b")
        return ask(mock, "Hello", tools=[{"type": "web_search"}])

    answer, failure = used_until_failure(server, use)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_rule_matches")
    assert (
        answer.json()["error"]["message"]
        == failure
        == (
            "No rule of the script matches. The request: model m, turn 1, text 'Hello', tools web_search. The rules: "
            "1. text 'weather'; tools get_weather; 2. pattern '^a'; model big; turn 2."
        )
    )


def test_a_request_after_the_last_step_is_refused(server) -> None:
    def use(mock):
        mock.when("hi").says("Hello")
        history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "?"}]
        return ask(mock, history)

    answer, failure = used_until_failure(server, use)
    assert (answer.status_code, failure) == (
        400,
        (
            "Rule 1 of the script (text 'hi') has no step for its turn 2, counted from the user's message, whichever rule "
            "answered. The request: model m, turn 2, text '?'."
        ),
    )


def test_an_error_has_its_status_and_retry_after_in_each_api(mock) -> None:
    mock.when().fails(429, "Slow down.", retry_after=7)
    responses = ask(mock)
    messages = httpx.post(
        f"{mock.url}/v1/messages",
        json={"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
        headers={"anthropic-version": "2023-06-01"},
    )
    assert [(each.status_code, each.headers["retry-after"]) for each in (responses, messages)] == [(429, "7")] * 2
    assert responses.json()["error"]["message"] == messages.json()["error"]["message"] == "Slow down."
    assert messages.json()["error"]["type"] == "rate_limit_error"


def test_a_rule_answers_in_every_api(mock) -> None:
    mock.when("hi").says("Hello")
    user = {"role": "user", "content": "hi"}
    with OpenAI(base_url=mock.base_url, api_key="any") as client:
        assert client.chat.completions.create(model="m", messages=[user]).choices[0].message.content == "Hello"
        chunks = client.chat.completions.create(model="m", messages=[user], stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello"
    message = httpx.post(f"{mock.url}/v1/messages", json={"model": "m", "max_tokens": 99, "messages": [user], "stream": True})
    assert '"text":"Hello"' in message.text
    with socket_client(mock.base_url) as socket:
        event = socket.ask(model="m", input="hi")[-1]
    assert event["response"]["output"][0]["content"][0]["text"] == "Hello"
    assert [(each.path, each.json["model"], each.text) for each in mock.requests] == [
        ("/v1/chat/completions", "m", "hi"),
        ("/v1/chat/completions", "m", "hi"),
        ("/v1/messages", "m", "hi"),
        ("/v1/responses", "m", "hi"),
    ]
    assert [each.stream is not None for each in mock.requests] == [False, True, True, True]


def posted(mock, api, *, stream, system=""):
    """Ask by an API with a system prompt; return the body of the answer, or the events of its stream."""
    user, asked = {"role": "user", "content": "Hi"}, {"model": "m", "stream": stream}
    match api:
        case "responses":
            body = {**asked, "input": [user], "instructions": system}
        case "messages":
            body = {**asked, "max_tokens": 99, "messages": [user], "system": system}
        case _:
            options = {"stream_options": {"include_usage": True}} if stream else {}
            body = {**asked, **options, "messages": [{"role": "system", "content": system}, user]}
    answer = httpx.post(f"{mock.url}{PATHS[api]}", json=body)
    return events(answer.content) if stream else answer.json()


COUNTS = {"input_tokens": 100, "cached_tokens": 60, "cache_write_tokens": 10, "output_tokens": 9, "reasoning_tokens": 4}
IN_RESPONSES = {
    "input_tokens": 100,
    "input_tokens_details": {"cache_write_tokens": 10, "cached_tokens": 60},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 109,
}
IN_CHAT = {
    "prompt_tokens": 100,
    "completion_tokens": 9,
    "total_tokens": 109,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens_details": {"reasoning_tokens": 4},
}
IN_MESSAGES = {
    "input_tokens": 30,
    "cache_creation_input_tokens": 10,
    "cache_read_input_tokens": 60,
    "output_tokens": 9,
    "output_tokens_details": {"thinking_tokens": 4},
    "cache_creation": None,
    "server_tool_use": None,
    "service_tier": None,
    "inference_geo": None,
}


def test_a_refusal_and_the_tokens_of_a_step_are_in_every_api(mock) -> None:
    mock.when().refuses("I must not.").uses(**COUNTS)
    whole = {api: posted(mock, api, stream=False) for api in PATHS}
    streams = {api: posted(mock, api, stream=True) for api in PATHS}
    [message], [choice], [block] = whole["responses"]["output"], whole["chat"]["choices"], whole["messages"]["content"]
    assert (message["content"], whole["responses"]["usage"]) == ([{"type": "refusal", "refusal": "I must not."}], IN_RESPONSES)
    assert (choice["finish_reason"], choice["message"]["content"], choice["message"]["refusal"]) == ("stop", None, "I must not.")
    assert (block["type"], block["text"], whole["messages"]["stop_reason"]) == ("text", "I must not.", "refusal")
    assert (whole["chat"]["usage"], whole["messages"]["usage"]) == (IN_CHAT, IN_MESSAGES)
    words = ["I", " must", " not."]
    refused = [event for event in streams["responses"] if event["type"] == "response.refusal.delta"]
    assert ([event["delta"] for event in refused], streams["responses"][-1]["response"]["usage"]) == (words, IN_RESPONSES)
    assert [chunk["choices"][0]["delta"].get("refusal") for chunk in streams["chat"][1:-2]] == words
    assert streams["chat"][-1]["usage"] == IN_CHAT
    assert streams["messages"][0]["message"]["usage"]["input_tokens"] == 100
    assert (streams["messages"][-2]["delta"]["stop_reason"], streams["messages"][-2]["usage"]) == ("refusal", IN_MESSAGES)


def test_the_counts_that_a_step_does_not_name_are_those_of_the_mock(mock) -> None:
    mock.when("counted").says("one two three")
    mock.when("said").says("one two three").uses(cached_tokens=2)
    counted, said = (ask(mock, text).json()["usage"] for text in ("counted", "said"))
    assert said.pop("input_tokens_details") == {**counted.pop("input_tokens_details"), "cached_tokens": 2}
    assert said == counted


def test_the_tokens_of_the_steps_around_a_hosted_call_are_added(mock) -> None:
    called = mock.when("trains").calls("web_search", query="trains").returns("[0] Trains").uses(input_tokens=10, output_tokens=5)
    called.then.says("Found.").uses(input_tokens=20, output_tokens=2)
    usage = ask(mock, "trains", tools=[{"type": "web_search"}]).json()["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (30, 7, 37)


@pytest.mark.parametrize("api", ["responses", "chat", "messages"])
def test_a_rule_matches_a_part_of_the_instructions(mock, api) -> None:
    mock.when("hi", instructions="PIRATE").says("Arr.")
    mock.when("hi", instructions="clerk").says("Good day.")
    answers = [posted(mock, api, stream=False, system=f"You are a {who}.") for who in ("clerk", "pirate")]
    assert ["Good day." in str(answers[0]), "Arr." in str(answers[1])] == [True, True]
    assert [(each.instructions, each.rule) for each in mock.requests] == [
        ("You are a clerk.", "text 'hi'; instructions 'clerk'"),
        ("You are a pirate.", "text 'hi'; instructions 'PIRATE'"),
    ]


def test_instructions_may_be_messages_of_the_developer(mock) -> None:
    mock.when(instructions="pirate").says("Arr.")
    said = [{"role": "developer", "content": "You are a pirate."}, {"role": "system", "content": "Be brief."}, USER]
    assert text_of(httpx.post(f"{mock.base_url}/responses", json={"model": "m", "instructions": "Go.", "input": said})) == "Arr."
    assert [each.instructions for each in mock.requests] == ["Go.\nYou are a pirate.\nBe brief."]


def test_a_request_without_a_rule_is_refused_with_its_instructions(server) -> None:
    def use(mock):
        mock.when(instructions="pirate").says("Arr.")
        return ask(mock, instructions="You are a clerk.")

    answer, failure = used_until_failure(server, use)
    asked = "model m, turn 1, text 'Hi', instructions 'You are a clerk.'"
    assert (answer.status_code, failure) == (
        400,
        f"No rule of the script matches. The request: {asked}. The rules: 1. instructions 'pirate'.",
    )


def read_into(received, base_url, text="Hi"):
    with httpx.stream("POST", f"{base_url}/responses", json={"model": "m", "input": text, "stream": True}) as answer:
        for chunk in answer.iter_bytes():
            received.extend(chunk)


def test_a_step_disconnects_before_or_within_its_stream(mock) -> None:
    mock.when().disconnects().then.says("one two three").disconnects(after=5).then.says("Hello")
    with pytest.raises(httpx.RemoteProtocolError):
        ask(mock)
    received = bytearray()
    with pytest.raises(httpx.RemoteProtocolError):
        read_into(received, mock.base_url)
    assert names(bytes(received)) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
    ]
    assert text_of(ask(mock)) == "Hello"


def test_a_stream_stops_after_a_number_of_events(mock) -> None:
    mock.when().says("one two three").stops(after=5).then.stops()
    streams = [names(ask(mock, stream=True).content) for _ in range(2)]
    assert [(len(stream), stream[-1:]) for stream in streams] == [(5, ["response.output_text.delta"]), (0, [])]


@pytest.mark.parametrize("fault", ["stops", "disconnects"])
def test_a_fault_after_the_end_of_a_stream_is_a_problem(server, fault) -> None:
    def use(mock):
        getattr(mock.when().says("one"), fault)(after=50)
        with suppress(httpx.RemoteProtocolError):
            ask(mock, stream=True)

    _, failure = used_until_failure(server, use)
    assert failure == f"The script {fault} after event 50, but the stream ends with event 10."


def test_a_disconnect_or_a_stop_closes_the_websocket(mock) -> None:
    mock.when("break").says("one two").disconnects(after=2)
    mock.when("stop").says("one two").stops(after=2)
    for text in ("break", "stop"):
        received = []
        with connect(f"{mock.base_url.replace('http', 'ws', 1)}/responses") as socket:
            socket.send(json.dumps({"type": "response.create", "model": "m", "input": text}))
            received += [json.loads(frame)["type"] for frame in socket_frames(socket)]
        assert received == ["response.created", "response.in_progress"]


def received_by_socket(mock, *sent):
    """Send frames over a WebSocket; return the received frames up to the end of all requested responses."""
    frames, left = [], sum(isinstance(each, dict) and each["type"] == "response.create" for each in sent)
    with connect(f"{mock.base_url.replace('http', 'ws', 1)}/responses") as socket:
        for each in sent:
            socket.send(each if isinstance(each, str) else json.dumps(each))
        while left:
            frames.append(json.loads(socket.recv(timeout=10)))
            left -= frames[-1]["type"] in TERMINAL
    return frames


def test_the_requests_of_each_lane_have_their_own_stream_and_body(mock) -> None:
    mock.when("first").says("one two three four").waits(0, between=0.01)
    mock.when("second").says("five six seven").waits(0, between=0.01)
    create = {"type": "response.create", "model": "m"}
    asked = [{**create, "input": "first", "stream_id": "a"}, {**create, "input": "second", "stream_id": "b"}]
    frames = received_by_socket(mock, *asked)
    assert {frame["stream_id"] for frame in frames} == {"a", "b"}
    requests = sorted(mock.requests, key=lambda request: request.json["stream_id"])  # the lanes run at once
    assert [request.json for request in requests] == asked
    for request, text in zip(requests, ("one two three four", "five six seven"), strict=True):
        assert request.findings() == []
        assert f'"text":"{text}"'.encode() in request.stream
    mock.verify()


def test_a_steered_response_and_the_next_one_are_two_legal_streams(mock) -> None:
    mock.when("turn").says("Eight.")
    mock.when("first").says("one two three four five six").waits(0, between=0.05)
    first = {"type": "response.create", "model": "m", "input": "first"}
    with connect(f"{mock.base_url.replace('http', 'ws', 1)}/responses") as socket:
        frames = []

        def receive(kind):
            while not frames or frames[-1]["type"] != kind:
                frames.append(json.loads(socket.recv(timeout=10)))
            return frames[-1]

        socket.send(json.dumps(first))
        response_id = receive("response.created")["response"]["id"]
        receive("response.output_text.delta")
        socket.send(json.dumps({"type": "response.steer", "previous_response_id": response_id, "input": "turn around"}))
        receive("response.completed")
        frames.clear()
        receive("response.completed")
    assert frames[0]["response"]["previous_response_id"] == response_id
    assert [(request.findings(), request.text) for request in mock.requests] == [([], "first"), ([], "turn around")]
    assert mock.requests[0].json == first
    assert mock.requests[1].json["previous_response_id"] == response_id
    assert b"Eight." in mock.requests[1].stream


def test_an_invalid_frame_leaves_the_websocket_open(mock) -> None:
    mock.when().says("Hi")
    frames = received_by_socket(mock, "{not JSON", {"type": "response.create", "model": "m", "input": "x"})
    assert (frames[0]["type"], frames[-1]["type"]) == ("error", "response.completed")
    assert [request.json["input"] for request in mock.requests] == ["x"]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda mock: mock.when().ends("lenght"),
            "ends: unknown value 'lenght' (did you mean 'length'?)",
        ),
        (lambda mock: mock.when().fails(200), "Expected `int` >= 400"),
        (lambda mock: mock.when().fails(600), "Expected `int` <= 599"),
        (lambda mock: mock.when().fails(503, retry_after=-1), "Expected `float` >= 0"),
        (lambda mock: mock.when().waits(-1), "Expected `float` >= 0"),
        (lambda mock: mock.when().waits(float("inf")), "Expected `float`"),
        (lambda mock: mock.when().waits(float("nan")), "Expected `float`"),
        (lambda mock: mock.when().says(5), "Expected `str | object | array | null`, got `int`"),
        (lambda mock: mock.when().says({"a": object()}), "object"),
        (lambda mock: mock.when().thinks(5), "Expected `str"),
        (lambda mock: mock.when().calls(""), "Expected `str` of length >= 1"),
        (lambda mock: mock.when().calls("f", x=object()), "object"),
        (lambda mock: mock.when().disconnects(after=-1), "Expected `int` >= 0"),
        (lambda mock: mock.when(turn=0), "Expected `int` >= 1"),
        (lambda mock: mock.when(5), "Expected `str | null`, got `int`"),
        (lambda mock: mock.when(""), "Expected `str` of length >= 1"),
        (lambda mock: mock.when(tools=["f", ""]), "Expected `str` of length >= 1"),
        (lambda mock: mock.when(per="both"), "per: unknown value 'both'; the values are conversation, server"),
        (lambda mock: mock.when(instructions=""), "Expected `str` of length >= 1"),
        (lambda mock: mock.when().refuses(""), "Expected `str` of length >= 1"),
        (lambda mock: mock.when().uses(output_tokens=-1), "Expected `int` >= 0"),
        (lambda mock: (mock.when().says("a"), mock.when("b")), "rule 1 (any request) answers all requests with text 'b'"),
        (lambda mock: (mock.when("a").says("a"), mock.when("BAT")), "rule 1 (text 'a') answers all requests with text 'BAT'"),
        (
            lambda mock: (mock.when(instructions="a").says("a"), mock.when("b", instructions="BAT")),
            "rule 1 (instructions 'a') answers all requests with text 'b'; instructions 'BAT'",
        ),
    ],
)
def test_an_invalid_rule_is_refused_when_it_is_added(mock, write, message) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        write(mock)


def test_a_pattern_must_contain_its_flags(mock) -> None:
    mock.when(re.compile("(?i)hello")).says("Hi")
    assert text_of(ask(mock, "HELLO")) == "Hi"
    with pytest.raises(ValueError, match="write the flags into the pattern"):
        mock.when(re.compile("hello", re.IGNORECASE))


def test_the_verdict_has_the_steps_that_no_request_took_and_the_tools_that_it_did_not_offer(server) -> None:
    with Mock(server=server) as mock:
        mock.when("weather").calls("get_weather", city="Berlin").calls("get_weather", city="Rome").then.says("18 °C")
        mock.when("retry").fails(503).then.says("Hi.").then.says("Bye.")
        mock.when("never").says("No.")
        for text in ("weather", "weather", "retry", "retry"):
            ask(mock, text)
        assert [(each.rule, each.steps, each.unoffered) for each in mock.requests] == [
            ("text 'weather'", [1], ["get_weather", "get_weather"]),
            ("text 'weather'", [1], ["get_weather", "get_weather"]),
            ("text 'retry'", [1], []),
            ("text 'retry'", [2], []),
        ]
        unused = [
            "rule 1, step 2 (text 'weather'); 2 requests took step 1",
            "rule 2, step 3 (text 'retry')",
            "rule 3, step 1 (text 'never')",
        ]
        assert mock.verdict == {"problems": [], "unoffered": ["get_weather"], "unused": unused}
        assert httpx.get(f"{mock.url}/interlock/requests").json()["verdict"] == mock.verdict
    with Mock(server=server, strict=True) as strict:
        strict.rules += mock.rules[:1]
        ask(strict, "weather")
        with pytest.raises(AssertionError) as failure:
            strict.verify()
        strict.rules.clear()
        strict.requests.clear()
    assert str(failure.value).splitlines() == [
        "no request has taken rule 1, step 2 (text 'weather')",
        "the script calls the tool 'get_weather', which its request does not offer",
    ]


@pytest.mark.parametrize(("turn", "answer", "unused"), [(None, "one", ["2"]), (1, "two", [])])
def test_a_rule_starts_again_at_each_message_that_it_matches_but_a_turn_comes_once(mock, turn, answer, unused) -> None:
    mock.when(turn=turn).says("one").then.says("two")
    first = ask(mock).json()
    second = httpx.post(f"{mock.base_url}/responses", json={"model": "m", "input": "Yes", "previous_response_id": first["id"]})
    assert text_of(second) == answer
    assert mock.verdict["unused"] == [f"rule 1, step {step} (any request); 2 requests took step 1" for step in unused]


def test_the_steps_after_hosted_calls_and_those_per_server_are_taken(mock) -> None:
    mock.when("trains").calls("web_search", query="trains").returns("[0] Trains").then.says("Found.")
    mock.when(per="server").says("one").then.says("two").then.says("three")
    ask(mock, "trains", tools=[{"type": "web_search"}])
    ask(mock)
    ask(mock)
    assert [each.steps for each in mock.requests] == [[1, 2], [1], [2]]
    assert mock.verdict == {"problems": [], "unoffered": [], "unused": ["rule 2, step 3 (any request)"]}


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("get_weather", WEATHER),
        ("python", {"type": "code_interpreter", "container": {"type": "auto"}}),
        ("browser.search", {"type": "web_search"}),
        ("crm__find", {"type": "namespace", "name": "crm", "description": "C", "tools": [{**WEATHER, "name": "find"}]}),
    ],
)
def test_a_tool_is_recognized_by_its_name_in_the_script(server, name, tool) -> None:
    with Mock(server=server) as mock:
        mock.when().calls(name, query="x")
        ask(mock, tools=[tool])
        assert mock.requests[0].unoffered == []
        mock.requests[0].problem = ""  # the next turn of a hosted tool is not written


def socket_frames(socket):
    from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

    while True:
        try:
            yield socket.recv(timeout=10)
        except ConnectionClosed:
            return


@pytest.mark.parametrize("rule", RULES)
def test_a_step_breaks_the_given_rule_of_streams(mock, rule) -> None:
    ends = {"R4": "error", "R12": "length"}.get(rule, "stop")
    rule_of = mock.when().says("one two").calls("web_search", query="trains").returns("Trains").ends(ends).breaks(rule)
    rule_of.then.says("Found.")
    answer = ask(mock, stream=True, tools=[{"type": "web_search"}])
    assert rule in {finding.rule for finding in findings(events(answer.content))}
    assert mock.requests[0].findings() == []


def test_breaking_a_rule_where_it_cannot_be_broken_is_an_error(server) -> None:
    def use(mock):
        mock.when().says("one").breaks("R11")
        chat = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        return ask(mock), ask(mock, stream=True), httpx.post(f"{mock.base_url}/chat/completions", json=chat)

    answers, failure = used_until_failure(server, use)
    reason = "The script breaks R11, but this answer is no stream of Responses, or has nothing that it concerns."
    assert [(each.status_code, each.json()["error"]["message"]) for each in answers] == [(400, reason)] * 3
    assert failure.splitlines() == [reason] * 3


def test_raw_output_of_a_family_is_parsed(mock) -> None:
    mock.when("hermes", family="hermes").writes(
        '<think>\nSo.\n</think>\nLook.<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ber'
    )
    mock.when("qwen", family="qwen3_coder").thinks("So.").says("Hi").calls("get_weather", city="Berlin")
    mock.when("oss", family="harmony").writes("<|channel|>final<|message|>Hello<|return|>")
    outputs = [ask(mock, text, tools=[WEATHER]).json()["output"] for text in ("hermes", "qwen", "oss")]
    assert [[(item["type"], item.get("status")) for item in output] for output in outputs] == [
        [("reasoning", "completed"), ("message", "completed"), ("function_call", "incomplete")],
        [("reasoning", "completed"), ("message", "completed"), ("function_call", "completed")],
        [("message", "completed")],
    ]


def test_a_model_need_not_keep_to_the_schemas_of_the_request(mock) -> None:
    mock.when("call").calls("get_weather", city=1)
    mock.when("say").says({"city": 1})
    schema = {**WEATHER["parameters"], "required": ["city"], "additionalProperties": False}
    tool = {**WEATHER, "parameters": schema, "strict": True}
    structured = {"format": {"type": "json_schema", "name": "city", "schema": schema, "strict": True}}
    [call] = ask(mock, "call", tools=[tool]).json()["output"]
    answer = httpx.post(f"{mock.base_url}/responses", json={"model": "m", "input": "say", "text": structured})
    assert (call["arguments"], text_of(answer)) == ('{"city":1}', '{"city":1}')
    assert mock.verdict == {"problems": [], "unoffered": [], "unused": []}


def test_a_hosted_tool_returns_the_result_in_the_script(mock) -> None:
    mock.when("trains").calls("web_search", query="trains").returns("[0] Trains").then.says("Found.")
    answer = ask(mock, "trains", tools=[{"type": "web_search"}])
    assert [item["type"] for item in answer.json()["output"]] == ["web_search_call", "message"]


def test_a_result_that_no_hosted_tool_returned_is_a_problem(mock) -> None:
    mock.when("one").calls("get_weather", city="Berlin").returns("18 °C")
    mock.when("both").calls("web_search", query="Berlin").returns("[0] Berlin").calls("get_weather", city="Berlin")
    asked = [ask(mock, text, tools=[WEATHER, {"type": "web_search"}]).json()["output"] for text in ("one", "both")]
    assert [[item["type"] for item in output] for output in asked] == [["function_call"], ["web_search_call", "function_call"]]
    assert mock.verdict["problems"] == ["The script has a result that no hosted tool returned; the client runs get_weather."]
    mock.requests.clear()


def test_a_rule_per_server_gives_each_hosted_call_its_own_result(mock) -> None:
    rule = mock.when(per="server").calls("python", code="1").returns("one").then.says("First.")
    rule.then.calls("python", code="2").returns("two").then.says("Second.")
    tools = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    outputs = [ask(mock, tools=tools, include=["code_interpreter_call.outputs"]).json()["output"] for _ in range(2)]
    assert [(call["outputs"][0]["logs"], answer["content"][0]["text"]) for call, answer in outputs] == [
        ("one", "First."),
        ("two", "Second."),
    ]


def test_a_mock_that_cannot_start_raises_the_cause_and_stops_its_server(tmp_path, monkeypatch) -> None:
    before = threading.enumerate()
    script = tmp_path / "script.toml"
    script.write_text('rules = [{ family = "harmony", steps = [{ writes = "" }] }]')
    monkeypatch.setitem(sys.modules, "interlock.parsers.harmony", None)
    with pytest.raises(ModuleNotFoundError, match="harmony"):
        Mock(script).__enter__()
    assert [thread for thread in threading.enumerate() if thread not in before] == []


def test_a_request_after_the_end_of_its_test_is_refused(server) -> None:
    with Mock(server=server) as mock:
        pass
    assert ask(mock).status_code == 410


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda rule: rule.then, "first step"),
        (lambda rule: rule.says("a").says("b"), "says once"),
        (lambda rule: rule.returns("a"), "write the call"),
        (lambda rule: rule.writes("a"), "needs a family"),
        (lambda rule: rule.fails(500).uses(input_tokens=1), "fails and uses exclude each other"),
        (lambda rule: rule.fails(500).stops(), "exclude each other"),
        (lambda rule: rule.says("a").fails(500), "fails and says exclude each other"),
        (lambda rule: rule.breaks("R99"), "R99"),
    ],
)
def test_an_inconsistent_rule_is_refused(mock, write, message) -> None:
    with pytest.raises(ValueError, match=message):
        write(mock.when())


def test_an_invalid_request_is_recorded_without_a_rule(mock) -> None:
    with OpenAI(base_url=mock.base_url, api_key="any") as client, pytest.raises(BadRequestError):
        client.responses.create(model="m", input="Hi", temperature="hot")
    assert [(each.json["temperature"], each.turn, each.rule) for each in mock.requests] == [("hot", 0, None)]
    mock.requests.clear()


INVALID = {"model": "m", "input": "Hi", "temperature": "hot"}
HOT = "Invalid type for 'temperature': expected a number, but got a string instead."


def test_a_request_that_the_server_refuses_is_a_problem(server) -> None:
    with Mock(server=server) as mock:
        mock.when("Hi").fails(400, "Slow down.").then.ends("error").says("Bye")
        asked = [
            ("responses", INVALID),
            ("messages", {"model": "m", "messages": []}),
            ("chat/completions", {"model": "m"}),
            ("responses", {"model": "m", "input": "Hi"}),
            ("chat/completions", {"model": "m", "messages": [USER]}),
        ]
        statuses = [httpx.post(f"{mock.base_url}/{path}", json=body).status_code for path, body in asked]
        problems = mock.verdict["problems"]
        with pytest.raises(AssertionError, match=HOT):
            mock.verify()
        mock.requests.clear()
    assert statuses == [400, 400, 400, 400, 500]
    empty = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
    assert problems == [
        f"/v1/responses: status 400: {HOT}",
        f"/v1/messages: status 400: {empty}",
        "/v1/chat/completions: status 400: Missing required parameter: 'messages'.",
    ]


def test_a_request_to_a_path_that_the_mock_does_not_serve_is_a_problem(server) -> None:
    def use(mock):
        for method, path in asked[:-1]:
            assert httpx.request(method, f"{mock.url}{path}", json={"model": "m"}).status_code == 404
        with pytest.raises(InvalidStatus, match="404"):
            connect(f"{mock.url.replace('http', 'ws', 1)}/responses")
        probed = httpx.head(f"{mock.url}/api/hello"), httpx.get(f"{mock.url}/v1/responses/resp_none")  # no problems
        assert [each.status_code for each in probed] == [404, 404]
        return [(each.path, each.body, each.turn) for each in mock.requests]

    asked = [("POST", "/responses"), ("POST", "/chat/completions"), ("GET", "/models"), ("WEBSOCKET", "/responses")]
    requests, failure = used_until_failure(server, use)
    assert requests == [(path, b"", 0) for _, path in asked]
    assert [problem.partition(" This server serves ")[0] for problem in failure.splitlines()] == [
        f"{path}: status 404: Invalid URL ({method} {path}). Advice: add /v1 to the base URL of the client."
        for method, path in asked
    ]


def test_a_request_that_lacks_v1_is_a_problem_of_its_test() -> None:
    def ask(path):
        return httpx.post(f"{url}{path}", json=ASKED["responses"]).status_code

    with ServerThread(build(Settings(), ScriptedEngine([ScriptRule(steps=[ScriptStep(says="Hi")])]))) as url:
        httpx.put(f"{url}/a%2Fb/interlock/script", json={"rules": []})
        statuses = [ask("/a%2Fb/responses"), ask("/a%2Fb/"), ask("/other/responses"), ask("/v1/responses")]
        listed = [httpx.get(f"{url}{name}/interlock/requests").json()["requests"] for name in ("/a%2Fb", "/other", "")]
    assert statuses == [404, 404, 404, 200]
    assert [[(each["path"], each["body"], each["problem"].partition(".")[0]) for each in test] for test in listed] == [
        [
            ("/responses", "", "/responses: status 404: Invalid URL (POST /responses)"),
            ("/", "", "/: status 404: Invalid URL (POST /)"),
        ],
        [],
        [
            ("/other/responses", "", "/other/responses: status 404: Invalid URL (POST /other/responses)"),
            ("/v1/responses", ASKED["responses"], ""),
        ],
    ]


def test_the_icon_that_a_browser_wants_is_no_problem(mock) -> None:
    assert httpx.get(f"{mock.url}/favicon.ico").status_code == 404
    assert mock.requests == []


def test_a_request_that_its_client_abandons_is_no_problem() -> None:
    async def left(scope, receive, send):
        await receive()
        await error_response(NotBegunError.of(Cancel()))(scope, receive, send)

    async def receive():
        return {"type": "http.request", "body": b"{}"}

    async def send(message):
        sent.append(message["type"])

    sent, engine = [], ScriptedEngine([])
    scope = {"type": "http", "method": "POST", "path": "/v1/responses", "raw_path": b"/v1/responses", "headers": []}
    asyncio.run(ScriptFaults(left, engine)(scope, receive, send))
    assert sent == ["http.response.start", "http.response.body"]
    assert engine.progress().listed()["verdict"]["problems"] == []


def test_a_refused_frame_is_a_problem_and_the_next_one_has_its_own_stream(mock) -> None:
    mock.when("Hi").fails(503).then.says("Hi")
    create = {"type": "response.create", "model": "m", "input": "Hi", "stream_id": "a"}
    asked = [{**create, "temperature": "hot"}, create, create]
    with connect(f"{mock.base_url.replace('http', 'ws', 1)}/responses") as socket:
        for each in asked:
            socket.send(json.dumps(each))
        while json.loads(socket.recv(timeout=10))["type"] not in TERMINAL:
            pass
    assert [(each.json, each.steps, each.stream is None) for each in mock.requests] == [
        (asked[0], (), True),
        (asked[1], [1], True),
        (asked[2], [2], False),
    ]
    assert mock.verdict == {"problems": [f"/v1/responses: status 400: {HOT}"], "unoffered": [], "unused": []}
    mock.requests.clear()


def test_the_route_for_requests_lists_and_clears_the_requests_of_a_script(mock) -> None:
    mock.when("weather", per="server").calls("get_weather", city="Berlin").then.says("18 °C")
    mock.when("never").says("No.")
    url = f"{mock.url}/interlock/requests"
    assert ask(mock, "weather").status_code == 200
    assert ask(mock, "other").status_code == 400
    shown = httpx.get(url).json()
    facts = {"path": "/v1/responses", "model": "m", "tools": [], "turn": 1, "stream": None, "errors": [], "unanswered": []}
    first, second = shown["requests"]
    assert first.pop("headers")["content-type"] == "application/json"
    assert first == {
        **facts,
        "text": "weather",
        "instructions": "",
        "rule": "text 'weather'",
        "steps": [1],
        "problem": "",
        "unoffered": ["get_weather"],
        "body": {"model": "m", "input": "weather"},
    }
    assert (second["rule"], second["problem"][:34]) == (None, "No rule of the script matches. The")
    unused = ["rule 1, step 2 (text 'weather')", "rule 2, step 1 (text 'never')"]
    assert shown["verdict"] == {"problems": [second["problem"]], "unoffered": ["get_weather"], "unused": unused}
    assert httpx.delete(url).status_code == 204
    assert httpx.get(url).json()["requests"] == []
    assert ask(mock, "weather").json()["output"][0]["type"] == "function_call"  # the first step again
    assert httpx.post(url).status_code == 405
    mock.requests.clear()


COUNTED = ScriptRule(per="server", steps=[ScriptStep(fails=503), ScriptStep(says="one"), ScriptStep(says="two")])
USER = {"role": "user", "content": "Hi"}
ASKED = {
    "responses": {"model": "m", "input": "Hi"},
    "messages": {"model": "m", "max_tokens": 9, "messages": [USER]},
    "chat/completions": {"model": "m", "messages": [USER]},
}


async def ask_by_each_api(client, url):
    """Ask three times over one API after the other, and return the statuses, and the texts of the last two answers."""
    answers = [await client.post(f"{url}/v1/{path}", json=body, timeout=60) for path, body in ASKED.items()]
    _, message, completion = (answer.json() for answer in answers)
    return [each.status_code for each in answers], message["content"][0]["text"], completion["choices"][0]["message"]["content"]


def test_concurrent_tests_with_names_in_their_urls_have_their_own_steps_and_requests() -> None:
    names = ["", "/v1%2Fa%2Fv1%2Fb", *(f"/agent %3E retries a%2Fb {number}" for number in range(19))]

    async def ask_all(url):
        async with httpx.AsyncClient() as client:
            asked = await asyncio.gather(*(ask_by_each_api(client, f"{url}{name}") for name in names))
            shown = [(await client.get(f"{url}{name}/interlock/requests")).json() for name in names]
            await client.delete(f"{url}{names[1]}/interlock/requests")
            left = [len((await client.get(f"{url}{name}/interlock/requests")).json()["requests"]) for name in names[:3]]
            again = [(await client.post(f"{url}{name}/v1/responses", json=ASKED["responses"])).status_code for name in names[:3]]
        return asked, shown, left, again

    with ServerThread(build(Settings(), ScriptedEngine([COUNTED]))) as url:
        asked, shown, left, again = asyncio.run(ask_all(url))
    assert asked == [([503, 200, 200], "one", "two")] * 21
    paths = ["/v1/responses", "/v1/messages", "/v1/chat/completions"]
    found = [([each["path"] for each in test["requests"]], test["verdict"]) for test in shown]
    assert found == [(paths, {"problems": [], "unoffered": [], "unused": []})] * 21
    assert (left, again) == ([3, 0, 3], [400, 503, 400])  # the fourth step is missing


def test_test_names_in_urls_separate_websockets() -> None:
    with ServerThread(build(Settings(), ScriptedEngine([replace(COUNTED, steps=COUNTED.steps[1:])]))) as url:
        said = []
        for name in ("a", "b", "a"):
            with socket_client(f"{url}/{name}/v1") as socket:
                said.append(socket.ask(model="m", input="Hi")[-1]["response"]["output"][0]["content"][0]["text"])
    assert said == ["one", "one", "two"]


def test_a_named_test_may_have_its_own_script() -> None:
    def put(body, test="own"):
        return httpx.put(f"{url}/{test}/interlock/script", json=body)

    with ServerThread(build(Settings(max_body_bytes=1000), ScriptedEngine([ScriptRule(steps=[ScriptStep(says="all")])]))) as url:
        answers = [put({"rules": [{"when": "Hi", "steps": [{"says": "own"}]}]}), put({"rules": []}, "empty")]
        asked = [httpx.post(f"{url}/{test}/v1/responses", json=ASKED["responses"]) for test in ("own", "other", "empty")]
        shown = [httpx.get(f"{url}/{test}/interlock/requests").json() for test in ("own", "empty")]
        httpx.delete(f"{url}/own/interlock/requests")
        asked.append(httpx.post(f"{url}/own/v1/responses", json=ASKED["responses"]))
        refused = [
            put({"rules": [{"steps": [{"say": "own"}]}]}),
            put([0] * 1000),
            httpx.put(f"{url}/own/interlock/script", content=b"rules = []", headers={"content-type": "application/toml"}),
            httpx.get(f"{url}/own/interlock/script"),
        ]
    assert [(each.status_code, each.content) for each in answers] == [(204, b"")] * 2
    assert [text_of(each) if each.is_success else each.status_code for each in asked] == ["own", "all", 400, "own"]
    missing = "No rule of the script matches. The request: model m, turn 1, text 'Hi'. The rules: none."
    assert [each["verdict"] for each in shown] == [
        {"problems": problems, "unoffered": [], "unused": []} for problems in ([], [missing])
    ]
    assert [(each.status_code, each.json()["error"]["code"]) for each in refused] == [
        (400, "invalid_script"),
        (413, "request_too_large"),
        (415, "unsupported_content_type"),
        (405, None),
    ]
    assert (
        refused[0]
        .json()["error"]["message"]
        .startswith("The script is invalid: rule 1, step 1: unknown field 'say' (did you mean 'says'?); the fields are waits,")
    )


def test_a_script_lists_bodies_as_sent_invalid_requests_and_the_streams_of_websockets() -> None:
    zipped = {"content": gzip.compress(dumps(ASKED["responses"])), "headers": {"content-type": "application/json"}}
    zipped["headers"]["content-encoding"] = "gzip"
    with ServerThread(build(Settings(), ScriptedEngine([ScriptRule(steps=[ScriptStep(says="Hi")])]))) as url:
        httpx.post(f"{url}/a/v1/messages", json=ASKED["messages"])
        httpx.post(f"{url}/a/v1/responses", json={"model": "m", "input": "Hi", "temperature": "hot"})
        httpx.post(f"{url}/a/v1/responses", content=b"{", headers={"content-type": "application/json"})
        httpx.post(f"{url}/a/v1/responses", **zipped)
        with socket_client(f"{url}/a/v1") as socket:
            httpx.delete(f"{url}/b/interlock/requests")
            socket.ask(model="m", input="Hi")
        shown = httpx.get(f"{url}/a/interlock/requests").json()["requests"]
    assert [(each["body"], each["turn"]) for each in shown] == [
        (ASKED["messages"], 1),
        ({"model": "m", "input": "Hi", "temperature": "hot"}, 0),
        ("{", 0),
        (ASKED["responses"], 1),
        ({"type": "response.create", **ASKED["responses"]}, 1),
    ]
    assert [each["stream"] is None for each in shown] == [True] * 4 + [False]
    assert_legal(shown[-1]["stream"].encode(), strict=True)


def test_the_requests_over_a_websocket_are_listed_after_those_before_it_are_forgotten() -> None:
    with ServerThread(build(Settings(), ScriptedEngine([ScriptRule(steps=[ScriptStep(says="Hi")])]))) as url:
        with socket_client(f"{url}/v1") as socket:
            socket.ask(model="m", input="Hi")
            httpx.delete(f"{url}/interlock/requests")
            socket.ask(model="m", input="Hi again")
        assert [each["text"] for each in httpx.get(f"{url}/interlock/requests").json()["requests"]] == ["Hi again"]


def test_the_least_recent_tests_are_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(script, "_TESTS", 2)
    engine = ScriptedEngine([COUNTED])
    took = [engine.progress(test).take(0, 0, []) for test in ("a", "b", "a", "c", "a", "b")]
    assert took == [0, 0, 1, 0, 2, 0]


def test_mocks_and_their_named_tests_have_their_own_steps(server) -> None:
    async def ask_all(urls):
        async with httpx.AsyncClient() as client:
            return await asyncio.gather(*(ask_by_each_api(client, url) for url in urls))

    with ExitStack() as exits:
        mocks = [exits.enter_context(Mock(server=server)) for _ in range(10)]
        for each in mocks:
            each.when("hi", per="server").fails(503).then.says("one").then.says("two")
        asked = asyncio.run(ask_all([f"{each.url}{name}" for each in mocks for name in ("", "/agent 1", "/v1%2Fagent")]))
        assert asked == [([503, 200, 200], "one", "two")] * 30
        assert [len(each.requests) for each in mocks] == [9] * 10


def test_an_answer_that_a_script_cannot_break_is_listed_as_a_problem() -> None:
    with ServerThread(build(Settings(), ScriptedEngine([ScriptRule(steps=[ScriptStep(says="Hi", breaks="R7")])]))) as url:
        answers = [httpx.post(f"{url}/v1/{path}", json={**body, "stream": path != "responses"}) for path, body in ASKED.items()]
        problems = httpx.get(f"{url}/interlock/requests").json()["verdict"]["problems"]
    reason = "The script breaks R7, but this answer is no stream of Responses, or has nothing that it concerns."
    assert ([each.status_code for each in answers], problems) == ([400] * 3, [reason] * 3)


def test_the_route_for_requests_refuses_hosts_that_are_not_allowed() -> None:
    application = build(Settings(allowed_host=("localhost",)), ScriptedEngine([ScriptRule(steps=[ScriptStep(says="Hi")])]))
    application.add_middleware(ViewerMiddleware, recent=RecentStreams(None))
    with ServerThread(application) as url:
        answers = [
            httpx.request(method, f"{url}/interlock/requests", headers={"host": "evil.example"}) for method in ("GET", "DELETE")
        ]
        assert [answer.status_code for answer in answers] == [400, 400]
        assert httpx.get(f"{url}/interlock/requests", headers={"host": "localhost"}).json() == {
            "requests": [],
            "verdict": {"problems": [], "unoffered": [], "unused": ["rule 1, step 1 (any request)"]},
        }


def test_the_route_for_requests_hides_keys_and_judges_streams() -> None:
    rules = [
        ScriptRule(when="good", steps=[ScriptStep(says="Hi")]),
        ScriptRule(when="cut", steps=[ScriptStep(says="Hi", stops=3)]),
        ScriptRule(when="gone", steps=[ScriptStep(says="Hi", disconnects=3)]),
    ]
    headers = {"authorization": "Bearer secret", "x-api-key": "secret", "x-test": "1"}
    with ServerThread(build(Settings(), ScriptedEngine(rules))) as url:
        good, cut = (
            httpx.post(f"{url}/v1/responses", json={"model": "m", "input": text, "stream": True}, headers=headers).text
            for text in ("good", "cut")
        )
        gone = bytearray()
        with pytest.raises(httpx.RemoteProtocolError):
            read_into(gone, f"{url}/v1", "gone")
        chat = httpx.post(f"{url}/v1/chat/completions", json={"model": "m", "messages": [{"role": "user", "content": "good"}]})
        shown = httpx.get(f"{url}/interlock/requests").json()["requests"]
    assert chat.status_code == 200
    paths = ["/v1/responses"] * 3 + ["/v1/chat/completions"]
    assert [(each["path"], each["stream"], each["errors"]) for each in shown] == [
        (path, stream, []) for path, stream in zip(paths, [good, cut, gone.decode(), None], strict=True)
    ]
    sent = shown[0]["headers"]
    assert [sent[name] for name in headers] == ["***", "***", "1"]


def test_the_route_for_requests_requires_the_key_of_the_server() -> None:
    engine = ScriptedEngine([ScriptRule(steps=[ScriptStep(says="Hi")])])
    with ServerThread(build(Settings(api_key=("k",)), engine)) as url:
        assert httpx.get(f"{url}/interlock/requests").status_code == 401
        assert httpx.get(f"{url}/interlock/requests", headers={"authorization": "Bearer k"}).json()["requests"] == []
