"""The example servers with FastAPI: their streams are legal, and the OpenAI SDK reads them."""

import asyncio
import importlib.util
import json
import logging
import queue
import socket
import threading
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import uvicorn
from anthropic import Anthropic
from openai import APIError, BadRequestError, InternalServerError, OpenAI

from interlock.testing import assert_legal

EXAMPLES = Path(__file__).parents[2] / "examples"
FAILED = "The engine failed while it generated the response."
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}


def imported(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


@pytest.fixture(scope="module")
def url():
    example = imported("fastapi_server")
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(example.app, log_config=None, log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture
def client(url):
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def ended():
    """The log messages of the server about ended responses."""
    records = queue.Queue()
    handler = logging.Handler()
    handler.emit = lambda record: records.put(record.getMessage())
    logger = logging.getLogger("fastapi_server")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(level)


def streamed(url, **request):
    answer = httpx.post(f"{url}/v1/responses", json={"model": "m", "stream": True, **request}, timeout=60)
    assert_legal(answer.content, strict=True)
    return answer


def test_a_stream_has_its_headers_and_the_end_marker(url) -> None:
    answer = streamed(url, input="Hello there")
    assert {name: answer.headers[name] for name in ("content-type", "cache-control", "x-accel-buffering")} == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    assert answer.content.endswith(b"\n\ndata: [DONE]\n\n")


def test_the_openai_client_reads_the_text_and_the_usage(client) -> None:
    response = client.responses.create(model="m", input="Hello there")
    assert (response.status, response.output_text) == ("completed", "Hello there ")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (2, 2)


def test_the_input_may_be_a_list_of_messages(client) -> None:
    parts = [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}, {"type": "input_text", "text": "you"}]}]
    assert client.responses.create(model="m", input=parts).output_text == "Hello you "
    assert client.responses.create(model="m", input=[{"role": "user", "content": "Hello"}]).output_text == "Hello "


def test_the_output_of_a_call_is_answered(client) -> None:
    (call,) = client.responses.create(model="m", input="Rain?", tools=[WEATHER]).output
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "It rains."}
    response = client.responses.create(model="m", input=[{"role": "user", "content": "Rain?"}, call, output], tools=[WEATHER])
    assert response.output_text == "It rains. "


def test_a_call_in_the_format_of_the_model_becomes_a_function_call(client) -> None:
    with client.responses.stream(model="m", input="Rain?", tools=[WEATHER]) as events:
        (item,) = events.get_final_response().output
    assert (item.type, item.name, item.arguments) == ("function_call", "get_weather", "{}")


def test_a_failure_of_the_model_fails_the_response_legally(url, client) -> None:
    assert b"event: response.failed\n" in streamed(url, input="please fail now").content
    response = client.responses.create(model="m", input="please <tool_call fail now")
    assert (response.status, response.error.message) == ("failed", FAILED)
    assert response.output[0].content[0].text == "please <tool_call "
    assert (response.usage.input_tokens, response.usage.output_tokens) == (4, 2)


def test_the_token_limit_truncates_the_response(url) -> None:
    assert (
        b'"incomplete_details":{"reason":"max_output_tokens"}' in streamed(url, input="word " * 20, max_output_tokens=16).content
    )


def test_a_disconnect_cancels_the_response(url, ended) -> None:
    request = {"model": "m", "stream": True, "input": "word " * 10_000}
    with httpx.stream("POST", f"{url}/v1/responses", json=request, timeout=60) as answer:
        next(answer.iter_bytes())
    assert ended.get(timeout=60).endswith(" cancelled")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"[]", None),
        (b"{}", "input"),
        (b'{"input": "", "tools": [{"type": "function", "name": "f"}]}', "input"),
        (b'{"model": "m", "input": "x", "background": true}', "background"),
        (b'{"model": "m", "input": "x", "conversation": "conv_1"}', "conversation"),
        (b'{"model": "m", "input": "x", "previous_response_id": "resp_1"}', "previous_response_id"),
        (b'{"model": "m", "input": 3}', "input"),
        (b'{"model": "m", "input": ["x"]}', "input[0]"),
        (b'{"model": "m", "input": "x", "tools": [1]}', "tools[0]"),
        (b'{"model": "m", "input": "x", "max_output_tokens": "5"}', "max_output_tokens"),
    ],
)
def test_an_invalid_body_is_refused(url, body, param) -> None:
    answer = httpx.post(f"{url}/v1/responses", content=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_the_openai_client_raises_the_message_of_a_refusal(client) -> None:
    with pytest.raises(BadRequestError, match="The request has no input"):
        client.responses.create(model="m", input=[])


# The same server for clients of Chat Completions


ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hello there END of it"}]}
CHAT_WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}


def streamed_chat(client, **request):
    """Return what the SDK makes of a stream, whose bytes must be legal."""
    with client.chat.completions.with_streaming_response.create(**ASKED, stream=True, **request) as answer:
        assert_legal(answer.read(), strict=True)
    with client.chat.completions.stream(**ASKED, **request) as events:
        events.until_done()
        return events.current_completion_snapshot  # which an answer has that its limit ends, too


def facts(completion):
    (choice,) = completion.choices
    usage = completion.usage and (completion.usage.prompt_tokens, completion.usage.completion_tokens)
    return choice.message.content, choice.finish_reason, usage


def test_a_chat_stream_adds_up_to_the_whole_completion(client) -> None:
    assert facts(client.chat.completions.create(**ASKED)) == ("Hello there END of it ", "stop", (5, 5))
    assert facts(streamed_chat(client, stream_options={"include_usage": True})) == ("Hello there END of it ", "stop", (5, 5))
    assert facts(streamed_chat(client)) == ("Hello there END of it ", "stop", None)


@pytest.mark.parametrize(
    ("request_fields", "expected"),
    [
        ({"stop": "END"}, ("Hello there ", "stop", (5, 3))),
        ({"max_completion_tokens": 2}, ("Hello there ", "length", (5, 2))),
        ({"stop": ["there"], "max_completion_tokens": 2}, ("Hello ", "stop", (5, 2))),
    ],
)
def test_a_chat_ends_at_a_stop_string_or_at_its_limit(client, request_fields, expected) -> None:
    assert facts(client.chat.completions.create(**ASKED, **request_fields)) == expected
    assert facts(streamed_chat(client, **request_fields, stream_options={"include_usage": True})) == expected


def test_a_chat_has_the_log_probabilities_that_it_asks_for(client) -> None:
    whole = client.chat.completions.create(**ASKED, logprobs=True, max_tokens=2)
    for completion in (whole, streamed_chat(client, logprobs=True, max_tokens=2)):
        (choice,) = completion.choices
        assert [(each.token, each.logprob) for each in choice.logprobs.content] == [("Hello ", -0.5), ("there ", -0.5)]
    assert client.chat.completions.create(**ASKED).choices[0].logprobs is None


@pytest.mark.parametrize(
    ("choice", "reason"), [("auto", "tool_calls"), ({"type": "function", "function": {"name": "get_weather"}}, "stop")]
)
def test_a_chat_has_the_calls_of_the_model(client, choice, reason) -> None:
    tools = {"tools": [CHAT_WEATHER], "tool_choice": choice}
    for completion in (client.chat.completions.create(**ASKED, **tools), streamed_chat(client, **tools)):
        (call,) = completion.choices[0].message.tool_calls
        assert (call.function.name, call.function.arguments, completion.choices[0].finish_reason) == ("get_weather", "{}", reason)


def test_a_failure_of_the_model_is_the_error_of_a_chat(url, client) -> None:
    failing = {**ASKED, "messages": [{"role": "user", "content": "please fail now"}]}
    with pytest.raises(InternalServerError, match=FAILED):
        client.chat.completions.create(**failing)
    with pytest.raises(APIError, match=FAILED):
        [*client.chat.completions.create(**failing, stream=True)]
    data = httpx.post(f"{url}/v1/chat/completions", json={**failing, "stream": True}).content
    assert_legal(data, strict=True)
    assert data.count(b"[DONE]") == 1


@pytest.mark.parametrize(
    ("fields", "param"), [({"n": 2}, "n"), ({"messages": []}, "messages"), ({"temperature": "hot"}, "temperature")]
)
def test_an_invalid_chat_is_refused(client, fields, param) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.chat.completions.create(**{**ASKED, **fields})
    assert refused.value.param == param


# The same server for clients of Messages


GREETED = {"model": "m", "max_tokens": 500, "messages": [{"role": "user", "content": "Hello there END of it"}]}


@pytest.fixture
def anthropic_client(url):
    with Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def streamed_message(client, **request):
    """Return what the SDK makes of a stream, whose bytes must be legal, and the tokens of the prompt that its first event has."""
    asked = {**GREETED, **request}
    with client.messages.with_streaming_response.create(**asked, stream=True) as answer:
        assert_legal(answer.read(), strict=True, request=asked)
    with client.messages.stream(**asked) as events:
        first = next(iter(events))
        return events.get_final_message(), first.message.usage.input_tokens


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("Hello there END of it ", "end_turn", None, 5, 5)),
        ({"stop_sequences": ["END"]}, ("Hello there ", "stop_sequence", "END", 5, 3)),
        ({"max_tokens": 2}, ("Hello there ", "max_tokens", None, 5, 2)),
    ],
)
def test_a_message_ends_at_a_stop_sequence_or_at_its_limit(anthropic_client, fields, expected) -> None:
    streamed, prompt = streamed_message(anthropic_client, **fields)
    for message in (anthropic_client.messages.create(**{**GREETED, **fields}), streamed):
        (block,) = message.content
        usage = (message.usage.input_tokens, message.usage.output_tokens)
        assert (block.text, message.stop_reason, message.stop_sequence, *usage) == expected
    assert prompt == 5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": 5}, "Invalid type for 'messages': expected an array of objects, but got an integer instead."),
        ({"tools": [{"type": "function"}]}, "tools[0].type: A tool of the type 'function' is not supported."),
        ({"temperature": 9}, "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 9 instead."),
    ],
)
def test_an_invalid_message_is_refused(url, fields, message) -> None:
    answer = httpx.post(f"{url}/v1/messages", json={**GREETED, **fields})
    error = {"type": "invalid_request_error", "message": message}
    assert (answer.status_code, answer.json()) == (400, {"type": "error", "error": error, "request_id": None})


# The example whose server runs a tool


CLOCK = {"type": "mcp", "server_label": "clock", "server_url": "https://clock.example", "require_approval": "never"}


@pytest.fixture
def clock():
    return imported("fastapi_tools")


def posted(clock, **body):
    """Return the answer to a question."""

    async def post():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(clock.app), base_url="http://clock") as client:
            return await client.post("/v1/responses", json={"model": "m", "input": "What time is it?", **body})

    return asyncio.run(post())


def output_of(clock, **body):
    """Return the type, the status, and the result, text or arguments of each item of a response, whose stream must be legal."""
    data = posted(clock, stream=True, **body).content
    assert_legal(data, strict=True)
    *_, last = (line for line in data.splitlines() if line.startswith(b"data: {"))
    return items_of(json.loads(last.removeprefix(b"data: "))["response"])


def items_of(response):
    return [
        (
            item["type"],
            item["status"],
            item.get("output") or item.get("error") or item.get("arguments") or item["content"][0]["text"],
        )
        for item in response["output"]
    ]


def test_the_server_runs_its_tool_and_the_model_reads_the_result(clock, monkeypatch) -> None:
    monkeypatch.setattr(clock, "datetime", SimpleNamespace(now=lambda zone: datetime(2026, 1, 1, 12, 30, tzinfo=zone)))
    assert output_of(clock, tools=[CLOCK]) == [
        ("mcp_call", "completed", "12:30 UTC"),
        ("message", "completed", "It is 12:30 UTC."),
    ]


def test_a_whole_answer_has_the_call_and_the_message(clock, monkeypatch) -> None:
    monkeypatch.setattr(clock, "datetime", SimpleNamespace(now=lambda zone: datetime(2026, 1, 1, 12, 30, tzinfo=zone)))
    answers = [posted(clock, tools=[CLOCK], **asked) for asked in ({}, {"stream": False})]
    assert [(each.headers["content-type"], each.json()["status"], items_of(each.json())) for each in answers] == 2 * [
        (
            "application/json",
            "completed",
            [("mcp_call", "completed", "12:30 UTC"), ("message", "completed", "It is 12:30 UTC.")],
        )
    ]


def test_without_the_tool_the_model_answers_without_a_call(clock) -> None:
    assert output_of(clock) == [("message", "completed", "I have no clock.")]


def test_a_failure_of_the_tool_fails_only_its_call(clock, monkeypatch) -> None:
    called = '<tool_call>\n{"name": "clock__tomorrow", "arguments": {}}\n</tool_call>'
    monkeypatch.setattr(clock, "generate", lambda _request, results: results[-1] if results else called)
    call, message = output_of(clock, tools=[CLOCK])
    assert (call[:2], message) == (("mcp_call", "failed"), ("message", "completed", "an error: the clock has no tool tomorrow"))


def test_a_turn_with_a_call_for_the_client_is_the_last(clock, monkeypatch) -> None:
    called = '<tool_call>\n{{"name": "{}", "arguments": {{}}}}\n</tool_call>'
    monkeypatch.setattr(clock, "generate", lambda _request, _results: called.format("clock__now") + called.format("f"))
    call, function_call = output_of(clock, tools=[CLOCK, {"type": "function", "name": "f"}])
    assert (call[:2], function_call) == (("mcp_call", "failed"), ("function_call", "completed", "{}"))
