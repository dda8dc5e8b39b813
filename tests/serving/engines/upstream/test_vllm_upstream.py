"""The gateway in front of vLLM's completions: it sends prompts as tokens, and parses the tokens of the answers."""

import httpx
import pytest
from live.upstream import PATIENCE, Reply, event, failure, gateway, stream
from live.wire import bodies, messages_of

from interlock.serving.engines.harmony_tokens import encode_framing, encoding
from interlock.serving.tools.hosting import ToolServers

FUNCTION = {"type": "function", "name": "f", "description": "Does f.", "parameters": {"type": "object", "properties": {}}}
PYTHON = {"type": "code_interpreter", "container": {"type": "auto"}}
SCHEMA = {
    "type": "json_schema",
    "name": "n",
    "description": "A place.",
    "schema": {"type": "object", "properties": {}},
    "strict": True,
}
ANSWER = "<|channel|>final<|message|>Yes.<|return|>"
USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}}


def chunk(text="", ids=(), reason=None, **fields):
    return {"choices": [{"index": 0, "text": text, "token_ids": [*ids], "finish_reason": reason, **fields}]}


def written(text, reason="stop"):
    """A stream of the tokens of harmony, one by one."""
    ids = encode_framing(text)
    return stream(*(chunk(ids=[token]) for token in ids), chunk(reason=reason), USAGE)


def post(url, **body):
    answer = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi", **body}, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    return bodies(answer.content)[-1]["response"] if body.get("stream") else answer.json()


def sent(*replies, settings=(), **body):
    """The bodies that vLLM gets for a request."""
    with gateway(*(replies or [written(ANSWER)]), api="vllm", **dict(settings)) as (url, upstream):
        post(url, **body)
    return upstream.bodies


def prompt(**body):
    """The prompt of a request, as text."""
    return encoding().decode(sent(**body)[0]["prompt"])


def test_a_request_has_a_prompt_of_tokens_and_the_sampling_parameters():
    (body,) = sent(temperature=0.5, top_p=0.9, top_k=3, n=2, stop_token_ids=[7], max_output_tokens=7, text={"format": SCHEMA})
    tokens = body.pop("prompt")
    schema = {name: SCHEMA[name] for name in ("name", "description", "schema", "strict")}
    assert body == {
        "model": "m",
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "max_tokens": 7,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "skip_special_tokens": False,
        "stop_token_ids": [7, 200002, 199999, 200012],
        "response_format": {"type": "json_schema", "json_schema": schema},
    }
    assert tokens[:2] == [*encode_framing("<|start|>system")]
    (body,) = sent()
    assert body["max_tokens"] == 131_072 - len(body["prompt"])


def test_the_prompt_of_gpt_oss_equals_that_of_its_template():
    items = [
        {"role": "user", "content": "One <|end|>"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "gone"}]},
        {"role": "assistant", "content": "Answer."},
        {"role": "developer", "content": "Now this."},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "kept"}]},
        {"type": "message", "role": "assistant", "phase": "commentary", "content": "I look."},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "out"},
        {"type": "code_interpreter_call", "id": "ci_1", "container_id": "c", "code": "1", "outputs": []},
    ]
    format_text = '# Response Formats\n\n## n\n\n// A place.\n{"type":"object","properties":{}}'
    text = prompt(
        input=items, instructions="Be brief.", tools=[FUNCTION, PYTHON], reasoning={"effort": "high"}, text={"format": SCHEMA},
        settings={"hosted": ["code_interpreter", "web_search"]},
    )  # fmt: skip
    system, developer, *rest = text.split("<|start|>")[1:]
    assert system.startswith("system<|message|>You are ChatGPT, a large language model trained by OpenAI.")
    assert "Reasoning: high" in system
    assert "## python" in system
    assert "Calls to these tools must go to the commentary channel: 'functions'.<|end|>" in system
    assert developer == (
        "developer<|message|># Instructions\n\nBe brief.\n\n# Tools\n\n## functions\n\nnamespace functions {\n\n"
        f"// Does f.\ntype f = (_: {{\n}}) => any;\n\n}} // namespace functions\n\n{format_text}<|end|>"
    )
    assert rest == [
        "user<|message|>One <|end|><|end|>",
        "assistant<|channel|>final<|message|>Answer.<|end|>",
        "developer<|message|># Instructions\n\nNow this.<|end|>",
        "assistant<|channel|>analysis<|message|>kept<|end|>",
        "assistant<|channel|>commentary<|message|>I look.<|end|>",
        "assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        "functions.f to=assistant<|channel|>commentary<|message|>out<|end|>",
        'assistant to=python<|channel|>analysis code<|message|>{"code":"1"}<|call|>',
        "python to=assistant<|channel|>analysis<|message|><|end|>",
        "assistant",
    ]


def test_a_prompt_without_tools_or_instructions_has_no_developer_message():
    assert prompt().split("<|start|>")[2:] == ["user<|message|>Hi<|end|>", "assistant"]
    assert "namespace" not in prompt(tools=[FUNCTION], tool_choice="none")
    assert "## browser" in prompt(tools=[{"type": "web_search"}], settings={"hosted": ["web_search"]})


def test_a_message_begins_with_the_number_of_tokens_in_the_prompt():
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    with gateway(written(ANSWER), api="vllm") as (url, upstream):
        start, *_ = messages_of(httpx.post(f"{url}/v1/messages", json=body, timeout=PATIENCE).content)
    (sent_body,) = upstream.bodies
    assert start["message"]["usage"]["input_tokens"] == len(sent_body["prompt"])


def test_tokens_are_read_with_their_usage():
    with gateway(written(f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{ANSWER}"), api="vllm") as (url, _):
        response = post(url, stream=True)
    reasoning, message = response["output"]
    assert (reasoning["content"][0]["text"], message["content"][0]["text"]) == ("Hm.", "Yes.")
    usage = response["usage"]
    assert (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]) == (9, 4)
    assert usage["output_tokens_details"]["reasoning_tokens"] == 2


def test_log_probabilities_name_their_tokens():
    ids = encode_framing("<|channel|>final<|message|>é")
    scored = [
        chunk(
            ids=[token],
            logprobs={
                "tokens": [f"token_id:{token}"],
                "token_logprobs": [-0.5],
                "top_logprobs": [{f"token_id:{token}": -0.5, "token_id:0": -0.25}],
            },
        )
        for token in ids
    ]  # fmt: skip
    wanted = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
    with gateway(stream(*scored, chunk(reason="stop")), api="vllm") as (url, upstream):
        response = post(url, stream=True, **wanted)
        post(url)  # a server may send them unasked
    (entry,) = response["output"][0]["content"][0]["logprobs"]
    assert entry == {
        "token": "é",
        "bytes": [195, 169],
        "logprob": -0.5,
        "top_logprobs": [{"token": "!", "bytes": [33], "logprob": -0.25}],
    }
    assert (upstream.bodies[0]["logprobs"], upstream.bodies[0]["return_tokens_as_token_ids"]) == (1, True)
    bad = chunk(ids=ids, logprobs={"tokens": ["é"], "token_logprobs": [None]})
    with gateway(stream(bad), api="vllm") as (url, _):
        assert post(url, stream=True, **wanted)["error"]["code"] == "upstream_error"


def test_a_later_turn_continues_the_tokens_of_the_previous_one():
    tools = ToolServers({"code_interpreter": "http://127.0.0.1:9/sse"})  # nothing answers there
    run = "<|channel|>analysis to=python code<|message|>1  + 1<|call|>"
    with gateway(written(run), written(ANSWER), api="vllm", hosted=["code_interpreter"], tools=tools) as (url, upstream):
        response = post(url, tools=[PYTHON], stream=True)
    assert [item["type"] for item in response["output"]] == ["code_interpreter_call", "message"]
    first, second = (body["prompt"] for body in upstream.bodies)
    assert second[: len(first)] == first
    rest = encoding().decode(second[len(first) :])
    assert rest.startswith(f"{run}<|start|>python to=assistant<|channel|>analysis<|message|>")
    assert rest.endswith("<|end|><|start|>assistant")


def test_a_tool_of_gpt_oss_that_the_conversation_adds_is_no_function_of_the_prompt():
    added = {"type": "additional_tools", "role": "developer", "tools": [PYTHON]}
    (body,) = sent(input=[{"role": "user", "content": "Hi"}, added], settings={"hosted": ["code_interpreter"]})
    assert "python" not in encoding().decode(body["prompt"])


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        (written("<|channel|>final<|message|>a", "length"), "incomplete", None),
        (written("<|channel|>final<|message|>a", "repetition"), "incomplete", None),
        (written("<|channel|>final<|message|>a", None), "completed", None),
        (written("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{", None), "incomplete", None),
        (stream(chunk(), {"error": {"message": "m", "code": "c"}}), "failed", "c"),
        (stream(chunk(), {"error": {"message": "m", "code": 500}}), "failed", "upstream_error"),
        (stream({"choices": [{"text": "a"}]}), "failed", "upstream_error"),
        (stream({"id": "x"}), "failed", "upstream_error"),
        (Reply((event(b"{"),)), "failed", "upstream_error"),
    ],
)
def test_each_end_of_a_stream_sets_the_status_of_the_response(reply, status, code):
    with gateway(reply, api="vllm") as (url, _):
        response = post(url, stream=True)
    assert (response["status"], (response["error"] or {}).get("code")) == (status, code)


def test_a_prompt_that_is_too_long_is_refused_and_not_sent(monkeypatch):
    monkeypatch.setattr("interlock.serving.engines.upstream.vllm_upstream.DEFAULT_WINDOW", 10)
    with gateway(written(ANSWER), api="vllm") as (url, upstream):
        for path in ("responses", "responses/input_tokens"):
            answer = httpx.post(f"{url}/v1/{path}", json={"model": "m", "input": "Hi"})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")
    assert upstream.bodies == []


def namespace_tool(name, *names):
    tools = [{**FUNCTION, "name": each} for each in names]
    return {"type": "namespace", "name": name, "description": "", "tools": tools}


SPACES = [namespace_tool("a__b", "c"), namespace_tool("a", "b__c")]
SPACE_NAMES = ["a__b__c_0079d871", "a__b__c_f40290d4"]
SPACED = [("a__b", "c"), ("a", "b__c")]


def test_gpt_oss_functions_have_distinct_names_in_both_directions():
    called = written(f"<|channel|>commentary to=functions.{SPACE_NAMES[1]} <|constrain|>json<|message|>{{}}<|call|>")
    with gateway(called, written(ANSWER), api="vllm") as (url, upstream):
        output = post(url, tools=SPACES)["output"]
        post(url, tools=SPACES, input=[*output, {"type": "function_call_output", "call_id": output[0]["call_id"], "output": "a"}])
    assert [(item["namespace"], item["name"]) for item in output] == SPACED[1:]
    first, second = [encoding().decode(body["prompt"]) for body in upstream.bodies]
    assert [first.count(f"type {name} = ") for name in SPACE_NAMES] == [1, 1]
    assert [second.count(f"to=functions.{name}<") for name in SPACE_NAMES] == [0, 1]


# Other families.

MARKERS = {"<tool_call>": 5, "</tool_call>": 6, "<think>": 7, "</think>": 8}


def tokenized(ids, context=100):
    return failure(200, {"tokens": [*ids], "max_model_len": context, "count": len(ids)})


def family_gateway(*replies, prompt=(1, 2, 3), context=100, **settings):
    """A gateway in front of a model of the family hermes; the markers are asked for after the first prompt."""
    manager = gateway(failure(500, {}), api="vllm", family="hermes", **settings)

    class Manager:
        def __enter__(self):
            url, upstream = manager.__enter__()
            waiting = [*replies]

            class Replies(list):
                def __len__(self):
                    return 2

                def pop(self, _index):
                    received = upstream.requests[-1]
                    if received.path != "/tokenize":
                        return waiting.pop(0)
                    marker = MARKERS.get(received.body.get("prompt"))
                    return tokenized(prompt if "messages" in received.body else [9, 9] if marker is None else [marker], context)

            upstream.replies = Replies()
            return url, upstream

        def __exit__(self, *error):
            return manager.__exit__(*error)

    return Manager()


def completions(upstream):
    return [received.body for received in upstream.requests if received.path == "/v1/completions"]


CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def test_the_prompt_of_a_family_is_rendered_by_vllm():
    reply = stream(chunk("Yes.", [20], "stop"))
    with family_gateway(reply, reply) as (url, upstream):
        items = [
            {"role": "user", "content": "Hi"},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"role": "assistant", "content": "Yes?"},
        ]
        post(url, input=items, tools=[FUNCTION], reasoning={"effort": "none"}, chat_template_kwargs={"a": 1})
        post(url)
    (body,) = [received.body for received in upstream.requests if "tools" in (received.body or {})]
    assert body == {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Yes?", "reasoning": "Hm.", "reasoning_content": "Hm."},
        ],
        "tools": [{"type": "function", "function": {name: FUNCTION[name] for name in ("name", "description", "parameters")}}],
        "add_generation_prompt": True,
        "chat_template_kwargs": {"reasoning_effort": "none", "enable_thinking": False, "a": 1},
    }
    first, _ = completions(upstream)
    assert (first["prompt"], first["max_tokens"]) == ([1, 2, 3], 97)
    assert not {"stop_token_ids", "chat_template_kwargs", "logprobs"} & first.keys()
    markers = [
        received.body["prompt"] for received in upstream.requests if received.path == "/tokenize" and "prompt" in received.body
    ]
    assert len(markers) == len({*markers})  # they are asked for once
    assert {*MARKERS} <= {*markers}


@pytest.mark.parametrize(
    ("prompt", "written", "types"),
    [
        ([1, 7], [("Hm.", [20]), ("</think>", [8]), ("Yes.", [21])], ["reasoning", "message"]),
        ([7, 8], [("Hm.", [20])], ["message"]),
        ([1, 8], [(CALL, [5, 20, 6])], ["function_call"]),
        ([1, 8], [("<tool_call>", [20, 21]), ("x", [22])], ["message"]),
    ],
)
def test_markers_are_read_only_as_single_tokens_and_the_prompt_sets_the_start_of_a_turn(prompt, written, types):
    reply = stream(*(chunk(text, ids) for text, ids in written), chunk(reason="stop"))
    with family_gateway(reply, prompt=prompt) as (url, _):
        response = post(url, tools=[FUNCTION], stream=True)
    assert [item["type"] for item in response["output"]] == types


def test_functions_of_a_family_have_distinct_names_in_both_directions():
    calls = "\n".join(CALL.replace('"f"', f'"{name}"') for name in SPACE_NAMES)
    replies = stream(chunk(calls, [5, 20, 6] * 2, "stop")), stream(chunk("Yes.", [20], "stop"))
    with family_gateway(*replies) as (url, upstream):
        output = post(url, tools=SPACES)["output"]
        post(url, tools=SPACES, input=output)
    first, second = [received.body for received in upstream.requests if "messages" in (received.body or {})]
    assert [(item["namespace"], item["name"]) for item in output] == SPACED
    assert [tool["function"]["name"] for tool in first["tools"]] == SPACE_NAMES
    assert [each["function"]["name"] for each in second["messages"][0]["tool_calls"]] == SPACE_NAMES


def test_structured_output_begins_after_the_reasoning():
    reply = stream(chunk("{}", [20], "stop"))
    with family_gateway(reply, prompt=[1, 7]) as (url, upstream):
        response = post(url, text={"format": SCHEMA}, stream=True)
    (body,) = completions(upstream)
    assert (body["prompt"], body["response_format"]["type"]) == ([1, 7, 8], "json_schema")
    assert [item["type"] for item in response["output"]] == ["message"]


def test_log_probabilities_of_a_family_name_texts():
    scores = {"tokens": ["Yes", "."], "token_logprobs": [-0.5, None], "top_logprobs": [{"Yes": -0.5, "No": -1.0}, None]}
    reply = stream(chunk("Yes.", [20, 21], "stop", logprobs=scores))
    with family_gateway(reply, prompt=[8]) as (url, upstream):
        response = post(url, include=["message.output_text.logprobs"], top_logprobs=1, stream=True)
    (part,) = response["output"][0]["content"]
    assert [(each["token"], each["logprob"]) for each in part["logprobs"]] == [("Yes", -0.5), (".", 0.0)]
    assert part["logprobs"][0]["top_logprobs"] == [{"token": "Yes", "bytes": [89, 101, 115], "logprob": -0.5}]
    assert completions(upstream)[0]["return_tokens_as_token_ids"] is False


def test_images_are_refused_because_they_have_no_tokens():
    picture = {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}
    with family_gateway() as (url, _):
        answer = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": [picture]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_value")


def test_an_invalid_answer_to_a_tokenize_request_gives_502():
    with gateway(failure(200, {"tokens": "x"}), api="vllm", family="hermes") as (url, _):
        answer = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_error")


@pytest.mark.parametrize(
    ("choice", "prefix", "written_by_model"),
    [
        ("required", "<|channel|>commentary to=functions.", "f <|constrain|>json<|message|>{}<|call|>"),
        ({"type": "function", "name": "f"}, "<|channel|>commentary to=functions.f <|constrain|>json", "<|message|>{}<|call|>"),
    ],
)
def test_a_required_call_of_gpt_oss_begins_in_the_prompt(choice, prefix, written_by_model):
    with gateway(written(written_by_model), api="vllm") as (url, upstream):
        response = post(url, tools=[FUNCTION], tool_choice=choice, stream=True)
    assert encoding().decode(upstream.bodies[0]["prompt"]).endswith(f"<|start|>assistant{prefix}")
    (item,) = response["output"]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "f", "{}")


def test_a_choice_that_cannot_be_enforced_and_a_tool_that_cannot_be_offered_are_logged(caplog):
    with family_gateway(stream(chunk("Yes.", [20], "stop"))) as (url, _):
        post(url, tools=[FUNCTION, {"type": "image_generation"}], tool_choice="required")
    assert "vLLM's completions cannot require a call of this model" in caplog.text
    assert "a tool of the type image_generation is not offered" in caplog.text
