"""Upstreams from options, the environment and a TOML file; every error names the file, the key and what is wrong."""

import asyncio
import json
import logging
import os
import re
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import httpx
import pytest
from click.testing import CliRunner
from live.chunk_shapes import chunk
from live.upstream import CUT, STALL, Reply, ScriptedUpstream, failure, gateway, serve_upstream, stream
from prometheus_client import REGISTRY

from interlock.parsers import Tagged
from interlock.serving.cli.commands import app
from interlock.serving.cli.run_client import ServedModel, configure_claude, configure_codex
from interlock.serving.engines.upstream import upstreams
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.upstreams import upstream_of, upstreams_of
from interlock.serving.http import server
from interlock.serving.http.app import codex_model
from interlock.serving.requests.logs import JsonFormatter
from interlock.serving.settings import ModelFacts, SettingsError, UpstreamSettings, options, read_settings, variable

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "gateway"
PAGE = ROOT / "docs" / "guides" / "gateway.md"
GOOD = stream(chunk({"content": "Yes."}), chunk({}, "stop"))


def written(tmp_path, text):
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    return path


def upstreams_in(path):
    """The upstreams of a file."""
    return upstreams_of(read_settings({"config": path}, environment={}))


FULL = """
[serve]
port = 0
max_streams = 7

[[upstream]]
url = "http://a.example"
models = ["one"]
aliases = { "gpt-4o" = "one" }
fields = { max_completion_tokens = "max_tokens" }

[[upstream]]
url = "https://b.example/openai/"
key_variable = "B_KEY"
family = "qwen3_coder"
first_timeout = 5
retries = 0
pass_key = true
"""


def test_a_file_has_several_upstreams(tmp_path, monkeypatch):
    monkeypatch.setenv("B_KEY", "secret")
    first, second = upstreams_in(written(tmp_path, FULL))
    assert (first.url, first.settings.models, first.settings.aliases) == ("http://a.example/v1", ("one",), {"gpt-4o": "one"})
    assert first.settings.fields == {"max_completion_tokens": "max_tokens"}
    assert (second.url, second.key, second.settings.pass_key) == ("https://b.example/openai", "secret", True)
    assert (second.settings.first_timeout, second.settings.retries, second.family.tool_parser) == (5, 0, "qwen3_coder")
    assert "secret" not in repr(second)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x =", "not TOML: "),
        ("upstreams = []", "Object contains unknown field `upstreams`"),
        ("[[upstream]]\nurl = 7", "upstream[0].url: Expected `str`, got `int`"),
        (
            '[[upstream]]\nurl = "http://a"\nfirst_timout = 6',
            "upstream[0]: Object contains unknown field `first_timout`; choose one of url, api, models, aliases, family, key,",
        ),
        ("[[upstream]]\nmodels = []", "upstream[0]: Object missing required field `url`"),
        (
            '[[upstream]]\nurl = "http://a"\napi = "grpc"',
            "upstream[0].api: Invalid enum value 'grpc'",
        ),
        ('[[upstream]]\nurl = "a.example"', "upstream[0].url: 'a.example' is not an HTTP URL"),
        ('[[upstream]]\nurl = "http://a:65536"', "upstream[0].url: 'http://a:65536' is invalid: Port out of range 0-65535"),
        ('[[upstream]]\nurl = "http://[::1"', "upstream[0].url: 'http://[::1' is invalid: Invalid IPv6 URL"),
        ('[[upstream]]\nurl = "http://a"\nkey = "schl\u00fcssel"', "upstream[0].key: a key has only printable ASCII characters"),
        ('[[upstream]]\nurl = "http://a"\nkey = "key\\n"', "upstream[0].key: a key has only printable ASCII characters"),
        ('[[upstream]]\nurl = "http://u:p@a"', "upstream[0].url: a URL of an upstream has no user, query or fragment"),
        ('[[upstream]]\nurl = "http://a"\nfamily = "x"', "upstream[0].family: unknown family 'x'; choose one of qwen3_coder"),
        ('[[upstream]]\nurl = "http://a"\nfirst_timeout = 0', "upstream[0].first_timeout: Expected `float` > 0"),
        ('[[upstream]]\nurl = "http://a"\nkey_variable = "NO_SUCH"', "upstream[0].key_variable: the environment has no variable"),
        ('[[upstream]]\nurl = "http://a"\nkey = "k"\nkey_variable = "K"', "upstream[0].key_variable: give a 'key' or"),
        (
            '[[upstream]]\nurl = "http://a"\nmodels = ["m"]\n[[upstream]]\nurl = "http://b"\nmodels = ["m"]',
            "upstream[1]: upstream[0] has the model 'm' already",
        ),
    ],
)
def test_an_error_names_the_invalid_key_of_the_file(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        upstreams_in(path)
    assert str(caught.value).startswith(f"{path}: {message}")


class Served(Exception):  # noqa: N818 - not an error
    """Stops a command that begins to serve."""


@pytest.fixture
def command(monkeypatch):
    """Run `interlock serve` up to the point where it serves; returns its engine and its limit of streams, or its output."""

    def serve(application, listening, **_):
        listening.close()
        raise Served(application.api.service.engine, application.api.service.active_runs.limit)

    monkeypatch.setattr(server, "serve", serve)

    def run(*arguments, **environment):
        result = CliRunner().invoke(app, ["serve", "--port", "0", *map(str, arguments)], env=environment)
        return result.exception.args if isinstance(result.exception, Served) else result.output

    return run


def test_options_override_the_environment_which_overrides_the_file(command, tmp_path):
    path = written(tmp_path, '[serve]\nmax_streams = 3\nupstream_retries = 5\nupstream = "http://file"\n')
    engine, limit = command("--config", path)
    (upstream,) = engine.upstreams
    assert (upstream.url, upstream.settings.retries, limit) == ("http://file/v1", 5, 3)
    engine, _ = command("--config", path, INTERLOCK_UPSTREAM="http://environment", INTERLOCK_UPSTREAM_RETRIES="4")
    assert (engine.upstreams[0].url, engine.upstreams[0].settings.retries) == ("http://environment/v1", 4)
    flags = ["--config", path, "--upstream", "http://flag:1/x", "--upstream-retries", "1", "--max-streams", "9"]
    engine, limit = command(*flags, INTERLOCK_UPSTREAM="http://environment", INTERLOCK_UPSTREAM_RETRIES="4")
    assert (engine.upstreams[0].url, engine.upstreams[0].settings.retries, limit) == ("http://flag:1/x", 1, 9)


def test_the_options_configure_one_upstream(command):
    options = ["--upstream", "http://a", "--upstream-key", "k", "--pass-key", "--upstream-timeout", "5,2", "--family", "hermes"]
    engine, _ = command(*options, "--model", "m", "--model", "gpt-4o=m")
    (upstream,) = engine.upstreams
    assert (upstream.key, upstream.settings.pass_key, upstream.family.tool_parser) == ("k", True, "hermes")
    assert (upstream.settings.first_timeout, upstream.settings.between_timeout) == (5, 2)
    assert (upstream.settings.models, upstream.settings.aliases) == (("m",), {"gpt-4o": "m"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--upstream", "a"], "--upstream: 'a' is not an HTTP URL"),
        (["--upstream", "http://a", "--upstream-timeout", "x"], "--upstream-timeout[0]: Expected `float`, got `str`"),
        (["--upstream", "http://a", "--upstream-timeout", "-1"], "--upstream-timeout[0]: Expected `float` > 0"),
        (["--upstream", "http://a", "--upstream-key", "key "], "--upstream-key: a key has only printable ASCII characters"),
        (["--config", "/no/such.toml"], "--config: /no/such.toml: No such file or directory"),
    ],
)
def test_an_error_names_the_invalid_option(command, arguments, message):
    assert message in command(*arguments).replace("\n", "")


def test_an_error_names_the_unknown_option_in_the_file(command, tmp_path):
    path = written(tmp_path, "[serve]\nprot = 1\n")
    assert f"{path}: serve.prot: unknown option; choose one of allow_mcp_host, allowed_host," in command("--config", path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("view = 3", "serve.view: Expected `bool`, got `int`"),
        ("port = 1.5", "serve.port: Expected `int`, got `float`"),
        ("max_streams = true", "serve.max_streams: Expected `int | null`, got `bool`"),
        ("rate = nan", "serve.rate: Expected `float` >= 0.0"),
        ('script = "a"\nport = [1]', "serve.port: Expected `int`, got `array`"),
        ('model = "m"', "serve.model: Expected `array`, got 'm'"),
        ("store = {}", "serve.store: Expected `str | null`, got `object`"),
    ],
)
def test_an_error_names_the_option_with_an_invalid_value_in_the_file(tmp_path, line, message):
    path = written(tmp_path, f"[serve]\n{line}\n")
    result = CliRunner().invoke(app, ["serve", "--config", str(path)])
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_a_request_goes_to_the_upstream_that_has_its_model(serve):
    first, second = ScriptedUpstream([GOOD], ("one", "two")), ScriptedUpstream([GOOD], ("two", "three"))
    with serve_upstream(first) as url, serve_upstream(second) as other_url:
        upstreams = [UpstreamSettings(url=url), UpstreamSettings(url=other_url, models=["three"], aliases={"gpt-4o": "two"})]
        with serve(Gateway([upstream_of(each) for each in upstreams])) as gateway_url:
            assert httpx.get(f"{gateway_url}/ready").json() == {"status": "ready"}
            listed = [model["id"] for model in httpx.get(f"{gateway_url}/v1/models").json()["data"]]
            statuses = [ask(gateway_url, model).status_code for model in ("one", "two", "three", "gpt-4o", "four")]
            answer = ask(gateway_url, "four").json()["error"]
    assert (listed, statuses, answer["code"]) == (["three", "gpt-4o", "one", "two"], [200, 200, 200, 200, 404], "model_not_found")
    assert [body["model"] for body in first.bodies] == ["one", "two"]
    assert [body["model"] for body in second.bodies] == ["three", "two"]


def ask(url, model):
    return httpx.post(f"{url}/v1/responses", json={"model": model, "input": "Hi"})


def test_a_single_upstream_receives_names_that_it_does_not_list(serve):
    upstream = ScriptedUpstream([GOOD])
    with serve_upstream(upstream) as url, serve(Gateway([upstream_of(UpstreamSettings(url=url))])) as gateway_url:
        assert ask(gateway_url, "anything").status_code == 200
    assert upstream.bodies[0]["model"] == "anything"


CLIENT = """
import json, os, sys, urllib.request
url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
body = json.dumps({"model": "m", "input": "Hi"}).encode()
answer = json.load(urllib.request.urlopen(urllib.request.Request(f"{url}/responses", body, headers)))
print(answer["output"][0]["content"][0]["text"], *sys.argv[1:])
sys.exit(7)
"""


@pytest.fixture
def interlock_run(monkeypatch, capfd):
    """Runs `interlock run` in this process, with variables, and returns its status and its output."""

    def run(*arguments, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            with pytest.raises(SystemExit) as ended:
                app(["run", *map(str, arguments)], standalone_mode=False)
        finally:
            logging.disable(logging.NOTSET)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return ended.value.code, *capfd.readouterr()

    return run


def test_interlock_run_exits_with_the_status_of_its_client(interlock_run):
    with serve_upstream(ScriptedUpstream([GOOD])) as url:
        done = interlock_run("--upstream", url, "--", sys.executable, "-c", CLIENT, "--flag")
    assert done == (7, "Yes. --flag\n", "")


def test_interlock_run_ignores_the_serve_table_of_a_file(tmp_path, interlock_run):
    with serve_upstream(ScriptedUpstream([GOOD])) as url:
        path = written(tmp_path, f'[serve]\nport = 8080\nmodel = ["x"]\n\n[[upstream]]\nurl = "{url}"\n')
        done = interlock_run("--config", path, "--", sys.executable, "-c", CLIENT, "--flag")
    assert done == (7, "Yes. --flag\n", "")


CODEX = """
import json, sys
(path,) = (json.loads(text.partition("=")[2]) for text in sys.argv if text.startswith("model_catalog_json="))
print(json.dumps([sys.argv[1:], json.load(open(path))]))
"""


def test_codex_gets_its_configuration_as_arguments_and_its_catalogue_as_a_file(tmp_path, interlock_run):
    program = tmp_path / "codex"
    program.write_text(f"#!{sys.executable}\n{CODEX}")
    program.chmod(0o755)
    with serve_upstream(ScriptedUpstream([GOOD], ("tiny",))) as url:
        path = written(tmp_path, f'[[upstream]]\nurl = "{url}"\nfacts.tiny.window = 40000\nfacts.new.window = 50000\n')
        options = ["--config", path, "codex", "--model", "new", "--", "exec", "--json"]
        _, output, _ = interlock_run(*options, PATH=f"{tmp_path}:{os.environ['PATH']}")
    arguments, catalog = json.loads(output)
    values = dict(text.split("=", 1) for text in arguments if "=" in text)
    base_url, models = (json.loads(values[name]) for name in ("model_providers.interlock.base_url", "model_catalog_json"))
    served = ServedModel(base_url.removesuffix("/v1"), "", "new", 50_000, Path(models))
    assert arguments == [*configure_codex(served).arguments, "exec", "--json"]
    assert arguments[:4] == ["-c", 'model="new"', "-c", 'model_provider="interlock"']
    assert catalog == {
        "models": [codex_model("tiny", ModelFacts(window=40_000), 0), codex_model("new", ModelFacts(window=50_000), 1)]
    }
    assert not Path(models).exists()


CLAUDE = """
import json, os, sys, urllib.request
url, key = os.environ["ANTHROPIC_BASE_URL"], os.environ["ANTHROPIC_AUTH_TOKEN"]
headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
messages = [{"role": "user", "content": "Hi"}]
body = json.dumps({"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 9, "messages": messages}).encode()
answer = json.load(urllib.request.urlopen(urllib.request.Request(f"{url}/v1/messages", body, headers)))
variables = {name: text for name, text in os.environ.items() if name.startswith(("ANTHROPIC_", "CLAUDE_"))}
print(json.dumps([answer["content"], sys.argv[1:], variables]))
"""


@pytest.mark.parametrize(
    ("listed", "window"), [({}, None), ({"max_model_len": 40_000}, 40_000), ({"context_length": 256_000}, 256_000)]
)
def test_claude_code_gets_its_configuration_as_variables(tmp_path, interlock_run, listed, window):
    program = tmp_path / "claude"
    program.write_text(f"#!{sys.executable}\n{CLAUDE}")
    program.chmod(0o755)
    listing = Reply(
        (json.dumps({"data": [{"id": "other"}, {"id": "tiny", **listed}]}).encode(),),
        headers={"content-type": "application/json"},
    )
    inherited = {name: text for name, text in os.environ.items() if name.startswith(("ANTHROPIC_", "CLAUDE_"))}
    own = {**inherited, "ANTHROPIC_API_KEY": "the user's", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with serve_upstream(ScriptedUpstream([GOOD], listing=listing)) as url:
        _, output, error = interlock_run("--upstream", url, "claude", "--model", "tiny", "--", "-p", "Hi", **own)
    unknown = "the context window of 'tiny' is unknown, so the client guesses when to compact: name it in a --config FILE"
    assert error == ("" if window else f"interlock: {unknown}\n")
    content, arguments, variables = json.loads(output)
    served = ServedModel(variables["ANTHROPIC_BASE_URL"], variables["ANTHROPIC_AUTH_TOKEN"], "tiny", window)
    assert (content, arguments) == ([{"type": "text", "text": "Yes."}], ["-p", "Hi"])
    assert variables == {**inherited, **configure_claude(served).variables}
    assert variables["ANTHROPIC_API_KEY"] == ""


def test_the_context_window_of_a_model_limits_claude_code():
    assert configure_claude(ServedModel("u", "k", "m")).variables == {
        **dict.fromkeys(
            ("ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"), ""
        ),
        **dict.fromkeys(("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_FABLE_MODEL"), "m"),
        **dict.fromkeys(("ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"), "m"),
        "ANTHROPIC_BASE_URL": "u",
        "ANTHROPIC_AUTH_TOKEN": "k",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    small, large = (configure_claude(ServedModel("u", "k", "m", window)).variables for window in (40_000, 256_000))
    assert (small["CLAUDE_CODE_MAX_CONTEXT_TOKENS"], small["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]) == ("40000", "10000")
    assert (large["CLAUDE_CODE_MAX_CONTEXT_TOKENS"], large["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]) == ("256000", "32000")


class Proxy(BaseHTTPRequestHandler):
    """A proxy that answers for every server, and records each URL with its key."""

    requests: ClassVar[list[object]] = []

    def do_GET(self):
        self._send(b'{"data": [{"id": "m"}]}', "application/json")

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self._send(b"".join(GOOD.body), "text/event-stream")

    def _send(self, body, content_type):
        self.requests.append((self.path, self.headers.get("authorization")))
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.parametrize(("direct", "passed"), [("", "127.0.0.1"), ("a.example", "a.example,127.0.0.1")])
def test_only_requests_to_the_upstream_go_through_a_proxy(tmp_path, monkeypatch, interlock_run, direct, passed):
    program = tmp_path / "codex"
    monkeypatch.setattr(Proxy, "requests", [])
    program.write_text(f"#!{sys.executable}\n{CLIENT}".replace("*sys.argv[1:]", 'os.environ["no_proxy"]'))
    program.chmod(0o755)
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        Thread(target=proxy.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{proxy.server_port}"
        environment = {"http_proxy": address, "no_proxy": direct, "NO_PROXY": direct, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = interlock_run("--upstream", "http://a.test", "codex", **environment)
        proxy.shutdown()
    assert done[:2] == (7, f"Yes. {passed}\n")
    assert Proxy.requests == [(f"http://a.test/v1/{path}", None) for path in ("models", "models", "chat/completions")]


CLIENT_RUNS = ("--", sys.executable, "-c", "print('runs')")


def test_interlock_run_does_not_start_a_client_of_an_upstream_that_is_down(interlock_run):
    url = "http://127.0.0.1:1/v1"
    status, output, error = interlock_run("--upstream", url, *CLIENT_RUNS)
    assert (status, output) == (1, "")
    message = f"interlock: the upstream {url} does not list its models: The upstream server cannot be reached. ("
    assert error.startswith(message)
    assert "Connect call failed" in error


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api", "/v1/v1", "/v1/models"])
def test_interlock_run_names_the_url_that_would_work(interlock_run, path):
    class PickyUpstream(ScriptedUpstream):
        async def __call__(self, scope, receive, send):
            self.listing = None if scope["path"] == "/v1/models" else failure(404, "no")
            await super().__call__(scope, receive, send)

    with serve_upstream(PickyUpstream([])) as url:
        status, output, error = interlock_run("--upstream", f"{url}{path}", *CLIENT_RUNS)
    message = f"interlock: the upstream {url}{path} lists no models, but {url}/v1 does: its URL must be {url}/v1\n"
    assert (status, output, error) == (1, "", message)


def test_interlock_run_starts_the_client_with_a_warning_about_missing_models(interlock_run):
    with serve_upstream(ScriptedUpstream([GOOD])) as url:
        status, output, error = interlock_run("--upstream", url, "--model", "x", *CLIENT_RUNS)
    assert (status, output) == (0, "runs\n")
    assert error == "interlock: no upstream lists the model 'x'; known models: m\n"
    with serve_upstream(ScriptedUpstream([GOOD], models=())) as url:
        status, output, error = interlock_run("--upstream", url, *CLIENT_RUNS)
    assert (status, output, error) == (0, "runs\n", f"interlock: the upstream {url}/v1 lists no models\n")


def test_an_option_of_the_client_needs_two_hyphens_before_it():
    result = CliRunner().invoke(app, ["run", "claude", "--upstream", "http://a.test", "-p", "Hi"])
    assert result.exit_code == 2
    assert "if it is the client's, put -- before it: interlock run claude … -- -p …" in result.output


def test_interlock_run_reports_a_missing_command_or_upstream(interlock_run):
    missing = interlock_run("--upstream", "http://a.test", "no-such-command")
    assert missing == (127, "", "interlock: no-such-command: command not found\n")
    result = CliRunner().invoke(app, ["run", "codex"])
    assert "name a server: --upstream URL, or --config FILE" in result.output


def parameters(name):
    return app.get_command(None, name).params


def test_the_documentation_names_the_options_of_both_commands_and_their_variables():
    page = PAGE.read_text()
    serve, run = ({option for each in parameters(name) for option in each.opts} for name in ("serve", "run"))
    named = {*re.findall(r"`(--[a-z-]+)", page)}
    assert named <= serve
    assert {option for option in serve if option.startswith("--upstream")} <= named & run
    assert {*re.findall(r"INTERLOCK_\w+", page)} <= {variable(name) for name, option in options().items() if option.has_variable}


def test_the_documented_files_are_valid_configurations(tmp_path, monkeypatch):
    monkeypatch.setenv("MISTRAL_API_KEY", "k")
    texts = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [len(upstreams_in(written(tmp_path, text))) for text in texts] == [2, 1]


# The model lists of upstreams are fetched separately; one upstream that hangs or is down does not affect the others


PATIENCE = 20  # seconds, less than a hung upstream may take to list its models


def engine(*urls, **settings):
    return Gateway([upstream_of(UpstreamSettings(url=url, retries=0, **settings)) for url in urls])


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_hanging_upstream_does_not_delay_the_others(serve):
    async def all_at_once(url):
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, limits=httpx.Limits()) as client:
            asks = [client.post("/v1/responses", json={"model": "m", "input": "Hi"}) for _ in range(20)]
            return await asyncio.gather(*asks, *[client.get("/v1/models") for _ in range(10)], client.get("/ready"))

    with (
        socket.create_server(("127.0.0.1", 0), backlog=256) as silent,
        serve_upstream(ScriptedUpstream([GOOD])) as healthy,
        serve(engine(f"http://127.0.0.1:{silent.getsockname()[1]}", healthy)) as url,
    ):
        answers = asyncio.run(all_at_once(url))
    assert [answer.status_code for answer in answers] == [200] * 31
    assert [model["id"] for answer in answers[20:30] for model in answer.json()["data"]] == ["m"] * 10


def test_the_model_list_has_the_facts_of_upstreams_and_the_configuration_overrides_them(serve):
    models = [
        {"id": "a", "max_model_len": 4096},
        {"id": "b", "max_model_len": None, "context_window": 8192},
        {"id": "c", "context_length": -1},
        {
            "id": "d",
            "architecture": {"input_modalities": ["file", "image", "text"]},
            "supported_parameters": ["temperature", "tools"],
        },
        {"id": "e", "meta": {"n_ctx": 2048, "n_ctx_train": 4096}},
    ]
    listing = Reply((json.dumps({"data": models}).encode(),), headers={"content-type": "application/json"})
    with (
        serve_upstream(ScriptedUpstream([GOOD], listing=listing)) as url,
        serve(engine(url, aliases={"large": "b"}, facts={"b": ModelFacts(window=9000, efforts=["high"])})) as gateway_url,
    ):
        answer = httpx.get(f"{gateway_url}/v1/models").json()
        one = httpx.get(f"{gateway_url}/v1/models/large").json()
    windows = {model["id"]: model.get("max_model_len") for model in answer["data"]}
    assert windows == {"a": 4096, "b": 9000, "c": None, "d": None, "e": 2048, "large": 9000}
    assert one["max_model_len"] == 9000
    b = ModelFacts(window=9000, efforts=["high"])
    facts = {
        "a": ModelFacts(window=4096),
        "b": b,
        "c": ModelFacts(),
        "d": ModelFacts(efforts=[], modalities=["text", "image"]),
        "e": ModelFacts(window=2048),
        "large": b,
    }
    assert answer["models"] == [codex_model(name, facts[name], index) for index, name in enumerate(facts)]


def test_the_models_of_an_upstream_that_is_down_are_503_until_it_returns(serve, monkeypatch):
    monkeypatch.setattr(upstreams, "FRESH", 0)
    monkeypatch.setattr(upstreams, "LIST_SECONDS", 0.05)
    first, second = ScriptedUpstream([GOOD], ("one",)), ScriptedUpstream([GOOD], ("two",))
    with serve_upstream(first) as url, serve_upstream(second) as other_url, serve(engine(url, other_url)) as gateway_url:
        assert ask(gateway_url, "one").status_code == 200
        first.listing = failure(500, {"error": {"message": "Out of order."}})
        until(lambda: ask(gateway_url, "one").status_code == 503)
        answer = ask(gateway_url, "one")
        assert answer.json()["error"]["message"] == "The model 'one' is not available."
        assert answer.headers["retry-after"] == "1"
        assert [ask(gateway_url, name).status_code for name in ("two", "three")] == [200, 404]
        assert {model["id"] for model in httpx.get(f"{gateway_url}/v1/models").json()["data"]} == {"one", "two"}
        assert httpx.get(f"{gateway_url}/ready").status_code == 200
        first.listing = None
        until(lambda: ask(gateway_url, "one").status_code == 200)  # without a request for it first


def test_the_request_after_a_failed_connection_goes_to_another_upstream(serve):
    first, second = ScriptedUpstream([GOOD], ("one",)), ScriptedUpstream([GOOD], ("one",))
    with ExitStack() as stack:
        with serve_upstream(first) as url:
            both = engine(url, stack.enter_context(serve_upstream(second)))
            gateway_url = stack.enter_context(serve(both))
            assert ask(gateway_url, "one").status_code == 200
        assert [ask(gateway_url, "one").status_code for _ in range(2)] == [502, 200]


def test_requests_after_many_failed_connections_go_to_another_upstream(serve):
    first, second = ScriptedUpstream([GOOD], ("one",)), ScriptedUpstream([GOOD], ("one",))
    with ExitStack() as stack, ThreadPoolExecutor(20) as pool:
        with serve_upstream(first) as url:
            both = engine(url, stack.enter_context(serve_upstream(second)))
            gateway_url = stack.enter_context(serve(both))
            assert ask(gateway_url, "one").status_code == 200
        at_once = [pool.submit(ask, gateway_url, "one") for _ in range(20)]
        assert {each.result().status_code for each in at_once} <= {502, 200}
        assert [ask(gateway_url, "one").status_code for _ in range(3)] == [200, 200, 200]


def test_a_new_model_is_found_at_once(serve, monkeypatch):
    monkeypatch.setattr(upstreams, "FRESH", 0)
    first, second = ScriptedUpstream([GOOD], ("one",)), ScriptedUpstream([GOOD], ("two",))
    with serve_upstream(first) as url, serve_upstream(second) as other_url, serve(engine(url, other_url)) as gateway_url:
        assert ask(gateway_url, "one").status_code == 200
        second.models = ("two", "three")
        assert ask(gateway_url, "three").status_code == 200


LEAK = "Incorrect API key provided: sk-AB***yz, of the organization acme."


@pytest.mark.parametrize(
    ("listing", "code"),
    [
        (
            failure(401, {"error": {"message": LEAK, "type": "invalid_request_error", "code": "invalid_api_key"}}),
            "upstream_unauthorized",
        ),
        (failure(403, {"error": {"message": LEAK, "code": "origin_not_allowed"}}), "upstream_error"),
        (failure(429, {"error": {"message": LEAK, "code": "rate_limit_exceeded"}}, retry_after="9"), "upstream_error"),
        (failure(500, {"error": {"message": LEAK, "code": "server_error"}}), "upstream_error"),
        (failure(503, LEAK), "upstream_error"),
        (failure(200, LEAK), "upstream_error"),
        (failure(302, LEAK, location="http://127.0.0.1/acme"), "upstream_redirect"),
        (failure(200, LEAK, content_encoding="acme"), "upstream_error"),
        (Reply((LEAK.encode(), CUT)), "upstream_disconnected"),
        (Reply((STALL,)), "upstream_timeout"),
    ],
)
def test_a_model_that_a_missing_list_may_have_is_503_with_the_code_of_the_fault_and_no_text_of_the_upstream(serve, listing, code):
    faulty = ScriptedUpstream([GOOD], listing=listing)
    with serve_upstream(ScriptedUpstream([GOOD])) as url, serve_upstream(faulty) as faulty_url:
        both = Gateway([upstream_of(UpstreamSettings(url=each, retries=0, first_timeout=1)) for each in (url, faulty_url)])
        with serve(both) as gateway_url:
            answers = [ask(gateway_url, name) for name in ("m", "gone")]
    error = {"message": "The model 'gone' is not available.", "type": "server_error", "param": None, "code": code}
    assert [answer.status_code for answer in answers] == [200, 503]
    assert (answers[1].json(), answers[1].headers["retry-after"]) == ({"error": error}, "1")


def faults_of(*urls):
    names = [{"server_address": "127.0.0.1", "server_port": url.rpartition(":")[2]} for url in urls]
    return [REGISTRY.get_sample_value("interlock_upstream_faults", each) for each in names]


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_metric_counts_the_processes_to_which_an_upstream_does_not_list_its_models_until_it_does(serve, monkeypatch, status):
    monkeypatch.setattr(upstreams, "FRESH", 0.01)
    monkeypatch.setattr(upstreams, "LIST_SECONDS", 0.01)
    refused = failure(status, {"error": {"message": LEAK}})
    first, second = ScriptedUpstream([GOOD], listing=refused), ScriptedUpstream([GOOD])
    with serve_upstream(first) as url, serve_upstream(second) as other:
        with serve(engine(url, other)) as gateway_url:
            httpx.get(f"{gateway_url}/v1/models")
            assert faults_of(url, other) == [1, 0]
            first.listing = None
            until(lambda: faults_of(url, other) == [0, 0])  # without a request first
            second.listing = refused
            until(lambda: httpx.get(f"{gateway_url}/ready").status_code == 200 and faults_of(url, other) == [0, 1])
        assert faults_of(url, other) == [0, 0]


@pytest.mark.parametrize(
    ("status", "settings", "faults"),
    [
        (401, {"models": ["m"]}, 0),
        (429, {"models": ["m"]}, 0),
        (500, {"models": ["m"]}, 1),
        (401, {"aliases": {"fast": "m"}}, 1),
        (401, {"pass_key": True}, 0),
        (429, {"pass_key": True}, 1),
        (404, {}, 0),
    ],
)
def test_a_refused_list_counts_unless_the_gateway_can_do_without_it(serve, caplog, status, settings, faults):
    upstream = ScriptedUpstream([GOOD], listing=failure(status, {"error": {"message": LEAK}}))
    with serve_upstream(upstream) as url, serve(engine(url, **settings)) as gateway_url:
        httpx.get(f"{gateway_url}/ready")
        assert faults_of(url) == [faults]
    messages = [record.getMessage().partition("/v1 ")[2] for record in caplog.records if "upstream" in record.name]
    assert messages == [f"does not list its models: failed with status {status}: {LEAK}"] * faults


@pytest.mark.parametrize("count", [1, 2])
def test_a_failed_connection_counts_as_a_fault_of_the_upstream_even_if_its_list_was_never_needed(serve, count):
    with serve(engine(*["http://127.0.0.1:1"] * count, aliases={"one": "m"})) as gateway_url:
        assert ask(gateway_url, "one").status_code == 502
        until(lambda: faults_of("http://127.0.0.1:1") == [1])


@pytest.mark.parametrize("count", [1, 2])
def test_the_first_responses_count_for_their_model_although_the_list_came_during_one(serve, count):
    labels = {"status": "completed", "reason": "", "model": f"first of {count}"}
    first, second = ScriptedUpstream([GOOD], models=(labels["model"],)), ScriptedUpstream([GOOD])
    with serve_upstream(first) as url, serve_upstream(second) as other, serve(engine(*[url, other][:count])) as gateway_url:
        assert [ask(gateway_url, labels["model"]).status_code for _ in range(2)] == [200, 200]
        until(lambda: REGISTRY.get_sample_value("interlock_responses_total", labels) in (1, 2))


def test_the_line_of_a_request_for_a_model_without_its_upstream_names_both(serve, caplog):
    caplog.set_level("DEBUG", "interlock.serving.http.answers")
    caplog.handler.setFormatter(JsonFormatter())
    with serve_upstream(ScriptedUpstream([GOOD])) as url, serve(engine(url, "http://127.0.0.1:1")) as gateway_url:
        assert ask(gateway_url, "gone").status_code == 503
    lines = map(json.loads, caplog.handler.stream.getvalue().splitlines())
    (line,) = [line for line in lines if line["logger"] == "interlock.serving.http.answers"]
    assert (line["model"], line["upstream"]) == ("gone", "http://127.0.0.1:1/v1")


def test_a_gateway_whose_upstreams_are_all_down_is_not_ready_for_a_reason_without_text_of_an_upstream(serve):
    failing = ScriptedUpstream([GOOD], listing=failure(500, {"error": LEAK}))
    with serve_upstream(failing) as broken, serve(engine(broken, "http://127.0.0.1:1")) as url:
        until(lambda: httpx.get(f"{url}/ready").status_code == 503)
        answer = httpx.get(f"{url}/ready")
    message = "No upstream server lists its models."
    error = {"message": message, "type": "server_error", "param": None, "code": "upstream_error"}
    assert (answer.status_code, answer.json()) == (503, {"error": error})


def test_an_upstream_that_is_down_is_logged_once_and_once_when_it_returns(monkeypatch, caplog):
    monkeypatch.setattr(upstreams, "LIST_SECONDS", 0.01)
    with gateway(GOOD, listing=failure(500, {"error": "Out of order."})) as (url, upstream):
        assert httpx.get(f"{url}/ready").status_code == 503
        until(lambda: len(upstream.requests) > 5)
        upstream.listing = None
        until(lambda: httpx.get(f"{url}/ready").status_code == 200)
    messages = [record.getMessage().partition("/v1 ")[2] for record in caplog.records if "upstream" in record.name]
    assert messages == ["does not list its models: failed with status 500: Out of order.", "answers again"]


def test_a_model_of_the_settings_that_the_upstream_no_longer_lists_is_logged_once_for_each_change(monkeypatch, caplog):
    monkeypatch.setattr(upstreams, "FRESH", 0)

    def names(url, *expected):
        until(lambda: [model["id"] for model in httpx.get(f"{url}/v1/models").json()["data"]] == [*expected, "fast"])

    with gateway(GOOD, models=("small",), aliases={"fast": "small"}) as (url, upstream):
        names(url, "small")
        upstream.models = ("large",)
        names(url, "large")
        upstream.models = ("large", "huge")
        names(url, "large", "huge")
        upstream.models = ("small",)
        names(url, "small")
        upstream.models = ("large",)
        names(url, "large")
    messages = [record.getMessage().partition("/v1 ")[2] for record in caplog.records if "upstream" in record.name]
    assert messages == ["does not list small, which the settings name"] * 2


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ((), None),
        (("a", "b:latest", "c"), None),
        (("a", "b", "c"), None),
        (("a",), "does not list b, c, which the settings name"),
    ],
)
def test_a_report_names_the_models_of_the_settings_that_the_upstream_does_not_list(listed, said):
    with serve_upstream(ScriptedUpstream([GOOD], listed)) as url:
        upstream = upstream_of(UpstreamSettings(url=url, models=("a", "b"), aliases={"x": "b", "y": "c"}))
        (report,) = asyncio.run(upstreams.survey([upstream]))
    assert (report.fault, report.is_lost) == (said, False)


@pytest.mark.parametrize(
    ("settings", "count", "said"),
    [
        ({}, 1, None),
        ({}, 2, upstreams.LISTS_FOR_KEYS),
        ({"models": ["m"]}, 2, None),
        ({"aliases": {"fast": "m"}}, 2, None),
    ],
)
def test_a_report_says_that_one_of_several_upstreams_lists_its_models_only_for_clients_keys(settings, count, said):
    with serve_upstream(ScriptedUpstream([GOOD], listing=failure(401, LEAK))) as url:
        upstream = upstream_of(UpstreamSettings(url=url, pass_key=True, **settings))
        reports = asyncio.run(upstreams.survey([upstream] * count))
    assert [(each.fault, each.is_lost) for each in reports] == [(said, False)] * count


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"data": [{"id": "a"}, {"name": "b"}, {"id": null}, {"id": 7}, {"id": ""}, 5, {"id": "c"}]}', ["a", "c"]),
        (b'[{"id": "a"}, {"id": "b"}]', ["a", "b"]),
        (b'{"data": {}}', []),
        (b"7", []),
    ],
)
def test_a_model_without_an_id_is_left_out(body, names):
    with gateway(GOOD, listing=Reply((body,), 200, {"content-type": "application/json"})) as (url, _):
        assert [model["id"] for model in httpx.get(f"{url}/v1/models").json()["data"]] == names


@pytest.mark.parametrize(
    ("name", "tagged"),
    [
        ("qwen3_coder", Tagged("qwen3_coder", "qwen3")),
        ("qwen3_coder/none", Tagged("qwen3_coder")),
        ("hermes/deepseek_r1", Tagged("hermes", "deepseek_r1")),
        ("deepseek_r1", Tagged(None, "deepseek_r1")),
    ],
)
def test_a_family_may_name_its_reasoning_format_or_none(name, tagged):
    assert upstream_of(UpstreamSettings(url="http://a", family=name)).family == tagged


@pytest.mark.parametrize("name", ["qwen3_coder/", "qwen3_coder/esperanto", "esperanto/none", "/none"])
def test_an_incomplete_or_unknown_family_is_refused(name):
    with pytest.raises(SettingsError, match=f"unknown family '{name}'"):
        upstream_of(UpstreamSettings(url="http://a", family=name))
