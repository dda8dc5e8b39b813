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
        Observed("pending", "added", [ItemAdded], "a message may have no parts; R18 judges that it is blank"),
        Observed("added", "completed", [ItemDone], "a message may have no parts"),
        Observed("added", "incomplete", [ItemDone], "a message that is cut may have no parts"),
    ],
    "mcp_call": [
        Observed(
            "in_progress",
            "in_progress",
            [McpInProgress],
            "an approved call may repeat this event once its arguments are complete",
        ),
    ],
    "shell_call_output": [
        Observed("in_progress", "incomplete", [ItemDone], "an output that is cut may be `incomplete`"),
        Observed("printing", "incomplete", [OutputDone, ItemDone], "an output that is cut may be `incomplete`"),
    ],
    "compaction": [
        Observed("in_progress", "completed", [ItemDone], "a compaction may come without the event that it runs"),
    ],
}
"""The edges of each kind of item that has any."""
