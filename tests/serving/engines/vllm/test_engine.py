"""vLLM as an engine: the request of each turn, the items from its outputs, and every end of a response."""

import asyncio
import json
import logging
from types import MappingProxyType, SimpleNamespace

import fake_vllm as fake
import pytest
from attrs import evolve
from fake_vllm import ANSWER, BODY, ENCODING, Output, Serving, client_of, outputs
from live.engines import ScriptedTools
from starlette.responses import JSONResponse

from interlock.fsm.deltas import Run, Succeed
from interlock.serving.engines.engine import Turn
from interlock.serving.engines.vllm import plugin
from interlock.serving.engines.vllm.vllm_engine import VllmEngine
from interlock.serving.settings import Settings, read_settings
from interlock.serving.tools.code_interpreter import CodeInterpreter
from interlock.verify.oracle import check

pytestmark = pytest.mark.usefixtures("vllm")

PATH = "/v1/responses"
NEXT = "<|start|>assistant"
RUN = "<|channel|>analysis to=python code<|message|>print(1)<|call|>"
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
HI = {"type": "message", "role": "user", "content": "Hi"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "name": "weather", "parameters": CITY}
SKY = {"type": "namespace", "name": "sky", "tools": [WEATHER]}


def ask(serving, *bodies, engine=None, headers=None, args=None, handle=ValueError):
    """Request one response after the other, and return the answers."""

    async def asking():
        handlers = {handle: lambda _, error: JSONResponse({"refused": str(error)}, 400)}
        async with client_of(serving, engine, args, handlers) as client:
            return [await client.post(PATH, json={**BODY, **body}, headers=headers) for body in bodies]

    return asyncio.run(asking())


def response_of(serving, **body):
    """Return the response of a legal stream."""
    (answer,) = ask(serving, {**body, "stream": True})
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert check(events) == []
    return events[-1]["response"]


def summary(response):
    return [(item["type"], item.get("status")) for item in response["output"]], response["status"]


def last_request(serving, *fields):
    """Return fields of the last request that vLLM rendered."""
    return [getattr(serving.requests[-1], name) for name in fields]


DONE = ("message", "completed")


def test_harmony_gives_items_with_vllms_settings_and_usage():
    response = response_of(Serving(fake.HarmonyContext, outputs(ANSWER)), temperature=0.1)
    assert summary(response) == ([DONE], "completed")
    assert [response[name] for name in ("id", "model", "temperature", "max_output_tokens")] == ["resp_1", "m", 0.5, 100]
    spent = len(ENCODING.encode(ANSWER, allowed_special="all"))
    assert response["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2},
        "output_tokens": spent,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 3 + spent,
    }


@pytest.mark.parametrize(("stop", "made_by_vllm"), [([], False), (["there"], True)])
def test_vllm_decodes_harmony_only_for_stop_sequences(stop, made_by_vllm):
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    assert summary(response_of(serving, stop=stop)) == ([DONE], "completed")
    assert serving.turns[0].sampling.detokenize is made_by_vllm


@pytest.mark.parametrize(
    ("reason", "status"),
    [("length", "incomplete"), ("repetition", "incomplete"), ("abort", "cancelled"), ("error", "failed")],
)
def test_the_finish_reason_decides_the_status(reason, status):
    assert summary(response_of(Serving(fake.HarmonyContext, outputs(ANSWER[:-10], reason))))[1] == status


class Tools(ScriptedTools):
    """Hosted tools with scripted deltas, whose code prints 1."""

    descriptions = MappingProxyType({"code_interpreter": ""})

    def with_outputs(self, items):
        return [{**item, "output": "1\n"} if item["type"] == "code_interpreter_call" else item for item in items]


def host(monkeypatch, say):
    monkeypatch.setattr(plugin, "_tools", lambda *_: Tools(say))


@pytest.fixture
def _tools(monkeypatch):
    host(monkeypatch, lambda call: [Run(call.id), Succeed(call.id, {"outputs": [{"type": "logs", "logs": "1"}]})])


@pytest.mark.usefixtures("_tools")
def test_a_later_turn_of_gpt_oss_continues_the_tokens_of_the_previous_one():
    serving = Serving(fake.HarmonyContext, outputs(f"{ANSWER[:-10]}<|end|>{NEXT}{RUN}"), outputs(RUN), outputs(ANSWER))
    response = response_of(serving, tools=[CODE], cache_salt="own", max_output_tokens=99)
    assert [kind for kind, _ in summary(response)[0]] == ["message", "code_interpreter_call", "code_interpreter_call", "message"]
    first, second, third = (turn.input["prompt_token_ids"] for turn in serving.turns)
    written = [[token for each in script for token in each.outputs[0].token_ids] for script in serving.script[:2]]
    reply = ENCODING.encode(f"<|start|>python to=assistant<|channel|>analysis<|message|>1\n<|end|>{NEXT}", allowed_special="all")
    assert second == [*first, *written[0], *reply]
    assert third == [*second, *written[1], *reply]
    assert [turn.input["cache_salt"] for turn in serving.turns] == ["own"] * 3
    assert [turn.priority for turn in serving.turns] == [3, 2, 2]
    assert [turn.sampling.max_tokens for turn in serving.turns] == [
        99,
        99 - len(written[0]),
        99 - len(written[0]) - len(written[1]),
    ]
    assert len(serving.requests) == 1  # vLLM rendered once


@pytest.mark.usefixtures("_tools")
def test_other_models_render_later_turns_again():
    call = SimpleNamespace(index=0, id="c", function=SimpleNamespace(name="python", arguments='{"code": "1"}'))
    parser = fake.Parser(delta(tool_calls=[call]), delta(content="Done."))
    serving = Serving.parsed(fake.SimpleContext, steps_of("call"), steps_of("said"), parser=parser)
    response = response_of(serving, tools=[CODE])
    assert summary(response) == ([("code_interpreter_call", "completed"), DONE], "completed")
    assert [tool["name"] for tool in serving.requests[0].tools] == ["python"]
    assert [item["type"] for item in last_request(serving, "input")[0]] == ["message", "function_call", "function_call_output"]
    assert last_request(serving, "input")[0][2]["output"] == "1\n"


def delta(**fields):
    return SimpleNamespace(**{"reasoning": None, "content": None, "tool_calls": None, **fields})


def steps_of(*texts, **options):
    steps = [Output([fake.Completion(text, (number,), **options)]) for number, text in enumerate(texts)]
    steps[-1] = evolve(steps[-1], finished=True, outputs=[evolve(steps[-1].outputs[0], finish_reason="stop")])
    return steps


def test_a_model_without_parsers_writes_text():
    response = response_of(Serving.parsed(fake.SimpleContext, steps_of("Hello ", "there.")))
    assert response["output"][0]["content"][0]["text"] == "Hello there."


def test_only_the_first_call_remains_without_parallel_tool_calls():
    calls = [SimpleNamespace(index=at, id=f"c{at}", function=SimpleNamespace(name="f", arguments="{}")) for at in range(2)]
    parser = fake.Parser(delta(content="Hm."), delta(tool_calls=calls))
    serving = Serving.parsed(fake.SimpleContext, steps_of("a", "b"), parser=parser)
    assert summary(response_of(serving, parallel_tool_calls=False))[0] == [DONE, ("function_call", "completed")]


def test_transfer_parameters_are_in_the_final_response():
    steps = outputs(ANSWER)
    steps[-1].kv_transfer_params = {"remote": 1}
    assert response_of(Serving(fake.HarmonyContext, steps))["kv_transfer_params"] == {"remote": 1}


def test_malformed_harmony_is_one_output_message_of_the_assistant():
    response = response_of(
        Serving(fake.HarmonyContext, outputs("<|channel|><|channel|>Hi<|call|>")), enable_response_messages=True
    )
    assert [message["role"] for message in response["output_messages"]] == ["assistant"]


def test_timings_come_from_vllm_and_are_omitted_if_they_fail(monkeypatch, vllm):
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    serving.enable_per_request_metrics = True
    assert response_of(serving)["metrics"] == {
        "time_to_first_token_ms": 1.0,
        "tokens": len(ENCODING.encode(ANSWER, allowed_special="all")),
    }
    module = vllm["vllm.entrypoints.openai.responses.serving"]
    monkeypatch.setattr(module, "build_per_request_timing_metrics", lambda *_: 1 / 0)
    assert "metrics" not in response_of(serving)
    monkeypatch.delattr(module, "build_per_request_timing_metrics")
    assert "metrics" not in response_of(serving)


def test_an_answer_begins_after_the_admission_and_before_the_first_token():
    gate = asyncio.Event()

    async def asking():
        engine = fake.Engine()
        serving = Serving(fake.HarmonyContext, [gate, *outputs(ANSWER)], engine=engine)
        async with client_of(serving, engine) as client:
            response = await client.post(PATH, json={**BODY, "background": True})
            gate.set()
            return response.json()["status"], engine.prompts

    assert asyncio.run(asking()) == ("queued", ["resp_1_0"])


@pytest.mark.parametrize("way", [{}, {"stream": True}, {"background": True}])
def test_errors_before_an_answer_are_left_to_vllms_handlers(way):
    class Refusing(Serving):
        async def create_responses(self, *_):
            raise ValueError("It is refused.")

    (answer,) = ask(Refusing(), way)
    assert (answer.status_code, answer.json()) == (400, {"refused": "It is refused."})


def test_a_fault_while_rendering_is_not_a_refusal():
    class Broken(Serving):
        async def create_responses(self, *_):
            raise RuntimeError("It broke.")

    with pytest.raises(RuntimeError, match="It broke"):
        ask(Broken(), {})


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
@pytest.mark.parametrize("writes_harmony", [True, False])
def test_a_log_probability_that_is_not_finite_becomes_the_least(writes_harmony, value):
    if writes_harmony:
        steps = outputs(ANSWER)
        for step in steps:
            (new,) = step.outputs
            rank = SimpleNamespace(logprob=value)
            new.logprobs = [{new.token_ids[0]: rank, 0: rank}]
        serving = Serving(fake.HarmonyContext, steps)
    else:
        parser = fake.Parser(SimpleNamespace(reasoning=None, content="a", tool_calls=[]))
        new = fake.Completion("a", (1,), [("a", value)], "stop")
        serving = Serving.parsed(fake.SimpleContext, [Output([new], finished=True)], parser=parser)
    response = response_of(serving, include=["message.output_text.logprobs"], top_logprobs=2)
    entries = response["output"][-1]["content"][0]["logprobs"]
    scores = {scored["logprob"] for entry in entries for scored in (entry, *entry["top_logprobs"])}
    assert (response["status"], scores) == ("completed", {-9999.0})


def test_without_a_store_vllm_refuses_a_background_response():
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    serving.enable_store = False
    refused, answer = ask(serving, {"background": True}, {})
    assert (refused.status_code, answer.json()["store"]) == (400, False)


def test_parameters_that_vllm_knows_are_passed_unchanged():
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    response_of(serving, temperature=0.5, tools=[WEATHER], tool_choice="auto", service_tier="flex", vllm_xargs={"a": 1})
    names = ("input", "temperature", "tools", "tool_choice", "service_tier", "vllm_xargs", "include")
    assert last_request(serving, *names) == ["Hi", 0.5, [WEATHER], "auto", "flex", {"a": 1}, None]


@pytest.mark.parametrize("harmony", [True, False])
def test_tools_and_calls_become_functions(harmony):
    urls = {"browser": "http://127.0.0.1/sse"} if harmony else None
    serving = (Serving if harmony else Serving.parsed)(fake.HarmonyContext, outputs(ANSWER), urls=urls)
    call = {"type": "custom_tool_call", "call_id": "call_1", "name": "write", "input": "a"}
    output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "ok"}
    choice = {"type": "function", "name": "weather", "namespace": "sky"}
    response_of(serving, tools=[SKY, {"type": "web_search"}], tool_choice=choice, input=[HI, call, output])
    tools, items, chosen = last_request(serving, "tools", "input", "tool_choice")
    assert tools == [{**WEATHER, "name": "sky__weather"}, *([{"type": "web_search_preview"}] if harmony else [])]
    assert chosen == {"type": "function", "name": "sky__weather"}
    assert items == [
        HI,
        {"type": "function_call", "call_id": "call_1", "name": "write", "arguments": '{"input":"a"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
    ]


@pytest.mark.parametrize("harmony", [True, False])
def test_tool_servers_that_a_request_names_by_their_labels_are_offered(harmony):
    urls = dict.fromkeys(("python", "browser", "container"), "http://127.0.0.1/sse")
    labels = ("code_interpreter", "web_search_preview", "container")
    tools = [{"type": "mcp", "server_label": label, "allowed_tools": ["a"]} for label in labels]
    serving = (Serving if harmony else Serving.parsed)(fake.HarmonyContext, outputs(ANSWER), urls=urls)
    response_of(serving, tools=[*tools, WEATHER])
    (offered,) = last_request(serving, "tools")
    if harmony:  # vLLM describes them
        assert [tool.model_dump() for tool in offered[:-1]] == [{**tool, "type": tool["server_label"]} for tool in tools]
    else:  # no other model knows the tools of the container
        assert [tool["name"] for tool in offered[:-1]] == ["python", "web_search"]
    assert offered[-1] == WEATHER


def test_tools_in_the_input_are_offered_and_their_calls_read():
    brought = [
        {"type": "tool_search_output", "call_id": None, "execution": "server", "status": "completed", "tools": [SKY]},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "rail", "tools": [{"name": "trains", "input_schema": CITY}]},
    ]
    text = "<|channel|>commentary to=functions.rail__trains <|constrain|>json<|message|>{}<|call|>"
    serving = Serving(fake.HarmonyContext, outputs(text))
    response = response_of(
        serving, input=[HI, *brought], tools=[{"type": "mcp", "server_label": "rail", "server_url": "http://rail"}]
    )
    assert [tool["name"] for tool in last_request(serving, "tools")[0]] == ["rail__trains", "sky__weather"]
    assert [(item["type"], item["name"]) for item in response["output"]] == [("mcp_approval_request", "trains")]


def test_a_tool_that_cannot_be_offered_is_left_out_with_a_warning(caplog):
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    with caplog.at_level(logging.WARNING):
        response_of(serving, tools=[{"type": "image_generation"}], tool_choice="auto")
    assert last_request(serving, "tools", "tool_choice") == [[], "none"]
    assert "a tool of the type image_generation is not offered to the model: no function can stand for it" in caplog.messages


def test_settings_that_vllm_does_not_know_are_dropped_or_approximated():
    odd = {"include": ["reasoning.encrypted_content"], "service_tier": "ultrafast", "reasoning": {"effort": "xhigh"}}
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    response_of(serving, **odd)
    assert last_request(serving, "include", "reasoning") == [None, {"effort": "high"}]
    assert not hasattr(serving.requests[-1], "service_tier")
    serving = Serving.parsed(fake.SimpleContext, steps_of("a"))
    response_of(serving, **odd, instructions="Be brief.")
    assert last_request(serving, "reasoning", "instructions") == [{"effort": "xhigh"}, "Be brief."]


def test_images_of_tools_are_named_in_harmony():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    picture = {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "data:,"}]}
    for serving, output in (
        (Serving(fake.HarmonyContext, outputs(ANSWER)), "[input_image]"),
        (Serving.parsed(fake.SimpleContext, steps_of("a")), picture["output"]),
    ):
        response_of(serving, input=[call, picture])
        assert last_request(serving, "input")[0][1]["output"] == output


@pytest.mark.parametrize("body", [{"input": None}, {"input": []}])
def test_an_empty_request_that_continues_nothing_is_refused(body):
    (answer,) = ask(Serving(), body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "input", "missing_required_parameter")


class Narrow(Serving):
    """An instance whose model can take three items."""

    async def create_responses(self, request, raw_request):
        if len(request.input) > 3:
            raise ValueError("It is too long.")
        return await super().create_responses(request, raw_request)


def user(text):
    return {"type": "message", "role": "user", "content": text}


def test_truncation_drops_the_oldest_turns_until_the_prompt_fits():
    serving = Narrow(fake.HarmonyContext, outputs(ANSWER))
    response = response_of(serving, input=[user(str(number)) for number in range(9)], truncation="auto")
    assert (response["status"], response["truncation"]) == ("completed", "auto")
    assert [item["content"] for item in last_request(serving, "input")[0]] == ["6", "7", "8"]


def test_without_truncation_or_droppable_turns_vllm_refuses():
    answer = {"type": "message", "role": "assistant", "content": "It goes on."}
    bodies = [{"input": [user(str(number)) for number in range(9)]}, {"input": [answer] * 4, "truncation": "auto"}]
    assert [answer.json() for answer in ask(Narrow(), *bodies)] == [{"refused": "It is too long."}] * 2


KEYS = SimpleNamespace(api_key=["one", "two"])


@pytest.mark.parametrize(
    ("setting", "args", "shared"),
    [
        (None, None, {"one": True, "two": True, "other": True}),
        (None, KEYS, {"one": True, "two": False, "other": True}),
        ("tenant", KEYS, {"one": True, "two": False, "other": True}),
        ("key", KEYS, {"one": True, "two": False, "other": False}),
        ("none", KEYS, {"one": True, "two": True, "other": True}),
    ],
)
def test_sharing_of_the_prefix_cache_is_a_setting(monkeypatch, setting, args, shared):
    if setting is not None:
        monkeypatch.setenv("INTERLOCK_CACHE_SALT", setting)

    def salt(key, prompt_cache_key):
        serving = Serving(fake.HarmonyContext, outputs(ANSWER))
        ask(serving, {"prompt_cache_key": prompt_cache_key}, headers={"authorization": f"Bearer {key}"}, args=args)
        return serving.turns[0].input["cache_salt"]

    first = salt("one", "a")
    assert {"one": salt("one", "a") == first, "two": salt("two", "a") == first, "other": salt("one", "b") == first} == shared


def test_a_requests_own_cache_salt_takes_precedence():
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    ask(serving, {"cache_salt": "own"}, headers={"authorization": "Bearer one"}, args=KEYS)
    assert serving.turns[0].input["cache_salt"] == "own"


def test_servers_of_vllms_flag_become_hosted_tools_and_the_environment_names_allowed_hosts(monkeypatch, caplog):
    monkeypatch.setenv("INTERLOCK_ALLOW_MCP_HOST", "localhost, mcp.example.com")
    urls = {"python": "http://a/sse", "browser": "http://b/sse", "container": "http://c/sse", "other": "http://d/sse"}
    tools = plugin._tools(read_settings(), Serving(urls=urls))
    assert tools.hosted == {"code_interpreter": "http://a/sse", "web_search": "http://b/sse", "container": "http://c/sse"}
    assert tools.policy.hosts == {"localhost", "mcp.example.com"}
    plugin._tools(Settings(), Serving(urls={"other": "http://d/sse"}))
    assert caplog.messages == ["no server of --tool-server has a tool that Interlock can call (python, browser, container)"]


def test_the_interpreter_is_a_tool_of_the_plugin_that_vllm_describes_to_gpt_oss(monkeypatch):
    monkeypatch.setenv("INTERLOCK_CODE_INTERPRETER", "1")
    serving = Serving()
    tools = plugin._tools(read_settings(), serving)
    interpreter = tools.hosted["code_interpreter"]
    assert tools.descriptions == {"code_interpreter": interpreter.description}
    described = serving.tool_server
    assert [described.has_tool(name) for name in ("python", "browser")] == [True, False]
    namespace = described.get_tool_description("python")
    assert (namespace.name, namespace.description, namespace.tools) == ("python", interpreter.description, [])


def test_the_web_search_is_a_tool_of_the_plugin_that_vllm_describes_to_gpt_oss(monkeypatch):
    monkeypatch.setenv("INTERLOCK_WEB_SEARCH", "searxng=http://127.0.0.1:1")
    serving = Serving()
    tools = plugin._tools(read_settings(), serving)
    assert (tools.hosted["web_search"].url, tools.descriptions) == ("http://127.0.0.1:1", {"web_search": ""})
    namespace = serving.tool_server.get_tool_description("browser")
    assert (namespace.name, [tool.name for tool in namespace.tools]) == ("browser", ["search", "open", "find"])


def test_tools_of_vllms_flag_stay_beside_the_interpreter(monkeypatch):
    monkeypatch.setenv("INTERLOCK_CODE_INTERPRETER", "1")
    serving = Serving(urls={"python": "http://a/sse", "container": "http://c/sse"})
    serving.tool_server.has_tool = {"container"}.__contains__
    serving.tool_server.get_tool_description = lambda name, _allowed: f"the {name}"
    tools = plugin._tools(read_settings(), serving)
    assert (type(tools.hosted["code_interpreter"]), tools.hosted["container"]) == (CodeInterpreter, "http://c/sse")
    assert serving.tool_server.has_tool("container")
    assert serving.tool_server.get_tool_description("container") == "the container"


@pytest.mark.parametrize("value", [[None], {"a": 1}, 3])
@pytest.mark.parametrize(
    ("kind", "name"),
    [("mcp_approval_response", "approval_request_id"), ("mcp_call", "approval_request_id"), ("mcp_call", "call_id")],
)
def test_a_link_between_items_that_is_not_a_string_is_refused(kind, name, value):
    item = {"type": kind, "id": "x_1", "server_label": "s", "name": "n", "arguments": "{}", "approve": True, name: value}
    (answer,) = ask(Serving(), {"input": [HI, item]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, f"input[1].{name}")


def test_a_repeated_turn_is_rendered_once_for_a_list_and_a_tuple_of_its_items():
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    engine = VllmEngine(serving)
    request = engine.read({**BODY, "truncation": "auto"})

    async def rendering():
        generation = await engine.begin(request, [HI])
        for items in ([HI], (HI,)):
            await generation.count(Turn(request, items))

    asyncio.run(rendering())
    assert len(serving.requests) == 1


def test_a_request_with_a_structural_tag_gets_no_beginning_of_a_call():
    call = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{}<|call|>"
    serving = Serving(fake.HarmonyContext, outputs(call))
    response_of(serving, tools=[WEATHER], tool_choice="required", structured_outputs={"structural_tag": "{}"})
    assert serving.turns[0].input["prompt_token_ids"] == [1, 2, 3]
