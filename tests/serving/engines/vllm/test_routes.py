"""The plugin's routes come before vLLM's, and leave to vLLM what they do not handle themselves."""

import ast
import asyncio
import functools
import json
import logging
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import fake_vllm as fake
import pytest
import uvicorn.config
from fake_vllm import ANSWER, BODY, Serving, client_of, outputs
from starlette.responses import JSONResponse
from starlette.testclient import TestClient, WebSocketDenialResponse
from uvicorn.config import WS_PROTOCOLS, Config

import interlock
from interlock.judges.messages import check_messages
from interlock.serving.engines.vllm import compat
from interlock.serving.engines.vllm import plugin as plugin_module
from interlock.serving.engines.vllm.plugin import InterlockPlugin
from interlock.serving.http import bounded_protocol
from interlock.serving.http.app import codex_model
from interlock.serving.http.bounded_protocol import BoundedProtocol
from interlock.serving.settings import ModelFacts
from interlock.verify.oracle import check

pytestmark = pytest.mark.usefixtures("vllm")


def ask(serving, path="/v1/responses", method="POST", headers=None, **body):
    async def asking():
        async with client_of(serving) as client:
            return await client.request(method, path, json={**BODY, **body}, headers=headers)

    return asyncio.run(asking())


def events(content):
    frames = content.decode().removesuffix("data: [DONE]\n\n").split("\n\n")
    return [json.loads(frame.split("\ndata: ", 1)[1]) for frame in frames if frame]


@pytest.mark.parametrize("body", [{}, {"stream": True}, {"input": 1}])
def test_answers_have_the_version_of_the_plugin(body):
    answer = ask(Serving(fake.HarmonyContext, outputs(ANSWER)), **body)
    assert answer.headers.get_list("x-interlock") == [interlock.__version__]


@pytest.mark.parametrize(
    ("context_type", "multimodal", "facts"),
    [
        (fake.HarmonyContext, False, ModelFacts(window=4096, efforts=["low", "medium", "high"], modalities=["text"])),
        (fake.SimpleContext, True, ModelFacts(window=4096, modalities=["text", "image"])),
    ],
)
def test_vllms_list_of_models_includes_the_codex_catalogue(context_type, multimodal, facts):
    serving = Serving(context_type, outputs(ANSWER))
    serving.use_harmony = context_type is fake.HarmonyContext
    serving.model_config.is_multimodal_model = multimodal
    answer = ask(serving, "/v1/models", "GET").json()
    models = answer.pop("models")
    assert answer == fake.ModelList().model_dump()
    assert models == [codex_model(name, facts, index) for index, name in enumerate(["m", "adapter"])]


def test_messages_and_chat_completions_are_served_if_the_environment_names_them(monkeypatch):
    monkeypatch.setenv("INTERLOCK_DIALECTS", "messages, chat")
    fields = {"messages": [{"role": "user", "content": "Hi"}], "input": None}
    answer = ask(Serving(fake.HarmonyContext, outputs(ANSWER)), "/v1/messages", **fields, max_tokens=50, stream=True)
    bodies = [json.loads(frame.partition("data: ")[2]) for frame in answer.text.split("\n\n") if frame]
    assert (answer.status_code, check_messages(bodies)) == (200, [])
    assert re.fullmatch("req_[0-9a-f]+", answer.headers["request-id"])
    answer = ask(Serving(fake.HarmonyContext, outputs(ANSWER)), "/v1/chat/completions", **fields)
    assert answer.json()["choices"][0]["message"]["content"] == "Hello there."
    refused = ask(Serving(fake.HarmonyContext), "/v1/messages", **fields)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
    assert refused.headers["request-id"] == refused.json()["request_id"]
    assert "request-id" not in answer.headers


@pytest.mark.parametrize(("stop", "reason"), [("END", "stop_sequence"), (200012, "end_turn")])
def test_a_stop_string_named_by_vllm_is_the_stop_reason_of_a_message(monkeypatch, stop, reason):
    monkeypatch.setenv("INTERLOCK_DIALECTS", "messages")
    steps = outputs(ANSWER)
    steps[-1].outputs[0].stop_reason = stop
    fields = {"messages": [{"role": "user", "content": "Hi"}], "input": None, "stop_sequences": ["END"]}
    serving = Serving(fake.HarmonyContext, steps)
    message = ask(serving, "/v1/messages", **fields, max_tokens=50).json()
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, stop if reason == "stop_sequence" else None)
    assert serving.turns[0].sampling.stop == ["END"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_body_of_600_levels_is_refused(stream):
    schema = {"type": "object"}
    for _ in range(600):
        schema = {"not": schema}
    tool = {"type": "function", "name": "f", "parameters": schema}
    answer = ask(Serving(fake.HarmonyContext, outputs(ANSWER)), stream=stream, tools=[tool])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


def test_other_models_are_asked_for_a_stream_even_for_a_whole_answer():
    output = fake.Output([fake.Completion("Hello.", (1,), finish_reason="stop")], finished=True)
    serving = Serving.parsed(fake.SimpleContext, [output])
    assert ask(serving).json()["output"][0]["content"][0]["text"] == "Hello."
    assert serving.requests[-1].stream is True


def test_a_refusal_by_vllm_is_passed_on_unchanged():
    answer = ask(Serving(), input="refuse")
    assert (answer.status_code, answer.json()) == (400, {"error": {"message": "It is refused.", "code": 400}})
    assert ask(Serving(), max_output_tokens="many").status_code == 422


class VLLMValidationError(ValueError):
    """vLLM's class of this name."""


@pytest.mark.parametrize("parameters", [{}, {"top_k": 20, "seed": 7, "stop": ["\n"]}], ids=["the API's", "checked"])
def test_a_stream_whose_parameters_are_checked_starts_before_the_engine_is_reached(parameters):
    async def asking():
        async with client_of(Serving(fake.HarmonyContext, [VLLMValidationError("No such token.")])) as client:
            return (await client.post("/v1/responses", json={"model": "m", "input": "Hi", "stream": True, **parameters})).content

    last = events(asyncio.run(asking()))[-1]
    assert (last["type"], last["response"]["error"]["message"]) == ("response.failed", "No such token.")


def check_xargs(sampling):
    if sampling.temperature == 0.5:
        raise VLLMValidationError("No such argument.")


@pytest.mark.parametrize(
    ("checks", "status", "said"),
    [
        ({}, 400, "No such token."),
        ({"validate_logits_processors_params": lambda _: None}, 200, "No such token."),
        ({"validate_logits_processors_params": check_xargs}, 400, "No such argument."),
    ],
    ids=["no check", "accepted", "refused"],
)
def test_xargs_are_checked_before_the_engine_is_reached_if_vllm_has_the_check(checks, status, said):
    async def refuse(_, error):
        return JSONResponse({"refused": str(error)}, 400)

    async def asking():
        engine = fake.Engine()
        engine.input_processor = SimpleNamespace(**checks)
        serving = Serving(fake.HarmonyContext, [VLLMValidationError("No such token.")])
        async with client_of(serving, engine, handlers={VLLMValidationError: refuse}) as client:
            request = {"model": "m", "input": "Hi", "stream": True, "vllm_xargs": {"a": 1}}
            return await client.post("/v1/responses", json=request)

    answer = asyncio.run(asking())
    found = answer.json()["refused"] if status == 400 else events(answer.content)[-1]["response"]["error"]["message"]
    assert (answer.status_code, found) == (status, said)


def test_an_id_that_is_too_long_for_the_index_of_a_store_is_refused():
    answer = ask(Serving(), request_id="r" * 257)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "request_id", "string_above_max_length")


def test_vllm_answers_itself_if_its_model_does_not_generate():
    assert ask(None).json() == {"from": "vllm"}
    assert ask(None, "/v1/responses/resp_1", "GET").status_code == 404


def test_websockets_of_vllms_server_use_the_bounded_protocol(monkeypatch):
    monkeypatch.setitem(WS_PROTOCOLS, "auto", WS_PROTOCOLS["auto"])

    async def serving():
        async with client_of(Serving()) as client:
            config = Config(client.app)
            config.load()
            return config.ws_protocol_class

    assert asyncio.run(serving()) is BoundedProtocol


@pytest.mark.parametrize(("origin", "status"), [("http://foe", 403), ("http://friend", 101)])
def test_only_pages_of_the_origins_that_vllm_allows_may_open_a_socket(origin, status):
    args = SimpleNamespace(allowed_origins=("http://friend",))

    async def app():
        async with client_of(Serving(), args=args) as client:
            return client.app

    client = TestClient(asyncio.run(app()))
    try:
        with client.websocket_connect("/v1/responses", headers={"origin": origin}):
            answered = 101
    except WebSocketDenialResponse as refused:
        answered = refused.status_code
    assert answered == status


def test_a_shutdown_of_the_engine_first_ends_the_responses():
    async def asking():
        engine = fake.Engine()
        reached = asyncio.Event()

        class Waiting(asyncio.Event):
            """An event that reports that a task waits for it."""

            def wait(self):
                reached.set()
                return super().wait()

        serving = Serving(fake.HarmonyContext, [*outputs(ANSWER)[:4], Waiting()])
        async with client_of(serving, engine) as client:
            reading = asyncio.create_task(client.post("/v1/responses", json={**BODY, "stream": True}))
            active_runs = client.plugin.api.service.active_runs
            await reached.wait()
            assert await asyncio.to_thread(engine.shutdown, timeout=3) == 3
            assert len(active_runs) == 0
            assert engine.shutdown(timeout=5) == 5  # by the loop itself, which waits for nothing
            return engine, (await reading).content

    engine, content = asyncio.run(asking())
    assert check(events(content)) == []
    assert events(content)[-1]["response"]["error"]["message"] == "The server is shutting down."
    assert engine.shutdown(timeout=4) == 4  # the loop is closed by now


def test_the_background_task_of_an_answer_is_run(vllm):
    async def asking():
        done = []

        async def after():
            done.append(True)

        def load_aware_call(func):
            @functools.wraps(func)
            async def aware(**arguments):
                answer = await func(**arguments)
                answer.background = after
                return answer

            return aware

        vllm["vllm.entrypoints.openai.responses.api_router"].load_aware_call = load_aware_call
        async with client_of(Serving(fake.HarmonyContext, outputs(ANSWER))) as client:
            await client.post("/v1/responses", json=BODY)
        return done

    assert asyncio.run(asking()) == [True]


def test_a_template_that_cannot_be_compiled_leaves_the_model_to_vllms_parser_with_the_reason(caplog):
    args = SimpleNamespace(reasoning_parser="hf")
    serving = SimpleNamespace(renderer=SimpleNamespace(tokenizer=SimpleNamespace(response_template={"fields": {"thinking": {}}})))
    assert plugin_module._family(args, serving) is None
    assert caplog.messages == [
        "Interlock cannot compile the checkpoint's response_template, so vLLM's parser reads it: the reasoning has no end."
    ]


@pytest.mark.parametrize(
    ("version", "obstacle"),
    [
        ("0.29.1", "it supports vLLM 0.30 to 0.33"),
        ("0.34.0", "it supports vLLM 0.30 to 0.33"),
        ("dev", "it supports vLLM 0.30 to 0.33"),
    ],
)
def test_an_unsupported_vllm_is_left_alone_with_one_log_line(monkeypatch, caplog, version, obstacle):
    fake.install(monkeypatch, version)
    serving = Serving()
    assert ask(serving).json() == {"from": "vllm"}
    assert [record.message for record in caplog.records if record.name == plugin_module.logger.name] == [
        f"Interlock leaves vLLM {version}'s own /v1/responses in place: {obstacle}."
    ]


def test_the_log_names_the_members_that_a_build_of_vllm_lacks(monkeypatch, caplog):
    modules = fake.install(monkeypatch)
    modules["vllm.parser.abstract_parser"].Parser = None
    monkeypatch.setattr(Serving, "_extract_prompt_len", None)
    del modules["vllm.entrypoints.openai.responses.serving"].get_max_tokens
    del modules["vllm.tokenizers.protocol"].TokenizerLike
    modules["vllm.outputs"].CompletionOutput = type("CompletionOutput", (), {"__annotations__": {"text": str, "token_ids": list}})
    monkeypatch.setattr(Serving, "create_responses", lambda _: None)
    ask(Serving())
    (line,) = [record.message for record in caplog.records if record.name == plugin_module.logger.name]
    missing = (
        "OpenAIServingResponses.create_responses, OpenAIServingResponses._extract_prompt_len, "
        "vllm.entrypoints.openai.responses.serving.get_max_tokens, Parser.parse_delta, Parser.count_reasoning_tokens, "
        "Parser.is_reasoning_end, CompletionOutput.logprobs, CompletionOutput.finish_reason, CompletionOutput.stop_reason, "
        "vllm.tokenizers.protocol TokenizerLike"
    )
    assert line.endswith(f"in place: this build lacks {missing}.")


def test_the_log_names_what_the_handler_of_a_build_lacks(caplog):
    serving = Serving()
    serving.models = SimpleNamespace(base_model_paths=(), lora_requests={})
    del serving.default_sampling_params
    assert ask(serving).json() == {"from": "vllm"}
    (line,) = [record.message for record in caplog.records if record.name == plugin_module.logger.name]
    missing = "OpenAIServingResponses.default_sampling_params, OpenAIServingResponses.models.show_available_models"
    assert line.endswith(f"in place: this build lacks {missing}.")


def refuse_to_count(*, tool_called, request):
    raise AssertionError(tool_called, request)


@pytest.mark.parametrize(
    "module",
    [None, SimpleNamespace(), SimpleNamespace(record_tool_parser_invocation=refuse_to_count)],
    ids=["no module", "no name", "other"],
)
def test_a_response_is_not_counted_where_a_build_cannot(monkeypatch, module):
    monkeypatch.setitem(sys.modules, compat.PARSER_METRICS, module)
    compat.count_tool_parser(None, has_call=True, streamed=True)


def test_each_name_that_is_read_from_vllm_is_required_or_optional():
    """What is imported, and each private name; the protocols have the other names."""
    found, private = set(), set()
    for node in ast.walk(ast.parse(Path(compat.__file__).read_text("utf-8"))):
        match node:
            case ast.Attribute(ast.Call(ast.Name("import_module"), [ast.Name(module)]), name):
                found.add((getattr(compat, module), name))
            case ast.Attribute(ast.Call(ast.Name("router"), []), name):
                found.add((compat.ROUTER, name))
            case ast.Call(ast.Name("getattr" | "setattr"), [_, ast.Constant(name), *_]) | ast.Attribute(ast.Name(), name):
                private |= {name} if re.match("_[^_]", name) else set()
    names = {
        (module, name) for (module, owner), members in compat.REQUIRED.items() for name in ([owner] if owner else members)
    } | compat.READ.keys()
    assert found - names == set()
    assert private - {name for members in compat.REQUIRED.values() for name in members} == {"_stream_state"}  # on the page


def test_the_page_names_what_a_build_may_lack():
    page = (Path(__file__).parents[4] / "docs" / "guides" / "vllm.md").read_text("utf-8")
    named = re.findall(r"^\| `(\w+)\.(\w+)` \|", page.partition("\n## How it works\n")[2].partition("\n## ")[0], re.MULTILINE)
    optional = [(module.rpartition(".")[2], name) for module, name in compat.OPTIONAL]
    assert named[: len(optional)] == optional


@pytest.mark.parametrize("named", ["hy_v4", "hermes"])
def test_the_parser_hy_v4_reads_the_functions_of_responses(monkeypatch, named):
    module = SimpleNamespace(_tools_to_plain=lambda tools: [tool.function.name for tool in tools])
    monkeypatch.setitem(sys.modules, compat.HY_V4, module)
    for change in compat.accept_function_tools(named):
        change()
    chat, function = SimpleNamespace(function=SimpleNamespace(name="f")), SimpleNamespace(name="g")
    assert module._tools_to_plain([chat]) == ["f"]
    if named == "hy_v4":
        assert (module._tools_to_plain([chat, function]), module._tools_to_plain(None)) == (["f", "g"], [])


@pytest.mark.parametrize("module", [None, SimpleNamespace()])
def test_a_vllm_without_the_parser_hy_v4_is_left_alone(monkeypatch, module):
    monkeypatch.setitem(sys.modules, compat.HY_V4, module)
    assert compat.accept_function_tools("hy_v4") == []


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Return a function that starts the plugin with all that it may change in vLLM; it returns the names of what has changed."""
    hy_v4 = SimpleNamespace(_tools_to_plain=list)
    monkeypatch.setitem(sys.modules, compat.HY_V4, hy_v4)
    monkeypatch.setattr(uvicorn.config, "WS_PROTOCOLS", {**WS_PROTOCOLS, "auto": "uvicorn's own"})
    monkeypatch.setattr(bounded_protocol, "WS_PROTOCOLS", uvicorn.config.WS_PROTOCOLS)
    monkeypatch.setenv("INTERLOCK_STORE", f"sqlite:{tmp_path / 'store.db'}")
    monkeypatch.setenv("INTERLOCK_VIEW", "1")
    plugin, app, serving, engine = InterlockPlugin(), fake.application(), Serving(), fake.Engine()
    serving.enable_store = False
    app.state.openai_serving_responses = serving
    places = {
        "app": vars(app),
        "app.router": vars(app.router),
        "app.state": app.state._state,
        "engine_client": vars(engine),
        "hy_v4_tool_parser": vars(hy_v4),
        "openai_serving_responses": vars(serving),
        "uvicorn.config": vars(uvicorn.config),
    }

    def values():
        return {
            f"{place}.{name}": value.copy() if isinstance(value, dict | list) else value
            for place, names in places.items()
            for name, value in names.items()
        }

    def starting():
        before = values()
        plugin.attach_router(app)
        asyncio.run(plugin.init_state(engine, app.state, SimpleNamespace(tool_call_parser="hy_v4")))
        after = values()
        return {name for name in before | after if name not in before or before[name] != after[name]}

    return starting


def test_the_page_lists_all_that_the_plugin_changes_in_vllm(monkeypatch, start):
    monkeypatch.setenv("INTERLOCK_WEB_SEARCH", "searxng=http://127.0.0.1:1")
    page = (Path(__file__).parents[4] / "docs" / "guides" / "vllm.md").read_text("utf-8")
    table = page.partition("\n## What changes in vLLM\n")[2].partition("\n## ")[0]
    changed = start()
    assert changed == {*re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)}
    wrapped = {name for name in changed if name.startswith("engine_client.")}
    assert wrapped == {f"engine_client.{name}" for name in compat.REQUIRED[compat.CLIENT, "AsyncLLM"]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INTERLOCK_ALLOW_MCP_HOST", "http://["),
        ("INTERLOCK_CODE_INTERPRETER", "1"),
        ("INTERLOCK_KEYS", "secret!"),
        ("INTERLOCK_STORE", "nonsense:"),
        ("INTERLOCK_TOOL_TIMEOUT", "soon"),
        ("INTERLOCK_WEB_SEARCH", "brave"),
    ],
)
def test_a_wrong_value_leaves_vllm_as_it_was(monkeypatch, caplog, start, name, value):
    monkeypatch.setattr("interlock.serving.tools.code_interpreter.CodeInterpreter.require_start", refuse)
    monkeypatch.delenv("BRAVE_API_KEY", raising=False)
    monkeypatch.setenv(name, value)
    assert start() == set()
    (line,) = [record.message for record in caplog.records if record.name == plugin_module.logger.name]
    assert f"own /v1/responses in place: {name}: " in line


def refuse(*_, **__):
    raise ValueError("it is built otherwise")


@pytest.mark.parametrize("broken", ["_model_list", "compose", "mount", "parser_for", "_ending_shutdown", "RecentStreams"])
def test_an_unexpected_error_of_the_plugin_leaves_vllm_as_it_was(monkeypatch, caplog, start, broken):
    monkeypatch.setattr(plugin_module, broken, refuse)
    assert start() == set()
    (line,) = [record.message for record in caplog.records if record.name == plugin_module.logger.name]
    assert line.endswith("own /v1/responses in place: ValueError('it is built otherwise').")


@pytest.mark.parametrize(("value", "timeout"), [(None, 120.0), ("7.5", 7.5)])
def test_the_tool_timeout_can_be_set(monkeypatch, value, timeout):
    if value is not None:
        monkeypatch.setenv("INTERLOCK_TOOL_TIMEOUT", value)

    async def asking():
        async with client_of(Serving()) as client:
            return client.plugin.api.service.tools.seconds

    assert asyncio.run(asking()) == timeout


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("INTERLOCK_TOOL_TIMEOUT", "soon", "Expected `float`, got 'soon'"),
        ("INTERLOCK_DIALECT", "klingon", "Invalid enum value 'klingon'; choose one of openai, open_responses"),
        ("INTERLOCK_DIALECTS", "messages,odd", "Invalid enum value 'odd'; choose one of responses, messages, chat"),
        ("INTERLOCK_CACHE_SALT", "sea", "Invalid enum value 'sea'; choose one of none, tenant, key"),
        (
            "INTERLOCK_STORE",
            "nonsense:",
            "nonsense: names no store; a store is memory:, sqlite:PATH or postgresql://HOST/DATABASE.",
        ),
    ],
)
def test_an_invalid_setting_is_named_and_leaves_the_route_to_vllm(monkeypatch, caplog, name, value, message):
    monkeypatch.setenv(name, value)
    assert ask(Serving()).json() == {"from": "vllm"}
    (line,) = [record.message for record in caplog.records if record.name == plugin_module.logger.name]
    place = f"{name}[1]" if name == "INTERLOCK_DIALECTS" else name
    assert line.endswith(f"own /v1/responses in place: {place}: {message}.")
    monkeypatch.setenv("INTERLOCK_REQUIRED", "1")
    with pytest.raises(SystemExit, match=f"INTERLOCK_REQUIRED=1 requires it: {re.escape(place)}: "):
        ask(Serving())


@pytest.mark.parametrize(("parsers", "readers"), [("interlock", "its own parsers for hermes"), ("vllm", "vLLM's parsers")])
def test_vllms_parsers_can_be_required(monkeypatch, caplog, parsers, readers):
    monkeypatch.setenv("INTERLOCK_PARSERS", parsers)

    async def start():
        args = SimpleNamespace(tool_call_parser="hermes", enable_auto_tool_choice=True)
        async with client_of(Serving.parsed(fake.SimpleContext, []), args=args):
            pass

    with caplog.at_level(logging.INFO):
        asyncio.run(start())
    assert f"Interlock serves /v1/responses with {readers}." in caplog.messages


@pytest.mark.parametrize(("processes", "store", "warnings"), [(2, True, 1), (2, False, 0), (1, True, 0), (None, True, 0)])
def test_several_api_processes_with_vllms_store_cause_a_warning(caplog, processes, store, warnings):
    serving = Serving()
    serving.enable_store = store
    plugin, app = InterlockPlugin(), fake.application()
    plugin.attach_router(app)
    app.state.openai_serving_responses = serving
    asyncio.run(plugin.init_state(None, app.state, SimpleNamespace(api_server_count=processes)))
    warning = (
        "With 2 API processes, a stored response is available only in the process that made it, "
        "unless INTERLOCK_STORE names a shared store."
    )
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [warning] * warnings


@pytest.mark.parametrize(("view", "key", "status"), [("1", "", 200), ("1", "secret", 401), ("", "", 404)])
def test_the_viewer_is_optional_and_requires_vllms_key(monkeypatch, view, key, status):
    monkeypatch.setenv("INTERLOCK_VIEW", view)
    monkeypatch.setenv("VLLM_API_KEY", key)

    async def looking():
        async with client_of(Serving(fake.HarmonyContext, outputs(ANSWER))) as client:
            await client.post("/v1/responses", json={**BODY, "stream": True}, headers={"authorization": "Bearer secret"})
            return await client.get("/interlock/0/lines"), await client.get(
                "/interlock/0/lines", headers={"authorization": "Bearer secret"}
            )

    refused, page = asyncio.run(looking())
    assert refused.status_code == status
    if view:
        lines = [json.loads(line) for line in page.content.splitlines()]
        assert (lines[-1][0], lines[-1][1]["legal"]) == ("end", True)


def test_a_body_that_cannot_be_decompressed_never_reaches_vllm():
    async def asking(path="/v1/responses", **headers):
        async with client_of(Serving()) as client:
            answer = await client.post(path, content=b"?", headers={"content-type": "application/json", **headers})
            return answer.status_code, answer.json().get("error", {}).get("code")

    assert asyncio.run(asking(**{"content-encoding": "gzip"})) == (400, "invalid_body")
    assert asyncio.run(asking("/v1/responses/input_tokens", **{"content-encoding": "br"})) == (
        415,
        "unsupported_content_encoding",
    )
    assert asyncio.run(asking("/v1/elsewhere", **{"content-encoding": "gzip"})) == (404, None)


def test_warnings_of_the_package_are_in_vllms_log(monkeypatch):
    messages = []
    interlock, vllm, root = (logging.getLogger(name) for name in ("interlock", "vllm", None))
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    for logger, handlers, level in ((interlock, [], logging.NOTSET), (vllm, [handler], logging.INFO), (root, [], logging.ERROR)):
        monkeypatch.setattr(logger, "handlers", handlers)
        monkeypatch.setattr(logger, "propagate", logger is root)
        monkeypatch.setattr(logger, "level", level)
        logger.manager._clear_cache()
    try:
        ask(Serving(fake.HarmonyContext, outputs(ANSWER)))
        logging.getLogger("interlock.serving.tools.hosting").warning("It is late.")
    finally:
        monkeypatch.undo()
        interlock.setLevel(interlock.level)  # clears what loggers remember of levels
    assert messages.count("It is late.") == 1
