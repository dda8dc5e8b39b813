"""Compaction: a summary by the same model replaces a conversation, and a failed summary fails the request."""

import httpx
import pytest
from live.chunk_shapes import chunk
from live.engines import ANSWER, CALL, REASONING, Gate, StagedEngine, step, steps
from live.sockets import socket_client
from live.upstream import gateway, stream
from live.wire import bodies
from openai import OpenAI

from interlock.serving.engines.embedded import MODEL
from interlock.serving.requests.api_errors import EngineError, PromptError
from interlock.serving.requests.input_items import SUMMARIZE, summary_message
from interlock.verify.oracle import check

SUMMARY = steps("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|> They greeted. \n")
TURN = steps(f"{REASONING}{ANSWER}")
LOOK_UP = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
DEVELOPER = {"type": "message", "role": "developer", "content": "Be brief."}
USER = {"type": "message", "role": "user", "content": "Hi"}
REPLY = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
CALL_ITEM = {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": "{}"}
OUTPUT_ITEM = {"type": "function_call_output", "call_id": "call_1", "output": "42"}
REASONING_ITEM = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
CONVERSATION = [DEVELOPER, USER, REASONING_ITEM, CALL_ITEM, OUTPUT_ITEM, REPLY]
MANAGED = {"context_management": [{"type": "compaction", "compact_threshold": 1}]}
TRIGGER = {"type": "compaction_trigger"}
REQUEST = {"model": "staged", "input": [*CONVERSATION, {**USER, "content": "Go on"}], "store": False}
PROMPT_ITEMS = [DEVELOPER, USER, {**USER, "content": "Go on"}, summary_message("They greeted.")]


def post(url, path="", **body):
    return httpx.post(f"{url}/v1/responses{path}", json=body)


def kinds(output):
    return [item["type"] for item in output]


def test_a_conversation_is_compacted_to_its_user_messages_and_an_encrypted_summary(serve) -> None:
    engine = StagedEngine(SUMMARY, TURN)
    with serve(engine) as url:
        answer = post(
            url, "/compact", **{**REQUEST, "instructions": "Speak English.", "prompt_cache_key": "k", "tools": [LOOK_UP]}
        )
        compacted = answer.json()
        next_turn = post(url, model="staged", input=[*compacted["output"], {**USER, "content": "Bye"}], store=False).json()
    first, second, item = compacted["output"]
    assert (answer.status_code, [*compacted]) == (200, ["id", "object", "created_at", "output", "usage"])
    assert (compacted["object"], compacted["id"][:5], kinds(compacted["output"])) == (
        "response.compaction",
        "resp_",
        ["message", "message", "compaction"],
    )
    assert {**first, "id": ""} == {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Hi"}],
        "id": "",
        "status": "completed",
    }
    assert (second["content"][0]["text"], item["id"][:4], "greeted" in item["encrypted_content"]) == ("Go on", "cmp_", False)
    assert compacted["usage"]["output_tokens"] == len(SUMMARY) - 1
    turn = engine.turns[0]
    assert (turn.request.instructions, turn.request.tools, turn.budget) == ("Speak English.", (), None)
    assert [*turn.items] == [*REQUEST["input"], {**USER, "content": SUMMARIZE}]
    assert next_turn["status"] == "completed"
    assert [*engine.turns[1].items] == [first, second, summary_message("They greeted."), {**USER, "content": "Bye"}]


def test_a_stored_conversation_is_compacted(serve) -> None:
    engine = StagedEngine(TURN, SUMMARY)
    with serve(engine) as url:
        first = post(url, model="staged", input="Hi").json()
        compacted = post(url, "/compact", model="staged", previous_response_id=first["id"]).json()
    assert kinds(compacted["output"]) == ["message", "compaction"]
    assert kinds(engine.turns[1].items) == ["message", "reasoning", "message", "message"]


@pytest.mark.parametrize(
    ("body", "status", "param", "code"),
    [
        ({"input": "Hi"}, 400, "model", "missing_required_parameter"),
        ({"model": "staged"}, 400, "input", "missing_required_parameter"),
        ({"model": "other", "input": "Hi"}, 404, "model", "model_not_found"),
        ({"model": "staged", "previous_response_id": "no"}, 400, "previous_response_id", "previous_response_not_found"),
        ({"model": "staged", "input": [{"type": "new"}]}, 400, "input[0].type", "invalid_value"),
    ],
)
def test_an_invalid_compaction_request_is_refused(serve, body, status, param, code) -> None:
    with serve(StagedEngine(SUMMARY)) as url:
        answer = post(url, "/compact", **body)
    assert (answer.status_code, answer.json()["error"]["param"], answer.json()["error"]["code"]) == (status, param, code)


BROKEN = [
    ([step("", "stop")], "compaction_failed", 500, "the model wrote no summary."),
    (steps("<|channel|>final<|message|> \n "), "compaction_failed", 500, "the model wrote no summary."),
    (steps(f"{CALL}<|call|>"), "compaction_failed", 500, "the model wrote no summary."),
    (
        steps("<|channel|>final<|message|>They", "length"),
        "compaction_failed",
        500,
        "the model did not finish the summary (status 'incomplete').",
    ),
    ([EngineError("It broke.")], "server_error", 500, "It broke."),
    ([RuntimeError("a secret")], "server_error", 500, "The server had an error while it generated the response."),
]


@pytest.mark.parametrize(("script", "code", "status", "why"), BROKEN)
def test_compaction_fails_without_a_complete_summary(serve, script, code, status, why) -> None:
    message = f"The conversation could not be compacted: {why}"
    with serve(StagedEngine(script)) as url:
        answer = post(url, "/compact", model="staged", input="Hi")
        events = bodies(post(url, **{**REQUEST, **MANAGED, "stream": True}).content)
    assert (answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["message"]) == (status, code, message)
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"] == {"code": "server_error", "message": message, "type": "server_error"}
    assert [(item["type"], item["encrypted_content"]) for item in events[-1]["response"]["output"]] == [("compaction", "")]


def test_a_prompt_too_long_to_summarize_is_an_invalid_prompt(serve) -> None:
    with serve(StagedEngine([PromptError("It is too long.")])) as url:
        answer = post(url, "/compact", model="staged", input="Hi")
        failed = post(url, **{**REQUEST, **MANAGED}).json()
    assert (answer.status_code, answer.json()["error"]["message"], answer.json()["error"]["code"]) == (
        400,
        "It is too long.",
        "invalid_prompt",
    )
    assert failed["error"] == {"code": "invalid_prompt", "message": "It is too long.", "type": "invalid_request_error"}


def test_a_conversation_above_its_threshold_is_compacted_before_the_answer(serve) -> None:
    engine = StagedEngine(SUMMARY, TURN)
    with serve(engine) as url:
        events = bodies(post(url, **{**REQUEST, **MANAGED, "stream": True, "tools": [LOOK_UP]}).content)
    response = events[-1]["response"]
    assert kinds(response["output"]) == ["compaction", "reasoning", "message"]
    assert [event["type"] for event in events[:5]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
    ]
    summing, answering = engine.turns
    assert (summing.request.tools, len(answering.request.tools)) == ((), 1)
    assert [*answering.items] == PROMPT_ITEMS
    assert response["usage"]["output_tokens"] == len(SUMMARY) - 1 + len(TURN) - 1


def test_a_conversation_below_its_threshold_is_not_compacted(serve) -> None:
    managed = [{"type": "compaction", "compact_threshold": 10_000}, {"type": "compaction"}]
    engine = StagedEngine(TURN)
    with serve(engine) as url:
        assert kinds(post(url, **REQUEST, context_management=managed).json()["output"]) == ["reasoning", "message"]
        assert kinds(post(url, **REQUEST, context_management=managed[1:]).json()["output"]) == ["reasoning", "message"]
    assert [*engine.turns[0].items] == REQUEST["input"]


def test_a_summary_replaces_the_items_before_it_that_a_client_sends_again(serve) -> None:
    engine = StagedEngine(SUMMARY, TURN)
    with serve(engine) as url:
        output = post(url, **{**REQUEST, **MANAGED}).json()["output"]
        post(url, model="staged", input=[*REQUEST["input"], *output, {**USER, "content": "Bye"}], store=False)
        first = post(url, model="staged", input=[*CONVERSATION, TRIGGER]).json()
        post(url, model="staged", input="Bye", previous_response_id=first["id"])
    assert [*engine.turns[2].items][:4] == PROMPT_ITEMS
    assert kinds(engine.turns[2].items[4:]) == ["reasoning", "message", "message"]


def test_a_stored_compacted_response_continues_from_its_summary(serve) -> None:
    engine = StagedEngine(SUMMARY, TURN)
    with serve(engine) as url:
        first = post(url, **{**REQUEST, **MANAGED, "store": True}).json()
        post(url, model="staged", input="Bye", previous_response_id=first["id"])
        other = post(url, model="org/staged-2", input="Bye", previous_response_id=first["id"])
    model_items = engine.turns[2].items
    assert [item["content"] for item in model_items[:4]] == [item["content"] for item in PROMPT_ITEMS]
    assert kinds(model_items[4:]) == ["reasoning", "message", "message"]
    assert (other.status_code, other.json()["error"]["param"]) == (400, "previous_response_id")


def test_a_trigger_only_compacts(serve) -> None:
    engine = StagedEngine(SUMMARY, TURN)
    with serve(engine) as url:
        events = bodies(post(url, **{**REQUEST, "input": [*REQUEST["input"], TRIGGER], "stream": True}).content)
        (item,) = events[-1]["response"]["output"]
        next_turn = post(url, model="staged", input=[DEVELOPER, USER, item, {**USER, "content": "Bye"}], store=False).json()
    assert (events[-1]["type"], item["type"]) == ("response.completed", "compaction")
    assert next_turn["status"] == "completed"
    assert [*engine.turns[1].items] == [DEVELOPER, USER, summary_message("They greeted."), {**USER, "content": "Bye"}]


def test_a_stored_response_of_a_trigger_continues_from_its_summary(serve) -> None:
    engine = StagedEngine(SUMMARY, TURN)
    with serve(engine) as url:
        first = post(url, model="staged", input=[*CONVERSATION, TRIGGER]).json()
        assert post(url, model="staged", input="Bye", previous_response_id=first["id"]).json()["status"] == "completed"
    assert [item.get("content") for item in engine.turns[1].items] == [
        "Be brief.",
        "Hi",
        summary_message("They greeted.")["content"],
        "Bye",
    ]


def test_a_trigger_that_is_not_last_is_refused(serve) -> None:
    with serve(StagedEngine(SUMMARY)) as url:
        error = post(url, model="staged", input=[USER, TRIGGER, USER]).json()["error"]
    assert (error["param"], error["message"]) == ("input[1]", "A 'compaction_trigger' must be the last item of 'input'.")


def test_a_background_response_is_compacted(serve) -> None:
    with serve(StagedEngine(SUMMARY, TURN)) as url:
        request = {**REQUEST, **MANAGED, "store": True, "background": True, "stream": True}
        events = bodies(post(url, **request).content)
    assert [event["type"] for event in events[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert kinds(events[-1]["response"]["output"]) == ["compaction", "reasoning", "message"]


def test_a_websocket_turn_is_compacted_unless_generate_is_false(serve) -> None:
    with serve(StagedEngine(SUMMARY, TURN)) as url, socket_client(url, {**REQUEST, **MANAGED}) as socket:
        ends = socket.ask(generate=False)[-1], socket.ask()[-1]
    assert [kinds(end["response"]["output"]) for end in ends] == [[], ["compaction", "reasoning", "message"]]


def test_a_client_that_disconnects_stops_the_summary(serve) -> None:
    gate = Gate()
    engine = StagedEngine([step(ANSWER), gate])
    with (
        serve(engine) as url,
        httpx.stream("POST", f"{url}/v1/responses", json={**REQUEST, **MANAGED, "stream": True}) as answer,
    ):
        lines = answer.iter_lines()
        while "compacting" not in next(lines):
            pass
        gate.reached.wait()
    assert engine.closed.wait(10)


def test_a_conversation_compacted_by_the_embedded_model_continues(url) -> None:
    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        compacted = client.responses.compact(model=MODEL, input=CONVERSATION)
        assert (compacted.object, compacted.output[-1].type) == ("response.compaction", "compaction")
        assert compacted.usage.total_tokens > 0
        window = [item.to_dict(warnings=False) for item in compacted.output]
        next_turn = client.responses.create(model=MODEL, input=[*window, {**USER, "content": "Bye"}])
    assert next_turn.status == "completed"
    assert "Bye" in next_turn.output_text


# Reasoning summaries have the text of the model's reasoning, because there is no other summary


STREAMED = {"model": "staged", "input": "Hi", "stream": True, "store": False}
SUMMARY_PARTS = [{"type": "summary_text", "text": "Let me think."}]
CONTENT = [{"type": "reasoning_text", "text": "Let me think."}]


def streamed(url, **body):
    events = bodies(httpx.post(f"{url}/v1/responses", json={**STREAMED, **body}).content)
    assert check(events) == []
    return events


def reasoning_of(events):
    item = events[-1]["response"]["output"][0]
    return item["summary"], item["content"]


@pytest.mark.parametrize(
    ("reasoning", "options", "expected"),
    [
        ({"summary": "auto"}, {}, (SUMMARY_PARTS, [])),
        ({"summary": "detailed", "effort": "low"}, {}, (SUMMARY_PARTS, [])),
        ({"generate_summary": "concise"}, {}, (SUMMARY_PARTS, [])),
        ({"summary": None}, {}, ([], CONTENT)),
        ({"effort": "low"}, {}, ([], CONTENT)),
        ({"summary": "auto"}, {"raw_reasoning": True}, ([], CONTENT)),
    ],
)
def test_a_requested_summary_has_the_text_of_the_reasoning(serve, reasoning, options, expected) -> None:
    with serve(StagedEngine(TURN), **options) as url:
        events = streamed(url, reasoning=reasoning)
    assert reasoning_of(events) == expected
    name = "response.reasoning_summary_text.delta" if expected[0] else "response.reasoning_text.delta"
    assert "".join(event["delta"] for event in events if event["type"] == name) == "Let me think."


def test_a_returned_summary_reaches_the_model(serve) -> None:
    engine = StagedEngine(TURN)
    with serve(engine) as url:
        reasoning, message = streamed(url, reasoning={"summary": "auto"})[-1]["response"]["output"]
        plain = {name: reasoning[name] for name in ("type", "summary")}
        for item in (reasoning, plain):
            streamed(url, input=[item, message, {"role": "user", "content": "Go on"}])
    assert [turn.items[0]["summary"] for turn in engine.turns[1:]] == [SUMMARY_PARTS, SUMMARY_PARTS]


def test_the_reasoning_of_an_upstream_becomes_the_summary() -> None:
    chunks = [chunk({"reasoning_content": part}) for part in ("Let ", "me ", "think.")]
    with gateway(stream(*chunks, chunk({"content": "Hi"}), chunk({}, "stop"))) as (url, _):
        assert reasoning_of(streamed(url, model="m", reasoning={"summary": "auto"})) == (SUMMARY_PARTS, [])
