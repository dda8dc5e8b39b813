"""The lifecycle of what the commands of a shell call printed, where the server ran them.

The commands run one after another. Of each, what it prints streams; how it ended is said when it has. Where the shell fails
or the response ends, the output is what there was until then, and the command that ran says that its time was over.
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
