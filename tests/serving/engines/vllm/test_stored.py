"""What the plugin adds to vLLM's routes: conversations, the output of code, and counts of prompts."""

import asyncio

import fake_vllm as fake
import pytest
from fake_vllm import ANSWER, BODY, Serving, client_of, outputs
from live.agents import servers
from live.mcp_servers import answer, plain, result, running

from interlock.serving.engines.vllm import plugin

pytestmark = pytest.mark.usefixtures("vllm")

PATH = "/v1/responses"


def asking(steps, *rounds, engine=None):
    """Ask a server with the plugin; `steps` is called with the client and vLLM's instance."""

    async def run():
        serving = Serving(fake.HarmonyContext, *(outputs(text) for text in rounds))
        async with client_of(serving, engine) as client:
            return await steps(client, serving)

    return asyncio.run(run())


CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
RUN = "<|channel|>analysis to=python code<|message|>print(42)<|call|>"


@pytest.mark.parametrize(
    ("include", "outputs_shown"), [([], None), (["code_interpreter_call.outputs"], [{"type": "logs", "logs": "42"}])]
)
def test_the_output_of_code_is_stored_for_the_model_and_not_shown(monkeypatch, include, outputs_shown):
    async def printing(request, send):
        await answer(send, 200, result(request, {"content": [{"type": "text", "text": "42"}]}))

    async def steps(client, serving):
        conversation = (await client.post("/v1/conversations", json={})).json()["id"]
        body = {**BODY, "tools": [CODE], "include": include, "conversation": conversation}
        created = (await client.post(PATH, json=body)).json()["output"][0]
        stored = (await client.get(f"{PATH}/resp_1")).json()["output"][0]
        await client.post(PATH, json={**BODY, "request_id": "resp_2", "previous_response_id": "resp_1"})
        listed = (await client.get(f"{PATH}/resp_2/input_items", params={"order": "asc"})).json()["data"][1]
        in_conversation = (await client.get(f"/v1/conversations/{conversation}/items/{created['id']}")).json()
        return [created, stored, listed, in_conversation], serving.requests[-1].input[2]

    with running(plain(printing)) as url:
        monkeypatch.setattr(plugin, "_tools", lambda *_: servers(code_interpreter=f"{url}/mcp"))
        views, read = asking(steps, RUN, ANSWER)
    assert [view["outputs"] for view in views] == [outputs_shown] * 4
    assert {"output"} & {name for view in views for name in view} == set()
    assert (read["type"], read["output"]) == ("function_call_output", "42")


def test_an_id_that_is_too_long_for_the_index_of_a_store_is_refused():
    async def steps(client, serving):
        answer = await client.post(PATH, json={**BODY, "request_id": "r" * 257})
        error = answer.json()["error"]
        return answer.status_code, error["param"], error["code"], serving.started.is_set()

    assert asking(steps) == (400, "request_id", "string_above_max_length", False)


def test_the_tokens_of_a_prompt_are_counted_and_nothing_is_generated_or_kept():
    async def steps(client, serving):
        answer = await client.post(f"{PATH}/input_tokens", json=BODY)
        return answer.json(), serving.started.is_set()

    assert asking(steps) == ({"object": "response.input_tokens", "input_tokens": 3}, False)


def test_a_prompt_that_vllm_refuses_is_not_counted():
    async def steps(client, _):
        answer = await client.post(f"{PATH}/input_tokens", json={**BODY, "input": "refuse"})
        return answer.status_code, answer.json()

    assert asking(steps) == (400, {"error": {"message": "It is refused.", "code": 400}})


def test_a_response_continues_its_conversation_and_is_added_to_it():
    async def steps(client, serving):
        created = await client.post("/v1/conversations", json={"items": [{"role": "user", "content": "My name is Ada."}]})
        conversation = created.json()["id"]
        counted = await client.post(f"{PATH}/input_tokens", json={**BODY, "conversation": conversation})
        await client.post(PATH, json={**BODY, "conversation": conversation})
        listed = await client.get(f"/v1/conversations/{conversation}/items", params={"order": "asc"})
        texts = [item["content"][0]["text"] for item in listed.json()["data"]]
        return counted.json()["input_tokens"], [item["content"] for item in serving.requests[-1].input], texts

    assert asking(steps, ANSWER) == (3, ["My name is Ada.", "Hi"], ["My name is Ada.", "Hi", "Hello there."])
