"""The lifecycle of a function call, which the client runs: its arguments stream."""

from interlock.fsm.emissions import added, arguments_delta, arguments_done, done
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

FUNCTION_CALL = Lifecycle(
    name="function_call",
    initial="absent",
    final={"completed", "incomplete"},
    edges=[
        #     in             on        goes to        and emits
        Edge("absent",      "open",   "in_progress", [added]),
        Edge("in_progress", "append", "in_progress", [arguments_delta]),
        Edge("in_progress", "close",  "completed",   [arguments_done, done]),
        Edge("in_progress", "cut",    "incomplete",  [arguments_done, done]),
    ],
)  # fmt: skip
