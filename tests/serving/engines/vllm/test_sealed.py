"""The plugin in vLLM seals reasoning for the client, and opens it again for vLLM."""

import asyncio
import logging
from types import SimpleNamespace

import fake_vllm as fake
import httpx
import pytest
from fake_vllm import Serving, outputs

from interlock.serving.engines.vllm.plugin import InterlockPlugin

TURN = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>"
REQUEST = {"model": "m", "input": "Hi", "include": ["reasoning.encrypted_content"], "store": False}
USER = {"type": "message", "role": "user", "content": "Go on"}
REASONING = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}


def ask(serving, *requests, headers=({},), args=None):
    """Send requests to a server, one after another; each may be a function of the previous answer."""

    async def asking():
        plugin, app = InterlockPlugin(), fake.application()
        plugin.attach_router(app)
        app.state.openai_serving_responses = serving
        await plugin.init_state(None, app.state, args)
        answer = None
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://vllm") as client:
            for place, request in enumerate(requests):
                body = request(answer) if callable(request) else request
                answer = await client.post("/v1/responses", json=body, headers=headers[place % len(headers)])
        return answer

    return asyncio.run(asking())


def carried(answer, **fields):
    (reasoning, _) = answer.json()["output"]
    item = {"type": "reasoning", "summary": [], "encrypted_content": reasoning["encrypted_content"]}
    return {**REQUEST, "input": [item, USER], **fields}


@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize("harmony", [True, False])
def test_sealed_reasoning_returns_to_vllm_unchanged(harmony) -> None:
    serving = Serving(fake.HarmonyContext, outputs(TURN))
    requests = []

    def again(answer):
        serving.use_harmony = harmony
        requests.append(carried(answer))
        return requests[-1]

    ask(serving, REQUEST, again)
    assert serving.requests[-1].input == [REASONING, USER]
    assert requests[0]["input"][0]["encrypted_content"]


@pytest.mark.usefixtures("vllm")
def test_reasoning_sealed_for_another_api_key_is_removed() -> None:
    args = SimpleNamespace(api_key=["one", "two"])
    headers = [{"authorization": "Bearer one"}, {"authorization": "Bearer two"}]
    serving = Serving(fake.HarmonyContext, outputs(TURN))
    assert ask(serving, REQUEST, carried, headers=headers[:1], args=args).status_code == 200
    (listed,) = ask(serving, REQUEST, carried, headers=headers, args=args).json()["input_transformations"]
    assert (listed["action"], listed["reason"]) == ("removed", "organization_mismatch")


def start(monkeypatch, caplog, keys):
    fake.install(monkeypatch)
    monkeypatch.setenv("INTERLOCK_KEYS", keys) if keys is not None else monkeypatch.delenv("INTERLOCK_KEYS", raising=False)
    plugin, app = InterlockPlugin(), fake.application()
    plugin.attach_router(app)
    app.state.openai_serving_responses = Serving()
    with caplog.at_level(logging.WARNING):
        asyncio.run(plugin.init_state(None, app.state, None))
    return plugin.api is not None, caplog.messages


def test_invalid_sealing_keys_leave_the_route_to_vllm_with_a_warning(monkeypatch, caplog) -> None:
    hooked, messages = start(monkeypatch, caplog, "secret!")
    assert (hooked, len(messages)) == (False, 1)
    assert messages[0].endswith("own /v1/responses in place: INTERLOCK_KEYS: key 1 is not base64.")


def test_a_server_that_requires_the_plugin_does_not_start_without_it(monkeypatch, caplog) -> None:
    monkeypatch.setenv("INTERLOCK_REQUIRED", "1")
    message = "Interlock cannot serve /v1/responses, and INTERLOCK_REQUIRED=1 requires it: "
    with pytest.raises(SystemExit) as refused:
        start(monkeypatch, caplog, "secret!")
    assert refused.value.code == f"{message}INTERLOCK_KEYS: key 1 is not base64"
    plugin, app = InterlockPlugin(), fake.application()
    plugin.attach_router(app)
    app.state.openai_serving_responses = None
    with pytest.raises(SystemExit) as refused:
        asyncio.run(plugin.init_state(None, app.state, None))
    assert refused.value.code == f"{message}the model does not generate responses"


def test_a_server_of_a_model_without_responses_says_that_the_plugin_is_not_used(monkeypatch, caplog) -> None:
    fake.install(monkeypatch)
    plugin, app = InterlockPlugin(), fake.application()
    plugin.attach_router(app)
    asyncio.run(plugin.init_state(None, app.state, None))
    assert [message.partition(": ")[2] for message in caplog.messages] == ["the model does not generate responses."]


def test_a_server_without_sealing_keys_warns_only_with_a_persistent_store(monkeypatch, caplog, tmp_path) -> None:
    assert start(monkeypatch, caplog, None) == (True, [])
    monkeypatch.setenv("INTERLOCK_STORE", f"sqlite:{tmp_path / 'store.db'}")
    hooked, messages = start(monkeypatch, caplog, None)
    unset = "INTERLOCK_KEYS is not set: reasoning and compactions that this process encrypts"
    assert (hooked, messages) == (True, [f"{unset} cannot be decrypted after a restart, or by another process."])
