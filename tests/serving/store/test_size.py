"""A short response takes at most twice the room of its JSON."""

import asyncio
import json

import pytest
from live.store_kinds import POSTGRES

from interlock.embedding import random_id
from interlock.events.resource import response_settings
from interlock.serving.store import StoredResponse

COUNT = 500
TEXT = "Here is what I know of it. " * 5


def short_response():
    output = {"id": random_id("msg"), "type": "message", "role": "assistant", "phase": "final_answer", "status": "completed"}
    output["content"] = [{"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}]
    usage = {"input_tokens": 57, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens": 42}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 99}
    times = {"object": "response", "created_at": 1_795_376_095, "status": "completed", "completed_at": 1_795_376_097}
    settings = response_settings({"model": "interlock-embedded", "input": "Hi"})
    question = {"id": random_id("msg"), "type": "message", "role": "user", "content": "What do you know of it?"}
    return StoredResponse({"id": random_id("resp"), **times, **settings, "output": [output], "usage": usage}, (question,))


@pytest.mark.parametrize("kind", ["sqlite", POSTGRES])
def test_a_short_response_takes_at_most_twice_its_json(make_store, kind) -> None:
    responses = [short_response() for _ in range(COUNT)]

    async def scenario():
        store = make_store(kind)
        empty = (await store.info()).size
        await asyncio.gather(*(store.put("", each) for each in responses))
        await store.sweep()
        size = (await store.info()).size - empty
        await store.close()
        return size

    written = sum(len(json.dumps(each.response, separators=(",", ":"))) for each in responses)
    assert asyncio.run(scenario()) <= 2 * written
