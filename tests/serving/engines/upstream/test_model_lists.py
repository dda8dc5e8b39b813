"""The model lists of upstreams: each is fetched by itself, and one that hangs or is down takes nothing from the others."""

import asyncio
import json
import socket
import time

import httpx
import pytest
from live.chunk_shapes import chunk
from live.upstream import Reply, ScriptedUpstream, failure, gateway, serve_upstream, stream

from interlock.serving.engines.upstream import model_list
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.gateway_config import upstream_of
from interlock.serving.http.codex_models import codex_model
from interlock.serving.settings import ModelFacts, UpstreamSettings

GOOD = stream(chunk({"content": "Yes."}), chunk({}, "stop"))
PATIENCE = 20  # seconds, less than a hung upstream may take to list its models


def engine(*urls, **settings):
    return Gateway([upstream_of(UpstreamSettings(url=url, retries=0, **settings)) for url in urls])


def ask(url, model):
    return httpx.post(f"{url}/v1/responses", json={"model": model, "input": "Hi"}, timeout=60)


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_upstream_that_hangs_stalls_no_other(serve):
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


def test_the_list_has_what_upstreams_say_of_models_and_the_configuration_overrides_it(serve):
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
    monkeypatch.setattr(model_list, "FRESH", 0)
    monkeypatch.setattr(model_list, "LIST_SECONDS", 0.05)
    first, second = ScriptedUpstream([GOOD], ("one",)), ScriptedUpstream([GOOD], ("two",))
    with serve_upstream(first) as url, serve_upstream(second) as other_url, serve(engine(url, other_url)) as gateway_url:
        assert ask(gateway_url, "one").status_code == 200
        first.listing = failure(500, {"error": {"message": "Out of order."}})
        until(lambda: ask(gateway_url, "one").status_code == 503)
        answer = ask(gateway_url, "one")
        assert answer.json()["error"]["message"] == "The model 'one' is not available. Out of order."
        assert answer.headers["retry-after"] == "1"
        assert [ask(gateway_url, name).status_code for name in ("two", "three")] == [200, 404]
        assert {model["id"] for model in httpx.get(f"{gateway_url}/v1/models").json()["data"]} == {"one", "two"}
        assert httpx.get(f"{gateway_url}/ready").status_code == 200
        first.listing = None
        until(lambda: ask(gateway_url, "one").status_code == 200)  # nobody has to ask for it first


def test_a_model_that_is_new_is_found_at_once(serve, monkeypatch):
    monkeypatch.setattr(model_list, "FRESH", 0)
    first, second = ScriptedUpstream([GOOD], ("one",)), ScriptedUpstream([GOOD], ("two",))
    with serve_upstream(first) as url, serve_upstream(second) as other_url, serve(engine(url, other_url)) as gateway_url:
        assert ask(gateway_url, "one").status_code == 200
        second.models = ("two", "three")
        assert ask(gateway_url, "three").status_code == 200


def test_the_fault_of_every_upstream_is_named(serve):
    with (
        socket.create_server(("127.0.0.1", 0)) as unused,
        serve_upstream(ScriptedUpstream([GOOD], listing=failure(500, {"error": "Out of order."}))) as broken,
    ):
        port = unused.getsockname()[1]
        unused.close()
        with serve(engine(f"http://127.0.0.1:{port}", broken)) as url:
            until(lambda: "Out of order." in httpx.get(f"{url}/ready").text)
            until(lambda: "cannot be reached" in httpx.get(f"{url}/ready").text)
            answer, missing = httpx.get(f"{url}/ready"), ask(url, "m")
    faults = "The upstream server cannot be reached. Out of order."
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, faults)
    assert (missing.status_code, missing.json()["error"]["message"]) == (503, f"The model 'm' is not available. {faults}")


def test_an_upstream_that_is_down_is_logged_once_and_once_when_it_returns(monkeypatch, caplog):
    monkeypatch.setattr(model_list, "LIST_SECONDS", 0.01)
    with gateway(GOOD, listing=failure(500, {"error": "Out of order."})) as (url, upstream):
        assert httpx.get(f"{url}/ready").status_code == 503
        until(lambda: len(upstream.requests) > 5)
        upstream.listing = None
        until(lambda: httpx.get(f"{url}/ready").status_code == 200)
    messages = [record.getMessage().partition("/v1 ")[2] for record in caplog.records if "upstream" in record.name]
    assert messages == ["does not list its models: Out of order.", "answers again"]


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
