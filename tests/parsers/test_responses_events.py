"""Streams of other Responses services are rewritten as legal ones, and keep their text."""

import json
import os
import random
from pathlib import Path

import pytest
from for_each import for_each
from stream_mutations import mutated

from interlock.events.items import TEXTS
from interlock.events.json import as_json
from interlock.events.settings_echo import response_settings
from interlock.events.sse import EventWriter
from interlock.fsm.deltas import Fault, Finish, Start, Usage
from interlock.fsm.driver import ResponseDriver, SequentialIds
from interlock.parsers import Chunk, parser_for
from interlock.parsers.responses_events import HOSTED_KINDS, finish_reason
from interlock.testing import findings
from interlock.testing.streams import stream
from interlock.verify import oracle

REQUEST = {
    "model": "m",
    "input": "Hi.",
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs", 1],
    "tools": [{"type": "mcp", "server_label": "wiki"}, {"type": "namespace", "name": "crm", "tools": []}],
}
CORPUS = Path(__file__).parents[1] / "corpus"
MUTANTS = int(os.environ.get("INTERLOCK_FUZZ_MUTANTS", "600"))
SEED = int(os.environ.get("INTERLOCK_FUZZ_SEED", "0"))
CITATION = {"type": "url_citation", "url": "https://example.org", "title": "E", "start_index": 0, "end_index": 1}
CUSTOM = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "f", "input": "a"}
LOGPROB = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}


def written(bodies, reason=None, request=REQUEST):
    """Rewrite a stream, and return the bodies of its events."""
    parser = parser_for("responses", request)
    driver = ResponseDriver(response_settings(request), writer=EventWriter(), ids=SequentialIds(), clock=lambda: 7)
    events = driver.feed([Start()])
    for body in bodies:
        events += driver.feed(parser.feed(Chunk(delta=body)))
        reason = finish_reason(body) or reason
    events += driver.feed([*parser.end(reason or "stop", Usage()), Finish()])
    result = [as_json(event) for event in events]
    assert [str(each) for each in (*oracle.check(result), *findings(result))] == []
    return result


def response(bodies, **options):
    return written(bodies, **options)[-1]["response"]


def summary(bodies, **options):
    """Return the status, and the type, text and perhaps the status of each item."""
    final = response(bodies, **options)
    return [final["status"], *(_short(item) for item in final["output"])]


def _short(item):
    texts = [part.get("text", part.get("refusal")) for part in (*item.get("summary", ()), *item.get("content", ()))]
    text = "|".join(texts) or item.get("arguments", item.get("input", item.get("code", item.get("output", ""))))
    status = item.get("status", "completed")
    return f"{item['type']} {text}".strip() if status == "completed" else f"{item['type']} {text} {status}"


def streams(path):
    """Return the bodies of each stream in a file."""
    bodies = []
    for line in path.read_text().splitlines():
        if line.startswith("data: {"):
            body = json.loads(line.removeprefix("data: "))
            if body["type"] == "response.created":
                bodies.append([])
            bodies[-1].append(body)
    return bodies


def texts(value):
    """Yield all texts of a response."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("text", "refusal", "arguments", "input", "code", "diff") and isinstance(inner, str):
                yield inner
            elif name == "commands":
                yield from inner
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


FILES = sorted(path for folder in ("legal", "observed") for path in (CORPUS / folder).glob("*.sse"))


@for_each("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_a_stream_keeps_its_items_and_texts(path):
    for bodies in streams(path):
        again = response(bodies)
        output = [body["item"] for body in bodies if body["type"] == "response.output_item.done"]
        final = bodies[-1].get("response", {"status": "failed", "output": []})
        output = final["output"] or output
        blank = [item for item in output if item["type"] in ("reasoning", "message") and not "".join(texts(item))]
        kept = [item for item in output if item not in blank or item.get("encrypted_content")]
        assert again["status"] == final["status"]
        arguments = [item for item in kept if item["type"] in ("function_call", "mcp_call")]
        for item in arguments:
            item["arguments"] = item["arguments"] or "{}"
        assert [*texts(again["output"])] == [*texts(kept)]
        shown = [item for item in again["output"] if item["type"] != "reasoning"]
        assert [item["type"] for item in shown] == [item["type"] for item in kept if item["type"] != "reasoning"]


@for_each("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_an_empty_output_in_the_last_event_removes_no_item(path):
    for *before, last in streams(path):
        final = last.get("response", {})
        done = [body["item"] for body in before if body["type"] == "response.output_item.done"]
        if final.get("status") == "completed" and final["output"] == done:
            emptied = {**last, "response": {**final, "output": []}}
            assert response([*before, emptied]) == response([*before, last])


OF_HOSTED_CALLS = {f"response.{subject}.delta" for subject, text in TEXTS.items() if text.kind in HOSTED_KINDS}
"""The events with the text of a call that has run already, so that its text is not needed."""


class Seeded(random.Random):
    def text(self):
        return self.choice(("", " ", "rain ", "é", "x\n"))


@pytest.mark.parametrize("seed", range(SEED, SEED + 10))
def test_a_mutated_stream_is_rewritten_legally_with_its_texts(seed):
    chance = Seeded(seed)
    corpus = [bodies for path in FILES for bodies in streams(path)]
    for _ in range(MUTANTS // 10):
        before = stream(chance) if chance.random() < 0.3 else chance.choice(corpus)
        what, bodies = mutated(chance, before)
        after = response(bodies)
        if after["status"] == "failed" or what == "rename":
            continue
        text = "\n".join(texts(after["output"]))
        for body in bodies:
            delta, name = body.get("delta"), body.get("type")
            if not isinstance(delta, str) or name in OF_HOSTED_CALLS:
                continue
            assert delta.strip() in text or not str(name).endswith(".delta"), (what, body)


# Deviations of services, one by one.


def event(name, item_id=None, index=None, **fields):
    place = {"item_id": item_id, "output_index": index}
    return {"type": f"response.{name}", **{key: value for key, value in place.items() if value is not None}, **fields}


def added(item, index=0):
    return event("output_item.added", index=index, item=item)


def done(item, index=0):
    return event("output_item.done", index=index, item=item)


def text(delta, item_id="msg_1", index=0, **fields):
    return event("output_text.delta", item_id, index, **{"content_index": 0, "delta": delta, **fields})


def thought(delta, index=0, **fields):
    return event("reasoning_text.delta", "rs_1", index, content_index=0, delta=delta, **fields)


def arguments(delta, item_id="fc_1", index=0):
    return event("function_call_arguments.delta", item_id, index, delta=delta)


def ended(*output, status="completed", **fields):
    return event(status, response={"status": status, "output": [*output], **fields})


def message(*parts, item_id="msg_1", status="completed", **fields):
    content = [part if isinstance(part, dict) else {"type": "output_text", "text": part, "annotations": []} for part in parts]
    return {"type": "message", "id": item_id, "role": "assistant", "status": status, "content": content, **fields}


def call(arguments="", item_id="fc_1", status="completed", **fields):
    fields = {"call_id": f"call_{item_id}", "name": "f", **fields}
    return {"type": "function_call", "id": item_id, "status": status, "arguments": arguments, **fields}


@for_each(
    ("bodies", "expected"),
    [
        ([text("a"), text("b")], ["message ab"]),
        ([text("a", None, None), text("b", None, None)], ["message ab"]),
        ([event("output_text.done", "msg_1", 0, content_index=0, text="ab")], ["message ab"]),
        ([text("a"), event("content_part.done", part={"type": "text", "text": "ab"}, content_index=0)], ["message ab"]),
        ([event("content_part.done", part={"type": "image"})], []),
        ([event("content_part.done", part={"type": "output_text"})], []),
        ([done(message("ab"))], ["message ab"]),
        ([ended(message("ab"), call("{}"))], ["message ab", "function_call {}"]),
        ([text("a"), ended(message("ab"))], ["message ab"]),
        ([text("a", "m1"), ended(message("ab", item_id="m2"))], ["message ab"]),
        ([text("ab"), done(message("ab")), done(message("ab"))], ["message ab"]),
        ([added(message()), added(message()), text("ab"), text("", "msg_2"), done(message("ab"))], ["message ab"]),
        ([text("a", "x"), text("b", "y"), done(message("ab", item_id="z"))], ["message ab"]),
        ([text("a", index=7), text("b", index=9)], ["message ab"]),
        ([text("a", content_index=4), text("b", content_index=4), text("c", content_index=0)], ["message ab|c"]),
        ([text("a", "m1"), text("b", "m2", 1), text("c", "m1")], ["message a", "message b", "message c"]),
        ([added(message()), done(message()), text("a"), text("b")], ["message ab"]),
        ([text("a"), done(message("a")), text("b")], ["message a"]),
        ([text("a"), text("a"), text("b"), done(message("ab"))], ["message aab"]),
        ([text("a"), done(message("xaby"))], ["message a|xaby"]),
        ([text("a", content_index=1), done(message("ab"))], ["message ab"]),
        ([text("a", content_index=1), text("b", content_index=2), ended(message("a", "bc"))], ["message a|bc"]),
        ([text("b", content_index=1), done(message("b", "b"))], ["message b|b"]),
        ([text("a", content_index=1), done(message("a", {"type": "refusal", "refusal": "n"}))], ["message a|n"]),
        ([text("a"), {"type": "keepalive", "sequence_number": 1}, text("b")], ["message ab"]),
        ([done({**message(), "content": "ab"})], ["message ab"]),
        ([text("a"), ended({**message(), "content": "ab"})], ["message ab"]),
        ([done({**message(), "content": ["a", "b", 3]})], ["message a|b"]),
        (
            [done({"type": "reasoning", "id": "rs_1", "summary": "s", "content": "t"}), done({**message(), "content": "b"}, 1)],
            ["reasoning s|t", "message b"],
        ),
        ([text("a "), done(message("a"))], ["message a"]),
        ([added({"type": "message", "id": "msg_1"}), text("a", content_index="x")], ["message a"]),
        ([{"type": "message"}, added({"type": "unknown"}), added(None), {"type": []}, event("output_text.delta", delta=3)], []),
    ],
)  # fmt: skip
def test_a_message_is_rebuilt_from_any_events_with_its_text(bodies, expected):
    assert summary(bodies) == ["completed", *expected]


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ([thought("a"), thought("b"), text("c")], ["reasoning ab", "message c"]),
        ([event("reasoning.delta", "rs_1", 0, delta="a"), event("reasoning.done", "rs_1", 0, text="ab")], ["reasoning ab"]),
        (
            [event("reasoning_summary_text.delta", "rs_1", 0, summary_index=at, delta=delta) for at, delta in enumerate("ab")],
            ["reasoning a|b"],
        ),
        ([event("reasoning_summary_part.done", part={"type": "summary_text", "text": "a"}, summary_index=0)], ["reasoning a"]),
        (
            [done({"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}], "content": [
                {"type": "reasoning_text", "text": "b"}, {"type": "output_text", "text": "c"}]})],
            ["reasoning a|b"],
        ),
        ([done({"type": "reasoning", "encrypted_content": "x"}), text("a", index=1)], ["reasoning", "message a"]),
        ([event("refusal.delta", delta="n"), event("refusal.done", refusal="no")], ["message no"]),
        ([added({"type": "reasoning", "id": "rs_1"}), added(message(), 1), thought("a"), text("b", index=1)],
         ["reasoning a", "message b"]),
    ],
)  # fmt: skip
def test_reasoning_and_refusals_keep_their_parts(bodies, expected):
    assert summary(bodies) == ["completed", *expected]


def test_encrypted_content_is_passed_on_if_the_request_includes_it():
    bodies = [thought("a"), done({"type": "reasoning", "id": "rs_1", "encrypted_content": "x"})]
    assert response(bodies)["output"][0]["encrypted_content"] == "x"
    assert "encrypted_content" not in response(bodies, request={"model": "m", "input": ""})["output"][0]


@for_each(
    ("bodies", "expected"),
    [
        ([added(call()), arguments("{"), arguments("}")], ["function_call {}"]),
        ([arguments("{"), arguments("}"), done(call("{}"))], ["function_call {}"]),
        ([arguments("{}"), text("a", index=1)], ["message a", "message {}"]),
        ([arguments("{}")], ["message {}"]),
        ([added(call()), event("function_call_arguments.done", "fc_1", arguments={"a": 1})], ['function_call {"a":1}']),
        ([done(call({}))], ["function_call {}"]),
        ([added(call()), arguments('{"a":1}'), done(call('{"a": 1}'))], ['function_call {"a":1}']),
        (
            [added(call()), added(call(item_id="fc_2"), 1), arguments("{"), arguments("[", "fc_2", 1), arguments("}"),
             arguments("]", "fc_2", 1)],
            ["function_call {}", "function_call []"],
        ),
        (
            [added(call()), arguments("{}"), added(call(item_id="fc_2")), arguments("[]", "fc_2"), done(call("{}")),
             arguments("x")],
            ["function_call {}", "function_call []"],
        ),
        ([added(call("{}"))], ["function_call {}"]),
        ([text("a"), added(call(), 1), text("b"), arguments("{}", index=1), done(call("{}"), 1)],
         ["message a", "function_call {}", "message b"]),
        ([event("custom_tool_call_input.delta", "ctc_1", 0, delta="a"),
          done({"type": "custom_tool_call", "id": "ctc_1", "name": "f", "input": "ab"})], ["custom_tool_call ab"]),
        ([ended(call("{}"), call("{}", item_id="fc_2"))], ["function_call {}", "function_call {}"]),
        ([done(call("{}")), ended(call("{}", item_id="fc_9"))], ["function_call {}"]),
        (
            [event("code_interpreter_call_code.delta", "ci_1", 0, delta="1+1"),
             done({"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "container_id": "cntr_1", "outputs": []}),
             ended({"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "1+1"}]},
                   {"type": "code_interpreter_call", "id": "ci_1", "code": "1+1"})],
            ["code_interpreter_call 1+1"],
        ),
    ],
)  # fmt: skip
def test_calls_keep_their_arguments(bodies, expected):
    assert summary(bodies) == ["completed", *expected]


@for_each(
    ("tools", "name"),
    [
        ([], "get_weather"),
        ([{"type": "function", "name": "get_weather"}], "get_weather"),
        ([{"type": "namespace", "name": "get_weather", "tools": [{"type": "function", "name": "get_weather"}]}], "get_weather"),
        ([{"type": "function", "name": "get_weather__get_weather"}], "get_weather__get_weather"),
    ],
)
def test_a_function_that_the_service_loads_keeps_its_name(tools, name):
    """OpenAI's service repeats the name of such a function as its namespace."""
    item = call("{}", name="get_weather", namespace="get_weather")
    (shown,) = response([done(item)], request={**REQUEST, "tools": tools})["output"]
    assert (shown["name"], shown["arguments"]) == (name, "{}")


REASONING_ITEM = {"type": "reasoning", "id": "rs_1", "summary": []}
SEALED_ITEM = {**REASONING_ITEM, "encrypted_content": "x"}


@for_each(
    ("ends", "expected"),
    [
        ([done(SEALED_ITEM)], ["reasoning", "function_call {}"]),
        ([], ["function_call {}"]),
        ([ended(SEALED_ITEM, call("{}"))], ["reasoning", "function_call {}"]),
        (
            [ended({**REASONING_ITEM, "encrypted_content": "x"}, call("{}"), status="incomplete")],
            ["reasoning", "function_call {}"],
        ),
    ],
)
def test_an_item_without_content_is_not_overtaken_by_the_next_one(ends, expected):
    bodies = [added(REASONING_ITEM), added(call(), 1), arguments("{}", index=1), done(call("{}"), 1), *ends]
    assert summary(bodies)[1:] == expected


@for_each(
    ("whole", "status"),
    [
        ('{"path": "/tmp/x"}', "completed"),
        ('{"path":"/tmp/x"}', "completed"),
        (' {"path": "/tmp/x"}\n', "completed"),
        ("", "completed"),
        ('{"path": "/"}', "failed"),
        ("{}", "failed"),
        ('{"path": "/tm', "failed"),
    ],
)
def test_a_call_fails_the_response_only_if_it_contradicts_its_deltas(whole, status):
    assert summary([added(call()), arguments('{"path": "/tmp/x"}'), done(call(whole))])[0] == status
    custom = {**CUSTOM, "input": whole}
    begun = [added({**CUSTOM, "input": ""}), event("custom_tool_call_input.delta", "ctc_1", 0, delta='{"path": "/tmp/x"}')]
    assert summary([*begun, done(custom)])[0] == status


def test_an_incomplete_call_may_be_shorter_than_its_deltas():
    cut = {**call('{"path": "/t'), "status": "incomplete"}
    assert summary([added(call()), arguments('{"path": "/tmp'), done(cut)])[0] == "incomplete"


def test_a_function_call_named_after_a_tool_becomes_an_item_of_the_tool():
    final = response([done(call("{}", name="wiki__search")), done(call("{}", item_id="fc_2", name="f", namespace="crm"), 1)])
    assert [item["type"] for item in final["output"]] == ["mcp_call", "function_call"]
    assert (final["output"][0]["name"], final["output"][1]["namespace"]) == ("search", "crm")


def test_call_ids_get_their_prefix_in_calls_and_in_outputs():
    shell = {"type": "shell_call", "id": "s", "call_id": "1", "action": {"commands": ["ls", "pwd"]}}
    outcome = {"type": "exit", "exit_code": 0}
    output = {
        "type": "shell_call_output",
        "id": "o",
        "call_id": "1",
        "output": [{"stdout": "a", "outcome": outcome}, {"outcome": 1}],
    }
    call_item, output_item = response([done(shell), done(output, 1)])["output"]
    assert (call_item["call_id"], output_item["call_id"]) == ("call_1", "call_1")
    assert call_item["action"]["commands"] == ["ls", "pwd"]
    assert [each["outcome"] for each in output_item["output"]] == [outcome, {"type": "timeout"}]


SEARCH = {"type": "web_search_call", "id": "ws_1"}
ACTION = {"type": "search", "query": "rain", "sources": None, "x": 1}


def test_hosted_tools_start_and_end_with_the_events_of_the_service():
    names = [
        event["type"].removeprefix("response.")
        for event in written(
            [
                added(SEARCH),
                event("web_search_call.in_progress", "ws_1", 0),
                event("web_search_call.searching", "ws_1", 0),
                done({**SEARCH, "status": "completed", "action": ACTION}),
                event("web_search_call.searching", "ws_1", 0),
            ]
        )
    ][2:-1]
    assert names == [
        "output_item.added",
        "web_search_call.in_progress",
        "web_search_call.searching",
        "web_search_call.completed",
        "output_item.done",
    ]


def test_fields_that_the_api_lacks_are_dropped():
    (item,) = response([done({**SEARCH, "action": ACTION, "x": 1})])["output"]
    assert item == {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rain"}}


def test_an_invalid_item_is_left_out():
    item = {"type": "tool_search_output", "execution": "server", "call_id": None, "tools": [{"type": "function"}]}
    assert summary([done(item), text("a", index=1)]) == ["completed", "message a"]


def test_partial_images_are_passed_on():
    image = {"type": "image_generation_call", "id": "ig_1", "result": "Zg=="}
    bodies = written([added(image), event("image_generation_call.partial_image", "ig_1", partial_image_b64="Zg"), done(image)])
    assert [body["partial_image_b64"] for body in bodies if body["type"].endswith("partial_image")] == ["Zg"]


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"status": "failed", "error": "no"}, "no"),
        ({"status": "failed", "error": {"message": "no"}}, "no"),
        ({"status": "failed", "error": {"content": [{"type": "text", "text": "no"}]}}, "no"),
        ({"status": "failed"}, "The service ended the response before the call."),
    ],
)
def test_a_tool_that_failed_at_the_service_fails_with_a_reason(item, reason):
    call_item = {"type": "mcp_call", "server_label": "wiki", "name": "f", "arguments": "{}", **item}
    (result,) = response([done(call_item), ended(call_item)])["output"]
    assert (result["status"], result["error"]["content"][0]["text"]) == ("failed", reason)


def test_a_failed_list_of_tools_keeps_its_error():
    item = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "wiki", "tools": [], "error": "no"}
    (result,) = response([done(item)])["output"]
    assert (result["tools"], result["error"]) == ([], "no")


def test_failed_code_keeps_its_printed_output():
    item = {"type": "code_interpreter_call", "status": "failed", "code": "1/0", "outputs": [{"type": "logs", "logs": "no"}]}
    (result,) = response([done(item)])["output"]
    assert (result["status"], result["outputs"]) == ("failed", [{"type": "logs", "logs": "no"}])


def test_a_hosted_tool_without_an_end_fails():
    assert summary([added(SEARCH), text("a", index=1), ended()]) == ["completed", "web_search_call  failed", "message a"]


def test_each_annotation_is_written_once():
    part = {"type": "output_text", "text": "Hi", "annotations": [CITATION, {**CITATION, "title": "F", "x": 1}, {"type": "x"}]}
    annotation = event("output_text.annotation.added", "msg_1", 0, content_index=0, annotation=CITATION)
    bodies = [annotation, text("Hi"), annotation, done(message(part)), ended(message(part))]
    (item,) = response(bodies)["output"]
    assert item["content"][0]["annotations"] == [CITATION, {**CITATION, "title": "F"}]


@pytest.mark.parametrize(
    "logprobs",
    [[LOGPROB], [{**LOGPROB, "x": 1, "bytes": None}]],
)
def test_log_probabilities_are_kept_if_the_request_includes_them(logprobs):
    for bodies in (
        [text("H", logprobs=logprobs), text("i")],
        [done(message({"type": "output_text", "text": "Hi", "logprobs": logprobs}))],
    ):
        (item,) = response(bodies)["output"]
        assert item["content"] == [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": [LOGPROB]}]
    (item,) = response([text("Hi", logprobs=logprobs)], request={"model": "m", "input": ""})["output"]
    assert item["content"][0]["logprobs"] == []


def test_invalid_log_probabilities_are_left_out():
    bodies = [text("Hi", logprobs=[{"token": 1}]), text(" yo", logprobs=[{**LOGPROB, "bytes": [121, 111, 111]}])]
    (item,) = response(bodies)["output"]
    assert [(part["text"], part["logprobs"]) for part in item["content"]] == [("Hi yo", [])]


def test_text_that_ends_inside_a_token_is_written_at_the_end_of_its_part():
    bodies = [text("H", logprobs=[LOGPROB]), text("i!", content_index=1)]
    (item,) = response(bodies)["output"]
    assert [part["text"] for part in item["content"]] == ["H", "i!"]


@for_each(
    ("bodies", "expected"),
    [
        ([text("a"), ended(message("a", status="incomplete"), status="incomplete")], ["incomplete", "message a incomplete"]),
        ([text("a"), ended(message("a", status="in_progress"), status="incomplete")], ["incomplete", "message a incomplete"]),
        ([text("a"), ended(status="incomplete")], ["incomplete", "message a incomplete"]),
        ([text("a"), done(message("a")), ended(status="incomplete")], ["incomplete", "message a"]),
        ([text("a"), done(message("a", status="incomplete"))], ["incomplete", "message a incomplete"]),
        (
            [done(message("a", status="incomplete")), done(call("{}"), 1)],
            ["completed", "message a", "function_call {}"],
        ),
        (
            [done(call("{", status="incomplete")), done(message("a"), 1)],
            ["incomplete", "function_call { incomplete"],
        ),
        (
            [done(call("{}", status="incomplete")), done(message("a"), 1)],
            ["incomplete", "function_call {} incomplete"],
        ),
        *(
            ([done(call("{", status=before)), ended(call("{", status=after), status="incomplete")],
             ["incomplete", "function_call { incomplete"])
            for before in ("in_progress", "completed", "incomplete")
            for after in ("in_progress", "completed", "incomplete")
        ),
        ([done(call("{}")), ended(call("{}", status="incomplete"), status="incomplete")],
         ["incomplete", "function_call {} incomplete"]),
        ([done(call("{}")), ended(call("{}"), status="incomplete")], ["incomplete", "function_call {}"]),
        ([done(call("{")), done(message("a"), 1), ended(call("{"), message("a"), status="incomplete")],
         ["incomplete", "function_call {", "message a"]),
        ([done(call("{")), ended(call("{"))], ["completed", "function_call {"]),
        ([done(call("{")), arguments("x"), ended(call("{"))], ["completed", "function_call {"]),
        ([done(CUSTOM), ended({**CUSTOM, "status": "incomplete"}, status="incomplete")],
         ["incomplete", "custom_tool_call a incomplete"]),
        ([added(call()), arguments("{"), event("completed", response={"status": "incomplete", "output": [call("{")]})],
         ["incomplete", "function_call { incomplete"]),
        ([text("a"), ended(status="cancelled")], ["cancelled", "message a incomplete"]),
        ([text("a"), event("done", response={"status": "completed"})], ["completed", "message a"]),
    ],
)  # fmt: skip
def test_incomplete_items_and_responses_stay_incomplete(bodies, expected):
    assert summary(bodies) == expected


def test_the_reason_for_an_incomplete_response_is_kept():
    final = response([text("a"), ended(status="incomplete", incomplete_details={"reason": "content_filter"})])
    assert final["incomplete_details"] == {"reason": "content_filter"}


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (ended(status="failed", error={"code": "c", "message": "m"}), ("c", "m")),
        ({"type": "error", "code": "c", "message": "m"}, ("c", "m")),
        ({"type": "error", "error": {"code": "c", "message": "m"}}, ("c", "m")),
        (ended(status="failed"), ("server_error", "The service failed.")),
        (done(call("[]")), ("server_error", "The service sent a call whose content differs from its deltas.")),
    ],
)
def test_a_failed_response_keeps_its_items(fault, error):
    final = response([added(call()), arguments("{"), text("a", index=1), fault])
    code, message = error
    assert (final["status"], final["error"]) == ("failed", {"code": code, "message": message, "type": "server_error"})
    assert final["output"][0]["type"] == "function_call"


def test_a_failure_is_the_last_delta():
    parser = parser_for("responses", REQUEST)
    parser.feed(Chunk(delta=text("a")))
    assert parser.feed(Chunk(delta=ended(status="failed"))) == [Fault("server_error", "The service failed.")]


def test_a_parser_reads_one_turn_after_another():
    parser = parser_for("responses", REQUEST)
    for _ in range(2):
        deltas = [*parser.feed(Chunk(delta=text("a"))), *parser.end("stop", Usage(output_tokens=3))]
        assert [type(delta).__name__ for delta in deltas] == ["Open", "str", "Close", "EndTurn"]


def test_a_text_delta_has_no_finish_reason():
    assert finish_reason(text("a")) is None


def test_the_fast_path_gives_the_same_deltas():
    def delta(text, item="msg_1", index=0, **fields):
        return {"type": "response.output_text.delta", "item_id": item, "content_index": index, "delta": text, **fields}

    def parsed(bodies, resets):
        parser = parser_for("responses", REQUEST)
        deltas = []
        for body in bodies:
            if resets:
                parser._stream = None
            deltas.append(parser.feed(Chunk(delta=body)))
        return [*deltas, parser.end("stop", Usage())]

    added = {"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "id": "msg_2", "content": []}}
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": ""}
    bodies = [
        *(
            delta("a"),
            delta("b"),
            delta(""),
            delta(None),
            delta("c"),
            delta("d", logprobs=[{**LOGPROB, "token": "d"}]),
            delta("e"),
        ),
        *(delta("f", index=1), delta("g", index=1), delta("h", item="msg_2"), delta("i"), delta("j", item="msg_2"), added),
        {"type": "response.output_item.added", "output_index": 2, "item": call},
        *(
            {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": each}
            for each in ('{"a"', ":1", {}, "}")
        ),
        *({"type": "response.refusal.delta", "item_id": "msg_3", "content_index": 0, "delta": each} for each in ("N", "o")),
    ]
    assert parsed(bodies, resets=False) == parsed(bodies, resets=True)
