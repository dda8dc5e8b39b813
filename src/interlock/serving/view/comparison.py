"""Compares two streams for the viewer.

Items are aligned by kind and name, then their events by name. Consecutive deltas are compared as one event. Fields that differ
from run to run are ignored.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final

import orjson
from attrs import define, field

from interlock.events.json import as_text, elements, is_array, is_object, members
from interlock.fsm.acceptor.judging import DONE
from interlock.serving.view.event_lines import Line

VOLATILE: Final = frozenset(
    {"id", "item_id", "call_id", "container_id", "response_id", "previous_response_id", "sequence_number", "output_index"}
    | {"created", "created_at", "completed_at", "obfuscation", "signature", "system_fingerprint", "tool_use_id", "usage"}
)
"""The fields that differ from run to run, at any depth."""

_LONGEST: Final = 2000
"""The most items of a stream, or runs of an item, to align; longer lists are paired in order."""
_PATHS: Final = 50
"""The most differences to name for a pair of events."""


@define(eq=False)
class _EventGroup:
    """One event, or consecutive deltas with one name in one item (`lane`): the events from `start` to before `end`."""

    lane: int
    name: str
    start: int
    end: int
    data: str
    texts: list[str] = field(factory=list[str])


@define(eq=False)
class ComparedSide:
    """One of two streams to align."""

    lanes: dict[int, tuple[object, object]] = field(factory=lambda: {0: ("response", None)}, init=False)
    """The kind and name of the item of each lane."""
    runs: list[_EventGroup] = field(factory=list[_EventGroup], init=False)

    def add(self, line: Line) -> None:
        match line:
            case ("lane", _, int() as lane, about):
                item = members(about)
                self.lanes[lane] = (item["kind"], item["name"])
            case ("e", _, int() as lane, str() as name, _, _, _, _, str() as data):
                last = self.runs[-1] if self.runs else None
                text = _delta(name, data)
                if text is not None and last is not None and (last.lane, last.name) == (lane, name):
                    last.end += 1
                    last.texts.append(text)
                else:
                    number = last.end if last else 0
                    self.runs.append(_EventGroup(lane, name, number, number + 1, data, [] if text is None else [text]))
            case _:
                pass


def pairs(left: ComparedSide, right: ComparedSide) -> Line:
    """Return the line that aligns two streams: rows of corresponding events, in the order of the left stream."""
    partners = dict(_partners(left, right))
    paired = set(partners.values())
    unpaired = [run for run in right.runs if run not in paired]
    rows: list[Mapping[str, object]] = []
    for run in left.runs:
        partner = partners.get(run)
        while partner is not None and unpaired and unpaired[0].start < partner.start:
            rows.append(_row(None, unpaired.pop(0)))
        rows.append(_row(run, partner))
    rows += [_row(None, run) for run in unpaired]
    return "pairs", {"rows": rows, "volatile": sorted(VOLATILE)}


def _partners(left: ComparedSide, right: ComparedSide) -> Iterator[tuple[_EventGroup, _EventGroup]]:
    left_lanes, right_lanes = list(left.lanes), list(right.lanes)
    for i, j in _align(list(left.lanes.values()), list(right.lanes.values())):
        left_runs = [run for run in left.runs if run.lane == left_lanes[i]]
        right_runs = [run for run in right.runs if run.lane == right_lanes[j]]
        for m, n in _align([run.name for run in left_runs], [run.name for run in right_runs]):
            yield left_runs[m], right_runs[n]


def _align(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    if max(len(left), len(right)) > _LONGEST:
        yield from ((place, place) for place, (a, b) in enumerate(zip(left, right, strict=False)) if a == b)
        return
    for block in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        yield from ((block.a + place, block.b + place) for place in range(block.size))


def _row(left: _EventGroup | None, right: _EventGroup | None) -> Mapping[str, object]:
    paths: list[str] = []
    if left is not None and right is not None:
        paths = list(_differences(left, right))[:_PATHS]
        mark = "differs" if paths else "same"
    else:
        mark = "right" if left is None else "left"
    return {"left": left and (left.start, left.end), "right": right and (right.start, right.end), "mark": mark, "paths": paths}


def _differences(left: _EventGroup, right: _EventGroup) -> Iterator[str]:
    if left.texts or right.texts:
        if "".join(left.texts) != "".join(right.texts):
            yield "delta"
    elif left.data != right.data:
        try:
            yield from [*_unequal(_parse(left.data), _parse(right.data), "")]
        except RecursionError:
            yield ""  # nested too deeply to name the field


def _unequal(left: object, right: object, path: str) -> Iterator[str]:
    if is_object(left) and is_object(right):
        for name in sorted({*left, *right} - VOLATILE):
            if name not in left or name not in right:
                yield f"{path}.{name}"
            else:
                yield from _unequal(left[name], right[name], f"{path}.{name}")
    elif is_array(left) and is_array(right) and len(left) == len(right):
        for place, pair in enumerate(zip(left, right, strict=True)):
            yield from _unequal(*pair, f"{path}[{place}]")
    elif left != right:
        yield path


def _parse(data: str) -> object:
    try:
        parsed: object = data if data == DONE else orjson.loads(data)
    except orjson.JSONDecodeError:
        return data
    return parsed


def _delta(name: str, data: str) -> str | None:
    """Return the text of a delta of any API; None for other events, and for the first delta of a call."""
    body: Mapping[str, object]
    if name.endswith(".delta"):
        body = {"delta": members(_parse(data)).get("delta")}
    elif name == "content_block_delta":
        body = members(members(_parse(data)).get("delta"))
    elif name.startswith("delta."):
        choice = members(next(iter(elements(members(_parse(data)).get("choices"))), None))
        body = members(choice.get("delta"))
        for call in map(members, elements(body.get("tool_calls"))):
            return None if "id" in call else as_text(members(call.get("function")).get("arguments"))
    else:
        return None
    return next((text for field, text in body.items() if field != "type" and isinstance(text, str)), None)
