"""The transducers: every stream of Messages and Chat Completions is legal, complete, and the same on the fast path."""

import json
from pathlib import Path

import pytest
from for_each import for_each
from table_mutations import changes

from interlock.dialects.chat import CHAT, ChatEffect, ChatTransducer, fold_chat
from interlock.dialects.messages import MESSAGES, MessagesEffect, MessagesTransducer, fold_messages
from interlock.dialects.transducer import EntryWriter, EventTrigger
from interlock.events.json import as_json, dumps
from interlock.events.sse import EventWriter
from interlock.fsm import SequentialIds, deltas
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.table import IllegalTransition, InterlockError, Table
from interlock.judges.chat import check_chat
from interlock.judges.messages import check_messages
from interlock.serving.engines.recordings import read, rechunk, replay_events, replay_steps

RECORDINGS = {path.stem: path for path in sorted((Path(__file__).parents[1] / "corpus" / "recordings").glob("*.jsonl"))}


USAGE = deltas.Usage(input_tokens=9, cached_tokens=4, output_tokens=3, reasoning_tokens=2)


def driven(*changes_, writer=None, usage=USAGE):
    """Return the entries of a response to deltas; a function among them makes deltas from the driver."""
    driver = ResponseDriver({"model": "m"}, writer=writer or EntryWriter(), ids=SequentialIds(), clock=lambda: 7)
    entries = driver.feed([deltas.Start()])
    for change in changes_:
        entries += driver.feed(change(driver) if callable(change) else [change])
    return [*entries, *driver.feed([deltas.EndTurn("stop", usage), deltas.Finish()])]


def bodies(frames):
    return [json.loads(frame.partition(b"data: ")[2]) for frame in frames.split(b"\n\n") if frame and frame != b"data: [DONE]"]


def messages(entries, **options):
    return bodies(MessagesTransducer(**options).encode(entries))


def chat(entries, **options):
    return bodies(ChatTransducer(**options).encode(entries))


THINK = [deltas.Open("reasoning"), "Hm", ". ", deltas.EndPart(), "So.", deltas.Close()]
CALL = [deltas.Open("function_call", {"name": "f", "call_id": "call_a"}), '{"a"', ": 1}", deltas.Close()]
CUSTOM = [deltas.Open("custom_tool_call", {"name": "g", "call_id": "call_b"}), "x\ny", deltas.Close()]
SAY = [deltas.Open("message"), "Hel", "l", "o", deltas.Close()]
REFUSE = [deltas.Open("message"), deltas.Refusal("N"), deltas.Refusal("o"), deltas.Refusal("."), deltas.Close()]
MCP = [deltas.Open("mcp_call", {"server_label": "s", "name": "t"}), '{"q":', "2}", deltas.Close()]
CODE = [deltas.Open("code_interpreter_call", {}), "1 +", " 1", deltas.Close()]
SEARCH = [deltas.Open("web_search_call", {"action": {"type": "search", "query": "w"}}), deltas.Close()]


def run(driver):
    return [deltas.Run(call.id) for call in driver.ready]


def fail(driver):
    return [deltas.Fail("", "It broke.")] if driver.item_count else []


CITATION = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 1}
RESULT = deltas.Succeed("mcp_1", {"output": "three"})
OUTPUTS = deltas.Succeed("ci_1", {"outputs": [{"type": "logs", "logs": "2"}]})
SOURCES = deltas.Succeed(
    "ws_1", {"action": {"type": "search", "query": "w", "sources": [{"type": "url", "url": "https://a.example"}]}}
)
SCRIPTS = {
    "nothing": [],
    "text": SAY,
    "reasoning and two calls": [*THINK, *CALL, *CUSTOM],
    "annotation": [*SAY[:2], deltas.Annotate(CITATION), *SAY[2:]],
    "refusal": REFUSE,
    "refusal after text": [deltas.Open("message"), "Well", deltas.Refusal("No"), deltas.Close()],
    "sealed": [deltas.Open("reasoning", {"encrypted_content": "x"}), deltas.Close(), *SAY],
    "summary": [deltas.Open("reasoning"), deltas.Summary("One"), deltas.EndPart(), deltas.Summary("Two"), deltas.Close()],
    "mcp": [*MCP, run, RESULT, *SAY],
    "mcp that fails": [*MCP, run, fail],
    "mcp beside text": [*MCP, run, deltas.Open("message"), "Mean", RESULT, "while", deltas.Close()],
    "mcp beside a call": [*MCP, *CALL[:2], run, RESULT, *CALL[2:]],
    "mcp beside reasoning": [*MCP, deltas.Open("reasoning"), "Hm", run, RESULT, deltas.Close()],
    "code": [*CODE, run, OUTPUTS],
    "code that fails": [*CODE, run, fail],
    "search": [*SEARCH, run, SOURCES, *SAY],
    "search beside text": [*SEARCH, run, deltas.Open("message"), "Mean", SOURCES, "while", deltas.Close()],
    "search that fails": [*SEARCH, run, fail],
    "fault": [*SAY, deltas.Fault("server_error", "The engine failed.")],
    "length": [*THINK, *CALL[:2], deltas.EndTurn("length")],
    "text, sealed reasoning and a quoted call": [
        *SAY,
        deltas.Open("reasoning", {"encrypted_content": "x"}),
        deltas.Close(),
        CALL[0],
        "[1]",
        deltas.Close(),
    ],
    "fault at once": [deltas.Fault("server_error", "The engine failed.")],
    "filter": [*SAY[:2], deltas.EndTurn("content_filter")],
    "cancel": [*SAY[:2], deltas.Cancel()],
    "cut call": [*CALL[:2], deltas.EndTurn("cut")],
    "call without arguments": [CALL[0], deltas.Close()],
    "arguments that are null": [CALL[0], "nu", "ll", deltas.Close()],
    "cut call without arguments": [CALL[0], "nu", deltas.EndTurn("cut")],
    "arguments that are no object": [CALL[0], " [", "1]", deltas.Close(), *CALL],
    "arguments that are no JSON": [CALL[0], "oh, ", "no", deltas.Close()],
    "arguments that are broken": [CALL[0], "{a", ": 1}", deltas.Close(), *CALL],
    "arguments that are no object beside mcp": [*MCP, CALL[0], "[", run, RESULT, "1]", deltas.Close()],
    "cut mcp call": [*MCP[:2], deltas.EndTurn("length")],
}


@for_each("script", SCRIPTS.values(), ids=SCRIPTS)
def test_every_script_is_legal_in_both_apis_and_equal_on_the_fast_path(script):
    entries, events = driven(*script), driven(*script, writer=EventWriter())
    assert check_messages(messages(entries)) == []
    assert check_chat(chat(entries, usage=True), usage=True) == []
    assert messages(entries) == messages(events)
    assert chat(entries) == chat(events)


@for_each("path", RECORDINGS.values(), ids=RECORDINGS)
@for_each("size", [1, 7, 1000])
def test_every_recording_is_legal_in_both_apis(path, size):
    recording = rechunk(read(path), size)
    entries = [entry for _, entries in replay_steps(recording, EntryWriter()) for entry in entries]
    assert check_messages(messages(entries)) == []
    assert check_chat(chat(entries)) == []
    assert messages(entries) == messages(replay_events(recording))


@for_each("path", RECORDINGS.values(), ids=RECORDINGS)
def test_a_complete_answer_does_not_depend_on_the_chunks(path):
    recording = read(path)
    wholes = []
    for size in (1, 1000):
        events = [*replay_events(rechunk(recording, size))]
        folds = (MessagesTransducer(), fold_messages), (ChatTransducer(usage=True), fold_chat)
        wholes.append([as_json(fold([made for event in events for made in one.feed(event)])) for one, fold in folds])
    assert wholes[0] == wholes[1]


def test_messages_has_blocks_for_reasoning_and_calls():
    counts = {"input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4, "output_tokens": 3}
    absent = dict.fromkeys(("cache_creation", "server_tool_use", "service_tier", "inference_geo"))
    usage, nothing = (
        {**numbers, **absent, "output_tokens_details": {"thinking_tokens": thought}}
        for numbers, thought in ((counts, 2), (dict.fromkeys(counts, 0), 0))
    )
    message = {"type": "message", "id": "msg_1", "role": "assistant", "model": "m", "content": []}
    end = {"stop_sequence": None, "stop_details": None, "container": None}
    start = {**message, **end, "stop_reason": None, "usage": nothing}

    def delta(index, **piece):
        return {"type": "content_block_delta", "index": index, "delta": piece}

    def block(index, **fields):
        return {"type": "content_block_start", "index": index, "content_block": fields}

    assert messages(driven(*THINK, *CALL)) == [
        {"type": "message_start", "message": start},
        block(0, type="thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="Hm"),
        delta(0, type="thinking_delta", thinking=". "),
        delta(0, type="thinking_delta", thinking="\n\n"),
        delta(0, type="thinking_delta", thinking="So."),
        delta(0, type="signature_delta", signature=""),
        {"type": "content_block_stop", "index": 0},
        block(1, type="tool_use", id="call_a", name="f", input={}, caller={"type": "direct"}),
        delta(1, type="input_json_delta", partial_json='{"a"'),
        delta(1, type="input_json_delta", partial_json=": 1}"),
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {**end, "stop_reason": "tool_use"}, "usage": usage},
        {"type": "message_stop"},
    ]


def test_omitted_reasoning_has_only_a_signature_delta():
    kinds = [body["delta"]["type"] for body in messages(driven(*THINK), thinks=False) if body["type"] == "content_block_delta"]
    assert kinds == ["signature_delta"]


def whole(*script, stop_sequence=None):
    made = MessagesTransducer()
    made.stop_sequence = stop_sequence
    return as_json(fold_messages([event for each in driven(*script, writer=EventWriter()) for event in made.feed(each)]))


def test_a_result_waits_until_the_open_block_ends():
    assert [block["type"] for block in whole(*SCRIPTS["mcp beside text"])["content"]] == [
        "mcp_tool_use",
        "text",
        "mcp_tool_result",
    ]
    assert [block["type"] for block in whole(*SCRIPTS["search beside text"])["content"]] == [
        "text",
        "server_tool_use",
        "web_search_tool_result",
    ]


def test_hosted_calls_are_followed_by_their_results_in_messages():
    assert whole(*SCRIPTS["mcp"])["content"] == [
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "t", "server_name": "s", "input": {"q": 2}},
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcptoolu_1",
            "is_error": False,
            "content": [{"type": "text", "text": "three"}],
        },
        {"type": "text", "text": "Hello"},
    ]
    direct = {"caller": {"type": "direct"}}
    result = {"type": "code_execution_result", "stdout": "2", "stderr": "", "return_code": 0, "content": []}
    assert whole(*SCRIPTS["code"])["content"] == [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "1 + 1"}, **direct},
        {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": result},
    ]
    found = {"type": "web_search_result", "url": "https://a.example", "title": "https://a.example", "encrypted_content": ""}
    assert whole(*SCRIPTS["search"])["content"][:2] == [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "w"}, **direct},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{**found, "page_age": None}], **direct},
    ]


def test_the_usage_of_a_message_counts_completed_searches():
    uses = [whole(*SCRIPTS[name])["usage"]["server_tool_use"] for name in ("search", "search that fails", "code")]
    assert uses == [{"web_search_requests": 1, "web_fetch_requests": 0}, None, None]


def test_a_failed_hosted_call_has_a_result_with_the_error():
    assert whole(*SCRIPTS["mcp that fails"])["content"][1]["is_error"] is True
    assert whole(*SCRIPTS["code that fails"])["content"][1]["content"]["return_code"] == 1
    assert whole(*SCRIPTS["search that fails"])["content"][1]["content"] == {
        "type": "web_search_tool_result_error",
        "error_code": "unavailable",
    }


@pytest.mark.parametrize(
    ("script", "content"),
    [
        ("call without arguments", [("tool_use", {})]),
        ("arguments that are null", [("tool_use", {})]),
        ("arguments that are no object", [("text", "f:  [1]"), ("tool_use", {"a": 1})]),
        ("arguments that are no JSON", [("text", "f: oh, no")]),
        ("arguments that are broken", [("tool_use", {}), ("tool_use", {"a": 1})]),
    ],
)
def test_each_kind_of_arguments_has_its_blocks_in_messages(script, content):
    assert [(each["type"], each.get("input", each.get("text"))) for each in whole(*SCRIPTS[script])["content"]] == content


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"a": 1, "b": [{"c": "x"}, "y', {"a": 1, "b": [{"c": "x"}]}),
        ('{"a": 1, "b', {"a": 1}),
        ('{"a": 1, "b":', {"a": 1}),
        ('{"a": 1,', {"a": 1}),
        ("{", {}),
        ('{"a": {"b": 1}', {"a": {"b": 1}}),
        ('{"a" 1, "b": 2', {}),
        ("{a: 1}", {}),
        ('{"a": 1]', {"a": 1}),
    ],
)
def test_a_truncated_input_has_its_complete_members(arguments, shown):
    (block,) = whole(CALL[0], arguments, deltas.EndTurn("cut"))["content"]
    assert block["input"] == shown


@for_each("end", [[deltas.Close()], [deltas.EndTurn("cut")], [deltas.Close(), *CALL]], ids=["closed", "cut", "another call"])
@for_each("arguments", ['{"city":"Ber]', '{"city":"Berlin"]', "{city}", "{}{}", "{", '{"a": 1'])
def test_a_call_with_invalid_json_ends_with_max_tokens_in_messages(arguments, end):
    events = messages(driven(CALL[0], *arguments, *end))
    message = whole(CALL[0], *arguments, *end)
    begun = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert begun == [block["type"] for block in message["content"]] == ["tool_use"] * (2 if len(end) > 1 else 1)
    assert events[-2]["delta"]["stop_reason"] == message["stop_reason"] == "max_tokens"


def test_a_message_has_its_estimated_input_tokens_until_they_are_counted():
    def counts(usage):
        transducer = MessagesTransducer()
        transducer.input_tokens = 7
        events = [as_json(made) for event in driven(*SAY, usage=usage, writer=EventWriter()) for made in transducer.feed(event)]
        return events[0]["message"]["usage"]["input_tokens"], events[-2]["usage"]["input_tokens"]

    assert [counts(usage) for usage in (USAGE, None, deltas.Usage(output_tokens=2))] == [(7, 5), (7, 7), (7, 7)]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [("", "{}"), (" ", "{}"), ("null", "{}"), (" null\n", "{}"), (" n", " n"), (" nul1", " nul1"), (" {}", " {}")],
)
def test_blank_or_null_arguments_are_an_empty_object(arguments, sent):
    for opening in (CALL[0], MCP[0]):
        events = driven(opening, *arguments, deltas.Close(), run, writer=EventWriter())
        assert "".join(each.delta for each in events if hasattr(each, "delta")) == sent
        assert events[-1].response.output[0].arguments == sent


@pytest.mark.parametrize(
    ("script", "stop_reason", "finish_reason"),
    [
        ("text", "end_turn", "stop"),
        ("refusal", "refusal", "stop"),
        ("reasoning and two calls", "tool_use", "tool_calls"),
        ("length", "max_tokens", "length"),
        ("filter", "refusal", "content_filter"),
        ("cancel", "end_turn", "stop"),
        ("cut call", "max_tokens", "length"),
        ("mcp", "end_turn", "stop"),
        ("call without arguments", "tool_use", "tool_calls"),
        ("arguments that are null", "tool_use", "tool_calls"),
        ("arguments that are no object", "tool_use", "tool_calls"),
        ("arguments that are no JSON", "end_turn", "tool_calls"),
        ("arguments that are broken", "max_tokens", "tool_calls"),
    ],
)
def test_each_ending_has_its_reason_in_both_apis(script, stop_reason, finish_reason):
    assert whole(*SCRIPTS[script])["stop_reason"] == stop_reason
    assert chat(driven(*SCRIPTS[script]))[-1]["choices"][0]["finish_reason"] == finish_reason


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("text", "stop_sequence"),
        ("cut call", "stop_sequence"),
        ("reasoning and two calls", "tool_use"),
        ("length", "max_tokens"),
        ("cancel", "end_turn"),
    ],
)
def test_a_stop_sequence_yields_to_calls_limits_and_cancellation(script, reason):
    message = whole(*SCRIPTS[script], stop_sequence="END")
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, "END" if reason == "stop_sequence" else None)
    transducer = MessagesTransducer()
    transducer.stop_sequence = "END"
    events = bodies(transducer.encode(driven(*SCRIPTS[script])))
    assert check_messages(events) == []
    assert {name: events[-2]["delta"][name] for name in ("stop_reason", "stop_sequence")} == {
        name: message[name] for name in ("stop_reason", "stop_sequence")
    }


@pytest.mark.parametrize(
    ("script", "first"),
    [
        ("nothing", {"role": "assistant", "content": ""}),
        ("text", {"role": "assistant", "content": ""}),
        ("call without arguments", {"role": "assistant", "content": None}),
        ("arguments that are no object", {"role": "assistant", "content": None}),
        ("refusal", {"role": "assistant", "content": None}),
        ("reasoning and two calls", {"role": "assistant", "content": None}),
        ("mcp", {"role": "assistant", "content": ""}),
    ],
)
def test_the_first_chunk_has_null_content_before_a_call_a_refusal_or_reasoning(script, first):
    assert chat(driven(*SCRIPTS[script]))[0]["choices"][0]["delta"] == first


def test_a_named_function_that_is_truncated_ends_with_length_in_chat():
    assert chat(driven(*SCRIPTS["cut call"]), names_function=True)[-1]["choices"][0]["finish_reason"] == "length"


def test_a_complete_chat_completion_has_the_input_of_a_custom_tool():
    transducer = ChatTransducer()
    completion = fold_chat([made for event in driven(*CALL, *CUSTOM, writer=EventWriter()) for made in transducer.feed(event)])
    assert as_json(completion.choices[0].message.tool_calls) == [
        {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "call_b", "type": "custom", "custom": {"name": "g", "input": "x\ny"}},
    ]


def test_a_named_function_ends_with_stop_in_chat():
    assert chat(driven(*CALL), names_function=True)[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_failed_response_ends_with_an_error_in_both_apis():
    entries = driven(*SCRIPTS["fault"])
    error = {"type": "api_error", "message": "The engine failed."}
    assert messages(entries)[-1] == {"type": "error", "error": error, "request_id": None}
    assert chat(entries)[-1] == {
        "error": {"message": "The engine failed.", "type": "server_error", "param": None, "code": "server_error"}
    }
    assert whole(*SCRIPTS["fault"]) == messages(entries)[-1]


@pytest.mark.parametrize(
    ("code", "text", "kind", "message", "chat_code"),
    [
        (
            "invalid_prompt",
            "It exceeds the context window.",
            "invalid_request_error",
            "prompt is too long: It exceeds the context window.",
            "context_length_exceeded",
        ),
        ("invalid_prompt", "No such image.", "invalid_request_error", "No such image.", "invalid_prompt"),
        ("rate_limit_exceeded", "Slowly.", "rate_limit_error", "Slowly.", "rate_limit_exceeded"),
    ],
)
def test_an_error_of_the_client_has_its_type_in_both_apis(code, text, kind, message, chat_code):
    entries = driven(deltas.Fault(code, text))
    assert messages(entries)[-1]["error"] == {"type": kind, "message": message}
    error = {"message": text, "type": "invalid_request_error", "param": None, "code": chat_code}
    assert chat(entries)[-1]["error"] == error


@pytest.mark.parametrize("make", [MessagesTransducer, ChatTransducer])
@pytest.mark.parametrize(
    ("end", "status"),
    [
        (deltas.Finish(), 200),
        (deltas.Cancel(), 200),
        (deltas.Fault("server_error", "It broke."), 500),
        (deltas.Fault("invalid_prompt", "No such image."), 400),
        (deltas.Fault("rate_limit_exceeded", "Slowly."), 429),
    ],
)
def test_a_whole_answer_has_the_status_of_its_error(make, end, status):
    events = driven("Hi", end, writer=EventWriter())
    code, body = make().encode_whole(events)
    reader = make()
    made = [each for event in events for each in reader.feed(event)]
    assert (code, json.loads(body)) == (status, as_json(make().fold(made)))
    assert (status == 200) == ("error" not in json.loads(body))


@pytest.mark.parametrize("make", [MessagesTransducer, ChatTransducer])
def test_a_fork_does_not_change_the_original(make):
    entries = driven(*SCRIPTS["mcp beside text"])
    for place in range(len(entries)):
        transducer = make()
        before = transducer.encode(entries[:place])
        other = transducer.fork()
        assert before + other.encode(entries[place:]) == make().encode(entries)
        assert transducer.encode(entries[place:]) == make().encode(entries)[len(before) :]


def test_chat_chunks_have_the_calls_and_the_usage():
    chunks = chat(driven(*CALL, *CUSTOM), usage=True)
    assert [call for chunk in chunks[:-1] for call in chunk["choices"][0]["delta"].get("tool_calls", [])] == [
        {"index": 0, "id": "call_a", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a"'}},
        {"index": 0, "function": {"arguments": ": 1}"}},
        {"index": 1, "id": "call_b", "type": "custom", "custom": {"name": "g", "input": ""}},
        {"index": 1, "custom": {"input": "x\ny"}},
    ]
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == (
        [],
        {
            "prompt_tokens": 9,
            "completion_tokens": 3,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    )


def test_chat_has_log_probabilities_only_if_the_client_requests_them():
    entry = {"token": "Hi", "bytes": [72, 105], "logprob": -0.5, "top_logprobs": []}
    entries = driven(deltas.Open("message"), deltas.Text("Hi", (entry,)), deltas.Close())
    assert chat(entries, logprobs=True)[1]["choices"][0]["logprobs"] == {"content": [entry], "refusal": None}
    assert chat(entries)[1]["choices"][0]["logprobs"] is None


def test_unknown_usage_is_zero_in_messages_and_null_in_chat():
    assert messages(driven(*SAY, lambda _: [deltas.EndTurn("stop", None)], usage=None))[-2]["usage"]["output_tokens"] == 0
    assert chat(driven(*SAY, usage=None), usage=True)[-1]["usage"] is None


def test_encrypted_reasoning_in_chat_has_an_index_and_its_data():
    sealed = SCRIPTS["sealed"]
    deltas_of = [choice["delta"] for body in chat(driven(*sealed, *sealed)) for choice in body["choices"]]
    details = [delta["reasoning_details"] for delta in deltas_of if "reasoning_details" in delta]
    assert details == [[{"type": "reasoning.encrypted", "index": index, "data": "x"}] for index in range(2)]
    made = ChatTransducer()
    folded = fold_chat([each for event in driven(*sealed, writer=EventWriter()) for each in made.feed(event)])
    assert as_json(folded.choices[0].message)["reasoning_details"] == details[0]


def test_a_chat_stream_has_one_end_marker():
    transducer = ChatTransducer()
    assert transducer.encode(driven(*SAY)).endswith(b"}\n\ndata: [DONE]\n\n")
    assert (transducer.has_ended, transducer.encode([])) == (True, b"")


@pytest.mark.parametrize(
    ("make", "ping"),
    [(MessagesTransducer, b'event: ping\ndata: {"type":"ping"}\n\n'), (ChatTransducer, b": keep-alive\n\n")],
)
@pytest.mark.parametrize("writer", [EntryWriter(), EventWriter()])
def test_a_silence_is_a_ping_and_changes_nothing_else(make, ping, writer):
    silent = [deltas.Silence(), "Hel", deltas.Silence(), "l", "o"]
    data, whole = make().encode(driven(*silent, writer=writer)), make().encode_whole(driven(*silent, writer=EventWriter()))
    said = driven("Hel", "l", "o", writer=EventWriter())
    assert (data.count(ping), data.replace(ping, b"")) == (2, make().encode(said))
    assert whole == make().encode_whole(said)


@pytest.mark.parametrize(("table", "make"), [(MESSAGES, MessagesTransducer), (CHAT, ChatTransducer)])
def test_a_trigger_that_a_state_lacks_is_refused_and_changes_nothing(table, make):
    for state in table.states.values():
        for trigger in EventTrigger:
            if trigger not in state.rows:
                transducer = make()
                transducer._machine.state = state
                with pytest.raises(IllegalTransition):
                    transducer._machine.fire(trigger)
                assert transducer.state_key[0] == state.name


@pytest.mark.parametrize("transducer", [MessagesTransducer(), ChatTransducer()])
def test_an_effect_with_a_wrong_argument_raises(transducer):
    with pytest.raises(TypeError, match="cannot use 5"):
        transducer.make(next(iter(transducer.table.edges[0].effects)), 5)


def fates(table, make, check, fold):
    """Yield each accepted mutation of a table, and whether a script catches it."""
    streams = [driven(*script, writer=EventWriter()) for script in SCRIPTS.values()]
    expected = [dumps(fold([made for one in [make()] for event in stream for made in one.feed(event)])) for stream in streams]
    for place, edge in enumerate(table.edges):
        for change, edges in changes(table, edge):
            mutated = (*table.edges[:place], *edges, *table.edges[place + 1 :])
            try:
                other = Table(table.name, table.initial, mutated, table.final)
            except InterlockError:
                continue
            yield f"{edge.source}/{edge.trigger}: {change}", any(map(caught(other, make, check, fold), streams, expected))


def caught(table, make, check, fold):
    def judge(stream, expected):
        transducer = make()
        transducer._machine.state = table.states[table.initial]
        try:
            made = [event for each in stream for event in transducer.feed(each)]
            faults = check(bodies(b"".join(map(transducer.frame, made))))
            return bool(faults) or not transducer.has_ended or dumps(fold(made)) != expected
        except (InterlockError, IndexError):
            return True

    return judge


EQUIVALENT = {
    *("text/close: double RELEASE", "thinking/seal: double RELEASE", "call/close: double RELEASE"),
    "absent/begin: double BASE",
}
"""The mutations that change no event: released events no longer wait."""


@pytest.mark.parametrize(
    ("table", "make", "check", "fold"),
    [
        (MESSAGES, MessagesTransducer, check_messages, fold_messages),
        (CHAT, ChatTransducer, check_chat, fold_chat),
    ],
)
def test_only_equivalent_mutations_of_a_table_survive(table, make, check, fold):
    assert {change for change, was_caught in fates(table, make, check, fold) if not was_caught} <= EQUIVALENT


def test_both_tables_use_every_effect():
    assert {effect for edge in MESSAGES.edges for effect in edge.effects} == {*MessagesEffect}
    assert {effect for edge in CHAT.edges for effect in edge.effects} == {*ChatEffect}
