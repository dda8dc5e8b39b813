"""Eight concurrent streams on one engine, whose output queue may merge steps."""

import asyncio

import openai
import pytest
from playing import body, without_chance
from turns import HARMONY, PARSED

from interlock.verify import oracle


async def read(client, request):
    request = dict(request)
    script = {"vllm_xargs": request.pop("vllm_xargs")}
    events = await client.responses.create(**request, stream=True, extra_body=script)
    return [event.to_dict(mode="json") async for event in events]


async def play_all(url, requests):
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        return await asyncio.gather(*(read(client, request) for request in requests))


def long(text):
    return f"{text} " * 50


@pytest.mark.parametrize("server", ["harmony", "parsed", "shared"], indirect=True)
def test_eight_concurrent_streams_are_legal_and_equal_a_single_one(server):
    model = server.setup.model
    turn = (HARMONY if model == "gpt_oss" else PARSED)[1]
    rounds = [turn.rounds[0].replace("Hello.", long("Hello, world.")).replace("Hm", long("Hm"))]
    requests = [body(model, type(turn)("", rounds)) for _ in range(8)]
    streams = asyncio.run(play_all(server.url, requests))
    assert [oracle.check(events) for events in streams] == [[]] * 8
    outputs = [without_chance(events[-1]["response"]["output"]) for events in streams]
    assert outputs == [outputs[0]] * 8
    (alone,) = asyncio.run(play_all(server.url, requests[:1]))
    assert without_chance(alone[-1]["response"]["output"]) == outputs[0]
