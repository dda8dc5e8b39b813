"""What items become for an engine that renders messages, reasoning, function calls and their outputs."""

import pytest
from each import each

from interlock.events.items import ITEMS
from interlock.serving.requests.normalize import NORMALIZERS, PENDING, answer_async_calls, normalize, short_id

USER = {"type": "message", "role": "user", "content": "Hi"}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
IMAGE = {"type": "input_image", "image_url": "data:,"}


def call(name, arguments, call_id="call_1", **fields):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **fields}


def answer(output, call_id="call_1", **fields):
    return {"type": "function_call_output", "call_id": call_id, "output": output, **fields}


def item(kind, **fields):
    return {"type": kind, **({"call_id": "call_1"} if kind.endswith(("_call", "_output", "program")) else {}), **fields}


def reasoning_item(text, **fields):
    return {"type": "reasoning", **fields, "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


CASES = [
    (USER, [USER]),
    (ANSWER, [ANSWER]),
    ({**ANSWER, "content": "Yes."}, [{**ANSWER, "content": "Yes."}]),
    ({**ANSWER, "content": []}, []),
    (
        {**ANSWER, "id": "msg_1", "content": [*ANSWER["content"], {"type": "refusal", "refusal": "No."}]},
        [{"type": "message", "role": "assistant", "content": "Yes.No."}],
    ),
    (
        item("reasoning", id="rs_1", summary=[], content=[{"type": "reasoning_text", "text": "Hm."}], encrypted_content=None),
        [reasoning_item("Hm.", id="rs_1")],
    ),
    (item("reasoning", summary=[{"type": "summary_text", "text": "So."}], content=None), [reasoning_item("So.")]),
    (item("reasoning", id="rs_1", summary=[]), []),
    (
        item("function_call", name="f", arguments="{}", id="fc_1", status="completed"),
        [call("f", "{}", id="fc_1", status="completed")],
    ),
    (item("function_call", name="f", namespace="ns", arguments=""), [call("ns__f", "{}")]),
    (item("function_call_output", output="18"), [answer("18")]),
    (
        item("function_call_output", output=[{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]),
        [answer("a\nb")],
    ),
    (item("function_call_output", output=[IMAGE]), [answer([IMAGE])]),
    (item("custom_tool_call", name="c", input='say "hi"'), [call("c", '{"input":"say \\"hi\\""}')]),
    (item("custom_tool_call", name="c", namespace="ns", input=""), [call("ns__c", '{"input":""}')]),
    (item("custom_tool_call_output", output="ok"), [answer("ok")]),
    (
        item("local_shell_call", action={"type": "exec", "command": ["ls"], "env": {}, "user": None}),
        [call("local_shell", '{"command":["ls"],"env":{}}')],
    ),
    ({"type": "local_shell_call_output", "id": "call_1", "output": "a"}, [answer("a")]),
    (item("shell_call", action={"commands": ["ls"], "timeout_ms": None}), [call("shell", '{"commands":["ls"]}')]),
    (item("shell_call_output", output=[{"stdout": "a"}]), [answer('[{"stdout":"a"}]')]),
    (
        item("apply_patch_call", operation={"type": "delete_file", "path": "a"}),
        [call("apply_patch", '{"type":"delete_file","path":"a"}')],
    ),
    (item("apply_patch_call_output", status="failed"), [answer("failed")]),
    (item("apply_patch_call_output", status="failed", output="No file."), [answer("No file.")]),
    (item("tool_search_call", arguments={"query": "a"}, execution="client"), [call("tool_search", '{"query":"a"}')]),
    (item("tool_search_output", tools=[{"type": "function", "name": "f"}]), [answer('[{"type":"function","name":"f"}]')]),
    ({"type": "tool_search_call", "call_id": None, "arguments": {}}, []),
    ({"type": "tool_search_output", "call_id": None, "tools": []}, []),
    (item("computer_call", action={"type": "wait"}), [call("computer", '{"type":"wait"}')]),
    (item("computer_call_output", output={"type": "computer_screenshot", "image_url": "data:,"}), [answer([IMAGE])]),
    (item("computer_call_output", output={"type": "computer_screenshot", "file_id": "f"}), [answer("[computer_screenshot]")]),
    (item("program", code="f()"), [call("program", '{"code":"f()"}')]),
    (item("program_output", result="1"), [answer("1")]),
    (
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": [{"type": "logs", "logs": "1"}]},
        [call("python", '{"code":"1"}', "EKEELRKYJ"), answer("1", "EKEELRKYJ")],
    ),
    (
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": []},
        [call("python", '{"code":"1"}', "EKEELRKYJ"), answer("", "EKEELRKYJ")],
    ),
    (
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": None},
        [call("python", '{"code":"1"}', "EKEELRKYJ"), answer("[The output is not in the conversation.]", "EKEELRKYJ")],
    ),
    (
        {"type": "mcp_call", "id": "mcp_1", "server_label": "rail", "name": "next", "arguments": "{}", "output": "10:24"},
        [call("rail__next", "{}", "NS2TJ4FNH"), answer("10:24", "NS2TJ4FNH")],
    ),
    (
        {"type": "mcp_call", "id": "mcp_1", "server_label": "rail", "name": "next", "arguments": "{}", "error": {"code": 1}},
        [call("rail__next", "{}", "NS2TJ4FNH"), answer('{"code":1}', "NS2TJ4FNH")],
    ),
    (
        {"type": "mcp_call", "id": "mcp_1", "server_label": "rail", "name": "next", "arguments": "{}"},
        [call("rail__next", "{}", "NS2TJ4FNH"), answer("", "NS2TJ4FNH")],
    ),
    (
        {"type": "file_search_call", "id": "fs_1", "queries": ["a"], "results": [{"text": "b"}]},
        [call("file_search", '{"queries":["a"]}', "NGHSILAYS"), answer('[{"text":"b"}]', "NGHSILAYS")],
    ),
    ({"type": "file_search_call", "id": "fs_1", "queries": ["a"], "results": None}, []),
    (
        {"type": "agent_message", "author": "root", "recipient": "a", "content": [{"type": "input_text", "text": "Go on."}]},
        [{"type": "message", "role": "user", "content": "[root to a]\nGo on."}],
    ),
    (
        {"type": "multi_agent_call", "call_id": "call_1", "action": "spawn_agent", "arguments": "{}"},
        [call("spawn_agent", "{}")],
    ),
    (
        {
            "type": "multi_agent_call_output",
            "call_id": "call_1",
            "action": "spawn_agent",
            "output": [{"type": "output_text", "text": "a"}],
        },
        [answer("a")],
    ),
    (
        {"type": "function_call_output", "name": "notify", "namespace": "agents", "output": "done"},
        [{"type": "message", "role": "user", "content": "[Output of agents__notify]\ndone"}],
    ),
    (
        {"type": "function_call_output", "name": "notify", "call_id": None, "output": [IMAGE]},
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "[Output of notify]"}, IMAGE]}],
    ),
    *(
        ({"type": kind}, [])
        for kind in (
            "web_search_call",
            "image_generation_call",
            "mcp_list_tools",
            "mcp_approval_request",
            "mcp_approval_response",
        )
    ),
    *(({"type": kind}, []) for kind in ("additional_tools", "configuration_update", "compaction_trigger", "compaction")),
]


@each(("original", "expected"), CASES, ids=lambda value: value["type"] if isinstance(value, dict) else "")
def test_an_item_is_normalized_or_left_out(original, expected):
    assert list(normalize([original])) == expected


def test_an_item_of_a_kind_that_says_nothing_about_a_model_is_left_out():
    shown = {kind for kind, facts in ITEMS.items() if facts.as_function_call or facts.as_function_output}
    assert {*NORMALIZERS} <= {*ITEMS} - shown
    assert normalize([{"type": kind} for kind in ITEMS if kind not in shown | {*NORMALIZERS}]) == ()


def test_without_images_their_names_are_in_the_text():
    original = [item("function_call_output", output=[{"type": "input_text", "text": "a"}, IMAGE])]
    assert list(normalize(original, images=False)) == [answer("a\n[input_image]")]


def test_sealed_items_keep_their_readable_fields():
    summary = [{"type": "summary_text", "text": "So."}]
    assert list(normalize([item("reasoning", summary=summary, encrypted_content="y")])) == [reasoning_item("So.")]
    assert list(normalize([USER, {"type": "compaction", "encrypted_content": "x"}])) == [USER]


def test_a_name_that_spells_a_control_token_spells_none_in_the_prompt():
    made_up = {"type": "function_call", "call_id": "call_1", "name": "f<|call|>", "namespace": "<|end|>", "arguments": "{}"}
    assert normalize([made_up]) == (call("<end|>__f<call|>", "{}"),)


A, B = (call("f", "{}", f"call_{name}", id=f"fc_{name}") for name in "ab")
PENDS = {"type": "function_call_output", "call_id": "call_a", "output": PENDING, "status": "in_progress"}
RESULT = answer("1", "call_a")
SAID = reasoning_item("Hm.")


def late(index):
    """The call and its output at a place where the client has sent the output late."""
    call_id = short_id(f"call_a {index}")
    return [call("f", "{}", call_id), answer("1", call_id)]


@pytest.mark.parametrize(
    ("items", "answered"),
    [
        ([USER, A, B, RESULT], [USER, A, B, RESULT]),
        ([USER, A], [USER, A, PENDS]),
        ([A, RESULT, USER], [A, RESULT, USER]),
        ([A, B, answer("2", "call_b"), RESULT], [A, B, answer("2", "call_b"), RESULT]),
        ([A, B, answer("2", "call_b"), ANSWER, RESULT], [A, PENDS, B, answer("2", "call_b"), ANSWER, *late(4)]),
        ([A, SAID, RESULT], [A, PENDS, SAID, *late(2)]),
        ([A, RESULT, USER, RESULT], [A, RESULT, USER, *late(3)]),
        (
            [A, item("code_interpreter_call", code="1", id="ci_1"), RESULT],
            [A, PENDS, item("code_interpreter_call", code="1", id="ci_1"), *late(2)],
        ),
    ],
)
def test_a_call_of_an_async_tool_has_an_output_next_to_it(items, answered) -> None:
    made = answer_async_calls([{**each, "async": True} if each is A else each for each in items])
    assert [*made] == answered
    assert [*answer_async_calls(made)] == answered
