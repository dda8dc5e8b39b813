"""Items and tools are translated for engines that know only messages, reasoning, and function calls with their outputs."""

import pytest
from attrs import evolve
from for_each import for_each

from interlock.events.items import ITEMS, Item
from interlock.fsm.table import DeclarationError
from interlock.parsers.client_tools import CLIENT_TOOLS
from interlock.parsers.hosted_tools import HOSTED_CALLS
from interlock.serving.requests.input_items import NORMALIZERS, PENDING, answer_async_calls, normalize, short_id
from interlock.serving.requests.tool_offer import HostedTools, ToolOffer, declare, offer

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
        {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "a", "sources": []}, "output": "b"},
        [call("web_search", '{"query":"a"}', "52JOQ6I4C"), answer("b", "52JOQ6I4C")],
    ),
    (
        {"type": "web_search_call", "id": "ws_1", "action": {"type": "open_page", "url": "a"}, "output": "b"},
        [call("web_search", '{"type":"open_page","url":"a"}', "52JOQ6I4C"), answer("b", "52JOQ6I4C")],
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


@for_each(("original", "expected"), CASES, ids=lambda value: value["type"] if isinstance(value, dict) else "")
def test_an_item_is_normalized_or_left_out(original, expected):
    assert list(normalize([original])) == expected


def test_an_item_of_a_kind_without_a_normalizer_is_left_out():
    shown = {kind for kind, facts in ITEMS.items() if facts.as_function_call or facts.as_function_output}
    assert {*NORMALIZERS} <= {*ITEMS} - shown
    assert normalize([{"type": kind} for kind in ITEMS if kind not in shown | {*NORMALIZERS}]) == ()


def test_images_become_their_type_in_brackets_for_an_engine_without_images():
    original = [item("function_call_output", output=[{"type": "input_text", "text": "a"}, IMAGE])]
    assert list(normalize(original, images=False)) == [answer("a\n[input_image]")]


def test_sealed_items_keep_their_readable_fields():
    summary = [{"type": "summary_text", "text": "So."}]
    assert list(normalize([item("reasoning", summary=summary, encrypted_content="y")])) == [reasoning_item("So.")]
    assert list(normalize([USER, {"type": "compaction", "encrypted_content": "x"}])) == [USER]


def test_control_tokens_in_names_are_broken_up():
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


# A model that knows only functions is offered a request's tools and its tool choice as functions


HOSTED = HostedTools(
    {
        "web_search": {"type": "web_search_preview"},
        "web_search_preview": {"type": "web_search_preview"},
        "code_interpreter": {"type": "code_interpreter"},
    },
    frozenset({"container"}),
)
NOTHING = {"type": "object", "properties": {}}
FILE_SEARCH = {"name": "file_search", "parameters": {"properties": {"queries": {"type": "array"}, "limit": {"type": "integer"}}}}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "name": "weather", "parameters": CITY}
FORECAST = {
    "type": "namespace",
    "name": "sky",
    "description": "Above.",
    "tools": [WEATHER, {"type": "custom", "name": "ask"}],
}


def text(**fields):
    schema = {"type": "string", "description": "The text for the tool, as it is.", **fields}
    return {"type": "object", "properties": {"input": schema}, "required": ["input"], "additionalProperties": False}


def offered(*tools, choice=None, items=()):
    return offer(tools, choice, items, HOSTED)


def test_a_function_is_offered_with_the_fields_that_engines_know():
    tool = {**WEATHER, "description": "Says it.", "strict": True, "defer_loading": True, "allowed_callers": ["direct"]}
    expected = {"type": "function", "name": "weather", "description": "Says it.", "parameters": CITY, "strict": True}
    assert offered(tool) == ToolOffer((expected,), None, ())
    assert offered({"type": "function", "name": "now"}).tools == ({"type": "function", "parameters": NOTHING, "name": "now"},)


def test_a_namespace_is_flattened():
    assert offered(FORECAST).tools == (
        {"type": "function", "name": "sky__weather", "parameters": CITY},
        {"type": "function", "name": "sky__ask", "parameters": text()},
    )


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({}, {"description": "Writes.", "parameters": text()}),
        ({"format": {"type": "text"}}, {"description": "Writes.", "parameters": text()}),
        (
            {"format": {"type": "grammar", "syntax": "regex", "definition": "a|b"}},
            {"description": "Writes.", "parameters": text(pattern="^(?:a|b)$"), "strict": True},
        ),
        (
            {"format": {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}},
            {"description": "Writes.\n\nThe text must match this lark grammar:\nstart: WORD", "parameters": text()},
        ),
        (
            {"description": None, "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: A"}}},
            {"description": "The text must match this lark grammar:\nstart: A", "parameters": text()},
        ),
    ],
)
def test_a_custom_tool_becomes_a_function_of_one_string_with_its_grammar(form, expected):
    tool = {"type": "custom", "name": "write", "description": "Writes.", **form}
    assert offered(tool).tools == ({"type": "function", "name": "write", **expected},)


def of_regex(definition):
    tool = {"type": "custom", "name": "write", "format": {"type": "grammar", "syntax": "regex", "definition": definition}}
    return offered(tool).tools[0]


@for_each(
    "definition",
    [
        *("", "a", "é+", r"[\w.-]+", r"\d{3}-\d{4,}", "(?:a|b)*", "((a)|b)?", "[^\n]+", "[$(^{]", r"\x41\u00e9\n\t\-\.\/\[\{\$"),
        *("a+?", ".*", "]}", r"[\]\-x]"),
    ],
)
def test_a_regular_expression_that_every_backend_supports_becomes_a_pattern(definition):
    pattern = {"parameters": text(pattern=f"^(?:{definition})$"), "strict": True}
    assert of_regex(definition) == of_regex(f"^{definition}$") == {"type": "function", "name": "write", **pattern}


@for_each(
    "definition",
    [
        *(r"\p{L}+", r"\bword\b", "(?i)abc", r"(a)\1", r"(?P<n>a)(?P=n)", "(?=a)b", "(?<!a)b", r"\Aabc\Z", "a$b", "a^b", "^^a"),
        *(
            "a{,3}",
            "a{",
            "a{2",
            "[a",
            "[]a]",
            "[a[b]",
            r"[\b]",
            "[]",
            r"\<",
            r"\e",
            r"\0",
            r"\x4",
            "a\\",
            r"a\$$$",
            "a++",
            "a{2}+",
        ),
    ],
)
def test_any_other_regular_expression_is_added_to_the_description(definition):
    description = f"The text must match this regex grammar:\n{definition}"
    assert of_regex(definition) == {"type": "function", "name": "write", "description": description, "parameters": text()}


@pytest.mark.parametrize("kind", ["local_shell", "shell", "apply_patch"])
def test_a_client_tool_becomes_its_function(kind):
    own = CLIENT_TOOLS[kind]
    expected = {"type": "function", "name": kind, "description": own.description, "parameters": own.parameters}
    assert offered({"type": kind}) == ToolOffer((expected,), None, ())


def test_a_tool_search_is_offered_only_if_the_client_executes_it():
    tool = {"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": CITY}
    assert offered(tool).tools == ({"type": "function", "name": "tool_search", "description": "Finds.", "parameters": CITY},)
    server = {"type": "tool_search"}
    assert offered(server, {**WEATHER, "defer_loading": True}) == ToolOffer((WEATHER,), None, ())


def test_tools_found_by_a_search_are_offered_and_declared():
    items = [{"type": "tool_search_output", "tools": [FORECAST]}, {"type": "additional_tools", "tools": [WEATHER, WEATHER]}]
    assert [tool["name"] for tool in offered(items=items).tools] == ["sky__weather", "sky__ask", "weather"]
    assert declare((), items) == (FORECAST, WEATHER, WEATHER)


def test_tools_are_declared_by_a_request_and_by_its_conversation():
    items = [{"type": "tool_search_output", "tools": [FORECAST]}, {"type": "message", "tools": [FORECAST]}]
    assert declare([WEATHER], items) == (WEATHER, FORECAST)


def test_hosted_tools_are_offered_by_the_hosts_names_once_each():
    tools = ({"type": "web_search", "search_context_size": "low"}, {"type": "web_search_preview"})
    assert offered(*tools).tools == ({"type": "web_search_preview", "search_context_size": "low"},)
    server = {"type": "mcp", "server_label": "container", "server_url": "http://x"}
    other = {"type": "mcp", "server_label": "rail", "server_url": "http://x"}
    assert offered(server, other) == ToolOffer((server,), None, ())


@for_each(
    ("kind", "changes", "message"),
    [
        (
            "code_interpreter_call",
            {"payload": "fields"},
            "'code_interpreter_call' has a text: its payload is 'input', and the only argument 'code'",
        ),
        (
            "code_interpreter_call",
            {"function": HOSTED_CALLS["web_search_call"].function},
            "'code_interpreter_call' has a text: its payload is 'input', and the only argument 'code'",
        ),
        (
            "web_search_call",
            {"payload": "input"},
            "'web_search_call' has no text (`text_path`) for the payload 'input'",
        ),
        (
            "web_search_call",
            {"kind": "image_generation_call", "payload": "text"},
            "'image_generation_call' has no text (`text_path`) for the payload 'text'",
        ),
        (
            "web_search_call",
            {"kind": "image_generation_call", "payload": "fields"},
            "`as_function_call` of 'image_generation_call' does not name the function 'web_search'",
        ),
        (
            "web_search_call",
            {"kind": "file_search_call", "payload": "fields"},
            "`as_function_call` of 'file_search_call' does not name the function 'web_search'",
        ),
        (
            "web_search_call",
            {"kind": "file_search_call", "payload": "fields", "function": FILE_SEARCH},
            "'file_search_call' has no fields for arguments, and no reader in `_READERS`: limit",
        ),
    ],
    ids=(
        "a text among fields",
        "an argument that is not the text",
        "an input without a text",
        "a message",
        "no function of the model",
        "another function",
        "an argument without a field",
    ),
)
def test_a_hosted_call_that_would_lose_its_arguments_is_refused(kind, changes, message):
    with pytest.raises(DeclarationError) as refused:
        evolve(HOSTED_CALLS[kind], **changes)
    assert str(refused.value) == message


def test_a_hosted_call_whose_text_a_model_would_not_read_back_is_refused(monkeypatch):
    monkeypatch.setattr(ITEMS["code_interpreter_call"], "as_function_call", ("python", "outputs"))
    with pytest.raises(DeclarationError) as refused:
        evolve(HOSTED_CALLS["code_interpreter_call"])
    assert str(refused.value) == "`as_function_call` of 'code_interpreter_call' does not name the field of its text, 'code'"


def test_a_hosted_call_whose_result_a_model_would_not_read_is_refused(monkeypatch):
    monkeypatch.setattr(ITEMS["code_interpreter_call"], "result_text", lambda item: item.get("output"))
    with pytest.raises(DeclarationError) as refused:
        evolve(HOSTED_CALLS["code_interpreter_call"])
    assert str(refused.value) == "`result_text` of 'code_interpreter_call' does not return the text of `result_fields`"


def test_a_hosted_call_whose_stored_result_a_model_would_not_read_is_refused(monkeypatch):
    monkeypatch.setattr(ITEMS["code_interpreter_call"], "result_text", lambda item: item["outputs"][0]["logs"])
    with pytest.raises(DeclarationError) as refused:
        evolve(HOSTED_CALLS["code_interpreter_call"])
    assert str(refused.value) == "`result_text` of 'code_interpreter_call' does not return the `output` that a server stores"


def test_a_hosted_call_whose_error_a_model_would_not_read_is_refused(monkeypatch):
    monkeypatch.setattr(ITEMS["web_search_call"], "failure_fields", staticmethod(failure_fields := lambda text: {"error": text}))
    failure_fields.__name__ = "failure_fields"
    with pytest.raises(DeclarationError) as refused:
        evolve(HOSTED_CALLS["web_search_call"])
    assert str(refused.value) == "`result_text` of 'web_search_call' does not return the text of `failure_fields`"


@pytest.mark.parametrize("field", ["output", "forecast"])
def test_a_model_reads_the_plain_result_of_a_call_that_a_client_sends_back(monkeypatch, field):
    monkeypatch.setattr(ITEMS["file_search_call"], "plain_result", field)
    monkeypatch.setattr(ITEMS["file_search_call"], "result_text", classmethod(Item.result_text.__func__))
    call = {"type": "file_search_call", "id": "fs_1", "queries": ["rain"], "status": "completed"}
    shown = {**call, **ITEMS["file_search_call"].result_fields("It rains.")}
    stored = {**call, "status": "failed", field: None, "output": "No clouds."}  # what the item does not show
    outputs = [output["output"] for _, output in map(normalize, ([shown], [stored], [{**call, "output": ""}]))]
    assert outputs == ["It rains.", "No clouds.", ""]


def test_a_hosted_call_may_have_its_arguments_as_fields():
    function = {"name": "file_search", "parameters": {"properties": {"queries": {}}}}
    call = evolve(HOSTED_CALLS["web_search_call"], kind="file_search_call", function=function, payload="fields")
    assert call.name == "file_search"


def test_listed_mcp_tools_are_offered_as_functions_and_chosen_by_name():
    rail, sea = ({"type": "mcp", "server_label": label, "server_url": "http://x"} for label in ("rail", "sea"))
    listed = [
        {"type": "mcp_list_tools", "server_label": label, "tools": [{"name": "trains", **about}]}
        for label, about in (("rail", {"description": "All.", "input_schema": CITY}), ("sea", {"input_schema": {}}))
    ]
    functions = (
        {"type": "function", "name": "rail__trains", "parameters": CITY, "description": "All."},
        {"type": "function", "name": "sea__trains", "parameters": {"type": "object", "properties": {}}},
    )

    def chosen(choice):
        return offered(rail, sea, choice=choice, items=listed).choice

    assert offered(rail, sea, items=listed).tools == functions
    assert chosen({"type": "mcp", "server_label": "sea", "name": "trains"}) == {"type": "function", "name": "sea__trains"}
    assert chosen({"type": "mcp", "server_label": "sea"}) == "auto"
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "mcp", "server_label": "sea"}]}
    assert offered(rail, sea, choice=allowed, items=listed).tools == functions[1:]


def test_a_tool_of_an_unknown_type_is_a_function_if_it_has_a_name_and_a_schema():
    function = {"type": "function", "name": "beam", "parameters": CITY}
    for fields in ({"parameters": CITY}, {"input_schema": CITY}):
        tool = {"type": "teleport", "name": "beam", **fields}
        assert offered(tool).tools == (function,)
        assert declare([tool], ()) == ({"type": "function", "name": "beam", **fields, "parameters": CITY},)
    for fields in ({"name": "beam"}, {"parameters": CITY}, {"name": "beam", "parameters": "none"}, {}):
        assert offered({"type": "teleport", **fields}).left_out == ("teleport",)


def test_tools_without_an_equivalent_function_are_left_out():
    kinds = ("container", "image_generation", "file_search", "computer", "computer_use_preview")
    assert offered(*({"type": kind} for kind in kinds)).left_out == kinds
    assert offered({"type": "programmatic_tool_calling"}, {"type": "namespace", "name": "empty"}).left_out == ()


ALL = (WEATHER, FORECAST, {"type": "custom", "name": "write"}, {"type": "web_search"}, {"type": "shell"})


@for_each(
    ("choice", "expected"),
    [
        (None, None),
        ("auto", "auto"),
        ("required", "required"),
        ({"type": "function", "name": "weather"}, {"type": "function", "name": "weather"}),
        ({"type": "function", "name": "sky__weather"}, {"type": "function", "name": "sky__weather"}),
        ({"type": "function", "name": "sky.weather"}, {"type": "function", "name": "sky__weather"}),
        ({"type": "function", "namespace": "sky", "name": "weather"}, {"type": "function", "name": "sky__weather"}),
        ({"type": "custom", "name": "ask"}, {"type": "function", "name": "sky__ask"}),
        ({"type": "custom", "name": "write"}, {"type": "function", "name": "write"}),
        ({"type": "shell"}, {"type": "function", "name": "shell"}),
        ({"type": "web_search"}, {"type": "web_search_preview"}),
        ({"type": "function", "name": "unheard"}, {"type": "function", "name": "unheard"}),
        ({"type": "custom", "name": "unheard"}, {"type": "function", "name": "unheard"}),
        ({"type": "image_generation"}, "auto"),
    ],
)
def test_a_tool_choice_is_translated_to_the_offered_tools(choice, expected):
    assert offered(*ALL, choice=choice).choice == expected


def test_only_the_allowed_tools_are_offered():
    allowed = [{"type": "namespace", "name": "sky"}, {"type": "web_search"}, {"type": "custom", "name": "write"}]
    result = offered(*ALL, choice={"type": "allowed_tools", "mode": "required", "tools": allowed})
    names = [tool.get("name", tool["type"]) for tool in result.tools]
    assert names == ["sky__weather", "sky__ask", "write", "web_search_preview"]
    assert result.choice == "required"


def test_an_mcp_server_is_chosen_by_its_label():
    server = {"type": "mcp", "server_label": "container"}
    assert offered(server, choice=server).choice == server


def test_an_image_is_no_text_for_a_model():
    assert ITEMS["image_generation_call"].result_text({"result": "aW1hZ2U="}) is None
