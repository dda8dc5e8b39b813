"""A completed call is what the model wrote: turns that were seen, and every family's turns with their markers changed."""

import json

import pytest
from families.properties import cut
from families.written_calls import WRITTEN
from recovery.notation import items, run

from interlock.parsers import Chunk, Tagged, parser_for


@pytest.mark.parametrize("size", [1 << 20, 1, 2, 3, 7])
@pytest.mark.parametrize("written", WRITTEN, ids=str)
def test_the_calls_of_a_turn_have_the_arguments_that_it_means(written, size):
    parser = parser_for(Tagged(written.tool_parser, written.reasoning_parser), written.body)
    read = items(run(parser, [Chunk(text=text) for text in cut(written.text, [size])]))
    calls = [(item.fields["name"], json.loads(item.text)) for item in read if item.kind == "function_call" and item.ending]
    assert calls == list(written.calls)
    assert "".join(item.text for item in read if item.kind == "message").strip() == written.message.strip()
