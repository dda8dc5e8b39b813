"""What the plugin adds to vLLM's routes: deleting a response, listing what it answered, counting a prompt."""

import asyncio

import fake_vllm as fake
import pytest
from fake_vllm import Serving, outputs
from live.agents import servers
from live.mcp_servers import answer, plain, result, running
from live.plugged import ANSWER, BODY, client_of

from interlock.serving import build as building
from interlock.serving.engines.vllm import plugin
from interlock.serving.store import MemoryStore, StoreDown

pytestmark = pytest.mark.usefixtures("vllm")

PATH = "/v1/responses"


def asking(steps, *rounds, engine=None):
    """Ask a server with the plugin; `steps` is called with the client and vLLM's instance."""

    async def run():
        serving = Serving(fake.HarmonyContext, *(outputs(text) for text in rounds))
        async with client_of(serving, engine) as client:
            return await steps(client, serving)

    return asyncio.run(run())


def test_a_deleted_response_is_gone():
    async def steps(client, _):
        await client.post(PATH, json=BODY)
        deleted = await client.delete(f"{PATH}/resp_1")
        second = await client.delete(f"{PATH}/resp_1")
        return deleted.json(), second.status_code, second.json()["error"]["message"]

    assert asking(steps, ANSWER) == (
        {"id": "resp_1", "object": "response", "deleted": True},
        404,
        "Response with id 'resp_1' not found.",
    )


def test_a_response_in_the_background_is_cancelled_before_it_is_deleted():
    async def steps(client, serving):
        gate = asyncio.Event()
        serving.script = [[*outputs(ANSWER)[:2], gate]]
        await client.post(PATH, json={**BODY, "background": True})
        deleted = await client.delete(f"{PATH}/resp_1")
        return deleted.json()["deleted"], serving.aborted, (await client.get(f"{PATH}/resp_1")).status_code

    assert asking(steps) == (True, True, 404)


def test_what_a_response_answered_is_listed_with_what_came_before():
    async def steps(client, _):
        await client.post(PATH, json=BODY)
        await client.post(PATH, json={**BODY, "input": "And now?", "request_id": "resp_2", "previous_response_id": "resp_1"})
        listed = await client.get(f"{PATH}/resp_2/input_items", params={"order": "asc"})
        wrong = await client.get(f"{PATH}/resp_2/input_items", params={"limit": "0"})
        unheard = await client.get(f"{PATH}/resp_3/input_items")
        return listed.json(), (wrong.status_code, wrong.json()["error"]["param"]), unheard.status_code

    listed, *refused = asking(steps, ANSWER)
    texts = [(item["role"], item["content"][0]["text"]) for item in listed["data"]]
    assert texts == [("user", "Hi"), ("assistant", "Hello there."), ("user", "And now?")]
    assert listed["first_id"] == listed["data"][0]["id"]
    assert refused == [(400, "limit"), 404]


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


def test_what_is_to_be_stored_is_refused_while_the_store_is_down_and_the_rest_is_not(monkeypatch):
    class Down(MemoryStore):
        looked = asyncio.Event()

        async def lost(self, _limit):
            self.looked.set()
            raise StoreDown("It cannot be reached.")

    async def steps(client, _):
        await Down.looked.wait()
        await asyncio.sleep(0)
        answers = [await client.post(PATH, json={**BODY, **more}) for more in ({}, {"background": True}, {"store": False})]
        return [(answer.status_code, (answer.json()["error"] or {}).get("code")) for answer in answers]

    monkeypatch.setattr(building, "open_store", lambda _url: Down())
    refused = 503, "store_unavailable"
    assert asking(steps, ANSWER) == [refused, refused, (200, None)]


def test_a_store_that_takes_no_response_costs_one_and_the_next_are_refused(monkeypatch):
    class Full(MemoryStore):
        async def put(self, *_):
            raise StoreDown("It is full.")

    async def steps(client, _):
        answers = [await client.post(PATH, json={**BODY, **more}) for more in ({}, {}, {"store": False})]
        return [(answer.status_code, (answer.json()["error"] or {}).get("code")) for answer in answers]

    monkeypatch.setattr(building, "open_store", lambda _url: Full())
    assert asking(steps, ANSWER) == [(200, None), (503, "store_unavailable"), (200, None)]
