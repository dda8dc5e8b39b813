"""What came over the wire, judged and read."""

import json

from interlock.serving.judging import judge


def bodies(data, dialect="openai"):
    """The events of a whole stream, which must be legal in its framing, its order and its content."""
    verdict = judge([data], dialect)
    assert verdict.findings == []
    frames = data.decode().split("\n\n")
    return [json.loads(frame.split("\ndata: ", 1)[1]) for frame in frames if "\ndata: " in frame]


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
