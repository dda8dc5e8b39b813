"""The banner and the warnings of `interlock serve` at its start, and its launch of vLLM."""

import asyncio
import json
import os
import re
import shutil
import sys
from contextlib import ExitStack

import httpx
import pytest
from live.command import serve_command
from live.ports import free_port
from live.upstream import Reply, ScriptedUpstream, failure, serve_upstream

from interlock.serving.cli import main as cli
from interlock.serving.cli.main import launch_vllm, plugins, vllm_arguments
from interlock.serving.engines.upstream.upstreams import _other_urls


def warnings(lines):
    """The warnings after the banner."""
    return [line.partition(".serve: ")[2] for line in lines if " WARNING " in line]


class Cautious(ScriptedUpstream):
    """Lists no models before the gateway at a port has answered a probe."""

    port = 0
    answer = b""

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and not self.answer:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            self.answer = await reader.readline()
            writer.close()
        await super().__call__(scope, receive, send)


def test_a_gateway_answers_before_its_upstream_has_listed_its_models() -> None:
    upstream = Cautious([])
    upstream.port = free_port()
    with serve_upstream(upstream) as url, serve_command("--upstream", url, "--port", upstream.port) as command:
        assert httpx.get(f"{command.url}/v1/models", timeout=60).json()["data"][0]["id"] == "m"
    assert upstream.answer == b"HTTP/1.1 200 OK\r\n"


def test_the_banner_describes_an_engine() -> None:
    with serve_command("--model", "a", "--model", "b", "--api-key", "k", "--code-interpreter") as command:
        pass
    details = ["  engine: embedded", "  store: memory:", "  tools: code_interpreter", "  API keys: 1"]
    assert command.lines == [f"Serving a, b at {command.url}/v1", *details]


def test_the_banner_of_a_script_can_be_json() -> None:
    script = "examples/recordings/text.jsonl"
    with serve_command("--script", script, "--log-format", "json") as command:
        pass
    (line,) = map(json.loads, command.lines)
    details = f"engine: script {script}; store: memory:; API keys: none"
    assert line.pop("time")
    message = f"Serving interlock-script at {command.url}/v1; {details}"
    assert line == {"level": "info", "logger": "interlock.serving.cli.serve", "message": message}


def test_the_banner_of_a_gateway_warns_of_its_upstreams_by_name(tmp_path) -> None:
    names = tuple("abcdefg")
    upstreams = [
        ScriptedUpstream([], names),
        ScriptedUpstream([], ()),
        ScriptedUpstream([], listing=failure(404, {"error": {"message": "no"}})),
        ScriptedUpstream([], listing=failure(401, {"error": {"message": "no key"}})),
        ScriptedUpstream([], listing=Reply((b"<html>",), 200, {"content-type": "text/html"})),
    ]
    with ExitStack() as stack:
        urls = [*(stack.enter_context(serve_upstream(each)) for each in upstreams), "http://127.0.0.1:1"]
        config = tmp_path / "gateway.toml"
        config.write_text("".join(f'[[upstream]]\nurl = "{url}"\n' for url in urls) + 'aliases = { gpt = "x" }\n')
        with serve_command("--config", config, "--store", "memory:?ttl=1h") as command:
            pass
    listed = [f"  upstream: {url}/v1 (chat): no models" for url in urls]
    listed[0] = f"  upstream: {urls[0]}/v1 (chat): a, b, c, d, e and 2 more"
    listed[-1] = f"  upstream: {urls[-1]}/v1 (chat): gpt"
    first = f"Serving a, b, c, d, e and 3 more at {command.url}/v1"
    details = ["  store: memory:", "  tools: none", "  API keys: none"]
    assert command.lines[: len(listed) + 4] == [first, *listed, *details]
    *others, unreachable = warnings(command.lines)
    assert others == [
        f"the upstream {urls[1]}/v1 lists no models",
        f"the upstream {urls[2]}/v1 lists no models",
        f"the upstream {urls[3]}/v1 does not list its models: failed with status 401: no key",
        f"the upstream {urls[4]}/v1 does not list its models: The upstream server did not answer with JSON.",
    ]
    reached = f"the upstream {urls[5]}/v1 does not list its models: The upstream server cannot be reached. ("
    assert unreachable.startswith(reached)


@pytest.mark.parametrize("path", ["/v1/v1", "/v1/chat/completions", "/api"])
def test_a_warning_about_a_wrong_upstream_path_has_the_right_one(path) -> None:
    right = "/api/v1" if path == "/api" else "/v1"

    class PickyUpstream(ScriptedUpstream):
        async def __call__(self, scope, receive, send):
            self.listing = None if scope["path"] == f"{right}/models" else failure(404, "no")
            await super().__call__(scope, receive, send)

    with serve_upstream(PickyUpstream([])) as url, serve_command("--upstream", url + path) as command:
        pass
    assert warnings(command.lines) == [
        f"the upstream {url}{path} lists no models, but {url}{right} does: its URL must be {url}{right}"
    ]


def test_passed_keys_cause_no_warning_about_a_missing_key() -> None:
    upstream = ScriptedUpstream([], listing=failure(401, {"error": {"message": "no key"}}))
    with serve_upstream(upstream) as url, serve_command("--host", "0.0.0.0", "--upstream", url, "--pass-key") as command:  # noqa: S104
        pass
    assert command.lines[-1] == "  API keys: those of the upstreams"


def test_a_server_on_all_addresses_warns_about_a_missing_key() -> None:
    with serve_command("--host", "0.0.0.0") as command:  # noqa: S104 - the warning is about this address
        pass
    advice = "other machines can use the server without a key; add --api-key, or listen on 127.0.0.1"
    assert warnings(command.lines) == [f"--host 0.0.0.0: {advice}"]


def test_the_password_of_a_store_is_not_shown() -> None:
    with serve_command("--store", "postgresql://user:secret@127.0.0.1:1/data?ttl=1d") as command:
        pass
    assert "  store: postgresql://…@127.0.0.1:1/data" in command.lines
    assert not re.search("secret", "\n".join(command.lines))


def test_candidates_for_the_url_of_an_upstream_correct_its_path() -> None:
    assert [*_other_urls("http://a/v1")] == ["http://a"]
    assert [*_other_urls("http://a/x/v1/v1/responses")] == [
        "http://a/x/v1/v1",
        "http://a/x/v1",
        "http://a/x",
        "http://a/v1",
    ]


# `interlock serve --engine vllm` is `vllm serve` with the plugin


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ([], None),
        (["check", "--engine", "vllm"], None),
        (["serve"], None),
        (["serve", "--engine", "embedded"], None),
        (["serve", "--engine", "vllm", "m", "--port", "1"], ["m", "--port", "1"]),
        (["serve", "m", "--engine=vllm", "--port", "1"], ["m", "--port", "1"]),
        (["serve", "m", "--port", "1", "--engine", "vllm"], ["m", "--port", "1"]),
    ],
)
def test_vllms_arguments_are_passed_on(arguments, passed):
    assert vllm_arguments(arguments) == passed


@pytest.mark.parametrize(
    ("named", "value"), [(None, "interlock"), ("", "interlock"), ("a,b", "a,b,interlock"), ("interlock,a", "interlock,a")]
)
def test_interlock_is_loaded_beside_other_plugins(named, value):
    assert plugins({} if named is None else {"VLLM_PLUGINS": named}) == value


@pytest.mark.parametrize("is_beside_python", [True, False])
def test_the_process_is_replaced_by_vllm(monkeypatch, tmp_path, is_beside_python):
    program = tmp_path / "vllm"
    if is_beside_python:
        program.touch()
    called = []
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "argv", ["interlock", "serve", "--engine", "vllm", "m"])
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/vllm")
    monkeypatch.setattr(os, "execve", lambda *arguments: called.append(arguments) or sys.exit())
    with pytest.raises(SystemExit):
        cli.main()
    ((path, command, environment),) = called
    expected = str(program) if is_beside_python else "/usr/bin/vllm"
    assert (path, command, environment["VLLM_PLUGINS"]) == (expected, [expected, "serve", "m"], "interlock")


def test_without_vllm_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match=r"vLLM is not installed; in a checkout of Interlock: pip install '\.\[vllm\]'"):
        launch_vllm([])


def test_a_random_sealing_key_is_warned_about_only_with_a_persistent_store(tmp_path) -> None:
    with serve_command() as alone:
        pass
    with serve_command("--store", f"sqlite:{tmp_path / 'store.db'}") as shared:
        pass
    assert [line for line in alone.lines if " WARNING " in line] == []
    (warning,) = warnings(shared.lines)
    assert re.fullmatch(r"INTERLOCK_KEYS is not set: .* after a restart, or by another server\.", warning)
