"""The alignment of two streams: which of their events correspond to each other, and how those differ.

Items are aligned first, by kind and name; then the events of each pair, with the deltas of a text taken as one. What differs from
run to run (ids, times, numbers, how a text is divided into deltas) does not count as a difference.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final, cast

import orjson
from attrs import define, field

from interlock.fsm.acceptor.judging import DONE
from interlock.serving.view.event_lines import Line

VOLATILE: Final = frozenset(
    {"id", "item_id", "call_id", "container_id", "response_id", "previous_response_id", "sequence_number", "output_index"}
    | {"created_at", "completed_at", "obfuscation", "usage"}
)
"""The fields that differ from run to run, at any depth."""

_LONGEST: Final = 2000
"""The greatest number of runs of an item that are aligned with care; more of them are paired in order."""
_PATHS: Final = 50
"""The greatest number of differences that are named for two events."""


@define(eq=False)
class _Run:
    """Consecutive events of one name and item.

    Args:
        lane: The number of the item's lane.
        name: The wire name of the events.
        start: The number of the first event.
        end: The number after that of the last.
        data: The data of the first event.
        texts: The deltas of all events.
    """

    lane: int
    name: str
    start: int
    end: int
    data: str
    texts: list[str] = field(factory=list[str])


@define(eq=False)
class Side:
    """One of two streams, as far as comparing needs it."""

    lanes: dict[int, tuple[object, object]] = field(factory=lambda: {0: ("response", None)}, init=False)
    """The kind and name of the item of each lane."""
    runs: list[_Run] = field(factory=list[_Run], init=False)

    def see(self, line: Line) -> None:
        """Read a line of the stream's trace."""
        match line:
            case ("lane", _, int() as lane, about):
                item = cast("Mapping[str, object]", about)
                self.lanes[lane] = (item["kind"], item["name"])
            case ("e", _, int() as lane, str() as name, _, _, _, _, str() as data):
                self._event(lane, name, data)
            case _:
                pass

    def _event(self, lane: int, name: str, data: str) -> None:
        number = self.runs[-1].end if self.runs else 0
        text = _delta(data) if name.endswith(".delta") else None
        last = self.runs[-1] if self.runs else None
        if text is not None and last is not None and (last.lane, last.name) == (lane, name):
            last.end += 1
            last.texts.append(text)
        else:
            self.runs.append(_Run(lane, name, number, number + 1, data, [] if text is None else [text]))


def pairs(left: Side, right: Side) -> Line:
    """Return the line that aligns two streams: rows of events that correspond, in the order of the left stream."""
    partners = dict(_partners(left, right))
    paired = {id(run) for run in partners.values()}
    unpaired = [run for run in right.runs if id(run) not in paired]
    rows: list[Mapping[str, object]] = []
    for run in left.runs:
        partner = partners.get(id(run))
        while partner is not None and unpaired and unpaired[0].start < partner.start:
            rows.append(_row(None, unpaired.pop(0)))
        rows.append(_row(run, partner))
    rows += [_row(None, run) for run in unpaired]
    return "pairs", {"rows": rows, "volatile": sorted(VOLATILE)}


def _partners(left: Side, right: Side) -> Iterator[tuple[int, _Run]]:
    """Yield the identity of each run of the left stream that has a partner, with the partner."""
    left_lanes, right_lanes = list(left.lanes), list(right.lanes)
    for i, j in _aligned(list(left.lanes.values()), list(right.lanes.values())):
        left_runs = [run for run in left.runs if run.lane == left_lanes[i]]
        right_runs = [run for run in right.runs if run.lane == right_lanes[j]]
        for m, n in _aligned([run.name for run in left_runs], [run.name for run in right_runs]):
            yield id(left_runs[m]), right_runs[n]


def _aligned(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the places of equal values in two lists, each ascending."""
    if max(len(left), len(right)) > _LONGEST:
        yield from ((place, place) for place, (a, b) in enumerate(zip(left, right, strict=False)) if a == b)
        return
    for block in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        yield from ((block.a + place, block.b + place) for place in range(block.size))


def _row(left: _Run | None, right: _Run | None) -> Mapping[str, object]:
    paths: list[str] = []
    if left is not None and right is not None:
        mark = "differs" if (paths := list(_differences(left, right))[:_PATHS]) else "same"
    else:
        mark = "right" if left is None else "left"
    return {"left": left and (left.start, left.end), "right": right and (right.start, right.end), "mark": mark, "paths": paths}


def _differences(left: _Run, right: _Run) -> Iterator[str]:
    if left.texts or right.texts:
        if "".join(left.texts) != "".join(right.texts):
            yield "delta"
    elif left.data != right.data:
        try:
            yield from [*_unlike(_parsed(left.data), _parsed(right.data), "")]
        except RecursionError:
            yield ""  # nested too deeply to say where


def _unlike(left: object, right: object, path: str) -> Iterator[str]:
    """Yield the paths at which two JSON values differ, except in volatile fields."""
    if isinstance(left, dict) and isinstance(right, dict):
        a, b = cast("dict[str, object]", left), cast("dict[str, object]", right)
        for name in sorted({*a, *b} - VOLATILE):
            if name not in a or name not in b:
                yield f"{path}.{name}"
            else:
                yield from _unlike(a[name], b[name], f"{path}.{name}")
    elif isinstance(left, list) and isinstance(right, list):
        values = cast("list[object]", left), cast("list[object]", right)
        if len(values[0]) != len(values[1]):
            yield path
            return
        for place, pair in enumerate(zip(*values, strict=True)):
            yield from _unlike(*pair, f"{path}[{place}]")
    elif left != right:
        yield path


def _parsed(data: str) -> object:
    try:
        return data if data == DONE else cast("object", orjson.loads(data))
    except orjson.JSONDecodeError:
        return data


def _delta(data: str) -> str | None:
    """Return the text of a delta; None if it has none."""
    body = _parsed(data)
    text = cast("dict[str, object]", body).get("delta") if isinstance(body, dict) else None
    return text if isinstance(text, str) else None
