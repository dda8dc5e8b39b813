"""What a model that knows functions alone is offered of a request's tools, and what a choice among them becomes."""

import pytest
from each import each

from interlock.parsers.client_tools import CLIENT_TOOLS
from interlock.serving.requests.tool_offer import HostedTools, ToolOffer, declare, offer

HOSTED = HostedTools(
    {
        "web_search": {"type": "web_search_preview"},
        "web_search_preview": {"type": "web_search_preview"},
        "code_interpreter": {"type": "code_interpreter"},
    },
    frozenset({"container"}),
)
NOTHING = {"type": "object", "properties": {}}
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


def test_a_function_is_offered_with_what_engines_know_of_it():
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
def test_a_custom_tool_is_a_function_of_one_string_with_its_grammar(form, expected):
    tool = {"type": "custom", "name": "write", "description": "Writes.", **form}
    assert offered(tool).tools == ({"type": "function", "name": "write", **expected},)


def of_regex(definition):
    tool = {"type": "custom", "name": "write", "format": {"type": "grammar", "syntax": "regex", "definition": definition}}
    return offered(tool).tools[0]


@each(
    "definition",
    [
        *("", "a", "é+", r"[\w.-]+", r"\d{3}-\d{4,}", "(?:a|b)*", "((a)|b)?", "[^\n]+", "[$(^{]", r"\x41\u00e9\n\t\-\.\/\[\{\$"),
        *("a+?", ".*", "]}", r"[\]\-x]"),
    ],
)
def test_a_regular_expression_that_every_backend_knows_is_a_pattern(definition):
    pattern = {"parameters": text(pattern=f"^(?:{definition})$"), "strict": True}
    assert of_regex(definition) == of_regex(f"^{definition}$") == {"type": "function", "name": "write", **pattern}


@each(
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
def test_any_other_regular_expression_is_told(definition):
    description = f"The text must match this regex grammar:\n{definition}"
    assert of_regex(definition) == {"type": "function", "name": "write", "description": description, "parameters": text()}


@pytest.mark.parametrize("kind", ["local_shell", "shell", "apply_patch"])
def test_a_tool_that_the_client_runs_is_the_function_that_stands_for_it(kind):
    own = CLIENT_TOOLS[kind]
    expected = {"type": "function", "name": kind, "description": own.description, "parameters": own.parameters}
    assert offered({"type": kind}) == ToolOffer((expected,), None, ())


def test_a_search_of_tools_is_offered_where_the_client_searches_and_needless_where_a_server_would():
    tool = {"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": CITY}
    assert offered(tool).tools == ({"type": "function", "name": "tool_search", "description": "Finds.", "parameters": CITY},)
    server = {"type": "tool_search"}
    assert offered(server, {**WEATHER, "defer_loading": True}) == ToolOffer((WEATHER,), None, ())


def test_what_a_search_found_is_offered_and_read_by():
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


def test_the_tools_that_a_server_has_listed_are_offered_as_functions_and_chosen_by_name():
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


def test_a_tool_of_a_type_that_nobody_knows_is_a_function_if_it_looks_like_one():
    function = {"type": "function", "name": "beam", "parameters": CITY}
    for fields in ({"parameters": CITY}, {"input_schema": CITY}):
        tool = {"type": "teleport", "name": "beam", **fields}
        assert offered(tool).tools == (function,)
        assert declare([tool], ()) == ({"type": "function", "name": "beam", **fields, "parameters": CITY},)
    for fields in ({"name": "beam"}, {"parameters": CITY}, {"name": "beam", "parameters": "none"}, {}):
        assert offered({"type": "teleport", **fields}).left_out == ("teleport",)


def test_what_no_function_can_stand_for_is_left_out():
    kinds = ("container", "image_generation", "file_search", "computer", "computer_use_preview")
    assert offered(*({"type": kind} for kind in kinds)).left_out == kinds
    assert offered({"type": "programmatic_tool_calling"}, {"type": "namespace", "name": "empty"}).left_out == ()


ALL = (WEATHER, FORECAST, {"type": "custom", "name": "write"}, {"type": "web_search"}, {"type": "shell"})


@each(
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
def test_a_choice_names_what_is_offered(choice, expected):
    assert offered(*ALL, choice=choice).choice == expected


def test_allowed_tools_are_all_that_is_offered():
    allowed = [{"type": "namespace", "name": "sky"}, {"type": "web_search"}, {"type": "custom", "name": "write"}]
    result = offered(*ALL, choice={"type": "allowed_tools", "mode": "required", "tools": allowed})
    names = [tool.get("name", tool["type"]) for tool in result.tools]
    assert names == ["sky__weather", "sky__ask", "write", "web_search_preview"]
    assert result.choice == "required"


def test_an_mcp_server_is_chosen_by_its_label():
    server = {"type": "mcp", "server_label": "container"}
    assert offered(server, choice=server).choice == server
