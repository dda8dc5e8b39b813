"""The real `openai` client, sync and async, works with the real server."""

import asyncio
import json

import httpx
import openai
import pytest
from live.engines import ANSWER, Gate, StagedEngine, scored_steps, step, steps
from live.open_responses import CASES, Suite
from openai import AsyncOpenAI, OpenAI
from openai.types.responses.response_item_list import ResponseItemList
from pydantic import BaseModel

from interlock.serving.build import build
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.http.app import INSTRUCTIONS, codex_model
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import ModelFacts, Settings
from interlock.verify.oracle import check

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
QUESTION = "What is the weather like in this city: Paris"


@pytest.fixture
def client(url):
    with OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield client


def asynchronously(url, use):
    """Run a coroutine function with an asynchronous client, which waits as long as a slow machine needs for a connection."""

    async def run():
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=600) as client:
            return await use(client)

    return asyncio.run(run())


def judged(events):
    """Return the events that the client has parsed, after a check that they are legal."""
    bodies = [event.to_dict(mode="json") for event in events]
    assert check(bodies) == []
    return events


def test_a_response_is_created(client) -> None:
    response = client.responses.create(model=MODEL, input="Hi there")
    assert (response.status, response.model, response.object) == ("completed", MODEL, "response")
    assert "Hi there" in response.output_text
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0


def test_a_response_is_streamed(client) -> None:
    with client.responses.create(model=MODEL, input="Hi there", stream=True) as stream:
        events = judged([*stream])
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[-1].response.output_text == text


def test_a_response_is_streamed_asynchronously(url) -> None:
    async def use(client):
        stream = await client.responses.create(model=MODEL, input="Hi there", stream=True)
        return [event async for event in stream]

    assert judged(asynchronously(url, use))[-1].type == "response.completed"


def test_the_stream_helpers_snapshot_is_the_final_response(client) -> None:
    with client.responses.stream(model=MODEL, input=QUESTION, tools=[WEATHER]) as stream:
        *_, last = stream
        snapshot = stream.get_final_response()
    assert without_parsed(snapshot.to_dict()) == last.response.to_dict() | {
        "output": without_parsed(last.response.to_dict())["output"]
    }
    assert [item.type for item in snapshot.output] == ["reasoning", "message", "function_call"]


def test_the_asynchronous_stream_helper_agrees_with_the_synchronous_one(url, client) -> None:
    async def use(client):
        async with client.responses.stream(model=MODEL, input="Hi there") as stream:
            return await stream.get_final_response()

    with client.responses.stream(model=MODEL, input="Hi there") as stream:
        assert stream.get_final_response().output_text == asynchronously(url, use).output_text


def without_parsed(value):
    """A response without what the client adds to it."""
    match value:
        case dict():
            return {name: without_parsed(inner) for name, inner in value.items() if not name.startswith("parsed")}
        case list():
            return [without_parsed(inner) for inner in value]
        case _:
            return value


@pytest.mark.parametrize("stored", [True, False])
def test_a_function_is_called_and_its_output_is_used(client, stored) -> None:
    first = client.responses.create(model=MODEL, input=QUESTION, tools=[WEATHER], store=stored)
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees and rain"}
    if stored:
        goes_on = {"previous_response_id": first.id, "input": [output]}
    else:
        goes_on = {"input": [{"role": "user", "content": QUESTION}, *first.output, output]}
    second = client.responses.create(model=MODEL, tools=[WEATHER], **goes_on)
    assert "12 degrees and rain" in second.output_text
    assert "function_call" not in {item.type for item in second.output}


def test_structured_output_is_parsed_into_a_pydantic_model(client) -> None:
    class Trip(BaseModel):
        city: str
        days: int

    response = client.responses.parse(model=MODEL, input="Plan a trip", text_format=Trip)
    assert isinstance(response.output_parsed, Trip)
    with client.responses.stream(model=MODEL, input="Plan a trip", text_format=Trip) as stream:
        judged_types = {event.type for event in stream}
        assert stream.get_final_response().output_parsed == response.output_parsed
    assert "response.output_text.done" in judged_types


def test_output_follows_its_json_schema(client) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    form = {"type": "json_schema", "name": "number", "schema": schema, "strict": True}
    response = client.responses.create(model=MODEL, input="A number", text={"format": form})
    assert isinstance(json.loads(response.output_text)["n"], int)
    assert response.text.format.to_dict()["schema"] == schema


def test_log_probabilities_rebuild_the_text(serve) -> None:
    request = {"model": "staged", "input": "Hi there", "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    with (
        serve(StagedEngine(scored_steps(ANSWER))) as url,
        OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
        client.responses.create(**request, stream=True) as stream,
    ):
        events = judged([*stream])
    text = events[-1].response.output_text
    for logprobs in (
        [entry for event in events if event.type == "response.output_text.delta" for entry in event.logprobs],
        events[-1].response.output[-1].content[0].logprobs,
    ):
        assert "".join(entry.token for entry in logprobs) == text
        assert all(len(entry.top_logprobs) == 2 for entry in logprobs)


def test_a_response_ends_incomplete_at_max_output_tokens(client) -> None:
    with client.responses.create(model=MODEL, input="Hi there", max_output_tokens=16, stream=True) as stream:
        last = judged([*stream])[-1]
    assert (last.type, last.response.status) == ("response.incomplete", "incomplete")
    assert last.response.incomplete_details.reason == "max_output_tokens"
    assert last.response.usage.output_tokens == 16
    assert last.response.output[-1].status == "incomplete"


def test_a_stored_response_is_continued_by_its_id_or_an_item_reference(serve) -> None:
    engine = StagedEngine(steps(ANSWER))
    with serve(engine) as url, OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        first = client.responses.create(model="staged", input="One")
        with client.responses.create(model="staged", input="Two", previous_response_id=first.id, stream=True) as stream:
            second = [*stream][-1].response
        client.responses.create(model="staged", input="Three", previous_response_id=second.id, store=False)
        client.responses.create(model="staged", input=[{"type": "item_reference", "id": first.output[0].id}])
    assert second.previous_response_id == first.id
    texts = [[item["content"] for item in turn.items] for turn in engine.turns]
    answer = [part.to_dict() for part in first.output[0].content]
    assert texts == [["One"], ["One", answer, "Two"], ["One", answer, "Two", answer, "Three"], [answer]]


def test_a_stored_response_is_retrieved_listed_and_deleted(client) -> None:
    first = client.responses.create(
        model=MODEL, input=[{"role": "user", "content": "One"}, {"role": "assistant", "content": "Yes"}]
    )
    second = client.responses.create(
        model=MODEL, input=[{"role": "user", "content": "Two"}], previous_response_id=first.id, instructions="Be kind"
    )
    assert client.responses.retrieve(second.id).to_dict() == second.to_dict()
    page = client.responses.input_items.with_raw_response.list(second.id, order="asc", limit=2)
    ResponseItemList.model_validate(page.http_response.json(), strict=True)
    listed = page.parse()
    assert [(item.role, item.content[0].type, item.content[0].text) for item in listed.data] == [
        ("user", "input_text", "One"),
        ("assistant", "output_text", "Yes"),
    ]
    assert [item.type for item in listed] == ["message", "message", "reasoning", "message", "message"]  # page after page
    assert listed.has_more
    client.responses.delete(second.id)
    for request in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            request(second.id)
    assert client.responses.retrieve(first.id).id == first.id


@pytest.mark.parametrize(
    "query",
    [
        {"order": "up"},
        {"limit": 0},
        {"limit": 101},
        {"limit": "000000005999"},
        {"limit": "00000005" + "9" * 5_000},
        {"after": "msg_no"},
    ],
)
def test_an_invalid_page_query_is_refused(client, query) -> None:
    response = client.responses.create(model=MODEL, input="One")
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.input_items.list(response.id, extra_query=query)
    assert refused.value.param == next(iter(query))


def test_a_response_with_store_false_is_not_stored(client) -> None:
    response = client.responses.create(model=MODEL, input="One", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=MODEL, input="Two", previous_response_id=response.id)
    assert (refused.value.param, refused.value.code) == ("previous_response_id", "previous_response_not_found")


def test_a_stored_foreground_response_cannot_be_streamed(client) -> None:
    response = client.responses.create(model=MODEL, input="One")
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.retrieve(response.id, stream=True)
    assert refused.value.param == "stream"


def test_errors_raise_the_clients_exception_types(client, serve) -> None:
    with pytest.raises(openai.NotFoundError) as not_found:
        client.responses.create(model="gpt-0", input="Hi")
    assert (not_found.value.param, not_found.value.code) == ("model", "model_not_found")
    with pytest.raises(openai.BadRequestError) as bad:
        client.responses.create(model=MODEL, input="Hi", temperature=9, stream=True)
    assert (bad.value.param, bad.value.code) == ("temperature", "decimal_above_max_value")
    with serve(StagedEngine(), api_key=["sesame"]) as url, OpenAI(base_url=f"{url}/v1", api_key="wrong") as stranger:
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()
        assert [model.id for model in stranger.with_options(api_key="sesame").models.list()] == ["staged", "org/staged-2"]


def test_a_client_receives_and_retrieves_a_failed_response(serve) -> None:
    engine = StagedEngine([step(ANSWER), RuntimeError("a secret")])
    with serve(engine) as url, OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        with client.responses.create(model="staged", input="Hi", stream=True) as stream:
            last = judged([*stream])[-1]
        again = client.responses.retrieve(last.response.id)
    assert (last.type, last.response.error.code) == ("response.failed", "server_error")
    assert again.to_dict() == last.response.to_dict()


def test_closing_a_stream_stops_the_generation(serve) -> None:
    gate = Gate()
    engine = StagedEngine([step(ANSWER), gate])
    with serve(engine) as url, OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        with client.responses.create(model="staged", input="Hi", stream=True) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    break
            assert gate.reached.wait(10)
        assert engine.closed.wait(10)


def test_fifty_streams_at_once_do_not_mix(url) -> None:
    async def one(client, number):
        stream = await client.responses.create(model=MODEL, input=f"I am number {number}.", stream=True)
        return judged([event async for event in stream])[-1].response

    async def all_of_them(client):
        return await asyncio.gather(*(one(client, number) for number in range(50)))

    responses = asynchronously(url, all_of_them)
    assert len({response.id for response in responses}) == 50
    assert all(f"I am number {number}." in response.output_text for number, response in enumerate(responses))


# The catalogue for Codex in `GET /v1/models`


UNKNOWN = {
    "slug": "m",
    "display_name": "m",
    "description": None,
    "default_reasoning_level": None,
    "supported_reasoning_levels": [
        {"effort": "low", "description": "Fast answers with little reasoning"},
        {"effort": "medium", "description": "A balance of speed and reasoning"},
        {"effort": "high", "description": "Much reasoning for hard problems"},
    ],
    "shell_type": "default",
    "visibility": "list",
    "supported_in_api": True,
    "priority": 0,
    "availability_nux": None,
    "upgrade": None,
    "base_instructions": INSTRUCTIONS,
    "supports_reasoning_summaries": True,
    "default_reasoning_summary": "auto",
    "support_verbosity": False,
    "default_verbosity": None,
    "apply_patch_tool_type": "freeform",
    "truncation_policy": {"mode": "tokens", "limit": 10_000},
    "supports_parallel_tool_calls": True,
    "context_window": None,
    "max_context_window": None,
    "auto_compact_token_limit": None,
    "experimental_supported_tools": [],
}
KNOWN = {
    **UNKNOWN,
    "supported_reasoning_levels": [{"effort": "mild", "description": "mild"}],
    "truncation_policy": {"mode": "tokens", "limit": 2500},
    "context_window": 40_000,
    "max_context_window": 40_000,
    "auto_compact_token_limit": 30_000,
    "input_modalities": ["text"],
}


@pytest.mark.parametrize(
    ("facts", "entry"),
    [
        (ModelFacts(), UNKNOWN),
        (ModelFacts(window=40_000, efforts=["mild"], modalities=["text"]), KNOWN),
        (ModelFacts(efforts=[]), {**UNKNOWN, "supported_reasoning_levels": [], "supports_reasoning_summaries": False}),
    ],
)
def test_a_codex_entry_has_the_facts_of_the_model(facts, entry):
    assert codex_model("m", facts, 0) == entry


@pytest.mark.parametrize(
    ("facts", "other", "both"),
    [
        (ModelFacts(window=1), ModelFacts(window=2, efforts=[]), ModelFacts(window=1, efforts=[])),
        (ModelFacts(efforts=[]), ModelFacts(efforts=["low"]), ModelFacts(efforts=[])),
        (ModelFacts(), ModelFacts(modalities=["text"]), ModelFacts(modalities=["text"])),
    ],
)
def test_facts_of_another_source_fill_the_gaps(facts, other, both):
    assert facts.fill_from(other) == both


def test_the_model_list_includes_the_codex_catalogue(serve):
    with serve(StagedEngine()) as url:
        listed = httpx.get(f"{url}/v1/models?client_version=0.171.0").json()
        messages = httpx.get(f"{url}/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    assert listed["models"] == [codex_model(name, ModelFacts(), index) for index, name in enumerate(StagedEngine.models)]
    assert list(listed) == ["object", "data", "models"]
    assert list(messages) == ["data", "has_more", "first_id", "last_id"]


def test_an_engine_may_state_facts_of_its_model(serve):
    with serve(EmbeddedEngine()) as url:
        listed = httpx.get(f"{url}/v1/models").json()
    assert listed["data"][0]["max_model_len"] == EmbeddedEngine().facts("").window == 131_072
    assert listed["models"] == [codex_model("interlock-embedded", EmbeddedEngine().facts(""), 0)]


# The standalone server passes the compliance suite of Open Responses in that dialect


@pytest.fixture(scope="module")
def suite():
    with ServerThread(build(Settings(dialect="open_responses"), EmbeddedEngine())) as url:
        yield Suite(url, MODEL)


@pytest.mark.parametrize("case", CASES)
def test_the_server_passes_a_compliance_case(suite, case) -> None:
    CASES[case](suite)
