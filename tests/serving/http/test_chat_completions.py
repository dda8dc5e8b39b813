"""OpenAI's Chat Completions over HTTP: streams, whole answers, the parameters of a request, and errors."""

import asyncio
import json

import httpx
import pytest
from for_each import for_each
from live.engines import ANSWER, CALL, REASONING, Gate, StagedEngine, scored_steps, step, steps
from live.wire import PATIENCE, chunks_of, folded_completion, post_chat, without_chance

from interlock.serve import ApiError, read_chat
from interlock.serving.build import build
from interlock.serving.engines.embedded import MODEL
from interlock.serving.engines.script import ScriptedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.serving.tools.hosting import ScriptedTools

SCHEMA = {"type": "object", "properties": {}}
FUNCTION = {"name": "look_up", "description": "Look a word up.", "parameters": SCHEMA}
LOOK_UP = {"type": "function", "function": FUNCTION}
USER = {"role": "user", "content": "Hi there"}
USED = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "a"}'}}
USAGE = {"include_usage": True}


def turn_of(*messages, **body):
    """The turn that the engine gets for a request."""
    engine = StagedEngine(steps(ANSWER))
    with ServerThread(build(Settings(), engine)) as url:
        answer = post_chat(url, messages=[*messages] or [USER], **body)
        assert answer.status_code == 200, answer.text
    return engine.turns[0]


def error_of(answer):
    body = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert ([*body], [*body["error"]]) == (["error"], ["message", "type", "param", "code"])
    return answer.status_code, body["error"]["type"], body["error"]["param"], body["error"]["code"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({}, id="text"),
        pytest.param({"tools": [LOOK_UP], "messages": [{"role": "user", "content": "Please look_up a word"}]}, id="call"),
        pytest.param({"max_tokens": 1}, id="cut at once"),
        pytest.param({"max_completion_tokens": 20, "max_tokens": 500}, id="cut"),
        pytest.param({"response_format": {"type": "json_object"}}, id="JSON"),
    ],
)
def test_a_whole_completion_equals_its_folded_stream(url, body) -> None:
    streamed = post_chat(url, **{"model": MODEL, "stream": True, "stream_options": USAGE, **body})
    assert streamed.headers["content-type"] == "text/event-stream"
    message, reason, usage = folded_completion(chunks_of(streamed.content, usage=True))
    whole = post_chat(url, **{"model": MODEL, **body}).json()
    (choice,) = whole["choices"]
    assert (choice["finish_reason"], whole["usage"], whole["object"]) == (reason, usage, "chat.completion")
    assert (choice["index"], choice["logprobs"], choice["message"]["annotations"]) == (0, None, [])
    empty = {"refusal": None, "annotations": []}
    expected = {**empty, **message, "content": message["content"] or ""}
    assert without_chance({**choice["message"], "content": choice["message"]["content"] or ""}) == without_chance(expected)


def test_a_web_search_is_refused_unless_the_server_runs_it(url) -> None:
    refused = post_chat(url, model=MODEL, web_search_options={})
    assert error_of(refused) == (400, "invalid_request_error", "web_search_options", "unsupported_value")
    message = "This server does not run 'web_search'. Start it with --web-search or --tool-server, or omit the tool."
    assert refused.json()["error"]["message"] == message
    engine = StagedEngine(steps(ANSWER))
    with ServerThread(build(Settings(), engine, tools=ScriptedTools(ScriptedEngine(())))) as other:
        assert post_chat(other, web_search_options={"search_context_size": "low"}).status_code == 200
    assert engine.turns[0].request.tools == ({"type": "web_search", "search_context_size": "low"},)


def test_a_completion_has_tool_calls_and_reasoning_in_both_fields(serve) -> None:
    with serve(StagedEngine(steps(f"{REASONING}{CALL}<|call|>"))) as url:
        (choice,) = post_chat(url, tools=[LOOK_UP]).json()["choices"]
        named = post_chat(url, tools=[LOOK_UP], tool_choice={"type": "function", "function": {"name": "look_up"}}).json()
    message = choice["message"]
    assert (message["reasoning_content"], message["reasoning"]) == ("Let me think.", "Let me think.")
    (called,) = message["tool_calls"]
    assert (called["type"], called["function"]) == ("function", {"name": "look_up", "arguments": '{"word": "a"}'})
    assert (choice["finish_reason"], named["choices"][0]["finish_reason"]) == ("tool_calls", "stop")


def test_usage_is_streamed_only_if_the_client_wants_it(url) -> None:
    assert "usage" not in chunks_of(post_chat(url, model=MODEL, stream=True).content)[-1]
    wanted = chunks_of(post_chat(url, model=MODEL, stream=True, stream_options=USAGE).content, usage=True)
    assert (wanted[-1]["choices"], wanted[-1]["usage"]["prompt_tokens"] > 0) == ([], True)


def test_log_probabilities_rebuild_the_text_whole_and_streamed(serve) -> None:
    with serve(StagedEngine(scored_steps(ANSWER))) as url:
        (choice,) = post_chat(url, logprobs=True, top_logprobs=2).json()["choices"]
        streamed = chunks_of(post_chat(url, logprobs=True, top_logprobs=2, stream=True).content)
    entries = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == choice["message"]["content"]
    assert {len(entry["top_logprobs"]) for entry in entries} == {2}
    parts = [part["logprobs"]["content"] for chunk in streamed for part in chunk["choices"] if part["logprobs"]]
    assert [entry for part in parts for entry in part] == entries


def test_messages_become_items() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {**USER, "name": "Ann"},
        {"role": "assistant", "content": "Let me see.", "reasoning_content": "Hm.", "tool_calls": [USED]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "A letter."}]},
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "user", "content": "Go on"},
    ]
    items = turn_of(*messages, tools=[LOOK_UP]).items
    assert [(item["type"], item.get("role")) for item in items] == [
        ("message", "system"),
        ("message", "developer"),
        ("message", "user"),
        ("reasoning", None),
        ("message", "assistant"),
        ("function_call", None),
        ("function_call_output", None),
        ("message", "assistant"),
        ("message", "user"),
    ]
    assert items[3]["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert (items[5]["call_id"], items[5]["name"], items[5]["arguments"]) == ("call_1", "look_up", '{"word": "a"}')
    assert items[6]["output"] == [{"type": "input_text", "text": "A letter."}]
    assert items[7]["content"][0]["refusal"] == "No."


def test_content_parts_are_translated() -> None:
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "aGk="}},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
    ]
    (item,) = turn_of({"role": "user", "content": parts}).items
    assert item["content"] == [
        {"type": "input_text", "text": "Look"},
        {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
        {"type": "input_file", "file_data": "aGk=", "filename": "a.pdf"},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
    ]


LOOK_UP_CHOICE = {"type": "function", "function": {"name": "look_up"}}


def test_a_custom_tool_call_and_its_output_become_custom_items() -> None:
    call = {"id": "call_1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    messages = [USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "1"}]
    _, call_item, output = turn_of(*messages, tools=[{"type": "custom", "custom": {"name": "sql"}}]).items
    assert {name: call_item[name] for name in ("type", "call_id", "name", "input")} == {
        "type": "custom_tool_call",
        "call_id": "call_1",
        "name": "sql",
        "input": "select 1",
    }
    assert (output["type"], output["call_id"], output["output"]) == ("custom_tool_call_output", "call_1", "1")


@pytest.mark.parametrize(
    "constraint",
    [
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA)}},
    ],
)
def test_each_form_of_a_schema_becomes_the_text_format(constraint) -> None:
    assert turn_of(**constraint).request.text_format == {"type": "json_schema", "name": "answer", "schema": SCHEMA}


@pytest.mark.parametrize("declared", [{"tools": [LOOK_UP]}, {"functions": [FUNCTION]}])
def test_tools_and_functions_both_declare_functions(declared) -> None:
    assert [*turn_of(**declared).request.tools] == [{"type": "function", **FUNCTION}]


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        ({"tool_choice": "none"}, "none"),
        ({"tool_choice": "required"}, "required"),
        ({"tool_choice": {"type": "function", "function": {"name": "look_up"}}}, {"type": "function", "name": "look_up"}),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [LOOK_UP_CHOICE]}}},
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look_up"}]},
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look_up"}]}},
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look_up"}]},
        ),
        ({"function_call": {"name": "look_up"}}, {"type": "function", "name": "look_up"}),
        ({"function_call": "none"}, "none"),
    ],
)
def test_chat_tool_choice_is_translated(choice, read) -> None:
    assert turn_of(tools=[LOOK_UP], **choice).request.tool_choice == read


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_limit_may_be_one_token(name) -> None:
    assert turn_of(**{name: 1}).request.max_output_tokens == 1


def test_chat_parameters_reach_the_request() -> None:
    same = {"temperature": 0.5, "top_p": 0.9, "presence_penalty": 0.1, "frequency_penalty": 0.2, "seed": 3, "stop": ["END"]}
    same |= {
        "user": "u",
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "logit_bias": {"5": 1},
        "top_k": 7,
        "include_reasoning": False,
    }
    form = {"name": "n", "schema": SCHEMA, "strict": True}
    request = turn_of(
        **same,
        n=1,
        reasoning_effort="low",
        verbosity="high",
        response_format={"type": "json_schema", "json_schema": form},
        store=True,
        of_the_future=1,
    ).request
    assert {name: request.raw[name] for name in same} == same
    assert (request.reasoning_effort, request.verbosity, request.store) == ("low", "high", False)
    assert request.text_format == {"type": "json_schema", **form}
    assert "of_the_future" not in request.raw


@for_each(
    ("body", "param", "code"),
    [
        ({"messages": []}, "messages", "empty_array"),
        ({"messages": [{"role": "function", "name": "f", "content": ""}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].tool_call_id", "missing_required_parameter"),
        ({"messages": [{"role": "user", "content": [{"type": "poem"}]}]}, "messages[0].content[0].type", "unsupported_value"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "invalid_type"),
        (
            {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}]},
            "messages[0].function_call",
            "unsupported_value",
        ),
        ({"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}, "messages", None),
        ({"n": 2}, "n", "unsupported_value"),
        ({"tools": [{"type": "mcp", "server_label": "s"}]}, "tools[0].require_approval", "unsupported_value"),
        ({"modalities": ["text", "audio"]}, "modalities", "unsupported_value"),
        ({"audio": {"voice": "a"}}, "modalities", "unsupported_value"),
        ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
        ({"temperature": 3}, "temperature", "decimal_above_max_value"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
        ({"reasoning_effort": "loud"}, "reasoning_effort", "invalid_value"),
        ({"verbosity": "loud"}, "verbosity", "invalid_value"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "missing_required_parameter"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"structured_outputs": {"regex": "a+"}}, "structured_outputs", "unsupported_value"),
        ({"structured_outputs": {"json": {}, "regex": "a+"}}, "structured_outputs", "unsupported_value"),
        (
            {"structured_outputs": {"json": {}}, "response_format": {"type": "text"}},
            "structured_outputs",
            "unsupported_value",
        ),
        ({"guided_choice": ["a"]}, "guided_choice", "unsupported_value"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]}]},
            "messages[0].tool_calls[0].function",
            "missing_required_parameter",
        ),
        ({"response_format": {"type": "poem"}}, "response_format.type", "invalid_value"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.name", "missing_required_parameter"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "poem"}}}},
            "response_format.json_schema.schema",
            "invalid_json_schema",
        ),
        ({"stop": 5}, "stop", "invalid_type"),
        ({"metadata": {"a": 1}}, "metadata.a", "invalid_type"),
        ({"tool_choice": {"function": {"name": "f"}}, "tools": [LOOK_UP]}, "tool_choice.name", "invalid_value"),
    ],
)
def test_chat_names_the_invalid_parameter_and_its_reader_does(url, body, param, code) -> None:
    asked = {"model": MODEL, "messages": [USER], **body}
    answer = post_chat(url, **asked)
    assert error_of(answer) == (400, "invalid_request_error", param, code)
    with pytest.raises(ApiError) as refused:
        asyncio.run(read_chat(asked))
    assert (refused.value.status, refused.value.body("chat")) == (400, answer.json())


def test_an_oversized_prompt_of_chat_is_refused(url) -> None:
    answer = post_chat(url, model=MODEL, messages=[{"role": "user", "content": "word " * 200_000}])
    assert error_of(answer) == (400, "invalid_request_error", None, "context_length_exceeded")


def test_server_errors_have_the_format_of_chat(serve) -> None:
    with serve(StagedEngine(steps(ANSWER)), api_key=["sesame"], max_body_bytes=2_000) as url:
        assert error_of(post_chat(url))[0] == 401
        with httpx.Client(headers={"authorization": "Bearer sesame"}, base_url=url) as client:

            def ask(**body):
                return client.post("/v1/chat/completions", json={"model": "staged", "messages": [USER], **body})

            assert ask().status_code == 200
            assert error_of(ask(model="gpt-0")) == (404, "invalid_request_error", "model", "model_not_found")
            assert error_of(ask(user="x" * 3_000))[0] == 413
            answer = client.get("/v1/chat/completions")
            assert (error_of(answer)[0], answer.headers["allow"]) == (405, "POST")
            assert error_of(client.post("/v1/chat/nothing"))[0] == 404


def test_an_engine_fault_is_an_error_chunk(serve) -> None:
    with serve(StagedEngine([step(ANSWER), RuntimeError("a secret")])) as url:
        whole, streamed = post_chat(url), post_chat(url, stream=True)
    assert error_of(whole)[:2] == (500, "server_error")
    assert (streamed.status_code, chunks_of(streamed.content)[-1]) == (200, whole.json())
    assert "secret" not in whole.text


def test_a_completion_beyond_the_limit_is_refused_with_retry_after(serve) -> None:
    gate = Gate()
    body = {"model": "staged", "messages": [USER], "stream": True}
    with serve(StagedEngine([gate, *steps(ANSWER)], steps(ANSWER)), max_streams=1) as url:
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=PATIENCE) as first:
            assert gate.reached.wait(30)
            refused = [post_chat(url), post_chat(url, stream=True)]
            gate.open()
            assert chunks_of(first.read())[-1]["choices"][0]["finish_reason"] == "stop"
        assert [(each.status_code, each.headers["retry-after"]) for each in refused] == [(429, "1")] * 2
        assert error_of(refused[0])[3] == "rate_limit_exceeded"


def test_comments_break_a_silence_of_the_engine(serve) -> None:
    gate = Gate()
    body = {"model": "staged", "messages": [USER], "stream": True}
    engine = StagedEngine([step(ANSWER), gate, *steps(" More.")])
    with (
        serve(engine, keep_alive=0.01) as url,
        httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=PATIENCE) as answer,
    ):
        pieces, received = answer.iter_bytes(), b""
        while b": keep-alive\n\n" not in received:
            received += next(pieces)
        assert gate.reached.wait(30)
        gate.open()
        chunks = chunks_of(received + b"".join(pieces))
    assert folded_completion(chunks)[:2] == ({"role": "assistant", "content": "Hello there, world. More."}, "stop")


# The reader, for a server that seals no reasoning and runs no tools


def test_a_reader_returns_a_limit_of_one_token() -> None:
    body, _ = asyncio.run(read_chat({"model": "m", "messages": [USER], "max_tokens": 1}))
    assert body["max_output_tokens"] == 1


def test_a_reader_without_keys_drops_encrypted_reasoning() -> None:
    sealed = {"role": "assistant", "content": "Yes", "reasoning_details": [{"type": "reasoning.encrypted", "data": "c2VhbGVk"}]}
    body, _ = asyncio.run(read_chat({"model": "m", "messages": [USER, sealed]}))
    assert [(item["type"], item["role"]) for item in body["input"]] == [("message", "user"), ("message", "assistant")]


def test_a_reader_without_tools_refuses_a_web_search() -> None:
    with pytest.raises(ApiError) as refused:
        asyncio.run(read_chat({"model": "m", "messages": [USER], "web_search_options": {}}))
    assert (refused.value.status, refused.value.param) == (400, "web_search_options")
