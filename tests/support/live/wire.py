"""What came over the wire, judged and read."""

import json

from open_responses_oracle import check_in

from interlock.events.sse import SseDecoder


def bodies(data, dialect="openai"):
    """The events of a whole stream, which must be legal in its framing, its order and its content (rules R1 to R18)."""
    assert b"\r" not in data
    decoder = SseDecoder()
    messages = [*decoder.feed(data), *decoder.end()]
    assert all(message.complete and not message.invalid_utf8 for message in messages)
    *events, done = messages
    assert (done.data, done.fields) == ("[DONE]", ("data",))
    assert {message.fields for message in events} == {("event", "data")}
    read = [json.loads(message.data) for message in events]
    assert [message.event for message in events] == [body["type"] for body in read]
    assert check_in(dialect, read) == []
    return read


def without_chance(value):
    """A response without its ids and times, which differ from run to run."""
    match value:
        case dict():
            return {
                name: without_chance(inner)
                for name, inner in value.items()
                if name not in {"id", "call_id", "created_at", "completed_at", "container_id"}
            }
        case list():
            return [without_chance(inner) for inner in value]
        case _:
            return value
