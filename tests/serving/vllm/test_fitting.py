"""`truncation: auto` and `prompt_cache_key` in the plugin: what vLLM is asked for."""

import asyncio
from types import SimpleNamespace

import fake_vllm as fake
import pytest
from fake_vllm import Serving, outputs
from live.plugged import ANSWER, BODY, client_of
from pydantic import BaseModel
from starlette.responses import JSONResponse

from interlock.serving.vllm.fitting import fitted

pytestmark = pytest.mark.usefixtures("vllm")

PATH = "/v1/responses"


def user(text):
    return {"type": "message", "role": "user", "content": text}


class VLLMValidationError(Exception):
    """vLLM's class of this name."""


class Narrow(Serving):
    """An instance whose model can take three items, and that says so by raising or by refusing."""

    raises = True

    async def create_responses(self, request, raw_request):
        if len(request.input) > 3 and self.raises:
            raise VLLMValidationError("It is too long.")
        if len(request.input) > 3:
            return fake.Refused(error=fake.Refusal(message="It is too long.", code=400))
        return await super().create_responses(request, raw_request)


def ask(serving, *bodies):
    """Ask for one response after the other; gives the answers' statuses and bodies."""

    async def asking():
        async with client_of(serving) as client:
            client.app.exception_handler(VLLMValidationError)(lambda *_: JSONResponse({"refused": True}, 400))
            answers = [await client.post(PATH, json={**BODY, **body}) for body in bodies]
            return [(answer.status_code, answer.json()) for answer in answers]

    return asyncio.run(asking())


@pytest.mark.parametrize("raises", [True, False])
def test_the_oldest_turns_go_until_vllm_takes_the_prompt(raises):
    serving = Narrow(fake.HarmonyContext, outputs(ANSWER))
    serving.raises = raises
    items = [user(str(number)) for number in range(9)]
    ((status, response),) = ask(serving, {"input": items, "truncation": "auto"})
    assert (status, response["status"], response["truncation"]) == (200, "completed", "auto")
    request = serving.context.request
    assert [item["content"] for item in request.input] == ["6", "7", "8"]
    assert request.truncation == "disabled"


def test_without_truncation_and_where_nothing_can_go_vllm_refuses():
    parts = {"type": "message", "role": "assistant", "content": "It goes on."}
    bodies = [{"input": [user(str(number)) for number in range(9)]}, {"input": [parts] * 4, "truncation": "auto"}]
    assert ask(Narrow(), *bodies) == [(400, {"refused": True})] * 2


def test_a_response_that_is_gone_on_from_is_cut_too():
    serving = Narrow(fake.HarmonyContext, outputs(ANSWER))
    first = {"input": [user("1"), user("2"), user("3")]}
    second = {"input": "4", "request_id": "resp_2", "previous_response_id": "resp_1", "truncation": "auto"}
    (_, (status, response)) = ask(serving, first, second)
    assert (status, response["previous_response_id"]) == (200, "resp_1")
    assert [item["role"] for item in serving.context.request.input] == ["user", "assistant", "user"]


def test_a_text_alone_is_left_to_vllm():
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    assert ask(serving, {"truncation": "auto"})[0][0] == 200
    assert (serving.context.request.input, serving.context.request.truncation) == ("Hi", "disabled")


def test_a_fault_while_the_prompt_is_measured_is_no_refusal():
    async def breaks(_):
        raise RuntimeError("It broke.")

    class Item(BaseModel):
        role: str = "user"

    with pytest.raises(RuntimeError, match="It broke"):
        asyncio.run(fitted(fake.Request(input=[]).model_copy(update={"input": [Item()]}), breaks))


def salts(keys, *requests):
    """Ask a server with these API keys; gives the salt of each request, which is its key and its body."""

    async def asking():
        serving = Serving(fake.HarmonyContext, outputs(ANSWER))
        async with client_of(serving, args=SimpleNamespace(api_key=keys)) as client:
            for number, (key, body) in enumerate(requests):
                asked = {**BODY, "request_id": f"resp_{number}", **body}
                response = (await client.post(PATH, json=asked, headers={"Authorization": f"Bearer {key}"})).json()
                assert response["prompt_cache_key"] == body.get("prompt_cache_key")
                yield getattr(serving.context.request, "cache_salt", None)

    async def all_of():
        return [salt async for salt in asking()]

    return asyncio.run(all_of())


REQUESTS = [(key, body) for key in ("one", "two") for body in ({}, {"prompt_cache_key": "a"}, {"prompt_cache_key": "b"})]


@pytest.mark.parametrize(
    ("setting", "keys", "groups"),
    [
        (None, ["one"], [None] * 6),
        (None, ["one", "two"], [0, 0, 0, 1, 1, 1]),
        ("tenant", ["one", "two"], [0, 0, 0, 1, 1, 1]),
        ("key", ["one"], [None, 0, 1, None, 0, 1]),
        ("key", ["one", "two"], [0, 1, 2, 3, 4, 5]),
        ("none", ["one", "two"], [None] * 6),
        ("pepper", ["one", "two"], [0, 0, 0, 1, 1, 1]),
    ],
)
def test_the_requests_that_share_vllms_prefix_cache_are_a_setting(monkeypatch, setting, keys, groups):
    if setting is not None:
        monkeypatch.setenv("INTERLOCK_CACHE_SALT", setting)
    values = salts(keys, *REQUESTS)
    names = [*dict.fromkeys(value for value in values if value is not None)]
    assert [None if value is None else names.index(value) for value in values] == groups
    assert {len(name) for name in names} <= {64}


@pytest.mark.parametrize("setting", ["tenant", "key", "none"])
def test_a_salt_that_a_request_has_counts_more(monkeypatch, setting):
    monkeypatch.setenv("INTERLOCK_CACHE_SALT", setting)
    assert salts(["one", "two"], ("one", {"prompt_cache_key": "a", "cache_salt": "own"})) == ["own"]


def test_an_unknown_setting_is_named_in_the_log(monkeypatch, caplog):
    monkeypatch.setenv("INTERLOCK_CACHE_SALT", "pepper")
    assert salts(["one"]) == []
    message = "INTERLOCK_CACHE_SALT is one of tenant, key, none, and not 'pepper': tenant is used."
    assert message in [record.getMessage() for record in caplog.records]
