"""Inside vLLM a conversation is compacted by the same model, and the response goes on from what is left."""

import asyncio
import json

import fake_vllm as fake
import pytest
from fake_vllm import Serving, outputs
from live.plugged import client_of

from interlock.serving.requests.context_window import SUMMARIZE, summary_message
from interlock.verify.oracle import check

pytestmark = pytest.mark.usefixtures("vllm")

HM = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
SUMMARY = f"{HM}<|channel|>final<|message|>They greeted.<|return|>"
TURN = f"{HM}<|channel|>final<|message|>Hello.<|return|>"
USER = {"type": "message", "role": "user", "content": "Hi"}
REPLY = {"type": "message", "role": "assistant", "content": "Hello."}
CALLED = {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": "{}"}
GAVE = {"type": "function_call_output", "call_id": "call_1", "output": "42"}
TRIGGER = {"type": "compaction_trigger"}
TOOLS = [{"type": "function", "name": "look_up", "parameters": {}}]
MANAGED = {"context_management": [{"type": "compaction", "compact_threshold": 2}]}
REQUEST = {"model": "m", "input": [USER, CALLED, GAVE, REPLY, USER], "tools": TOOLS, **MANAGED}
BOTH = pytest.mark.parametrize("harmony", [True, False])


class Turns(Serving):
    """A server that generates one text after another, and remembers the rendered requests."""

    def __init__(self, *turns):
        super().__init__(fake.HarmonyContext, *(turn if isinstance(turn, list) else outputs(turn) for turn in turns))

    def inputs(self):
        """The rendered inputs, without ids and statuses, and whether they have tools."""
        return [(plain(request.input), bool(request.tools)) for request in self.requests]


def whole(text):
    """The output of a model that writes plain text."""
    return fake.Output([fake.Completion(text, (1,), finish_reason="stop")], finished=True)


def plain(items):
    items = [{**USER, "content": items}] if isinstance(items, str) else items
    return [{name: value for name, value in item.items() if name not in ("id", "status")} for item in items]


def post(serving, body, path=""):
    async def asking():
        async with client_of(serving) as client:
            return await client.post(f"/v1/responses{path}", json=body)

    return asyncio.run(asking())


def events(answer):
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: {")]


def kinds(output):
    return [item["type"] for item in output]


ASKING = {**USER, "content": SUMMARIZE}
REMAINING = [USER, USER, summary_message("They greeted.")]


@BOTH
def test_beyond_its_threshold_a_conversation_is_compacted_before_the_model_answers(harmony) -> None:
    serving = Turns(SUMMARY, TURN)
    serving.use_harmony = harmony
    if not harmony:
        items = [
            fake.Output([fake.Completion(text, (1,), finish_reason="stop")], finished=True) for text in ("They greeted.", "Hi!")
        ]
        serving.script = [[each] for each in items]
    stream = events(post(serving, {**REQUEST, "stream": True}))
    assert check(stream) == []
    response = stream[-1]["response"]
    assert (response["status"], kinds(response["output"])[0], response["output"][-1]["type"]) == (
        "completed",
        "compaction",
        "message",
    )
    assert [event["type"] for event in stream[:5]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
    ]
    assert serving.inputs() == [(REQUEST["input"], True), ([*REQUEST["input"], ASKING], False), (REMAINING, True)]
    assert (response["usage"]["input_tokens"], len(serving.turns)) == (6, 2)
    assert {request.request_id for request in serving.requests[::2]} == {response["id"]}


def test_below_its_threshold_nothing_is_compacted() -> None:
    serving = Turns(TURN)
    many = {"context_management": [{"type": "compaction", "compact_threshold": 3}]}
    assert kinds(post(serving, {**REQUEST, **many}).json()["output"]) == ["reasoning", "message"]
    assert len(serving.requests) == 1


def test_a_trigger_compacts_and_does_nothing_else_and_what_it_gave_is_shown_as_what_it_was() -> None:
    serving = Turns(SUMMARY, TURN)

    async def asking():
        async with client_of(serving) as client:
            first = (await client.post("/v1/responses", json={"model": "m", "input": [USER, REPLY, TRIGGER]})).json()
            next_body = {"model": "m", "input": [USER, *first["output"], {**USER, "content": "Bye"}]}
            return first, (await client.post("/v1/responses", json=next_body)).json()

    first, second = asyncio.run(asking())
    assert (first["status"], kinds(first["output"]), second["status"]) == ("completed", ["compaction"], "completed")
    assert serving.inputs()[2:] == [([USER, summary_message("They greeted."), {**USER, "content": "Bye"}], False)]


def test_a_conversation_is_compacted_by_a_route_and_goes_on_from_what_that_gave() -> None:
    serving = Turns(TURN, SUMMARY, TURN)

    async def asking():
        async with client_of(serving) as client:
            first = (await client.post("/v1/responses", json={"model": "m", "input": "Hi"})).json()
            body = {"model": "m", "previous_response_id": first["id"], "input": "Go on", "prompt_cache_key": "k"}
            compacted = (await client.post("/v1/responses/compact", json=body)).json()
            next_body = {"model": "m", "input": [*compacted["output"], USER]}
            return compacted, (await client.post("/v1/responses", json=next_body)).json()

    compacted, second = asyncio.run(asking())
    assert [*compacted] == ["id", "object", "created_at", "output", "usage"]
    assert (compacted["object"], kinds(compacted["output"])) == ("response.compaction", ["message", "message", "compaction"])
    assert [item["content"][0]["text"] for item in compacted["output"][:2]] == ["Hi", "Go on"]
    assert (compacted["usage"]["input_tokens"], second["status"]) == (3, "completed")
    assert [item.get("content") for item in serving.requests[1].input][-1] == SUMMARIZE
    assert serving.inputs()[2][0][-2:] == [summary_message("They greeted."), USER]


@pytest.mark.parametrize(
    ("body", "status", "param", "code"),
    [
        ({"input": "Hi"}, 400, "model", "missing_required_parameter"),
        ({"model": "m"}, 400, "input", "missing_required_parameter"),
        ({"model": "m", "previous_response_id": "no"}, 400, "previous_response_id", "previous_response_not_found"),
        ({"model": "m", "input": [{"type": "new"}]}, 400, "input[0].type", "invalid_value"),
    ],
)
def test_what_cannot_be_compacted_is_refused(body, status, param, code) -> None:
    answer = post(Turns(), body, "/compact")
    assert (answer.status_code, answer.json()["error"]["param"], answer.json()["error"]["code"]) == (status, param, code)


def test_a_trigger_must_be_last_and_a_threshold_a_number() -> None:
    for more, param in (
        ({"input": [TRIGGER, USER]}, "input[0]"),
        ({"context_management": [{"type": "compaction", "compact_threshold": "a"}]}, "context_management[0].compact_threshold"),
        ({"context_management": [{"type": "other"}]}, "context_management[0].type"),
    ):
        answer = post(Turns(), {**REQUEST, **more})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


FAILED = "The conversation could not be compacted: "


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        (outputs("<|channel|>final<|message|>They", "length"), "the model did not finish the summary (status 'incomplete')."),
        (outputs(f"{HM}<|channel|>final<|message|> <|return|>"), "the model wrote no summary."),
        ([RuntimeError("a secret")], "The server had an error while it generated the response."),
    ],
)
def test_without_a_whole_summary_nothing_is_lost_because_it_fails(turn, why) -> None:
    serving = Turns(turn)
    stream = events(post(serving, {**REQUEST, "stream": True}))
    assert check(stream) == []
    assert stream[-1]["response"]["error"] == {"code": "server_error", "message": f"{FAILED}{why}"}
    assert [(item["type"], item["encrypted_content"]) for item in stream[-1]["response"]["output"]] == [("compaction", "")]


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (1, {"code": "server_error", "message": f"{FAILED}It is refused."}),
        (2, {"code": "invalid_prompt", "message": "It is refused."}),
    ],
)
def test_where_vllm_refuses_the_summary_or_what_is_left_the_response_fails_in_its_words(refused, error) -> None:
    class Refusing(Turns):
        async def create_responses(self, request, raw_request):
            if len(self.requests) == refused:
                return fake.Refused(error=fake.Refusal(message="It is refused.", code=400))
            return await super().create_responses(request, raw_request)

    stream = events(post(Refusing(SUMMARY), {**REQUEST, "stream": True}))
    assert check(stream) == []
    assert stream[-1]["response"]["error"] == error


def test_what_vllm_refuses_to_compact_is_refused_in_its_words() -> None:
    class Refusing(Turns):
        async def create_responses(self, *_):
            return fake.Refused(error=fake.Refusal(message="It is refused.", code=400))

    answer = post(Refusing(), {"model": "m", "input": "Hi"}, "/compact")
    assert (answer.status_code, answer.json()) == (400, {"error": {"message": "It is refused.", "code": 400}})


def test_a_stored_response_goes_on_from_its_summary() -> None:
    serving = Turns(SUMMARY, TURN, TURN)

    async def asking():
        async with client_of(serving) as client:
            first = (await client.post("/v1/responses", json=REQUEST)).json()
            await client.post("/v1/responses", json={"model": "m", "input": "Bye", "previous_response_id": first["id"]})

    asyncio.run(asking())
    items = serving.inputs()[-1][0]
    assert items[:3] == REMAINING
    assert kinds(items[3:]) == ["reasoning", "message", "message"]


def test_a_background_response_is_compacted_too() -> None:
    stream = events(post(Turns(SUMMARY, TURN), {**REQUEST, "background": True, "stream": True}))
    assert check(stream) == []
    assert [event["type"] for event in stream[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert kinds(stream[-1]["response"]["output"]) == ["compaction", "reasoning", "message"]


def test_a_client_that_leaves_stops_the_summary() -> None:
    gate = asyncio.Event()

    async def asking():
        serving = Turns([gate])
        async with client_of(serving) as client:
            posting = asyncio.create_task(client.post("/v1/responses", json=REQUEST))
            await serving.started.wait()
            posting.cancel()
            await asyncio.wait([posting])
            return serving.aborted

    assert asyncio.run(asking())


def test_the_summary_is_asked_for_with_vllms_own_parameters() -> None:
    serving = Turns(SUMMARY)
    settings = {"vllm_xargs": {"a": 1}, "priority": 2, "temperature": 0.5}
    assert post(serving, {"model": "m", "input": "Hi", **settings}, "/compact").status_code == 200
    assert {name: getattr(serving.requests[0], name) for name in settings} == settings
