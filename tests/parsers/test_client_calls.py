"""Calls of the tools that a client runs become items of their own, in every format that knows functions alone."""

import json

import pytest
from each import each

from interlock import EventWriter, Tagged, Usage, driver_for, parser_for
from interlock.fsm.deltas import Close, EndPart, Open
from interlock.parsers import Chunk
from interlock.parsers.client_tools import CLIENT_TOOLS, read_call
from interlock.parsers.item_writers import writer_for
from interlock.parsers.routing import Routing

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
def test_arguments_become_the_item(kind, arguments, wanted):
    assert read_call(CLIENT_TOOLS[kind].kind, json.dumps(arguments), ID) == wanted
    written, text = writer(kind), json.dumps(arguments)
    assert [*written.open(), *written.write(text[:5]), *written.write(text[5:]), *written.close()] == wanted


@each(("kind", "arguments"), ODD)
def test_a_call_that_makes_no_sense_is_one_of_a_function(kind, arguments):
    written = writer(kind)
    function_call = Open("function_call", {"name": kind, **ID})
    assert [*written.open(), *written.write(arguments), *written.close()] == [function_call, arguments, Close()]


def test_a_call_that_is_cut_is_one_of_a_function_as_far_as_it_came():
    written = writer("shell")
    assert [*written.write('{"comm'), *written.leave()] == [Open("function_call", {"name": "shell", **ID}), '{"comm']


def test_the_arguments_of_any_other_kind_are_fields_of_its_item():
    arguments = '{"queries": ["rain"]}'
    assert read_call("file_search_call", arguments, {}) == [Open("file_search_call", {"queries": ["rain"]}, arguments), Close()]
    assert [read_call("file_search_call", odd, {}) for odd in ("{}", '{"queries": 1}', "[]")] == [None, None, None]


@pytest.mark.parametrize("kind", CLIENT_TOOLS)
def test_functions_of_these_names_are_functions_unless_the_tool_is_declared(kind):
    declared = Routing.from_request({"tools": [{"type": "function", "name": kind}]})
    assert [routing.function(kind).kind for routing in (Routing(), declared)] == ["function_call", "function_call"]


def test_a_shell_is_called_in_the_text_of_a_family():
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
