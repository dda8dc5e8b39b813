"""Streams short enough for a page: of a recording, or of some deltas, the events that matter, each in two lines.

It knows what a page leaves out, and nothing of what an event means.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any, cast

from interlock.events.json import as_json
from interlock.events.settings_echo import response_settings
from interlock.events.sse import EventWriter
from interlock.events.stream import ResponseEvent, StreamEvent
from interlock.fsm.deltas import Delta, Finish
from interlock.fsm.driver import ResponseDriver, SequentialIds
from interlock.serving.engines.recordings import replay_events

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
from corpus_streams.recordings import RECORDINGS

WIDTH = 96  # of a line, in characters
LINES = 4  # of an event
ALIKE = 2  # events of one name in a row that are shown
ADDRESS = ("item_id", "output_index")
RESPONSE = ("id", "status", "error", "incomplete_details", "output", "usage")


def recorded(name: str) -> list[StreamEvent]:
    """Return the events of a recording.

    Args:
        name: Of the recording, without its ending.
    """
    return list(replay_events(RECORDINGS[name]))


def driven(deltas: Sequence[Delta]) -> list[StreamEvent]:
    """Return the events that a driver makes of some deltas, the end of the response included.

    Args:
        deltas: What it is fed.
    """
    driver = ResponseDriver(response_settings({}), writer=EventWriter(), ids=SequentialIds(), clock=lambda: 0)
    return driver.feed([*deltas, Finish()])


def of_item(events: Iterable[StreamEvent], kind: str) -> Iterator[StreamEvent]:
    """Yield the events of the first item of a kind.

    Args:
        events: Of a stream.
        kind: The item's type.
    """
    wanted = None
    for event in events:
        body = body_of(event)
        item = body.get("item", {})
        if wanted is None and item.get("type") == kind:
            wanted = item["id"]
        if wanted is not None and wanted in (item.get("id"), body.get("item_id")):
            yield event


def of_response(events: Iterable[StreamEvent]) -> Iterator[StreamEvent]:
    """Return the events of the response itself."""
    return (event for event in events if isinstance(event, ResponseEvent))


def shortened(events: Iterable[StreamEvent]) -> str:
    """Write events for a page: number and name, then what they carry.

    Args:
        events: Of a stream, in order; where some of the same name follow one another, the rest is counted.
    """
    lines: list[str] = []
    for _, group in groupby(events, key=lambda event: event.type):
        alike = list(group)
        for event in alike[:ALIKE]:
            lines += [f"{event.sequence_number:3}  {event.type}", *(f"     {line}" for line in _body(event))]
        if len(alike) > ALIKE:
            lines.append(f"     … {len(alike) - ALIKE} more")
    return "\n".join(lines)


def shortened_json(value: object) -> str:
    """Return a value as JSON in a few lines, the last of which may end in an ellipsis."""
    lines = wrap(json.dumps(value, ensure_ascii=False), WIDTH, max_lines=LINES, placeholder=" …")
    return "\n".join(lines)


def body_of(event: StreamEvent) -> dict[str, Any]:
    """Return an event as its JSON object."""
    return cast("dict[str, Any]", as_json(event))


def _body(event: StreamEvent) -> list[str]:
    body = {key: value for key, value in body_of(event).items() if key not in {"type", "sequence_number", *ADDRESS}}
    if "response" in body:
        response = {key: body["response"][key] for key in RESPONSE if body["response"][key] is not None}
        body = {"response": {**response, "output": [item["id"] for item in response["output"]]}}
    shown = {key: value for key, value in body.items() if value != []}
    return shortened_json(shown).splitlines() if shown else []
