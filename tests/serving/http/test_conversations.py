"""Conversations over HTTP and with the SDK: how clients edit them, and how responses extend them."""

from __future__ import annotations

import asyncio

import httpx
import openai
import pytest
from live.engines import ANSWER, REASONING, Gate, StagedEngine, step, steps
from openai import OpenAI

from interlock.fsm.deltas import Fault
from interlock.serving.build import build
from interlock.serving.http.server import ServerThread
from interlock.serving.responses import archive
from interlock.serving.responses.archive import ConversationLease
from interlock.serving.settings import Settings
from interlock.serving.store.sqlite import MemoryStore
from interlock.serving.store.values import Addition, StoredConversation, StoreDown, StoredResponse

USER = {"type": "message", "role": "user", "content": "My name is Ada."}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}


@pytest.fixture
def client():
    with (
        ServerThread(build(Settings(), StagedEngine(steps(ANSWER)))) as url,
        OpenAI(base_url=f"{url}/v1", api_key="none") as client,
    ):
        yield client


def texts(client, conversation):
    """The roles and texts of a conversation's messages, oldest first."""
    listed = client.conversations.items.list(conversation.id, order="asc")
    return [(item.role, item.content[0].text) for item in listed if item.type == "message"]


def refusal(call, *arguments, **fields):
    with pytest.raises(openai.APIStatusError) as refused:
        call(*arguments, **fields)
    return refused.value.status_code, refused.value.param, refused.value.code


def test_a_conversation_is_created_retrieved_updated_and_deleted(client) -> None:
    created = client.conversations.create(metadata={"topic": "names"}, items=[USER])
    assert created.id.startswith("conv_")
    assert (created.object, created.metadata) == ("conversation", {"topic": "names"})
    assert client.conversations.retrieve(created.id) == created
    changed = client.conversations.update(created.id, metadata={"topic": "trains"})
    assert changed == created.model_copy(update={"metadata": {"topic": "trains"}})
    assert client.conversations.delete(created.id).to_dict() == {
        "id": created.id,
        "object": "conversation.deleted",
        "deleted": True,
    }
    assert refusal(client.conversations.retrieve, created.id) == (404, "conversation", None)


@pytest.mark.parametrize("field", ["name", "namespace"])
def test_an_item_with_a_control_token_in_a_name_is_refused(client, field) -> None:
    spoiled = {**CALL, field: "<|call|>"}
    assert refusal(client.conversations.create, items=[USER, spoiled]) == (400, f"items[1].{field}", "invalid_value")
    conversation = client.conversations.create(items=[USER])
    refused = refusal(client.conversations.items.create, conversation.id, items=[spoiled])
    assert refused == (400, f"items[0].{field}", "invalid_value")


def test_a_compaction_that_cannot_be_unsealed_is_refused(client) -> None:
    created = client.responses.compact(model="staged", input="My name is Ada.").output[-1].to_dict()
    sealed = created["encrypted_content"]
    changed = sealed[:-4] + ("AAAA" if not sealed.endswith("AAAA") else "BBBB")
    conversation = client.conversations.create(items=[USER, created])
    for spoiled in ({**created, "encrypted_content": changed}, {**created, "encrypted_content": "nonsense"}):
        expected = (400, "items[1].encrypted_content", "invalid_encrypted_content")
        assert refusal(client.conversations.create, items=[USER, spoiled]) == expected
        assert refusal(client.conversations.items.create, conversation.id, items=[USER, spoiled]) == expected
    assert [item.type for item in client.conversations.items.list(conversation.id)] == ["compaction", "message"]


def test_items_are_added_listed_retrieved_and_deleted(client) -> None:
    conversation = client.conversations.create(items=[USER])
    added = client.conversations.items.create(conversation.id, items=[CALL, RESULT])
    assert [item.type for item in added.data] == ["function_call", "function_call_output"]
    assert (added.first_id, added.last_id, added.has_more) == (added.data[0].id, added.data[1].id, False)
    listed = client.conversations.items.list(conversation.id, limit=2)
    assert [item.id for item in listed.data] == [added.data[1].id, added.data[0].id]
    assert [item.type for item in listed] == ["function_call_output", "function_call", "message"]
    first = client.conversations.items.list(conversation.id, order="asc").data[0]
    assert client.conversations.items.retrieve(first.id, conversation_id=conversation.id) == first
    assert (first.status, first.content[0].to_dict()) == ("completed", {"type": "input_text", "text": "My name is Ada."})
    assert client.conversations.items.delete(first.id, conversation_id=conversation.id) == conversation
    assert texts(client, conversation) == []


def test_a_response_continues_its_conversation_and_is_added_to_it() -> None:
    engine = StagedEngine(steps(ANSWER))
    with ServerThread(build(Settings(), engine)) as url, OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        conversation = client.conversations.create(items=[USER])
        first = client.responses.create(model="staged", input="Who am I?", conversation=conversation.id)
        assert first.conversation.id == conversation.id
        with client.responses.create(model="staged", input="Sure?", conversation={"id": conversation.id}, stream=True) as stream:
            assert [*stream][-1].response.conversation.id == conversation.id
        messages = [("user", "My name is Ada."), ("user", "Who am I?"), ("assistant", first.output_text), ("user", "Sure?")]
        assert texts(client, conversation) == [*messages, ("assistant", first.output_text)]
        assert [item["type"] for item in engine.turns[1].items] == ["message"] * 4
        inputs = client.responses.input_items.list(first.id, order="asc").data
        assert [item.content[0].text for item in inputs] == ["My name is Ada.", "Who am I?"]


def test_a_background_response_is_added_to_its_conversation(client) -> None:
    conversation = client.conversations.create()
    background = client.responses.create(model="staged", input="Hi", conversation=conversation.id, background=True)
    with client.responses.retrieve(background.id, stream=True) as stream:
        ended = [*stream][-1].response
    assert texts(client, conversation) == [("user", "Hi"), ("assistant", ended.output_text)]


def test_a_failed_response_is_not_added() -> None:
    engine = StagedEngine([step(REASONING), RuntimeError("broken")])
    with ServerThread(build(Settings(), engine)) as url, OpenAI(base_url=f"{url}/v1", api_key="none") as broken:
        conversation = broken.conversations.create(items=[USER])
        assert broken.responses.create(model="staged", input="Hi", conversation=conversation.id).status == "failed"
        assert texts(broken, conversation) == [("user", "My name is Ada.")]


def test_a_conversation_is_locked_while_a_response_runs() -> None:
    gate = Gate()
    engine = StagedEngine([gate, *steps(ANSWER)], steps(ANSWER))
    with ServerThread(build(Settings(), engine)) as url, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        conversation = client.conversations.create()
        request = {"model": "staged", "input": "Hi", "conversation": conversation.id}
        with httpx.stream("POST", f"{url}/v1/responses", json={**request, "stream": True}, timeout=60) as first:
            assert gate.reached.wait(60)
            locked = (409, "conversation", "conversation_locked")
            assert refusal(client.responses.create, **request) == locked
            assert refusal(client.conversations.items.create, conversation.id, items=[USER]) == locked
            gate.open()
            first.read()
        assert client.responses.create(**request).status == "completed"
        assert len(texts(client, conversation)) == 4


def test_a_refused_request_leaves_its_conversation_unlocked(client) -> None:
    conversation = client.conversations.create()
    request = {"model": "staged", "conversation": conversation.id}
    assert refusal(client.responses.create, **request, input=[RESULT]) == (400, "input", None)
    assert client.responses.create(**request, input="Hi").status == "completed"


def test_deleting_a_conversation_does_not_end_its_running_response() -> None:
    gate = Gate()
    engine = StagedEngine([gate, *steps(ANSWER)])
    with ServerThread(build(Settings(), engine)) as url, OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        conversation = client.conversations.create()
        background = client.responses.create(model="staged", input="Hi", conversation=conversation.id, background=True)
        assert gate.reached.wait(60)
        client.conversations.delete(conversation.id)
        gate.open()
        with client.responses.retrieve(background.id, stream=True) as stream:
            assert [*stream][-1].response.status == "completed"
        assert client.responses.retrieve(background.id).status == "completed"


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/v1/conversations/conv_0", None, (404, "conversation", None)),
        ("POST", "/v1/conversations/conv_0", {"metadata": {}}, (404, "conversation", None)),
        ("DELETE", "/v1/conversations/conv_0", None, (404, "conversation", None)),
        ("GET", "/v1/conversations/conv_0/items", None, (404, "conversation", None)),
        ("POST", "/v1/conversations/conv_0/items", {"items": [USER]}, (404, "conversation", None)),
        ("GET", "/v1/conversations/{id}/items/msg_0", None, (404, "item_id", None)),
        ("DELETE", "/v1/conversations/{id}/items/msg_0", None, (404, "item_id", None)),
        ("POST", "/v1/conversations", {"items": [RESULT]}, (400, "input", None)),
        ("POST", "/v1/conversations/{id}/items", {"items": [USER] * 21}, (400, "items", "array_above_max_length")),
        ("PUT", "/v1/conversations/{id}", None, (405, None, None)),
        ("POST", "/v1/responses", {"model": "staged", "input": "Hi", "conversation": "conv_0"}, (404, "conversation", None)),
    ],
)
def test_errors_name_the_missing_or_invalid_parameter(client, method, path, body, expected) -> None:
    conversation = client.conversations.create()
    url = str(client.base_url).removesuffix("/v1/")
    answer = httpx.request(method, url + path.replace("{id}", conversation.id), json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == expected


def test_head_answers_like_get(client) -> None:
    answer = httpx.head(f"{client.base_url}conversations/{client.conversations.create().id}")
    assert (answer.status_code, answer.content) == (200, b"")


class Shaky(MemoryStore):
    """A store that is down for a while."""

    down = 0

    async def renew_hold(self, tenant, conversation_id, owner):
        if self.down:
            self.down -= 1
            raise StoreDown("it is gone")
        return await super().renew_hold(tenant, conversation_id, owner)

    async def release(self, tenant, conversation_id, owner):
        if self.down:
            raise StoreDown("it is gone")
        await super().release(tenant, conversation_id, owner)


async def hold_conversation(store, during):
    """Hold a conversation while `during` runs; return the fault that interrupts its response."""
    await store.create_conversation("", StoredConversation("conv_1", 1, {}))
    part = await ConversationLease.acquire(store, "", "conv_1")
    interrupted = asyncio.get_running_loop().create_future()
    async with part.keep_alive(interrupted.set_result):
        await during(part)
        return await asyncio.wait_for(interrupted, 60)


def test_a_lost_lease_ends_the_response(monkeypatch) -> None:
    monkeypatch.setattr(archive, "RENEW", 0.01)
    lost = Fault("server_error", "The conversation was changed or deleted by another request while the response was made.")

    async def takes_over():
        store = MemoryStore()

        async def during(part):
            await store.release("", "conv_1", part.response_id)
            await store.hold("", "conv_1", "resp_2")

        return await hold_conversation(store, during)

    async def deleted():
        store = MemoryStore()
        return await hold_conversation(store, lambda _part: store.delete_conversation("", "conv_1"))

    async def down_and_then_lost():
        store = Shaky()

        async def during(_part):
            store.down = 2
            await store.delete_conversation("", "conv_1")

        return await hold_conversation(store, during)

    for happens in (takes_over, deleted, down_and_then_lost):
        assert asyncio.run(happens()) == lost


def test_releasing_a_lease_does_not_raise_while_the_store_is_down() -> None:
    async def release():
        store = Shaky()
        await store.create_conversation("", StoredConversation("conv_1", 1, {}))
        part = await ConversationLease.acquire(store, "", "conv_1")
        store.down = 1
        await part.release()

    asyncio.run(release())


def test_only_new_items_are_added_to_the_conversation() -> None:
    items = ({"id": "msg_1"}, {"id": "msg_2"})
    part = ConversationLease(MemoryStore(), "", "conv_1", "resp_1", items[:1])
    response = {"id": "resp_1", "status": "completed", "output": [{"id": "msg_3"}]}
    assert part.addition(StoredResponse(response, items)) == Addition("conv_1", "resp_1", ({"id": "msg_2"}, {"id": "msg_3"}))
    assert part.addition(StoredResponse({**response, "status": "failed"}, items)) is None


def test_counted_input_tokens_include_the_conversation(client) -> None:
    conversation = client.conversations.create(items=[USER])
    request = {"model": "staged", "input": "Who am I?"}
    counted = client.responses.input_tokens.count(**request, conversation=conversation.id).input_tokens
    assert (
        counted
        == client.responses.input_tokens.count(model="staged", input=[USER, {**USER, "content": "Who am I?"}]).input_tokens
    )
    assert counted > client.responses.input_tokens.count(**request).input_tokens
    assert refusal(client.responses.input_tokens.count, **request, conversation="conv_0") == (404, "conversation", None)
