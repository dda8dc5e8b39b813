"""Conversations in the plugin: the same routes, and responses of vLLM's that go on from them and are added to them."""

import asyncio

import fake_vllm as fake
import pytest
from fake_vllm import Serving, outputs
from live.plugged import ANSWER, BODY, client_of

pytestmark = pytest.mark.usefixtures("vllm")

PATH, TALKS = "/v1/responses", "/v1/conversations"
USER = {"role": "user", "content": "My name is Ada."}


def asking(steps, *rounds):
    """Ask a server with the plugin; `steps` is called with the client, vLLM's instance and a conversation."""

    async def run():
        serving = Serving(fake.HarmonyContext, *(outputs(text) for text in rounds))
        async with client_of(serving) as client:
            response = await client.post(TALKS, json={"items": [USER]})
            return await steps(client, serving, response.json()["id"])

    return asyncio.run(run())


async def texts(client, conversation):
    """What is said in a conversation, oldest first."""
    listed = await client.get(f"{TALKS}/{conversation}/items", params={"order": "asc"})
    return [(item["role"], item["content"][0]["text"]) for item in listed.json()["data"]]


MESSAGES = [("user", "My name is Ada."), ("user", "Hi"), ("assistant", "Hello there.")]


@pytest.mark.parametrize("more", [{}, {"stream": True}])
def test_a_response_goes_on_from_its_conversation_and_is_added_to_it(more):
    async def steps(client, serving, conversation):
        answer = await client.post(PATH, json={**BODY, "conversation": conversation, **more})
        rendered = [item["content"] for item in serving.requests[-1].input]
        second = await client.post(PATH, json={**BODY, "request_id": "resp_2", "conversation": {"id": conversation}})
        return (
            answer.status_code,
            rendered,
            second.json()["conversation"]["id"] == conversation,
            await texts(client, conversation),
        )

    messages = [*MESSAGES, *MESSAGES[1:]]
    assert asking(steps, ANSWER, ANSWER) == (200, ["My name is Ada.", "Hi"], True, messages)


def test_a_response_in_the_background_is_added_too():
    async def steps(client, _, conversation):
        background = await client.post(PATH, json={**BODY, "conversation": conversation, "background": True})
        await client.get(f"{PATH}/{background.json()['id']}", params={"stream": "true"})
        return await texts(client, conversation)

    assert asking(steps, ANSWER) == MESSAGES


def test_a_second_response_waits_for_no_first_and_what_is_refused_leaves_the_conversation_free():
    async def steps(client, serving, conversation):
        gate = asyncio.Event()
        serving.script = [[gate, *outputs(ANSWER)], outputs(ANSWER)]
        request = {**BODY, "conversation": conversation}
        first = asyncio.create_task(client.post(PATH, json=request))
        await serving.started.wait()
        locked = await client.post(PATH, json={**request, "request_id": "resp_2"})
        gate.set()
        await first
        refused = await client.post(PATH, json={**request, "request_id": "resp_3", "input": "refuse"})
        after = await client.post(PATH, json={**request, "request_id": "resp_4"})
        return locked.status_code, locked.json()["error"]["code"], refused.status_code, after.status_code

    assert asking(steps) == (409, "conversation_locked", 400, 200)


def test_the_prompt_of_a_request_in_a_conversation_is_counted_and_the_conversation_stays_free():
    async def steps(client, _, conversation):
        counted = await client.post(f"{PATH}/input_tokens", json={**BODY, "conversation": conversation})
        missing = await client.post(f"{PATH}/input_tokens", json={**BODY, "conversation": "conv_0"})
        after = await client.post(PATH, json={**BODY, "conversation": conversation})
        return counted.json(), missing.status_code, after.status_code

    assert asking(steps, ANSWER) == ({"object": "response.input_tokens", "input_tokens": 3}, 404, 200)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_0"}, "previous_response_id"),
        ({"store": False}, "conversation"),
        ({"conversation": {}}, "conversation.id"),
        ({"conversation": "conv_0"}, "conversation"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(fields, param):
    async def steps(client, _, conversation):
        answer = await client.post(PATH, json={**BODY, "conversation": conversation, **fields})
        return answer.status_code in {400, 404}, answer.json()["error"]["param"]

    assert asking(steps) == (True, param)


def test_a_compaction_that_cannot_be_opened_is_not_taken():
    async def steps(client, _, __):
        response = await client.post(f"{PATH}/compact", json=BODY)
        sealed = response.json()["output"][-1]
        spoiled = {**sealed, "encrypted_content": "nonsense"}
        answers = [await client.post(TALKS, json={"items": [item]}) for item in (sealed, spoiled)]
        return [answer.status_code for answer in answers], answers[1].json()["error"]["param"]

    assert asking(steps, ANSWER) == ([200, 400], "items[0].encrypted_content")
