"""Edges that real services take and the driver does not: only the judge knows them.

They are read together with the table of their kind; a state that is named here alone is one that only the judge knows. An
edge that is a habit departs from a rule and is a deviation; the others are legal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

from interlock.events import spec
from interlock.events.spec import EventSpec


@frozen
class Observed:
    """One such edge.

    Args:
        source: The state that it leaves.
        dest: The state that it enters.
        events: What is seen of it, in order.
        why: What the service does, and why that is legal; for a habit, `interlock.fsm.acceptor.habits` says it.
        habit: The habit that it is; empty for an edge that is legal.
    """

    source: str
    dest: str
    events: Sequence[EventSpec]
    why: str = ""
    habit: str = ""


def _unframed(state: str, *texts: tuple[EventSpec, EventSpec], may_lack_end: bool = False) -> list[Observed]:
    """Return the edges of texts that come without the events that add and end their part."""
    edges: list[Observed] = []
    for delta, end in texts:
        bare = f"unframed {delta.name.split('.')[1]}"
        for source, dest, event in (
            (state, bare, delta),
            (bare, bare, delta),
            (state, "in_progress", end),
            (bare, "in_progress", end),
        ):
            edges.append(Observed(source, dest, [event], habit="unframed-part"))
        if may_lack_end:
            edges.append(Observed(bare, "completed", [spec.DONE], habit="unframed-part"))
    return edges


_REASONING: Final = ((spec.REASONING_DELTA, spec.REASONING_DONE), (spec.SUMMARY_DELTA, spec.SUMMARY_DONE))
_MESSAGE: Final = ((spec.TEXT_DELTA, spec.TEXT_DONE), (spec.REFUSAL_DELTA, spec.REFUSAL_DONE))

OBSERVED: Final[Mapping[str, Sequence[Observed]]] = {
    "reasoning": [edge for state in ("sealed", "in_progress") for edge in _unframed(state, *_REASONING, may_lack_end=True)],
    "message": [
        Observed("pending", "added", [spec.ADDED], "a message may have no part at all; that it is blank is judged by R18"),
        Observed("added", "completed", [spec.DONE], "likewise"),
        Observed("added", "incomplete", [spec.DONE], "likewise, if it was cut"),
        *_unframed("added", *_MESSAGE),
        *_unframed("in_progress", *_MESSAGE),
    ],
    "mcp_call": [
        Observed(
            "in_progress",
            "in_progress",
            [spec.MCP_IN_PROGRESS],
            "a call that was approved is said to be in progress once more when its arguments are there",
        ),
    ],
    "shell_call_output": [
        Observed("in_progress", "incomplete", [spec.DONE], "an output that was cut may say so"),
        Observed("printing", "incomplete", [spec.OUTPUT_DONE, spec.DONE], "likewise"),
    ],
    "compaction": [
        Observed("in_progress", "completed", [spec.DONE], "a compaction may come whole, without the event that it is being made"),
    ],
}
"""The edges of each kind of item that has any."""
