"""Two streams beside one another: which of their events answer to one another, and what differs between those.

Items are aligned first, by kind and name; then the events of each two, with the deltas of a text taken as one. What differs from
run to run (ids, times, numbers, how a text is divided into deltas) is no difference.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final, cast

import orjson
from attrs import define, field

from interlock.fsm.acceptor.judging import DONE
from interlock.serving.view.trace import Line

VOLATILE: Final = frozenset(
    {"id", "item_id", "call_id", "container_id", "response_id", "previous_response_id", "sequence_number", "output_index"}
    | {"created_at", "completed_at", "obfuscation", "usage"}
)
"""The fields that differ from run to run, at any depth."""

_LONGEST: Final = 2000
"""Runs of one item that are aligned with care; more of them are taken one by one."""
_PATHS: Final = 50
"""Differences of two events that are named."""


@define(eq=False)
class _Run:
    """Events of one name and item, one after another.

    Args:
        lane: The number of the lane.
        name: Their wire name.
        start: The first of them.
        end: The one after the last.
        data: What the first carries.
        texts: The deltas of all.
    """

    lane: int
    name: str
    start: int
    end: int
    data: str
    texts: list[str] = field(factory=list[str])


@define(eq=False)
class Side:
    """One of two streams, as far as it takes to compare it."""

    lanes: dict[int, tuple[object, object]] = field(factory=lambda: {0: ("response", None)}, init=False)
    """The kind and name of the item of each lane."""
    runs: list[_Run] = field(factory=list[_Run], init=False)

    def see(self, line: Line) -> None:
        """Read a line of the stream's trace."""
        match line:
            case ("lane", _, int() as lane, about):
                self.lanes[lane] = (cast("Mapping[str, object]", about)["kind"], cast("Mapping[str, object]", about)["name"])
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
    """Return the line that aligns two streams: rows of events that answer to one another, in the order of the left one.

    Args:
        left: One stream.
        right: The other.
    """
    partner = dict(_partners(left, right))
    taken = {id(run) for run in partner.values()}
    rows: list[Mapping[str, object]] = []
    waiting = [run for run in right.runs if id(run) not in taken]
    for run in left.runs:
        other = partner.get(id(run))
        if other is not None:
            while waiting and waiting[0].start < other.start:
                rows.append(_row(None, waiting.pop(0)))
        rows.append(_row(run, other))
    rows += [_row(None, run) for run in waiting]
    return "pairs", {"rows": rows, "volatile": sorted(VOLATILE)}


def _partners(left: Side, right: Side) -> Iterator[tuple[int, _Run]]:
    """Yield for each run of the left stream that has an answer its identity and that answer."""
    ours, theirs = list(left.lanes), list(right.lanes)
    keys = [left.lanes[lane] for lane in ours], [right.lanes[lane] for lane in theirs]
    for one, other in _aligned(*keys):
        runs = [run for run in left.runs if run.lane == ours[one]], [run for run in right.runs if run.lane == theirs[other]]
        for mine, yours in _aligned(*([run.name for run in some] for some in runs)):
            yield id(runs[0][mine]), runs[1][yours]


def _aligned(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the places of what is equal in two lists, each ascending."""
    if max(len(left), len(right)) > _LONGEST:
        yield from ((at, at) for at, (one, other) in enumerate(zip(left, right, strict=False)) if one == other)
        return
    for block in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        yield from ((block.a + at, block.b + at) for at in range(block.size))


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
    """Yield the paths at which two JSON values differ, but for what is volatile."""
    if isinstance(left, dict) and isinstance(right, dict):
        one, other = cast("dict[str, object]", left), cast("dict[str, object]", right)
        for name in sorted({*one, *other} - VOLATILE):
            if name not in one or name not in other:
                yield f"{path}.{name}"
            else:
                yield from _unlike(one[name], other[name], f"{path}.{name}")
    elif isinstance(left, list) and isinstance(right, list):
        some, others = cast("list[object]", left), cast("list[object]", right)
        if len(some) != len(others):
            yield path
            return
        for at, (mine, yours) in enumerate(zip(some, others, strict=True)):
            yield from _unlike(mine, yours, f"{path}[{at}]")
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
