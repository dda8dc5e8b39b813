"""What an engine has without writing it."""

import asyncio

import pytest

from interlock.parsers import Chunk
from interlock.serving.engines.engine import Engine, EngineOutput, ModelFacts, Turn
from interlock.serving.engines.script import ScriptRule, ScriptStep
from interlock.serving.engines.scripted_engine import ScriptedEngine
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.create import read_request


class Least(Engine):
    """An engine with nothing but what it must have."""

    models = ("least",)
    format = "text"

    async def generate(self, turn):
        del turn
        yield EngineOutput(Chunk(text="Hi"), "stop")


def turn_of(text="Hello"):
    request = read_request({"model": "least", "input": text})
    return Turn(request, request.input)


def test_an_engine_must_generate() -> None:
    with pytest.raises(TypeError, match="generate"):
        Engine()


def test_an_engine_has_defaults_for_the_rest() -> None:
    engine = Least()

    async def asked():
        generation = await engine.begin(turn_of().request, turn_of().items)
        await generation.admit(turn_of())
        outputs = [output async for output in await generation.start(turn_of())]
        return await engine.names(), await engine.has_tools("least"), await generation.prepare(turn_of()), outputs

    assert asyncio.run(asked()) == (("least",), False, {}, [EngineOutput(Chunk(text="Hi"), "stop")])
    assert (engine.facts("least"), engine.passes_keys, engine.has_faults) == (ModelFacts(), False, False)
    assert (engine.model_label("least"), engine.model_label("secret")) == ("least", "other")


def test_an_engine_refuses_models_that_it_lacks() -> None:
    with pytest.raises(ApiError, match="The model 'other' does not exist"):
        Least().read({"model": "other", "input": "Hi"})


def test_the_tokens_of_a_prompt_are_estimated_by_its_length() -> None:
    short, long = (asyncio.run(Least().count(turn_of(text))) for text in ("x", "x" * 401))
    assert long - short == 100


def test_an_engine_generates_a_turn_that_belongs_to_no_response() -> None:
    async def generated():
        engine = ScriptedEngine([ScriptRule(steps=[ScriptStep(says="Hi there")])])
        return [output async for output in engine.generate(turn_of())]

    outputs = asyncio.run(generated())
    assert [output.chunk.delta for output in outputs] == [{"content": "Hi"}, {"content": " there"}]
    assert [output.finish_reason for output in outputs] == [None, "stop"]
