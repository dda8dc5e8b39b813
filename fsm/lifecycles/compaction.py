"""The lifecycle of a compaction: the conversation so far, put into a form that only the service can read.

The item has no status. A compaction that fails has no `encrypted_content`.
"""

from interlock.fsm.emissions import added, compacting, done
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

COMPACTION = Lifecycle(
    name="compaction",
    initial="absent",
    final={"completed", "failed"},
    edges=[
        #     in             on         goes to        and emits
        Edge("absent",      "open",    "in_progress", [added]),
        Edge("in_progress", "run",     "compacting",  [compacting]),
        Edge("in_progress", "fail",    "failed",      [done]),
        Edge("in_progress", "cut",     "failed",      [done]),

        Edge("compacting",  "succeed", "completed",   [done]),
        Edge("compacting",  "fail",    "failed",      [done]),
        Edge("compacting",  "cut",     "failed",      [done]),
    ],
)  # fmt: skip
