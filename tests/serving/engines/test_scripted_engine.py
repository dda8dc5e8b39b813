"""An engine follows a script: a recording turn by turn, within its limit of tokens and at its rate."""

import asyncio
from types import SimpleNamespace

import pytest
from attrs import evolve

from interlock.parsers import Chunk
from interlock.serving.engines import scripted_engine
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.recordings import RecordedTurn, Recording
from interlock.serving.engines.script import Failure, ScriptRule, ScriptStep, recorded_rule
from interlock.serving.engines.scripted_engine import ScriptedEngine
from interlock.serving.requests.api_errors import ApiError, EngineError
from interlock.serving.requests.create import read_request

CALLED = [
    {"role": "user", "content": "Hi"},
    *({"type": "function_call", "call_id": f"call_{n}", "name": "f", "arguments": "{}"} for n in range(2)),
    *({"type": "function_call_output", "call_id": f"call_{n}", "output": "x"} for n in range(2)),
]


def engine_of(turns, **settings):
    return ScriptedEngine(
        [recorded_rule(Recording("harmony", {}, tuple(RecordedTurn(tuple(turn)) for turn in turns)))], **settings
    )


def turn_for(*, budget=None, index=0, items="Hi"):
    request = read_request({"model": "m", "input": items})
    return Turn(request, request.input, budget, index=index)


def outputs(turn, engine):
    async def collect():
        generation = await engine.begin(turn.request, turn.items)
        await generation.prepare(evolve(turn, index=0))
        for index in range(turn.index + 1):
            collected = [output async for output in generation.generate(evolve(turn, index=index))]
        return collected

    return asyncio.run(collect())


SCRIPT = [
    [EngineOutput(Chunk([1, 2], logprobs=[{"token": "a"}, {"token": "b"}])), EngineOutput(Chunk([3]), "stop")],
    [EngineOutput(Chunk([4]))],
    [],
]


def test_a_script_is_replayed_turn_by_turn():
    engine = engine_of(SCRIPT)
    assert outputs(turn_for(), engine) == SCRIPT[0]
    assert outputs(turn_for(index=1), engine) == [EngineOutput(Chunk([4]), "stop")]
    answered = CALLED
    assert outputs(turn_for(items=answered), engine) == [EngineOutput(Chunk([4]), "stop")]
    assert outputs(turn_for(items=[*answered, {"role": "user", "content": "again"}]), engine) == SCRIPT[0]
    assert outputs(turn_for(index=2), engine) == [EngineOutput(Chunk(), "stop")]


def test_a_turn_that_a_script_lacks_refuses_a_request_and_fails_a_response():
    with pytest.raises(EngineError, match="has 3 turns, and needs 4"):
        outputs(turn_for(index=3), engine_of(SCRIPT))
    with pytest.raises(ApiError, match="has 0 turns, and needs 1"):
        outputs(turn_for(), engine_of([]))


def test_a_script_is_truncated_to_its_budget_and_keeps_its_rate(monkeypatch):
    slept = []

    async def note(seconds):
        slept.append(seconds)

    monkeypatch.setattr(scripted_engine, "asyncio", SimpleNamespace(sleep=note))  # servers of other tests may sleep too
    truncated = [EngineOutput(Chunk([1], logprobs=[{"token": "a"}]), "length")]
    assert outputs(turn_for(budget=1), engine_of(SCRIPT)) == truncated
    assert outputs(turn_for(budget=3), engine_of(SCRIPT, rate=10)) == SCRIPT[0]
    assert slept == [0, 0.2, 0.1]


LOGPROBS = [{"token": "Hello"}, {"token": "!"}]
DELTA = {"content": "Hello!"}


@pytest.mark.parametrize(
    ("chunk", "one", "none"),
    [
        (Chunk([1, 2], "Hello!", LOGPROBS), Chunk([1], "Hello", LOGPROBS[:1]), Chunk([], "", [])),
        (Chunk([1, 2], "Hello!"), Chunk([1], "Hel"), Chunk([])),
        (Chunk([1, 2], delta=DELTA), Chunk([1], delta=DELTA), Chunk([])),
    ],
)
def test_a_budget_truncates_the_text_of_a_script_with_its_tokens(chunk, one, none):
    engine = engine_of([[EngineOutput(Chunk([0])), EngineOutput(chunk)]])
    assert outputs(turn_for(budget=2), engine) == [EngineOutput(Chunk([0])), EngineOutput(one, "length")]
    assert outputs(turn_for(budget=1), engine) == [EngineOutput(Chunk([0])), EngineOutput(none, "length")]


def test_the_least_recent_conversations_that_met_a_fault_are_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(scripted_engine, "_REMEMBERED", 2)
    engine = ScriptedEngine([ScriptRule(steps=[ScriptStep(fails=Failure(500)), ScriptStep(says="Hi")])])
    took = [engine.take(0, 0, [{"content": text}]).has_answer for text in ("a", "b", "a", "c", "a", "b")]
    assert took == [False, False, True, False, True, False]
