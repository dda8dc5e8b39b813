"""Anthropic's Messages over HTTP: streams, whole answers, the parameters of a request, and errors."""

import asyncio
import hashlib
import json
from contextlib import asynccontextmanager, contextmanager

import httpx
import pytest
from attrs import frozen
from live.agents import servers
from live.chunk_shapes import chunk
from live.engines import ANSWER, CALL, REASONING, Gate, StagedEngine, step, steps
from live.mcp_servers import Workshop, running
from live.upstream import ScriptedUpstream, failure, gateway, serve_upstream, stream
from live.wire import PATIENCE, VERSION, folded_message, messages_of, post_message, without_chance

from interlock.parsers.hosted_tools import HOSTED_TOOLS
from interlock.serve import ApiError, read_messages, read_request
from interlock.serving.build import build
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.translator import Translator
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings, UpstreamSettings
from interlock.serving.tools.hosting import NullTools

CALLS = f"{REASONING}{CALL}<|call|>"
LOOK_UP = {"name": "look_up", "description": "Look a word up.", "input_schema": {"type": "object", "properties": {}}}
USER = {"role": "user", "content": "Hi there"}
USED = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"word": "a"}}]}


def turn_of(*messages, server_tools=None, **body):
    """The turn that the engine gets for a request."""
    engine = StagedEngine(steps(ANSWER))
    with ServerThread(build(Settings(), engine, tools=server_tools)) as url:
        answer = post_message(url, messages=[*messages] or [USER], **body)
        assert answer.status_code == 200, answer.text
    return engine.turns[0]


def error_of(answer):
    body = answer.json()
    assert (answer.headers["content-type"], body["type"], [*body["error"]]) == ("application/json", "error", ["type", "message"])
    return answer.status_code, body["error"]["type"], body["error"]["message"]


def refusal(url, **body):
    return error_of(post_message(url, **{"model": MODEL, **body}))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({}, id="text"),
        pytest.param({"thinking": {"type": "enabled", "budget_tokens": 1_024, "display": "omitted"}}, id="omitted"),
        pytest.param({"tools": [LOOK_UP], "messages": [{"role": "user", "content": "Please look_up a word"}]}, id="call"),
        pytest.param({"max_tokens": 1}, id="cut at once"),
        pytest.param({"max_tokens": 20}, id="cut"),
    ],
)
def test_a_whole_message_equals_its_folded_stream(url, body) -> None:
    streamed = post_message(url, **{"model": MODEL, "stream": True, **body})
    assert streamed.headers["content-type"] == "text/event-stream"
    whole = post_message(url, **{"model": MODEL, **body})
    assert (whole.status_code, whole.headers["content-type"]) == (200, "application/json")
    assert without_chance(folded_message(messages_of(streamed.content))) == without_chance(whole.json())


@frozen
class AllTools(NullTools):
    """Tools that offer every hosted tool and run none."""

    hosted = HOSTED_TOOLS


@pytest.mark.parametrize(
    ("tool", "question", "kinds"),
    [
        ("web_search_20250305", "Search the web for llamas", ["server_tool_use", "web_search_tool_result"]),
        ("code_execution_20250825", "Calculate 1 + 1", ["server_tool_use", "code_execution_tool_result"]),
    ],
)
def test_a_whole_message_with_a_hosted_tool_equals_its_folded_stream(serve, tool, question, kinds) -> None:
    body = {"tools": [{"type": tool, "name": "t"}], "messages": [{"role": "user", "content": question}]}
    with serve(EmbeddedEngine(), tools=AllTools()) as url:
        streamed = post_message(url, model=MODEL, stream=True, **body)
        whole = post_message(url, model=MODEL, **body).json()
    assert without_chance(folded_message(messages_of(streamed.content))) == without_chance(whole)
    assert [block["type"] for block in whole["content"] if block["type"] not in ("thinking", "text")] == kinds


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize(
    ("tool", "option"), [("web_search_20250305", "--web-search"), ("code_execution_20250825", "--code-interpreter")]
)
def test_a_hosted_tool_without_a_tool_server_is_refused(url, path, tool, option) -> None:
    message = f"This server does not run '{tool}'. Start it with {option} or --tool-server, or omit the tool."
    answer = post_message(url, path, model=MODEL, stream=True, tools=[LOOK_UP, {"type": tool, "name": "t"}])
    assert error_of(answer) == (400, "invalid_request_error", f"tools[1].type: {message}")


def test_a_message_has_thinking_with_a_signature_and_calls_with_their_input(serve) -> None:
    with serve(StagedEngine(steps(CALLS))) as url:
        message = post_message(url, tools=[LOOK_UP]).json()
    thinking, call_block = message["content"]
    assert (thinking["type"], thinking["thinking"], len(thinking["signature"]) > 100) == ("thinking", "Let me think.", True)
    assert (call_block["type"], call_block["name"], call_block["input"]) == ("tool_use", "look_up", {"word": "a"})
    assert (message["id"][:4], message["model"], message["stop_reason"]) == ("msg_", "staged", "tool_use")
    assert message["usage"]["output_tokens"] > 0


def test_reasoning_is_restored_from_its_signature(serve) -> None:
    engine = StagedEngine(steps(CALLS), steps(ANSWER))
    with serve(engine) as url:
        first = post_message(url, tools=[LOOK_UP], thinking={"type": "adaptive", "display": "omitted"}).json()
        assert [block.get("thinking") for block in first["content"]] == ["", None]
        result = {"type": "tool_result", "tool_use_id": first["content"][1]["id"], "content": "A letter."}
        messages = [USER, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
        second = post_message(url, tools=[LOOK_UP], messages=messages)
    assert second.status_code == 200, second.text
    reasoning = next(item for item in engine.turns[1].items if item["type"] == "reasoning")
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Let me think."}]


@pytest.mark.parametrize("signature", ["ErUBCkYIBxgCIkDforeign", "", "\N{SNOWMAN}"])
def test_a_foreign_signature_is_dropped_but_its_thinking_is_kept(signature) -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": signature}
    blocks = [thinking, {"type": "redacted_thinking", "data": "secret"}, {"type": "text", "text": "Hello."}]
    turn = turn_of(USER, {"role": "assistant", "content": blocks}, USER)
    assert [item["type"] for item in turn.items] == ["message", "reasoning", "message", "message"]
    assert turn.items[1]["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert "encrypted_content" not in turn.items[1]


def test_the_system_prompt_drops_the_billing_header() -> None:
    header = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.330.a1b; cc_entrypoint=cli"}
    blocks = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in ("Be brief.", "Be kind.")]
    assert turn_of(system=[header, *blocks]).request.instructions == "Be brief.\n\nBe kind."
    assert turn_of(system="Be brief.").request.instructions == "Be brief."
    assert turn_of(system=[header]).request.instructions is None


def test_system_messages_keep_their_place() -> None:
    turn = turn_of(
        USER, {"role": "system", "content": "Reminder."}, {"role": "system", "content": [{"type": "text", "text": "Two."}]}
    )
    texts = [(item["role"], item["content"][0]["text"]) for item in turn.items]
    assert texts == [("user", "Hi there"), ("developer", "Reminder."), ("developer", "Two.")]


def test_images_and_documents_become_parts() -> None:
    blocks = [
        {"type": "text", "text": "Look", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}, "title": "a.pdf"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
    ]
    (item,) = turn_of({"role": "user", "content": blocks}).items
    assert item["content"] == [
        {"type": "input_text", "text": "Look"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
        {"type": "input_image", "image_url": "https://example.com/a.png"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
        {"type": "input_text", "text": "words"},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
    ]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PART = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}


@pytest.mark.parametrize(
    ("result", "output"),
    [
        ({"content": "Sunny"}, "Sunny"),
        ({"content": "No such city", "is_error": True}, "The tool failed: No such city"),
        ({"content": [{"type": "text", "text": "See"}, IMAGE]}, [{"type": "input_text", "text": "See"}, PART]),
        ({"content": [IMAGE], "is_error": True}, [{"type": "input_text", "text": "The tool failed:"}, PART]),
        ({"content": "Sunny", "is_error": False, "cache_control": {"type": "ephemeral"}}, "Sunny"),
        (
            {"content": [{"type": "tool_reference", "tool_name": "CronCreate"}]},
            [{"type": "input_text", "text": "The tool CronCreate is available."}],
        ),
        ({}, ""),
    ],
)
def test_a_tool_result_becomes_an_output_before_the_text_beside_it(result, output) -> None:
    answer = [{"type": "tool_result", "tool_use_id": "toolu_1", **result}, {"type": "text", "text": "Go on"}]
    turn = turn_of(USER, USED, {"role": "user", "content": answer}, tools=[LOOK_UP])
    assert [item["type"] for item in turn.items] == ["message", "function_call", "function_call_output", "message"]
    _, call, result_item, more = turn.items
    assert (call["call_id"], call["name"], json.loads(call["arguments"])) == ("toolu_1", "look_up", {"word": "a"})
    assert (result_item["call_id"], result_item["output"]) == ("toolu_1", output)
    assert more["content"] == [{"type": "input_text", "text": "Go on"}]


def test_server_tool_blocks_become_function_calls_and_outputs() -> None:
    blocks = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "server_name": "shop", "name": "echo", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": [{"type": "text", "text": "x"}]},
        {"type": "text", "text": "Found."},
    ]
    turn = turn_of(USER, {"role": "assistant", "content": blocks}, USER)
    assert [item["type"] for item in turn.items] == ["message", *["function_call", "function_call_output"] * 2, *["message"] * 2]
    assert [turn.items[1]["name"], json.loads(turn.items[4]["output"])] == ["web_search", [{"type": "text", "text": "x"}]]


def test_tools_become_functions_and_hosted_tools() -> None:
    tools = [
        {**LOOK_UP, "defer_loading": True, "cache_control": {"type": "ephemeral"}},
        {"type": "custom", "name": "n" * 128, "input_schema": {"type": "object"}, "strict": True},
        {"type": "web_search_20260209", "name": "web_search", "max_uses": 3},
        {"type": "code_execution_20250825", "name": "code_execution"},
    ]
    function = {"type": "function", "strict": False}
    assert [*turn_of(tools=tools, server_tools=AllTools()).request.tools] == [
        {**function, "name": "look_up", "description": "Look a word up.", "parameters": LOOK_UP["input_schema"]},
        {**function, "name": "n" * 128, "parameters": {"type": "object"}, "strict": True},
        {"type": "web_search"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
    ]


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "look_up"}, {"type": "function", "name": "look_up"}),
    ],
)
@pytest.mark.parametrize("alone", [None, False, True])
def test_messages_tool_choice_is_translated(choice, read, alone) -> None:
    request = turn_of(tools=[LOOK_UP], tool_choice={**choice, "disable_parallel_tool_use": alone}).request
    assert (request.tool_choice, request.parallel_tool_calls) == (read, not alone)


@pytest.mark.parametrize(
    ("kind", "name", "read"),
    [
        ("web_search_20250305", "web_search", {"type": "web_search"}),
        ("code_execution_20250825", "code_execution", {"type": "code_interpreter"}),
        ("mcp_toolset", "look_up", {"type": "function", "name": "look_up"}),
    ],
)
def test_the_choice_of_a_hosted_tool_becomes_its_type(kind, name, read) -> None:
    servers = [{"type": "url", "url": "https://example.com/mcp", "name": "shop"}] if kind == "mcp_toolset" else []
    tools = [{"type": kind, "name": name, "mcp_server_name": "shop"}, LOOK_UP]
    request = turn_of(
        tools=tools, mcp_servers=servers, tool_choice={"type": "tool", "name": name}, server_tools=AllTools()
    ).request
    assert request.tool_choice == read


def test_the_older_output_format_parameter_is_read() -> None:
    form = {"type": "json_schema", "schema": {"type": "object", "properties": {}, "additionalProperties": False}}
    read = {"type": "json_schema", "name": "answer", "schema": form["schema"], "strict": True}
    assert turn_of(output_format=form).request.text_format == read


SHOP = {"type": "url", "url": "https://example.com/mcp", "name": "shop"}
ON, OFF = {"enabled": True}, {"enabled": False}


@pytest.mark.parametrize(
    ("toolset", "configuration", "allowed"),
    [
        ({}, None, None),
        ({"default_config": ON, "configs": {"a": ON, "b": None, "c": {}}}, None, None),
        ({"default_config": {"defer_loading": True}}, None, None),
        ({"default_config": OFF, "configs": {"a": ON, "b": OFF, "c": {}}}, None, ["a"]),
        ({"default_config": OFF, "configs": {"a": ON, "b": ON}}, {"allowed_tools": ["b", "c"]}, ["b"]),
        ({}, {"allowed_tools": ["b", "c"]}, ["b", "c"]),
        ({"tools": [{"name": "a", "input_schema": {}}, {"name": "b"}], "configs": {"b": OFF}}, None, ["a"]),
        ({"tools": [{"name": "a"}, {"name": "b"}], "default_config": OFF, "configs": {"b": ON, "c": ON}}, None, ["b"]),
    ],
)
def test_a_toolset_selects_the_allowed_tools_of_its_server(toolset, configuration, allowed) -> None:
    server = {**SHOP, "tool_configuration": configuration}
    tools = [{"type": "mcp_toolset", "mcp_server_name": "shop", **toolset}]
    (tool,) = turn_of(mcp_servers=[server], tools=tools, server_tools=AllTools()).request.tools
    declared = {"type": "mcp", "server_label": "shop", "server_url": server["url"], "require_approval": "never"}
    assert tool == (declared if allowed is None else {**declared, "allowed_tools": allowed})


def test_an_mcp_server_without_an_enabled_tool_is_omitted() -> None:
    tools = [{"type": "mcp_toolset", "mcp_server_name": "shop", "default_config": OFF}]
    assert turn_of(mcp_servers=[SHOP], tools=tools, server_tools=AllTools()).request.tools == ()


def test_a_thread_is_refused_with_the_code_that_makes_clients_send_the_conversation(url) -> None:
    answer = post_message(url, model=MODEL, thread={"type": "create"})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["details"] == {"error_code": "thread_unsupported_request"}


def test_a_compaction_request_is_refused_but_counted(url) -> None:
    message = "compaction: Compaction requests are not supported. Ask for a summary in a message instead."
    assert refusal(url, compaction={"type": "enabled"}) == (400, "invalid_request_error", message)
    assert post_message(url, "/v1/messages/count_tokens", model=MODEL, compaction={"type": "enabled"}).status_code == 200


def test_a_prefilled_answer_is_refused_but_counted(url) -> None:
    messages = [USER, {"role": "assistant", "content": "The answer is"}, {"role": "system", "content": "Be brief."}]
    message = "messages[1].role: Prefilling the answer is not supported. The conversation must end with a user message."
    assert refusal(url, messages=messages) == (400, "invalid_request_error", message)
    assert post_message(url, "/v1/messages/count_tokens", model=MODEL, messages=messages).status_code == 200


def test_answers_and_errors_have_the_id_of_the_request(url) -> None:
    headers = {**VERSION, "x-request-id": "req_mine"}
    for answer in (post_message(url, headers=headers, model=MODEL), post_message(url, headers=headers, model=MODEL, stream=True)):
        assert (answer.status_code, answer.headers["request-id"]) == (200, "req_mine")
    refused = post_message(url, headers=headers, model=MODEL, max_tokens=0)
    assert (refused.headers["request-id"], refused.json()["request_id"]) == ("req_mine", "req_mine")


@pytest.mark.parametrize(
    ("body", "effort"),
    [
        ({}, None),
        ({"thinking": {"type": "adaptive", "display": "updates"}}, None),
        ({"thinking": {"type": "disabled"}}, "none"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1_024}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10_000}}, "medium"),
        ({"thinking": {"type": "enabled", "budget_tokens": 32_000}}, "high"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "max"),
    ],
)
def test_thinking_and_effort_set_the_reasoning_effort(body, effort) -> None:
    assert turn_of(**body).request.reasoning_effort == effort


@pytest.mark.parametrize("streams", [True, False])
def test_a_matched_stop_sequence_is_the_stop_reason(serve, streams) -> None:
    script = steps(ANSWER)
    script[-1].stop_sequence = "END"
    with serve(StagedEngine(script)) as url:
        answer = post_message(url, stop_sequences=["END"], stream=streams)
    message = folded_message(messages_of(answer.content)) if streams else answer.json()
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "END")


def test_messages_parameters_reach_the_request() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
    request = turn_of(
        max_tokens=3,
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        stop_sequences=["END"],
        metadata={"user_id": "user_" + "a" * 300},
        output_config={"format": {"type": "json_schema", "schema": schema}},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        service_tier="auto",
        of_the_future={"any": "thing"},
    ).request
    assert (request.max_output_tokens, request.temperature, request.top_p) == (3, 0.5, 0.9)
    assert (request.extensions["top_k"], request.extensions["stop"]) == (7, ["END"])
    assert request.raw["safety_identifier"] == hashlib.sha256(b"user_" + b"a" * 300).hexdigest()
    assert request.text_format == {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    assert (request.store, "context_management" in request.raw, "of_the_future" in request.raw) == (False, False, False)


def test_a_request_of_claude_code_is_answered(url) -> None:
    body = {
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1"}, {"type": "text", "text": "You code."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Use Bash to echo x", "cache_control": {"type": "ephemeral"}}]},
            {"role": "system", "content": "The date is today."},
        ],
        "tools": [{"name": "Bash", "description": "Run a command.", "input_schema": {"type": "object", "properties": {}}}],
        "metadata": {"user_id": json.dumps({"device_id": "a" * 64, "account_uuid": "", "session_id": "b" * 36})},
        "thinking": {"type": "adaptive", "display": "updates"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "stream": True,
    }
    headers = {**VERSION, "anthropic-beta": "claude-code-20250219,context-management-2025-06-27", "x-api-key": "x"}
    events = messages_of(post_message(url, "/v1/messages?beta=true", headers, model=MODEL, **body).content)
    assert [event["delta"]["stop_reason"] for event in events if event["type"] == "message_delta"] == ["tool_use"]


def test_the_tools_of_mcp_servers_are_run(serve) -> None:
    ask = '<|channel|>commentary to=mcp.shop.echo <|constrain|>json<|message|>{"text": "a"}<|call|>'
    shop, engine = Workshop(), StagedEngine(steps(ask), steps(ANSWER))
    with running(shop.server().streamable_http_app()) as base, serve(engine, tools=servers()) as url:
        server = {"type": "url", "url": f"{base}/mcp", "name": "shop", "authorization_token": "t"}
        allowed = {**server, "tool_configuration": {"enabled": True, "allowed_tools": ["echo"]}}
        events = messages_of(post_message(url, mcp_servers=[allowed], stream=True).content)
        off = {**server, "tool_configuration": {"enabled": False}}
        toolset = {"type": "mcp_toolset", "mcp_server_name": "shop"}
        post_message(url, mcp_servers=[off], tools=[toolset])
    use, result, text = folded_message(events)["content"]
    assert (use["type"], use["name"], use["server_name"], use["input"]) == ("mcp_tool_use", "echo", "shop", {"text": "a"})
    assert (result["tool_use_id"], result["is_error"]) == (use["id"], False)
    assert [block["text"] for block in (*result["content"], text)] == ["a", "Hello there, world."]
    assert [tool["server_label"] for tool in engine.turns[0].request.tools] == ["shop"]
    assert engine.turns[-1].request.tools == ()
    assert shop.began == ["echo"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": []}, "Invalid 'messages': empty array."),
        ({"max_tokens": 0}, "Invalid 'max_tokens': integer below minimum value."),
        ({"max_tokens": None}, "Invalid type for 'max_tokens': expected an integer, but got null instead."),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role: Invalid value: 'tool'."),
        ({"messages": [{"role": "user", "content": [{"type": "poem"}]}]}, "messages[0].content[0].type: Invalid value: 'poem'."),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "content"}}]}]},
            "messages[0].content[0].source.type: A source of the type 'content' is not supported here.",
        ),
        ({"messages": [{"role": "assistant", "content": [IMAGE]}]}, "messages[0].content[0]: An assistant's message cannot have"),
        ({"tools": [{"name": "n" * 129}]}, "Invalid 'tools[0].name': string too long."),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type: A tool of the type 'bash_20250124' is not"),
        ({"tools": [{"type": "text_editor_20250728", "name": "e"}]}, "tools[0].type: A tool of the type 'text_editor_20250728'"),
        (
            {"tools": [{"type": "web_fetch_20250910", "name": "f"}]},
            "tools[0].type: A tool of the type 'web_fetch_20250910' is not",
        ),
        ({"tools": [{"type": "memory_20250818", "name": "memory"}]}, "tools[0].type: A tool of the type 'memory_20250818' is"),
        ({"tool_choice": {"type": "any"}}, "tool_choice: Tool choice 'required' must be"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name: 'f' is not among the 'tools'."),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "poem"}}}},
            "Invalid schema for 'output_config.format.schema'",
        ),
        ({"stop_sequences": "END"}, "Invalid type for 'stop_sequences'"),
        ({"stop_sequences": ["END", ""]}, "Invalid 'stop_sequences[1]': empty string."),
        (
            {
                "output_format": {"type": "json_schema", "schema": {}},
                "output_config": {"format": {"type": "json_schema", "schema": {}}},
            },
            "A request can have only one of 'output_config.format' and 'output_format'.",
        ),
        ({"tools": [{"type": "mcp_toolset"}]}, "Missing required parameter: 'tools[0].mcp_server_name'."),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "a"}]}, "tools[0].mcp_server_name: 'a' is not among the 'mcp_"),
        (
            {"tools": [{"type": "mcp_toolset", "mcp_server_name": "shop"}] * 2, "mcp_servers": [SHOP]},
            "tools[1].mcp_server_name: Two toolsets are for the server 'shop'.",
        ),
        (
            {"tools": [{"type": "mcp_toolset", "mcp_server_name": "shop", "configs": {"a": OFF}}], "mcp_servers": [SHOP]},
            "tools[0].configs.a.enabled: Single tools cannot be disabled here.",
        ),
        (
            {"tools": [{"type": "mcp_toolset", "mcp_server_name": "shop"}], "mcp_servers": [SHOP, {**SHOP, "name": "other"}]},
            "mcp_servers[1]: Another server has an 'mcp_toolset', but this one has none.",
        ),
        (
            {"tools": [{"type": "mcp_toolset", "mcp_server_name": "shop", "configs": {"a": {"enabled": "no"}}}]},
            "Invalid type for 'tools[0].configs.a.enabled'",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]},
            "messages: No tool call found",
        ),
        ({"temperature": 9}, "Invalid 'temperature': decimal above maximum value."),
        ({"temperature": -0.5}, "Invalid 'temperature': decimal below minimum value."),
        ({"top_p": 4}, "Invalid 'top_p': decimal above maximum value."),
    ],
)
def test_messages_names_the_invalid_parameter_and_its_reader_does(url, body, message) -> None:
    asked = {"model": MODEL, "max_tokens": 500, "messages": [USER], **body}
    answer = post_message(url, **asked)
    status, kind, text = error_of(answer)
    assert (status, kind, text[: len(message)]) == (400, "invalid_request_error", message)
    with pytest.raises(ApiError) as refused:
        asyncio.run(read_messages(asked))
    assert (refused.value.status, refused.value.body("messages", answer.json()["request_id"])) == (400, answer.json())


def test_an_oversized_prompt_has_the_message_that_clients_recognize(url) -> None:
    long = [{"role": "user", "content": "word " * 200_000}]
    assert refusal(url, messages=long)[2].startswith("prompt is too long: Your input exceeds the context")
    error = messages_of(post_message(url, model=MODEL, messages=long, stream=True).content)[-1]["error"]
    assert (error["type"], error["message"][:20]) == ("invalid_request_error", "prompt is too long: ")


def test_server_errors_have_the_format_of_messages(serve) -> None:
    with serve(StagedEngine(steps(ANSWER)), api_key=["sesame"], max_body_bytes=2_000) as url:
        key = {"x-api-key": "sesame"}
        assert post_message(url, headers={**VERSION, **key}).status_code == 200
        assert post_message(url, headers={"authorization": "Bearer sesame"}).status_code == 200
        for headers in ({}, VERSION, {"x-api-key": "wrong"}, {"authorization": "Bearer wrong", **key}):
            assert error_of(post_message(url, headers=headers))[:2] == (401, "authentication_error")
        assert error_of(post_message(url, headers=key, model="gpt-0"))[:2] == (404, "not_found_error")
        assert error_of(post_message(url, headers=key, system="x" * 3_000))[:2] == (413, "request_too_large")
        wrong = httpx.post(f"{url}/v1/messages", content="{}", headers={**key, "content-type": "text/plain"})
        assert error_of(wrong)[:2] == (415, "invalid_request_error")
        broken = httpx.post(f"{url}/v1/messages", content="{", headers={**key, "content-type": "application/json"})
        assert error_of(broken)[:2] == (400, "invalid_request_error")
        answer = httpx.get(f"{url}/v1/messages", headers=key)
        assert (error_of(answer)[:2], answer.headers["allow"]) == ((405, "invalid_request_error"), "POST")
        assert error_of(httpx.post(f"{url}/v1/messages/batches", headers=key))[:2] == (404, "not_found_error")
        head = httpx.head(f"{url}/v1/models", headers={**key, **VERSION})
        assert (head.status_code, head.content) == (200, b"")


def test_the_version_header_does_not_change_errors_of_other_apis(url) -> None:
    assert [*httpx.get(f"{url}/v1/responses/resp_no", headers=VERSION).json()["error"]] == ["message", "type", "param", "code"]
    assert httpx.post(f"{url}/v1/chat/completions", json={}, headers=VERSION).json()["error"]["param"] == "model"


def test_an_engine_fault_is_an_api_error(serve) -> None:
    with serve(StagedEngine([step(ANSWER), RuntimeError("a secret")])) as url:
        whole, streamed = post_message(url), post_message(url, stream=True)
    assert error_of(whole)[:2] == (500, "api_error")
    last = messages_of(streamed.content)[-1]
    error = whole.json()
    for answer, body in ((streamed, last), (whole, error)):
        assert body.pop("request_id") == answer.headers["request-id"]
    assert (streamed.status_code, last) == (200, error)
    assert "secret" not in whole.text


def test_a_server_error_before_the_stream_is_an_api_error(serve, monkeypatch, caplog) -> None:
    monkeypatch.setattr("interlock.serving.responses.service.new_driver", lambda *_, **__: 1 / 0)
    with serve(StagedEngine()) as url:
        assert error_of(post_message(url, stream=True))[:2] == (500, "api_error")
    assert "ZeroDivisionError" in caplog.text


def test_a_message_beyond_the_limit_is_refused_with_retry_after(serve) -> None:
    gate = Gate()
    body = {"model": "staged", "max_tokens": 9, "messages": [USER], "stream": True}
    with serve(StagedEngine([gate, *steps(ANSWER)], steps(ANSWER)), max_streams=1) as url:
        with httpx.stream("POST", f"{url}/v1/messages", json=body, timeout=PATIENCE) as first:
            assert gate.reached.wait(30)
            refused = [post_message(url), post_message(url, stream=True)]
            gate.open()
            assert messages_of(first.read())[-1]["type"] == "message_stop"
        assert [(error_of(each)[:2], each.headers["retry-after"]) for each in refused] == [((429, "rate_limit_error"), "1")] * 2


def test_a_server_that_shuts_down_answers_overloaded() -> None:
    application = build(Settings(), StagedEngine(steps(ANSWER)))
    with ServerThread(application) as url:
        application.api.service.active_runs.refuse()
        refused = post_message(url, stream=True)
    assert error_of(refused)[:2] == (503, "overloaded_error")


def test_counted_tokens_equal_the_usage_of_the_answer(url) -> None:
    body = {"model": MODEL, "system": "Be brief.", "tools": [LOOK_UP], "messages": [USER]}
    count = httpx.post(f"{url}/v1/messages/count_tokens?beta=true", json=body, headers=VERSION).json()
    assert count == {"input_tokens": post_message(url, **body).json()["usage"]["input_tokens"]}
    assert error_of(post_message(url, "/v1/messages/count_tokens", model="gpt-0"))[:2] == (404, "not_found_error")
    assert error_of(post_message(url, "/v1/messages/count_tokens", messages=7))[:2] == (400, "invalid_request_error")


def input_tokens_of(answer):
    """The input tokens at the start of a streamed message, and at its end."""
    events = messages_of(answer.content)
    return events[0]["message"]["usage"]["input_tokens"], events[-2]["usage"]["input_tokens"]


def test_a_stream_begins_with_the_token_count_of_the_engine(url) -> None:
    body = {"model": MODEL, "system": "Be brief.", "tools": [LOOK_UP], "messages": [USER]}
    count = httpx.post(f"{url}/v1/messages/count_tokens", json=body, headers=VERSION).json()["input_tokens"]
    assert input_tokens_of(post_message(url, stream=True, **body)) == (count, count)


COUNTED = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}


@pytest.mark.parametrize("counted", [True, False])
def test_the_estimate_at_the_start_of_an_upstream_stream_is_replaced_by_its_usage(counted) -> None:
    reply = stream(chunk({"content": "Yes."}), chunk({}, "stop"), *([COUNTED] if counted else []))
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 400}]}
    with gateway(reply) as (url, upstream):
        estimate = httpx.post(f"{url}/v1/messages/count_tokens", json=body, headers=VERSION).json()["input_tokens"]
        assert input_tokens_of(post_message(url, stream=True, **body)) == (estimate, 9 if counted else estimate)
        assert post_message(url, **body).json()["usage"]["input_tokens"] == (9 if counted else estimate)
    assert [each["messages"] for each in upstream.bodies] == [body["messages"]] * 2


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("streams", [True, False])
def test_the_estimate_and_the_request_share_one_upstream_body(api, streams, monkeypatch) -> None:
    turns = []

    async def write(translator, turn):
        turns.append(turn)
        return await written(translator, turn)

    written = Translator._write
    monkeypatch.setattr(Translator, "_write", write)
    with gateway(stream(chunk({"content": "Yes."}), chunk({}, "stop")), api=api) as (url, upstream):
        post_message(url, model="m", stream=streams)
    assert (len(turns), len(upstream.bodies)) == (1, 1)


def test_a_stream_requests_no_token_count_from_a_responses_upstream() -> None:
    usage = {"input_tokens": 5, "output_tokens": 4, "total_tokens": 9}
    reply = stream({"type": "response.completed", "response": {"status": "completed", "output": [], "usage": usage}})
    with gateway(reply, api="responses") as (url, upstream):
        begun, ended = input_tokens_of(post_message(url, model="m", stream=True))
    assert (begun > 0, ended) == (True, 5)
    assert [each.path for each in upstream.requests if each.body is not None] == ["/v1/responses"]


class UncountedEngine(StagedEngine):
    """An engine whose count fails."""

    async def count(self, _turn):
        raise RuntimeError("no tokenizer")


def test_a_failed_token_count_is_replaced_by_an_estimate(serve) -> None:
    with serve(UncountedEngine(steps(ANSWER))) as url:
        assert input_tokens_of(post_message(url, stream=True))[0] > 0


def test_models_are_listed_in_the_format_of_messages(serve) -> None:
    with serve(StagedEngine()) as url:
        listed = httpx.get(f"{url}/v1/models?limit=1000", headers=VERSION).json()
        assert [model["id"] for model in listed["data"]] == ["staged", "org/staged-2"]
        assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, "staged", "org/staged-2")
        assert {(model["type"], model["display_name"] == model["id"]) for model in listed["data"]} == {("model", True)}
        assert httpx.get(f"{url}/v1/models/org/staged-2", headers=VERSION).json() == listed["data"][1]
        assert error_of(httpx.get(f"{url}/v1/models/no", headers=VERSION))[:2] == (404, "not_found_error")
        assert httpx.get(f"{url}/v1/models").json()["object"] == "list"


def until(pieces, word):
    """Read until a word has come."""
    received = b""
    while word not in received:
        received += next(pieces)
    return received


def test_pings_break_a_silence_of_the_engine(serve) -> None:
    gate = Gate()
    body = {"model": "staged", "max_tokens": 99, "messages": [USER], "stream": True}
    engine = StagedEngine([step(ANSWER), gate, *steps(" More.")])
    with (
        serve(engine, keep_alive=0.01) as url,
        httpx.stream("POST", f"{url}/v1/messages", json=body, timeout=PATIENCE) as answer,
    ):
        pieces = answer.iter_bytes()
        received = until(pieces, b"event: ping")
        assert gate.reached.wait(30)
        gate.open()
        events = messages_of(received + b"".join(pieces))
    assert [block["text"] for block in folded_message(events)["content"]] == ["Hello there, world. More."]


@contextmanager
def patient_gateway(gate, reply):
    """A gateway whose upstream answers when the gate opens."""
    upstream = ScriptedUpstream([reply])

    async def application(scope, receive, send):
        if scope["type"] == "http" and scope["method"] == "POST":
            await gate.wait()
        await upstream(scope, receive, send)

    with serve_upstream(application) as url:
        engine = Gateway([upstream_of(UpstreamSettings(url=url, retries=0))])
        with ServerThread(build(Settings(keep_alive=0.01), engine)) as gateway_url:
            yield gateway_url


ASKED = {"model": "m", "max_tokens": 99, "messages": [USER], "stream": True}


@pytest.mark.parametrize(
    ("reply", "events"),
    [
        pytest.param(stream(chunk({"content": "Yes."}), chunk({}, "stop")), ["message_start", "message_stop"], id="accepted"),
        pytest.param(failure(400, {"error": {"message": "No."}}), ["error", "error"], id="refused"),
    ],
)
def test_pings_begin_before_the_engine_has_accepted_the_request(reply, events) -> None:
    gate = Gate()
    with (
        patient_gateway(gate, reply) as url,
        httpx.stream("POST", f"{url}/v1/messages", json=ASKED, timeout=PATIENCE) as answer,
    ):
        pieces = answer.iter_bytes()
        received = until(pieces, b"event: ping")
        assert gate.reached.wait(30)
        gate.open()
        read = messages_of(received + b"".join(pieces))
    assert (answer.status_code, read[0]["type"]) == (200, "ping")
    others = [event for event in read if event["type"] != "ping"]
    assert [others[0]["type"], others[-1]["type"]] == events
    if "error" in events:
        assert others[-1]["error"] == {"type": "invalid_request_error", "message": "No."}


def test_no_ping_follows_the_end() -> None:
    class Tools(NullTools):
        @asynccontextmanager
        async def begin(self, request, items, tenant):
            del request, items, tenant
            yield self
            for _ in range(50):
                await asyncio.sleep(0)

    pending = [{"type": "http.request", "body": json.dumps({**ASKED, "model": "staged"}).encode(), "more_body": False}]
    sent = []

    async def receive():
        return pending.pop(0) if pending else await asyncio.Event().wait()

    async def send(message):
        await asyncio.sleep(0)
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/messages", "query_string": b"", "headers": headers}
    asyncio.run(build(Settings(keep_alive=1e-9), StagedEngine(steps(ANSWER)), tools=Tools())(scope, receive, send))
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(sent) - 2) + [False]
    assert messages_of(b"".join(message["body"] for message in sent[1:]))[-1]["type"] == "message_stop"


# The reader, for a server that seals no reasoning and runs no tools


def test_a_reader_returns_a_body_that_is_valid_but_for_its_small_limit() -> None:
    body, _ = asyncio.run(read_messages({"model": "m", "max_tokens": 9, "messages": [USER]}))
    assert (body["max_output_tokens"], read_request({**body, "max_output_tokens": 16}).include) == (9, body["include"])


def test_an_error_without_a_request_has_the_form_of_messages() -> None:
    error = ApiError(400, "No.", param="thread", details={"error_code": "x"})
    assert error.body("messages") == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "thread: No.", "details": {"error_code": "x"}},
        "request_id": None,
    }


def test_a_reader_without_keys_keeps_the_thinking_and_drops_its_signature() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2VhbGVk"}
    answer = {"role": "assistant", "content": [thinking, {"type": "text", "text": "Yes"}]}
    body, _ = asyncio.run(read_messages({"model": "m", "max_tokens": 5, "messages": [USER, answer, USER]}))
    assert body["input"][1] == {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}


def test_a_reader_without_tools_refuses_a_web_search() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    with pytest.raises(ApiError) as refused:
        asyncio.run(read_messages({"model": "m", "max_tokens": 5, "messages": [USER], "tools": [search]}))
    assert (refused.value.status, refused.value.param) == (400, "tools[0].type")
