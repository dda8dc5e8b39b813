"""Edges that real services take and the driver does not: only the judge knows them.

They are read together with the table of their kind, and are legal; a state that is named here alone is one that only the
judge knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

from interlock.events.stream import ItemAdded, ItemDone, McpInProgress, OutputDone, StreamEvent


@frozen
class Observed:
    """One such edge.

    Args:
        source: The state that it leaves.
        dest: The state that it enters.
        events: What is seen of it, in order.
        why: What the service does, and why that is legal.
    """

    source: str
    dest: str
    events: Sequence[type[StreamEvent]]
    why: str


OBSERVED: Final[Mapping[str, Sequence[Observed]]] = {
    "message": [
        Observed("pending", "added", [ItemAdded], "a message may have no part at all; that it is blank is judged by R18"),
        Observed("added", "completed", [ItemDone], "likewise"),
        Observed("added", "incomplete", [ItemDone], "likewise, if it was cut"),
    ],
    "mcp_call": [
        Observed(
            "in_progress",
            "in_progress",
            [McpInProgress],
            "a call that was approved is said to be in progress once more when its arguments are there",
        ),
    ],
    "shell_call_output": [
        Observed("in_progress", "incomplete", [ItemDone], "an output that was cut may say so"),
        Observed("printing", "incomplete", [OutputDone, ItemDone], "likewise"),
    ],
    "compaction": [
        Observed("in_progress", "completed", [ItemDone], "a compaction may come whole, without the event that it is being made"),
    ],
}
"""The edges of each kind of item that has any."""
