"""Settings that a conversation changes, and requests that only warm the cache."""

import httpx
import pytest
from live.engines import ANSWER, REASONING, StagedEngine, steps

SCHEMA = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}
LOW = {"type": "configuration_update", "reasoning": {"effort": "low"}}
JSON = {"type": "configuration_update", "text": {"format": SCHEMA}}
BOTH = {"type": "configuration_update", "reasoning": {"effort": "high"}, "text": {"format": {"type": "text"}}}
HI = {"role": "user", "content": "Hi"}


def ask(url, *items, **more):
    answer = httpx.post(f"{url}/v1/responses", json={"model": "staged", "input": [*items, HI], **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def effects(engine):
    return [(turn.request.reasoning_effort, turn.request.text_format["type"]) for turn in engine.turns]


@pytest.mark.parametrize(
    ("items", "settings", "effect"),
    [
        ([], {}, (None, "text")),
        ([LOW], {}, ("low", "text")),
        ([LOW], {"reasoning": {"effort": "high", "summary": "auto"}}, ("low", "text")),
        ([JSON], {"reasoning": {"effort": "high"}}, ("high", "json_schema")),
        ([LOW, JSON], {"text": {"verbosity": "low"}}, ("low", "json_schema")),
        ([JSON, LOW, BOTH], {}, ("high", "text")),
        ([{"type": "configuration_update"}], {"reasoning": {"effort": "high"}}, ("high", "text")),
    ],
)
def test_the_last_update_of_a_setting_replaces_the_requests_own(serve, items, settings, effect):
    engine = StagedEngine(steps(ANSWER))
    with serve(engine) as url:
        response = ask(url, *items, **settings)
    assert effects(engine) == [effect]
    assert (response["reasoning"]["effort"], response["text"]["format"]["type"]) == effect
    assert response["reasoning"]["summary"] == settings.get("reasoning", {}).get("summary")
    assert response["text"].get("verbosity", "medium") == settings.get("text", {}).get("verbosity", "medium")


def test_an_update_holds_for_later_responses(serve):
    engine = StagedEngine(steps(ANSWER))
    with serve(engine) as url:
        first = ask(url, LOW)
        second = ask(url, JSON, previous_response_id=first["id"])
        ask(url, previous_response_id=second["id"])
        ask(url)
    assert effects(engine) == [("low", "text"), ("low", "json_schema"), ("low", "json_schema"), (None, "text")]


def test_a_request_that_prewarms_has_the_engine_read_the_prompt_and_writes_nothing(serve):
    engine = StagedEngine(steps(f"{REASONING}{ANSWER}"))
    with serve(engine) as url:
        response = ask(url, prompt_cache_options={"prewarm": True}, max_output_tokens=500)
        plain = ask(url, prompt_cache_options={"prewarm": False})
    assert [turn.budget for turn in engine.turns] == [16, None]
    assert (response["status"], response["output"], response["usage"]["output_tokens"]) == ("completed", [], 0)
    assert len(plain["output"]) == 2
