"""The recipient of a call selects its kind of item, and its arguments become the fields of the item."""

import json

import pytest
from for_each import for_each

from interlock import EventWriter, Tagged, Usage, driver_for, parser_for
from interlock.fsm.deltas import Close, EndPart, Open, Reject
from interlock.fsm.table import DeclarationError
from interlock.parsers import Chunk, routing
from interlock.parsers.client_tools import CLIENT_TOOLS, ClientTool
from interlock.parsers.hosted_tools import HostedCall
from interlock.parsers.item_writers import writer_for
from interlock.parsers.routing import Route, Routing

TOOLS = [
    {"type": "function", "name": "get_weather"},
    {"type": "function", "function": {"name": "nested"}},
    {"type": "custom", "name": "apply_patch"},
    {
        "type": "namespace",
        "name": "crm",
        "tools": [{"type": "function", "name": "find"}, {"type": "custom", "name": "note"}, {"type": "web_search"}, 7],
    },
    {"type": "mcp", "server_label": "deep.wiki", "allowed_tools": ["read"]},
    {"type": "mcp", "server_label": "files", "allowed_tools": {"tool_names": ["list", 3]}},
    {"type": "mcp", "server_label": None},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "function"},
    {"type": "novelty", "name": "get_weather"},
    "no tool",
]
ROUTING = Routing.from_request({"tools": TOOLS})


def function(name: str, **more: str) -> Route:
    return Route("function_call", {"name": name, **more})


def mcp(server: str, name: str) -> Route:
    return Route("mcp_call", {"name": name, "server_label": server})


@for_each(
    ("recipient", "route"),
    {
        "functions.get_weather": function("get_weather"),
        "get_weather": function("get_weather"),
        "nested": function("nested"),
        "functions.unheard_of": function("unheard_of"),
        "functions.apply_patch": Route("custom_tool_call", {"name": "apply_patch"}, "input"),
        "crm.find": function("find", namespace="crm"),
        "functions.crm.find": function("find", namespace="crm"),
        "crm__find": function("find", namespace="crm"),
        "crm.note": Route("custom_tool_call", {"name": "note", "namespace": "crm"}, "input"),
        "python": Route("code_interpreter_call"),
        "browser.search": Route("web_search_call", {}, "browser", "search"),
        "browser": Route("web_search_call", {}, "browser", ""),
        "container.exec": mcp("container", "exec"),
        "mcp.deep.wiki.read": mcp("deep.wiki", "read"),
        "deep.wiki.read": mcp("deep.wiki", "read"),
        "other.tool.part": mcp("other", "tool.part"),
        "mcp.other.tool": mcp("other", "tool"),
        "list": mcp("files", "list"),
        "unheard_of": mcp("unheard_of", "unheard_of"),
        "mcp.": mcp("mcp.", "mcp."),
        "functions.": mcp("functions.", "functions."),
        "...": mcp("...", "..."),
        "assistant": None,
        "user": None,
        "": None,
    }.items(),
)
def test_a_recipient_has_a_route(recipient: str, route: Route | None):
    assert ROUTING.recipient(recipient) == route


@pytest.mark.parametrize(
    ("name", "route"),
    {
        "get_weather": function("get_weather"),
        "crm__find": function("find", namespace="crm"),
        "unheard_of": function("unheard_of"),
        "dotted.name": function("dotted.name"),
        "python": Route("code_interpreter_call", {}, "input"),
        "browser.open": Route("web_search_call", {}, "browser", "open"),
        "mcp.files.list": mcp("files", "list"),
        "files.list": mcp("files", "list"),
        "container.exec": mcp("container", "exec"),
    }.items(),
)
def test_a_function_name_has_a_route(name: str, route: Route):
    assert ROUTING.function(name) == route


def test_a_function_named_after_a_server_and_its_tool_becomes_an_mcp_call():
    routing = Routing.from_request({"tools": [{"type": "mcp", "server_label": label} for label in ("rail", "rail__sea")]})
    for name, route in {"rail__trains": mcp("rail", "trains"), "rail__sea__ships": mcp("rail__sea", "ships")}.items():
        for recipient in (name, f"functions.{name}"):
            assert routing.recipient(recipient) == routing.function(recipient) == route
    assert routing.function("other__f") == Route("function_call", {"name": "other__f"})


def test_a_bare_name_belongs_to_the_only_server():
    routing = Routing.from_request({"tools": [{"type": "mcp", "server_label": "files"}]})
    assert routing.recipient("anything") == mcp("files", "anything")


def test_the_recipient_python_is_a_function_unless_an_interpreter_is_declared():
    tools = [{"type": "function", "name": "python"}]
    assert Routing.from_request({"tools": tools}).recipient("python") == function("python")
    hosted = Routing.from_request({"tools": [*tools, {"type": "code_interpreter"}]})
    assert hosted.recipient("python") == Route("code_interpreter_call")
    assert hosted.recipient("functions.python") == function("python")


FILES = {"type": "file_search"}
LABELLED = {"type": "mcp", "server_label": "search_files"}
OWN_FILES = {"type": "function", "name": "file_search"}


@pytest.fixture
def file_search(monkeypatch):
    """The route of a hosted tool that gpt-oss was not trained with."""
    function = {"name": "file_search", "parameters": {"properties": {"queries": {}}}}
    call = HostedCall("file_search_call", "files", ("file_search",), "search_files", function, "fields", {None: "search"})
    monkeypatch.setattr(routing, "HOSTED_CALLS", {call.kind: call})
    return Route("file_search_call", {"name": "file_search"}, "fields")


@pytest.mark.parametrize(
    ("tools", "hosted", "is_hosted"),
    [
        ([FILES], None, True),
        ([FILES], {"files"}, True),
        ([FILES], (), False),
        ([LABELLED], None, False),
        ([LABELLED], {"files"}, True),
        ([LABELLED], (), False),
        ([FILES, OWN_FILES], None, False),
        ([FILES, OWN_FILES], {"files"}, True),
        ([OWN_FILES, FILES], {"files"}, False),
    ],
)
def test_the_name_of_a_hosted_tool_is_that_of_the_tool_that_the_model_sees(file_search, tools, hosted, is_hosted):
    declared = Routing.from_request({"tools": tools}, hosted)
    route = file_search if is_hosted else function("file_search")
    assert [declared.function(name) for name in ("file_search", "functions.file_search")] == [route, route]
    assert declared.recipient("functions.file_search") == route


@pytest.mark.parametrize("hosted", [None, (), {"code_interpreter", "web_search"}])
@pytest.mark.parametrize("tool", [{"type": "code_interpreter"}, {"type": "mcp", "server_label": "code_interpreter"}])
def test_a_function_with_the_label_of_a_tool_that_the_server_runs_calls_it_as_in_vllm(hosted, tool):
    own = [{"type": "function", "name": name} for name in ("code_interpreter", "web_search_preview")]
    declared = Routing.from_request({"tools": [*own, tool, {"type": "web_search"}]}, hosted)
    kinds = [declared.function(each["name"]).kind for each in own]
    assert kinds == (["code_interpreter_call", "web_search_call"] if hosted else ["function_call", "function_call"])
    assert not hosted or declared.function("code_interpreter").payload == "input"


@pytest.mark.parametrize("hosted", [None, (), {"code_interpreter"}])
def test_the_label_of_a_server_only_begins_the_names_of_its_tools(hosted):
    declared = Routing.from_request({"tools": [{"type": "mcp", "server_label": "code_interpreter"}]}, hosted)
    assert declared.may_continue("code_interpreter")
    assert declared.function("code_interpreter__run") == mcp("code_interpreter", "run")
    assert declared.function("code_interpreter") == function("code_interpreter")


def test_a_function_with_the_name_of_a_role_needs_its_full_name():
    routing = Routing.from_request({"tools": [{"type": "function", "name": "user"}]})
    assert routing.recipient("user") is None
    assert routing.recipient("functions.user") == function("user")


@pytest.mark.parametrize("tools", [None, 7, "tools", {}, [None]])
def test_tools_of_a_wrong_shape_declare_nothing(tools: object):
    assert Routing.from_request({"tools": tools}) == Routing()


@pytest.mark.parametrize("kind", ["web_search", "web_search_preview", "web_search_2025_08_26"])
def test_a_web_search_becomes_a_hosted_call_only_if_its_tool_is_declared(kind: str):
    search = Route("web_search_call", payload="browser", function="search")
    searching = Routing.from_request({"tools": [{"type": kind}]})
    assert [searching.recipient(each) for each in ("web_search", "functions.web_search")] == [search, search]
    assert searching.function("web_search") == search
    assert Routing.from_request({"tools": []}).function("web_search") == Route("function_call", {"name": "web_search"})
    own = {"type": "function", "name": "web_search"}
    assert Routing.from_request({"tools": [{"type": kind}, own]}).function("web_search").kind == "function_call"


# Calls of tools that the client runs become items of their own kinds, also in formats that know only functions


ID = {"call_id": "call_1"}

READ = [
    (
        "local_shell",
        {"command": ["ls", "-l"], "working_directory": "/", "timeout_ms": None},
        [
            Open("local_shell_call", ID),
            Close({"action": {"type": "exec", "env": {}, "command": ["ls", "-l"], "working_directory": "/"}}),
        ],
    ),
    (
        "shell",
        {"commands": ["ls", "pwd"], "timeout_ms": 5},
        [
            Open("shell_call", {**ID, "action": {"commands": [], "max_output_length": None, "timeout_ms": 5}}),
            *("ls", EndPart(), "pwd", EndPart(), Close()),
        ],
    ),
    (
        "apply_patch",
        {"type": "update_file", "path": "a", "diff": "@@\n-a\n+b\n"},
        [
            Open("apply_patch_call", {**ID, "operation": {"type": "update_file", "path": "a", "diff": ""}}),
            *("@@\n-a\n+b\n", Close()),
        ],
    ),
    (
        "apply_patch",
        {"type": "delete_file", "path": "a", "diff": "-a"},
        [Open("apply_patch_call", {**ID, "operation": {"type": "delete_file", "path": "a"}}), Close()],
    ),
    (
        "tool_search",
        {"query": "weather"},
        [Open("tool_search_call", {**ID, "execution": "client"}), Close({"arguments": {"query": "weather"}})],
    ),
]
ODD = [
    ("local_shell", "{}"),
    ("local_shell", '{"command": "ls"}'),
    ("local_shell", '{"command": ["ls"], "env": 3}'),
    ("local_shell", '{"command": ["ls"], "timeout_ms": "soon"}'),
    ("shell", '{"commands": [1]}'),
    ("shell", '{"commands": ["ls"], "timeout_ms": "soon"}'),
    ("apply_patch", '{"type": "move_file", "path": "a"}'),
    ("apply_patch", '{"type": "create_file"}'),
    ("apply_patch", '{"type": "create_file", "path": "a", "diff": 1}'),
    ("tool_search", "[]"),
    ("shell", '{"commands": ["ls"'),
]


def writer(kind):
    return writer_for(Routing.from_request({"tools": [{"type": kind}]}).function(kind), ID["call_id"])


@pytest.mark.parametrize(("kind", "arguments", "wanted"), READ)
def test_the_arguments_of_a_client_tool_become_its_item(kind, arguments, wanted):
    written, text = writer(kind), json.dumps(arguments)
    assert [*written.open(), *written.write(text[:5]), *written.write(text[5:]), *written.close()] == wanted


@for_each(("kind", "arguments"), ODD)
def test_a_call_with_invalid_arguments_becomes_a_function_call(kind, arguments):
    written = writer(kind)
    function_call = Open("function_call", {"name": kind, **ID})
    assert [*written.open(), *written.write(arguments), *written.close()] == [function_call, arguments, Close()]


def test_a_truncated_call_becomes_a_function_call():
    written = writer("shell")
    assert [*written.write('{"comm'), *written.leave()] == [Open("function_call", {"name": "shell", **ID}), '{"comm']


def test_the_arguments_of_a_file_search_become_fields_of_its_item():
    def written(arguments):
        writer = writer_for(Route("file_search_call", {"name": "file_search"}, "fields"))
        return [*writer.write(arguments), *writer.close()]

    arguments, function_call = '{"queries": ["rain"]}', Open("function_call", {"name": "file_search"})
    assert written(arguments) == [Open("file_search_call", {"queries": ["rain"]}, arguments), Close()]
    extra = [f'{{"queries": ["rain"], {field}}}' for field in ('"results": []', '"status": "failed"', '"id": "fs_1"')]
    assert [written(odd) for odd in ("{}", "[]", *extra)] == [[function_call, odd, Close()] for odd in ("{}", "[]", *extra)]
    assert written('{"queries": 1}')[0] == function_call


@for_each(
    ("kind", "arguments", "message"),
    [
        ("program", ("code", "name", "day"), "'program' has no fields for arguments, and no reader in `_READERS`: day, name"),
        ("mcp_call", ("arguments",), "'mcp_call' cannot open without fields that are no arguments: name, server_label"),
        (
            "code_interpreter_call",
            ("code",),
            "'code_interpreter_call' opens with empty fields for arguments, and has no reader in `_READERS`: code",
        ),
        ("computer_call", ("action",), "`arguments_of` of 'computer_call' does not return arguments: action"),
        ("program", ("code", "fingerprint"), "`arguments_of` of 'program' does not return arguments: fingerprint"),
        ("image_generation_call", ("size",), "`arguments_of` of 'image_generation_call' does not return arguments: size"),
        ("image_generation_call", (), "`as_function_call` of 'image_generation_call' does not name the function"),
    ],
    ids=("no field", "a missing field", "a text", "an object", "several fields", "no function", "no function and no arguments"),
)
def test_a_client_tool_without_a_reader_whose_item_loses_an_argument_is_refused(kind, arguments, message):
    with pytest.raises(DeclarationError) as refused:
        ClientTool(kind, "", {"properties": dict.fromkeys(arguments)})
    assert str(refused.value) == message


def test_a_client_tool_without_a_reader_may_have_its_arguments_as_fields():
    parameters = {"properties": {"queries": {"type": "array"}}}
    assert ClientTool("file_search_call", "", parameters).parameters == parameters


@pytest.mark.parametrize("kind", CLIENT_TOOLS)
def test_the_name_of_an_undeclared_client_tool_is_a_function(kind):
    declared = Routing.from_request({"tools": [{"type": "function", "name": kind}]})
    assert [routing.function(kind).kind for routing in (Routing(), declared)] == ["function_call", "function_call"]


def test_a_family_call_of_a_local_shell_becomes_its_item():
    request = {"model": "m", "input": "Hi", "tools": [{"type": "local_shell"}]}
    text = (
        '<tool_call>\n<function=local_shell>\n<parameter=command>\n["ls"]\n</parameter>\n<parameter=timeout_ms>\n50\n</parameter>\n'
        "</function>\n</tool_call>"
    )
    parser, driver = parser_for(Tagged("qwen3_coder"), request), driver_for(request, writer=EventWriter())
    driver.feed([*parser.feed(Chunk(text=text)), *parser.end("stop", Usage())])
    (item,) = driver.response["output"]
    assert (item["type"], item["status"]) == ("local_shell_call", "completed")
    assert item["action"] == {"type": "exec", "env": {}, "command": ["ls"], "timeout_ms": 50}


def browsed(function, arguments):
    writer = writer_for(Routing().function(f"browser.{function}"))
    return [*writer.open(), *writer.write(arguments), *writer.close()]


@pytest.mark.parametrize(
    ("function", "arguments", "action"),
    [
        ("search", '{"query": "Rome", "topn": 3}', {"type": "search", "query": "Rome"}),
        ("open", '{"id": "https://rome.it"}', {"type": "open_page", "url": "https://rome.it"}),
        ("open", '{"url": "https://rome.it", "id": 3}', {"type": "open_page", "url": "https://rome.it"}),
        ("open", '{"cursor": 3, "id": 7}', {"type": "open_page", "url": "cursor:3#7"}),
        ("open", '{"cursor": 3, "id": -1}', {"type": "open_page", "url": "cursor:3"}),
        ("open", "{}", {"type": "open_page", "url": "cursor:-1"}),
        ("find", '{"pattern": "sun", "cursor": 2}', {"type": "find_in_page", "pattern": "sun", "url": "cursor:2"}),
    ],
)
def test_the_arguments_of_a_browser_call_become_its_action(function: str, arguments: str, action: dict[str, str]):
    assert browsed(function, arguments) == [Open("web_search_call", {"action": action}, arguments), Close()]


@pytest.mark.parametrize(
    ("function", "arguments", "fault"),
    [
        ("search", "Rome", "the arguments are not JSON"),
        ("search", "[" * 100_000, "the arguments are not JSON"),
        ("search", "[]", "the arguments are not an object"),
        ("search", '{"query": 3}', "the arguments of browser.search are incomplete"),
        ("find", "{}", "the arguments of browser.find are incomplete"),
        ("click", "{}", "the browser has no function 'click'"),
        ("", "{}", "the browser has no function ''"),
    ],
)
def test_invalid_browser_arguments_become_the_query(function: str, arguments: str, fault: str):
    action = {"type": "search", "query": arguments}
    assert browsed(function, arguments) == [Open("web_search_call", {"action": action}, arguments), Reject(fault)]
