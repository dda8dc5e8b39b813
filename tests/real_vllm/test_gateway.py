"""The gateway in front of vLLM without the plugin, with each API: tokens, Chat Completions, and vLLM's own Responses API."""

import json
from contextlib import contextmanager
from functools import partial

import httpx
import pytest
from playing import CHANCE, at_once, body, check, ended, is_aborted, judged, metric, stream, summary
from servers import FAMILIES
from turns import HARMONY, PARSED, THINK, Turn, family_turns

from interlock.serving.build import build
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings, UpstreamSettings
from interlock.serving.tools.hosting import ToolServers

TOKENS = pytest.mark.parametrize("server", ["stock-harmony"], indirect=True)
ENDLESS = Turn("endless", [f"{THINK}On and on"])


@contextmanager
def gateway(server, api, family=None):
    """Serve a gateway in front of a server, and yield its URL."""
    hosted = {name: f"http://127.0.0.1:{tool.port}/sse" for name, tool in server._tools.items()}
    servers = {"code_interpreter": hosted["python"], "web_search": hosted["browser"]} if hosted else {}
    upstream = upstream_of(UpstreamSettings(url=server.url, api=api, family=family, aliases={"mine": "tiny"}))
    with ServerThread(build(Settings(), Gateway([upstream], dict.fromkeys(servers, "")), tools=ToolServers(servers))) as url:
        yield url


ESTIMATED = {*CHANCE, "output_tokens_details"}
"""Fields that also differ if a marker of reasoning is several tokens: reasoning tokens are then estimated from vLLM's chunks."""


@TOKENS
def test_every_turn_of_gpt_oss_is_read_from_its_tokens(server):
    with gateway(server, "vllm") as url:
        at_once(HARMONY, partial(check, url, "gpt_oss"))


@TOKENS
def test_log_probabilities_spell_the_text(server):
    turn = Turn("scored", ["<|channel|>final<|message|>Grüße, 世界! 👩‍👩‍👧<|return|>"])
    wanted = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    with gateway(server, "vllm") as url:
        (message,) = ended(stream(url, body("gpt_oss", turn, **wanted)))["output"]
    (part,) = message["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in part["logprobs"]).decode() == part["text"] == "Grüße, 世界! 👩‍👩‍👧"
    assert {len(entry["top_logprobs"]) for entry in part["logprobs"]} == {2}


@TOKENS
def test_a_turn_continues_the_exact_tokens_of_the_last_one(server):
    run = Turn(
        "run", ["<|channel|>analysis to=python code<|message|>print( 6*7 )<|call|>", "<|channel|>final<|message|>42.<|return|>"]
    )
    before = metric(server.url, "vllm:prompt_tokens_total")
    with gateway(server, "vllm") as url:
        response = ended(stream(url, body("gpt_oss", run, tools=[{"type": "code_interpreter", "container": {"type": "auto"}}])))
    assert summary(response) == ["code_interpreter_call", "message"]
    assert metric(server.url, "vllm:prompt_tokens_total") - before == response["usage"]["input_tokens"]


@TOKENS
def test_a_prompt_that_is_too_long_is_refused_without_a_generation(server):
    before = metric(server.url, "vllm:prompt_tokens_total")
    with gateway(server, "vllm") as url:
        request = {"model": "tiny", "input": "word " * 20_000}
        answer = httpx.post(f"{url}/v1/responses", json=request, timeout=60)
        counted = httpx.post(f"{url}/v1/responses/input_tokens", json={**request, "input": "Hi."}, timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert metric(server.url, "vllm:prompt_tokens_total") == before
    assert 30 < counted.json()["input_tokens"] < 100


@TOKENS
def test_a_disconnect_aborts_the_generation(server):
    request = {**body("gpt_oss", ENDLESS), "stream": True}
    with gateway(server, "vllm") as url:

        def leave():
            with httpx.stream("POST", f"{url}/v1/responses", json=request, timeout=60) as answer:
                next(line for line in answer.iter_lines() if "delta" in line)

        assert is_aborted(server, leave)


@TOKENS
def test_an_alias_selects_the_model_of_the_upstream(server):
    turn = Turn("an answer", ["<|channel|>final<|message|>Hello.<|return|>"])
    with gateway(server, "vllm") as url:
        assert {model["id"] for model in httpx.get(f"{url}/v1/models", timeout=60).json()["data"]} == {"tiny", "mine"}
        response = ended(stream(url, {**body("gpt_oss", turn), "model": "mine"}))
    assert (response["model"], summary(response)) == ("mine", ["message"])


@TOKENS
def test_every_stream_of_vllms_responses_api_becomes_legal(server):
    with gateway(server, "responses") as url:
        at_once(HARMONY, lambda turn: judged(stream(url, body("gpt_oss", turn))))


@pytest.mark.long
@pytest.mark.parametrize("server", ["stock-families"], indirect=True)
@pytest.mark.parametrize(("name", "reasoning"), FAMILIES.items())
def test_every_turn_of_a_family_is_read_from_its_tokens(server, name, reasoning):
    with gateway(server, "vllm", name) as url:
        at_once(family_turns(name, reasoning), partial(check, url, "families", chance=ESTIMATED))


@pytest.mark.long
@pytest.mark.parametrize("server", ["stock-families"], indirect=True)
def test_structured_output_of_a_family_has_log_probabilities(server):
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    request = body(
        "families",
        Turn("", ['{"city": "Rome"}<|im_end|>']),
        text={"format": {"type": "json_schema", "name": "place", "schema": schema}},
        include=["message.output_text.logprobs"],
    )
    with gateway(server, "vllm", "hermes") as url:
        response = ended(stream(url, request))
    (message,) = response["output"]
    (part,) = message["content"]
    assert json.loads(part["text"]) == {"city": "Rome"}
    assert part["logprobs"]


PARSED_SERVER = pytest.mark.parametrize("server", ["stock-parsed"], indirect=True)


@PARSED_SERVER
def test_tokens_are_read_from_a_server_with_its_own_parsers(server):
    with gateway(server, "vllm", "hermes") as url:
        at_once([turn for turn in PARSED if turn.status != "failed"], partial(check, url, "qwen3"))


@PARSED_SERVER
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_every_turn_that_vllms_parsers_read_becomes_a_legal_stream(server, api):
    with gateway(server, api) as url:
        at_once(PARSED, lambda turn: judged(stream(url, body("qwen3", turn))))
