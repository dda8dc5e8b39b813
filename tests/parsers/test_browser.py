import pytest

from interlock.parsers.item_writers import BrowserAction, read_action


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
def test_arguments_become_an_action(function: str, arguments: str, action: dict[str, str]):
    assert read_action(function, arguments) == BrowserAction(action)


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
def test_arguments_that_make_no_sense_are_kept_as_a_query(function: str, arguments: str, fault: str):
    assert read_action(function, arguments) == BrowserAction({"type": "search", "query": arguments}, fault)
