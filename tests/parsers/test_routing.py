import pytest
from each import each

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


@each(
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
        "python": Route("code_interpreter_call", {}, "code"),
        "browser.open": Route("web_search_call", {}, "browser", "open"),
        "mcp.files.list": mcp("files", "list"),
        "files.list": mcp("files", "list"),
        "container.exec": mcp("container", "exec"),
    }.items(),
)
def test_an_unknown_name_is_a_function_where_there_are_only_functions(name: str, route: Route):
    assert ROUTING.function(name) == route


def test_a_function_that_stands_for_a_servers_tool_is_a_call_of_that():
    routing = Routing.from_request({"tools": [{"type": "mcp", "server_label": label} for label in ("rail", "rail__sea")]})
    for name, route in {"rail__trains": mcp("rail", "trains"), "rail__sea__ships": mcp("rail__sea", "ships")}.items():
        for recipient in (name, f"functions.{name}"):
            assert routing.recipient(recipient) == routing.function(recipient) == route
    assert routing.function("other__f") == Route("function_call", {"name": "other__f"})


def test_a_bare_name_belongs_to_the_only_server():
    routing = Routing.from_request({"tools": [{"type": "mcp", "server_label": "files"}]})
    assert routing.recipient("anything") == mcp("files", "anything")


def test_a_function_named_python_is_a_function_where_there_is_no_interpreter():
    tools = [{"type": "function", "name": "python"}]
    assert Routing.from_request({"tools": tools}).recipient("python") == function("python")
    hosted = Routing.from_request({"tools": [*tools, {"type": "code_interpreter"}]})
    assert hosted.recipient("python") == Route("code_interpreter_call")
    assert hosted.recipient("functions.python") == function("python")


def test_a_function_named_as_somebody_is_called_by_its_full_name():
    routing = Routing.from_request({"tools": [{"type": "function", "name": "user"}]})
    assert routing.recipient("user") is None
    assert routing.recipient("functions.user") == function("user")


@pytest.mark.parametrize("tools", [None, 7, "tools", {}, [None]])
def test_tools_of_a_wrong_shape_declare_nothing(tools: object):
    assert Routing.from_request({"tools": tools}) == Routing()


@pytest.mark.parametrize("kind", ["web_search", "web_search_preview", "web_search_2025_08_26"])
def test_a_search_is_the_item_of_the_tool_that_the_request_declares(kind: str):
    search = Route("web_search_call", payload="browser", function="search")
    assert Routing.from_request({"tools": [{"type": kind}]}).function("web_search") == search
    assert Routing.from_request({"tools": []}).function("web_search") == Route("function_call", {"name": "web_search"})
    own = {"type": "function", "name": "web_search"}
    assert Routing.from_request({"tools": [{"type": kind}, own]}).function("web_search").kind == "function_call"
