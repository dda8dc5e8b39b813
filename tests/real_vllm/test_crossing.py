"""Every parameter that changes the input of vLLM's detokenizer and parsers, with every turn, and outputs of several sizes.

Each turn meets each parameter, and both meet each size of the outputs; `make nightly` plays each pair in each size. None of the
parameters may change an item: a stop sequence that never occurs makes text lag behind its tokens, log probabilities belong to the
text of their tokens, and an interval makes many tokens arrive at once. If a stop sequence occurs, or a turn continues after its
end, the streams are legal, have no control token, and equal the response without streaming.
"""

import asyncio
import json
from functools import partial
from itertools import product

import httpx
import openai
import pytest
from playing import CHANCE, at_once, body, check, judged, summary, tokens, without_chance
from servers import AT_ONCE, HEADERS, RELEASE
from turns import ANSWER, END, FUNCTION, HARMONY, NEXT, PARSED, THINK, TOOL_CALL, Turn

from interlock.verify import oracle

INTERVALS = (1, 5, 50)
"""The tokens in an output of the engine."""
HARMONY_SERVER = pytest.mark.parametrize("server", ["harmony"], indirect=True)
PARSED_SERVERS = pytest.mark.parametrize("server", ["parsed", "operated"], indirect=True)
PAIRS = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["once", "every"])
"""Whether each pair of a turn and a parameter is played in every interval, or in one."""

NEVER = {"stop": ["\nObservation:"]}
INCLUDED = {**NEVER, "include_stop_str_in_output": True}
SPECIAL = {"skip_special_tokens": False, "min_tokens": 1}
SCORED = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
HARMLESS = [{}, NEVER, {**INCLUDED, **SPECIAL}]
WITH_SCORES = [*HARMLESS, SCORED, {**SCORED, **NEVER}, {**SCORED, **INCLUDED, **SPECIAL}]
"""Parameters that change no item."""

TEXT = "<think>\nHm.\n</think>\n\nHello, world: how are you?"
STOPPED = [
    (["w are"], "Hello, world: ho"),  # inside of several tokens
    (["\n\n", "never"], None),
    (["Hello"], None),
    (["?", "how"], "Hello, world: "),
]
"""Stop sequences, each with the rest of the message; None if nothing of it is left."""


async def send(client, request, *, streamed):
    """Send a request, and return its response, from a legal stream if `streamed`."""
    answer = await client.post("/v1/responses", json={**request, "stream": streamed})
    assert answer.status_code == 200, answer.text
    return judged(answer.content)[-1]["response"] if streamed else answer.json()


def ask_all(server, requests):
    """Return the responses to requests, each with and without streaming.

    A request is an interval, a turn and further fields; those of different intervals are sent one after another.
    """

    async def ask(sending):
        room = asyncio.Semaphore(AT_ONCE)

        async def one(client, request, streamed):
            async with room:
                return await send(client, request, streamed=streamed)

        limits = httpx.Limits(max_connections=AT_ONCE)
        async with httpx.AsyncClient(base_url=server.url, headers=HEADERS, timeout=300, limits=limits) as client:
            asking = [one(client, request, streamed) for request in sending for streamed in (True, False)]
            flat = await asyncio.gather(*asking)
        return zip(flat[::2], flat[1::2], strict=True)

    places = {interval: [place for place, case in enumerate(requests) if case[0] == interval] for interval in INTERVALS}
    bodies = [request_for(server, interval, turn, **fields) for interval, turn, fields in requests]
    found = {}
    for chosen in places.values():
        found.update(zip(chosen, asyncio.run(ask([bodies[place] for place in chosen])), strict=True))
    return [found[place] for place in range(len(requests))]


def spread(*lists):
    """Return each combination of the values of lists with one of the intervals, so that each value meets all of these."""
    places = product(*map(range, map(len, lists)))
    return [(INTERVALS[sum(place) % len(INTERVALS)], *values) for place, values in zip(places, product(*lists), strict=True)]


def request_for(server, interval, turn, **fields):
    request = body(server.setup.model, turn, **fields)
    request["vllm_xargs"]["interval"] = interval
    return request


def text_of(response):
    """Return the items without the fields that differ from run to run, and without log probabilities."""
    return without_chance(response["output"], {*CHANCE, "logprobs"})


def unscored(response):
    """Return the parts of messages whose log probabilities do not spell their text (rule R15)."""
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    spelled = [bytes(byte for entry in part["logprobs"] for byte in entry["bytes"]).decode(errors="replace") for part in parts]
    return [part for part, text in zip(parts, spelled, strict=True) if text != part["text"]]


def cross(server, turns, parameters, *, every):
    turns = [turn for turn in turns if turn.since <= RELEASE]
    cases = [*product(INTERVALS, turns, parameters)] if every else spread(turns, parameters)
    plain = {}
    for (interval, turn, parameter), (streamed, whole) in zip(cases, ask_all(server, cases), strict=True):
        case = f"{turn.name} with {json.dumps(parameter)} in outputs of {interval}"
        assert without_chance(whole) == without_chance(streamed), case
        assert (summary(streamed), streamed["status"]) == ([*turn.items], turn.status), case
        assert text_of(streamed) == plain.setdefault(turn.name, text_of(streamed)), case
        assert not parameter.get("include") or unscored(streamed) == [], case
        assert streamed["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


@PAIRS
@HARMONY_SERVER
def test_no_parameter_changes_an_item_of_harmony(server, every):
    cross(server, HARMONY, [*HARMLESS, SCORED, {**SCORED, **NEVER}], every=every)


@PAIRS
@PARSED_SERVERS
def test_no_parameter_changes_an_item_of_a_parsed_model(server, every):
    turns = [turn for turn in PARSED if not turn.body.get("include") and turn.status != "failed"]
    cross(server, turns, WITH_SCORES, every=every)


HARMONY_TEXT = f"{THINK}Hm, well.<|end|>{NEXT}{ANSWER}Hello, world: how are you?<|return|>"


@HARMONY_SERVER
def test_a_stop_sequence_truncates_the_text_of_harmony(server):
    stopped = [(["w are"], ["Hm, well.", "Hello, world: ho"]), (["Hello"], ["Hm, well."]), ([", w"], ["Hm"])]
    cases = [*product(INTERVALS, stopped)]
    requests = [(interval, Turn("", [HARMONY_TEXT]), {"stop": stop}) for interval, (stop, _) in cases]
    for (interval, (stop, texts)), (streamed, whole) in zip(cases, ask_all(server, requests), strict=True):
        assert without_chance(whole) == without_chance(streamed), (interval, stop)
        assert [item["content"][0]["text"] for item in streamed["output"]] == texts, (interval, stop)
        assert streamed["status"] == "completed"


@PARSED_SERVERS
def test_a_stop_sequence_truncates_the_text_and_its_log_probabilities(server):
    cases = [*product(INTERVALS, STOPPED, ({}, SCORED))]
    requests = [(interval, Turn("", [f"{TEXT}{END}"]), {"stop": stop, **scored}) for interval, (stop, _), scored in cases]
    for (interval, (stop, text), scored), (streamed, whole) in zip(cases, ask_all(server, requests), strict=True):
        assert without_chance(whole) == without_chance(streamed), (interval, stop)
        # White space at the beginning of a message is framing for some parsers, and text for others.
        messages = [item["content"][0]["text"].lstrip() for item in streamed["output"] if item["type"] == "message"]
        assert messages == ([] if text is None else [text]), (interval, stop)
        assert streamed["status"] == "completed"
        assert not scored or unscored(streamed) == [], (interval, stop)


@PARSED_SERVERS
def test_a_turn_that_continues_after_its_end_has_no_control_token_in_its_text(server):
    written = [f"{TEXT}{END} More.{END}", f"<think>\nHm.\n</think>\n\n{TOOL_CALL}{END}\n{END}"]
    cases = [*product(INTERVALS, [(Turn("", [text]), len(tokens("qwen3", text)) + 3) for text in written])]
    fields = {"ignore_eos": True, "tools": [FUNCTION]}
    requests = [(interval, turn, {**fields, "max_output_tokens": limit}) for interval, (turn, limit) in cases]
    for (interval, (_, limit)), (streamed, whole) in zip(cases, ask_all(server, requests), strict=True):
        assert without_chance(whole) == without_chance(streamed), interval
        assert (streamed["status"], streamed["usage"]["output_tokens"]) == ("incomplete", limit)
        assert "<|im_end|>" not in json.dumps(streamed["output"])
        assert [item["type"] for item in streamed["output"]][:1] == ["reasoning"]


@PAIRS
@HARMONY_SERVER
def test_harmony_that_continues_after_its_end_keeps_its_items_without_control_tokens(server, every):
    turns = [turn for turn in HARMONY if len(turn.rounds) == 1 and "max_output_tokens" not in turn.body]
    cases = [*product(INTERVALS, turns)] if every else spread(turns)
    limits = [len(tokens("gpt_oss", turn.rounds[0])) + 2 for _, turn in cases]
    requests = [
        (interval, turn, {"ignore_eos": True, "max_output_tokens": limit})
        for (interval, turn), limit in zip(cases, limits, strict=True)
    ]
    for (_, turn), limit, (streamed, whole) in zip(cases, limits, ask_all(server, requests), strict=True):
        assert without_chance(whole) == without_chance(streamed), turn.name
        assert streamed["usage"]["output_tokens"] == limit, turn.name
        assert "<|" not in json.dumps(streamed["output"]), turn.name
        assert [item["type"] for item in streamed["output"]] == [item.split()[0] for item in turn.items], turn.name


@pytest.mark.parametrize("server", ["shared"], indirect=True)
def test_turns_are_legal_streams_and_the_same_without_streaming(server):
    at_once(PARSED, partial(check, server.url, server.setup.model))


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
