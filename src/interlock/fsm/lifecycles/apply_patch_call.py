"""The lifecycle of a patch that the model writes and the client applies: its diff streams.

A patch that deletes a file has no diff, and so no diff events.
"""

from interlock.fsm.emissions import added, done, patch_delta, patch_done
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

APPLY_PATCH_CALL = Lifecycle(
    name="apply_patch_call",
    initial="absent",
    final={"completed", "incomplete"},
    edges=[
        #     in             on        goes to        and emits
        Edge("absent",      "open",   "in_progress", [added]),
        Edge("in_progress", "append", "diff",        [patch_delta]),
        Edge("in_progress", "close",  "completed",   [done]),
        Edge("in_progress", "cut",    "incomplete",  [done]),

        Edge("diff",        "append", "diff",        [patch_delta]),
        Edge("diff",        "close",  "completed",   [patch_done, done]),
        Edge("diff",        "cut",    "incomplete",  [patch_done, done]),
    ],
)  # fmt: skip
