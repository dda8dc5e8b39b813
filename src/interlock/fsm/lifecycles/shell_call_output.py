"""The lifecycle of the output of a shell call that the server ran.

The commands run one after another. Each streams its output, and then its outcome. If the shell fails or the response ends, a
command that is still printing gets the outcome `timeout`.
"""

from interlock.fsm.emissions import added, done, output_cut, output_delta, output_done
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

SHELL_CALL_OUTPUT = Lifecycle(
    name="shell_call_output",
    initial="absent",
    final={"completed"},
    edges=[
        #     in             on            goes to        and emits
        Edge("absent",      "open",       "in_progress", [added]),
        Edge("in_progress", "progress",   "printing",    [output_delta]),
        Edge("in_progress", "end_output", "in_progress", [output_done]),
        Edge("in_progress", "succeed",    "completed",   [done]),
        Edge("in_progress", "fail",       "completed",   [done]),
        Edge("in_progress", "cut",        "completed",   [done]),

        Edge("printing",    "progress",   "printing",    [output_delta]),
        Edge("printing",    "end_output", "in_progress", [output_done]),
        Edge("printing",    "fail",       "completed",   [output_cut, done]),
        Edge("printing",    "cut",        "completed",   [output_cut, done]),
    ],
)  # fmt: skip
