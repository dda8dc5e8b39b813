"""The lifecycle of a custom tool call, which the client runs: its input is free text."""

from interlock.fsm.emissions import added, done, input_delta, input_done
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

CUSTOM_TOOL_CALL = Lifecycle(
    name="custom_tool_call",
    initial="absent",
    final={"completed", "incomplete"},
    edges=[
        #     in             on        goes to        and emits
        Edge("absent",      "open",   "in_progress", [added]),
        Edge("in_progress", "append", "in_progress", [input_delta]),
        Edge("in_progress", "close",  "completed",   [input_done, done]),
        Edge("in_progress", "cut",    "incomplete",  [input_done, done]),
    ],
)  # fmt: skip
