"""Every parameter that changes the input of vLLM's detokenizer and parsers, with every turn and several sizes of outputs.

None of them may change an item: a stop sequence that never occurs makes text lag behind its tokens, log probabilities belong to
the text of their tokens, and an interval makes many tokens arrive at once. If a stop sequence occurs, or a turn continues after
its end, the streams are legal, have no control token, and equal the response without streaming.
"""

import asyncio
import json

import httpx
import pytest
from playing import CHANCE, body, judged, summary, tokens, without_chance
from servers import HEADERS, RELEASE
from turns import ANSWER, END, FUNCTION, HARMONY, NEXT, PARSED, THINK, TOOL_CALL, Turn

INTERVALS = pytest.mark.parametrize("interval", [1, 5, 50])
AT_ONCE = 8
"""The most concurrent requests, as many as a test server accepts."""

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


def all_asked(server, requests):
    """Return the responses to requests, each with and without streaming."""

    async def ask():
        room = asyncio.Semaphore(AT_ONCE)

        async def one(client, request, streamed):
            async with room:
                return await send(client, request, streamed=streamed)

        async with httpx.AsyncClient(base_url=server.url, headers=HEADERS, timeout=300) as client:
            asking = [one(client, request, streamed) for request in requests for streamed in (True, False)]
            return await asyncio.gather(*asking)

    flat = asyncio.run(ask())
    return [*zip(flat[::2], flat[1::2], strict=True)]


def request_for(server, turn, interval, **fields):
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


def cross(server, interval, turns, parameters):
    cases = [(turn, parameter) for turn in turns if turn.since <= RELEASE for parameter in parameters]
    results = all_asked(server, [request_for(server, turn, interval, **parameter) for turn, parameter in cases])
    plain = {}
    for (turn, parameter), (streamed, whole) in zip(cases, results, strict=True):
        case = f"{turn.name} with {json.dumps(parameter)}"
        assert without_chance(whole) == without_chance(streamed), case
        assert (summary(streamed), streamed["status"]) == ([*turn.items], turn.status), case
        assert text_of(streamed) == plain.setdefault(turn.name, text_of(streamed)), case
        assert not parameter.get("include") or unscored(streamed) == [], case
        assert streamed["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


@INTERVALS
@pytest.mark.parametrize("server", ["harmony"], indirect=True)
def test_no_parameter_changes_an_item_of_harmony(server, interval):
    cross(server, interval, HARMONY, [*HARMLESS, SCORED, {**SCORED, **NEVER}])


@INTERVALS
@pytest.mark.parametrize("server", ["parsed", "operated"], indirect=True)
def test_no_parameter_changes_an_item_of_a_parsed_model(server, interval):
    turns = [turn for turn in PARSED if not turn.body.get("include") and turn.status != "failed"]
    cross(server, interval, turns, WITH_SCORES)


HARMONY_TEXT = f"{THINK}Hm, well.<|end|>{NEXT}{ANSWER}Hello, world: how are you?<|return|>"


@INTERVALS
@pytest.mark.parametrize("server", ["harmony"], indirect=True)
def test_a_stop_sequence_truncates_the_text_of_harmony(server, interval):
    stopped = [(["w are"], ["Hm, well.", "Hello, world: ho"]), (["Hello"], ["Hm, well."]), ([", w"], ["Hm"])]
    requests = [request_for(server, Turn("", [HARMONY_TEXT]), interval, stop=stop) for stop, _ in stopped]
    for (stop, texts), (streamed, whole) in zip(stopped, all_asked(server, requests), strict=True):
        assert without_chance(whole) == without_chance(streamed), stop
        assert [item["content"][0]["text"] for item in streamed["output"]] == texts, stop
        assert streamed["status"] == "completed"


@INTERVALS
@pytest.mark.parametrize("server", ["parsed", "operated"], indirect=True)
def test_a_stop_sequence_truncates_the_text_and_its_log_probabilities(server, interval):
    requests = [
        request_for(server, Turn("", [f"{TEXT}{END}"]), interval, stop=stop, **scored)
        for stop, _ in STOPPED
        for scored in ({}, SCORED)
    ]
    results = all_asked(server, requests)
    for (stop, text), (streamed, whole) in zip([case for case in STOPPED for _ in range(2)], results, strict=True):
        assert without_chance(whole) == without_chance(streamed), stop
        # White space at the beginning of a message is framing for some parsers, and text for others.
        messages = [item["content"][0]["text"].lstrip() for item in streamed["output"] if item["type"] == "message"]
        assert messages == ([] if text is None else [text]), stop
        assert streamed["status"] == "completed"
    assert [unscored(streamed) for streamed, _ in results[1::2]] == [[]] * len(STOPPED)


@INTERVALS
@pytest.mark.parametrize("server", ["parsed", "operated"], indirect=True)
def test_a_turn_that_continues_after_its_end_has_no_control_token_in_its_text(server, interval):
    written = [f"{TEXT}{END} More.{END}", f"<think>\nHm.\n</think>\n\n{TOOL_CALL}{END}\n{END}"]
    for text in written:
        limit = len(tokens("qwen3", text)) + 3
        turn = Turn("", [text], body={"ignore_eos": True, "max_output_tokens": limit, "tools": [FUNCTION]})
        ((streamed, whole),) = all_asked(server, [request_for(server, turn, interval)])
        assert without_chance(whole) == without_chance(streamed)
        assert (streamed["status"], streamed["usage"]["output_tokens"]) == ("incomplete", limit)
        assert "<|im_end|>" not in json.dumps(streamed["output"])
        assert [item["type"] for item in streamed["output"]][:1] == ["reasoning"]


@INTERVALS
@pytest.mark.parametrize("server", ["harmony"], indirect=True)
def test_harmony_that_continues_after_its_end_loses_nothing_and_has_no_control_token(server, interval):
    turns = [turn for turn in HARMONY if len(turn.rounds) == 1 and "max_output_tokens" not in turn.body]
    limits = [len(tokens("gpt_oss", turn.rounds[0])) + 2 for turn in turns]
    requests = [
        request_for(server, turn, interval, ignore_eos=True, max_output_tokens=limit)
        for turn, limit in zip(turns, limits, strict=True)
    ]
    for turn, limit, (streamed, whole) in zip(turns, limits, all_asked(server, requests), strict=True):
        assert without_chance(whole) == without_chance(streamed), turn.name
        assert streamed["usage"]["output_tokens"] == limit, turn.name
        assert "<|" not in json.dumps(streamed["output"]), turn.name
        assert [item["type"] for item in streamed["output"]] == [item.split()[0] for item in turn.items], turn.name
