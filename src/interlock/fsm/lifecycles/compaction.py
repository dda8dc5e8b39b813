"""The lifecycle of a compaction: the conversation so far, encrypted so that only the server can read it.

The item has no status; a failed compaction has an empty `encrypted_content`.
"""

from interlock.fsm.emissions import added, done, progress
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

compacting = progress("compaction.compacting")

COMPACTION = Lifecycle(
    name="compaction",
    initial="absent",
    final={"completed"},
    edges=[
        #     in             on         goes to        and emits
        Edge("absent",      "open",    "in_progress", [added]),
        Edge("in_progress", "run",     "compacting",  [compacting]),
        Edge("in_progress", "fail",    "completed",   [done]),
        Edge("in_progress", "cut",     "completed",   [done]),

        Edge("compacting",  "succeed", "completed",   [done]),
        Edge("compacting",  "fail",    "completed",   [done]),
        Edge("compacting",  "cut",     "completed",   [done]),
    ],
)  # fmt: skip
