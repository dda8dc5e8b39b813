"""A request for a summary of the reasoning gets what the model wrote, because there is no other summary."""

import httpx
import pytest
from live.chunk_shapes import chunk
from live.engines import ANSWER, REASONING, StagedEngine, steps
from live.upstream import gateway, stream
from live.wire import bodies

from interlock.verify.oracle import check

TURN = steps(f"{REASONING}{ANSWER}")
REQUEST = {"model": "staged", "input": "Hi", "stream": True, "store": False}
SUMMARY = [{"type": "summary_text", "text": "Let me think."}]
CONTENT = [{"type": "reasoning_text", "text": "Let me think."}]


def post(url, **body):
    events = bodies(httpx.post(f"{url}/v1/responses", json={**REQUEST, **body}).content)
    assert check(events) == []
    return events


def reasoning_of(events):
    item = events[-1]["response"]["output"][0]
    return item["summary"], item["content"]


@pytest.mark.parametrize(
    ("reasoning", "options", "expected"),
    [
        ({"summary": "auto"}, {}, (SUMMARY, [])),
        ({"summary": "detailed", "effort": "low"}, {}, (SUMMARY, [])),
        ({"generate_summary": "concise"}, {}, (SUMMARY, [])),
        ({"summary": None}, {}, ([], CONTENT)),
        ({"effort": "low"}, {}, ([], CONTENT)),
        ({"summary": "auto"}, {"raw_reasoning": True}, ([], CONTENT)),
    ],
)
def test_reasoning_is_the_summary_that_a_request_asks_for(serve, reasoning, options, expected) -> None:
    with serve(StagedEngine(TURN), **options) as url:
        events = post(url, reasoning=reasoning)
    assert reasoning_of(events) == expected
    name = "response.reasoning_summary_text.delta" if expected[0] else "response.reasoning_text.delta"
    assert "".join(event["delta"] for event in events if event["type"] == name) == "Let me think."


def test_a_summary_that_comes_back_is_the_reasoning_that_it_was(serve) -> None:
    engine = StagedEngine(TURN)
    with serve(engine) as url:
        reasoning, message = post(url, reasoning={"summary": "auto"})[-1]["response"]["output"]
        plain = {name: reasoning[name] for name in ("type", "summary")}
        for item in (reasoning, plain):
            post(url, input=[item, message, {"role": "user", "content": "Go on"}])
    assert [turn.items[0]["summary"] for turn in engine.turns[1:]] == [SUMMARY, SUMMARY]


def test_the_reasoning_of_an_upstream_is_the_summary_too() -> None:
    chunks = [chunk({"reasoning_content": part}) for part in ("Let ", "me ", "think.")]
    with gateway(stream(*chunks, chunk({"content": "Hi"}), chunk({}, "stop"))) as (url, _):
        assert reasoning_of(post(url, model="m", reasoning={"summary": "auto"})) == (SUMMARY, [])
