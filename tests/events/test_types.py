"""The types decode observed events, and encode them unchanged."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Union

import msgspec
import pytest

from interlock.events import stream
from interlock.events.dialects import from_open_responses
from interlock.events.items import FunctionCall, InputItem, Message
from interlock.events.parts import OutputText
from interlock.events.response_object import CreateResponse
from interlock.events.stream import EVENTS, TERMINAL, ItemAdded, Place, TextDelta, own_fields, wire_name

ANY_EVENT = Union[tuple(EVENTS.values())]  # noqa: UP007 - as many as there are
OBSERVED = Path(__file__).parent.parent / "corpus" / "observed"
SETTINGS = (
    *("background", "completed_at", "error", "frequency_penalty", "instructions", "max_tool_calls", "presence_penalty"),
    *("prompt_cache_key", "safety_identifier", "service_tier", "top_logprobs", "truncation", "usage", "user"),
)
DIFFERENCES = {
    # A missing field of a response has the API's default.
    *(f"response.{name}: added" for name in SETTINGS),
    # An image is null until it is done, and log probabilities are a list if they are not requested (rule R15).
    "item.result: added",
    "logprobs: added",
    # Fields of Azure and GitHub.
    "response.content_filters: lost",
    "copilot_usage: lost",
}


def bodies() -> Iterator[dict[str, object]]:
    """Yield every event that was observed."""
    for path in sorted(OBSERVED.glob("*.sse")):
        for line in path.read_text().splitlines():
            if line.startswith("data: {"):
                yield from_open_responses(json.loads(line.removeprefix("data: ")))  # which unpacks an error


def changes(before: object, after: object, where: str = "") -> Iterator[str]:
    """Yield the differences between two JSON values."""
    if isinstance(before, dict) and isinstance(after, dict):
        yield from (f"{where}{name}: lost" for name in before.keys() - after.keys())
        yield from (f"{where}{name}: added" for name in after.keys() - before.keys())
        for name in before.keys() & after.keys():
            yield from changes(before[name], after[name], f"{where}{name}.")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            yield from changes(one, other, where)
    elif before != after:
        yield f"{where}: {before!r} became {after!r}"


def decoded(body: dict[str, object]) -> stream.StreamEvent:
    return msgspec.convert(body, ANY_EVENT)


def test_every_observed_event_comes_back_as_it_was():
    differences = {change for body in bodies() for change in changes(body, msgspec.to_builtins(decoded(body)))}
    assert differences == DIFFERENCES


def test_the_number_of_an_event_comes_last():
    delta = TextDelta("msg_1", 0, 0, "Hi", sequence_number=4)
    assert msgspec.json.encode(delta) == (
        b'{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hi","logprobs":[],'
        b'"sequence_number":4}'
    )


def test_an_item_has_its_type_first_and_omits_unset_fields():
    call = FunctionCall(id="fc_1", status="in_progress", call_id="call_1", name="sum", arguments="")
    assert msgspec.json.encode(ItemAdded(0, call, sequence_number=2)) == (
        b'{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc_1","status":"in_progress",'
        b'"call_id":"call_1","name":"sum","arguments":""},"sequence_number":2}'
    )


def test_a_message_of_a_response_has_the_role_assistant():
    message = Message(id="msg_1", status="completed", content=[OutputText(text="Hi")])
    assert msgspec.to_builtins(message) == {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
    }


def test_a_client_may_send_an_item_back_with_nulls():
    item = {
        "type": "function_call",
        "id": None,
        "status": None,
        "call_id": "call_1",
        "name": "sum",
        "arguments": "",
        "namespace": None,
    }
    assert msgspec.to_builtins(msgspec.convert(item, InputItem)) == item


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Object missing required field `model`"),
        ({"model": "m", "temperature": 3}, "Expected `int` <= 2 - at `$.temperature`"),
        ({"model": "m", "stream": 1}, "Expected `bool | null`, got `int` - at `$.stream`"),
        (
            {"model": "m", "input": [{"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": 3}]}]},
            "Expected `str | null`, got `int` - at `$.input[0].content[0].image_url`",
        ),
        ({"model": "m", "input": [{"type": "telepathy"}]}, "Invalid value 'telepathy' - at `$.input[0].type`"),
    ],
)
def test_a_mismatch_of_a_request_has_its_path(body, message):
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(body, CreateResponse)
    assert str(caught.value) == message


def test_the_terminal_events_are_those_after_which_nothing_comes():
    assert {"response.completed", "response.incomplete", "response.failed"} == TERMINAL
    assert {name for name, event in EVENTS.items() if event.after is Place.AFTER} == {*TERMINAL, "response.output_item.done"}


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (TextDelta, ("delta", "logprobs", "obfuscation")),
        (stream.ArgumentsDone, ("arguments", "name")),
        (stream.PROGRESS["mcp_call.completed"], ()),
    ],
)
def test_an_event_has_own_fields_besides_ids_and_indices(event, fields):
    assert own_fields(event) == fields


def test_the_names_of_types_are_their_tags():
    assert {name: wire_name(event) for name, event in EVENTS.items()} == {name: name for name in EVENTS}
