"""The messages in the tokens of a gpt-oss turn, and the messages with the outputs of its tools."""

import pytest
from live.engines import ENCODING

from interlock.serving.engines.harmony_tokens import tool_messages, turn_messages

RUN = "<|channel|>analysis to=python code<|message|>1<|call|>"
CALL = "<|channel|>commentary to=functions.rail__trains <|constrain|>json<|message|>{}<|call|>"
CODE = {"type": "code_interpreter_call", "output": "1\n"}
SEARCH = {"type": "web_search_call", "output": "a page"}
MCP = {"type": "mcp_call", "server_label": "rail", "name": "trains", "output": "10:15"}


def tokens(text):
    return ENCODING.encode(text, allowed_special="all")


def replies(text, *items):
    messages = tool_messages(tokens(text), [{"type": "reasoning"}, *items])
    return [(each.author.name, each.channel, each.recipient, each.content[0].text) for each in messages]


@pytest.mark.parametrize(
    ("text", "item", "name", "channel"),
    [
        (RUN, CODE, "python", "analysis"),
        (CALL, MCP, "functions.rail__trains", "commentary"),
        (RUN.replace("analysis", "commentary"), CODE, "python", "commentary"),
    ],
)
def test_a_tool_answers_under_the_name_and_in_the_channel_of_its_call(text, item, name, channel) -> None:
    assert replies(text, item) == [(name, channel, "assistant", item["output"])]


def test_a_tool_answers_under_its_usual_name_if_calls_and_items_differ() -> None:
    malformed = "<|channel|><|channel|>Hi<|call|>"
    assert replies(malformed, CODE, SEARCH, MCP) == [
        ("python", "analysis", "assistant", "1\n"),
        ("browser.search", "analysis", "assistant", "a page"),
        ("functions.rail__trains", "commentary", "assistant", "10:15"),
    ]


def test_no_tool_answers_if_a_call_of_an_async_tool_is_pending() -> None:
    assert replies(RUN, CODE, {"type": "function_call_output", "output": "later"}) == []


def test_a_malformed_turn_is_one_message_with_all_of_its_text() -> None:
    (message,) = turn_messages(tokens("<|channel|><|channel|>Hi<|call|>"))
    assert (message.channel, message.content[0].text) == ("final", "Hi")
