"""Inside vLLM a conversation is compacted by the same model, and the response goes on from what is left."""

import asyncio
import json

import fake_vllm as fake
import pytest
from fake_vllm import Serving, client_of, outputs

from interlock.serving.requests.input_items import SUMMARIZE, summary_message
from interlock.verify.oracle import check

pytestmark = pytest.mark.usefixtures("vllm")

HM = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
SUMMARY = f"{HM}<|channel|>final<|message|>They greeted.<|return|>"
TURN = f"{HM}<|channel|>final<|message|>Hello.<|return|>"
USER = {"type": "message", "role": "user", "content": "Hi"}
REPLY = {"type": "message", "role": "assistant", "content": "Hello."}
CALLED = {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": "{}"}
GAVE = {"type": "function_call_output", "call_id": "call_1", "output": "42"}
TOOLS = [{"type": "function", "name": "look_up", "parameters": {}}]
MANAGED = {"context_management": [{"type": "compaction", "compact_threshold": 2}]}
REQUEST = {"model": "m", "input": [USER, CALLED, GAVE, REPLY, USER], "tools": TOOLS, **MANAGED}


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


@pytest.mark.parametrize("harmony", [True, False])
def test_beyond_its_threshold_a_conversation_is_compacted_before_the_model_answers(harmony) -> None:
    serving = Turns(SUMMARY, TURN)
    serving.use_harmony = harmony
    if not harmony:
        serving.script = [[whole("They greeted.")], [whole("Hi!")]]
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


FAILED = "The conversation could not be compacted: "


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


def test_the_summary_is_asked_for_with_vllms_own_parameters() -> None:
    serving = Turns(SUMMARY)
    settings = {"vllm_xargs": {"a": 1}, "priority": 2, "temperature": 0.5}
    assert post(serving, {"model": "m", "input": "Hi", **settings}, "/compact").status_code == 200
    assert {name: getattr(serving.requests[0], name) for name in settings} == settings
