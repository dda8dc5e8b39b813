"""The lifecycle of code that the model writes and the server runs.

The call emits `interpreting` when the code starts to run and `completed` after a successful run (rule R11 of
docs/rules.md). Complete code that never runs fails from `ready`; a failed run has no `completed` event.
"""

from interlock.fsm.emissions import added, code_delta, code_done, done, progress
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

in_progress = progress("code_interpreter_call.in_progress")
interpreting = progress("code_interpreter_call.interpreting")
completed = progress("code_interpreter_call.completed")

CODE_INTERPRETER_CALL = Lifecycle(
    name="code_interpreter_call",
    initial="absent",
    final={"completed", "incomplete", "failed"},
    edges=[
        #     in              on         goes to         and emits
        Edge("absent",       "open",    "in_progress",  [added, in_progress]),
        Edge("in_progress",  "append",  "in_progress",  [code_delta]),
        Edge("in_progress",  "close",   "ready",        [code_done]),
        Edge("in_progress",  "cut",     "incomplete",   [code_done, done]),

        Edge("ready",        "run",     "interpreting", [interpreting]),
        Edge("ready",        "fail",    "failed",       [done]),
        Edge("ready",        "cut",     "failed",       [done]),

        Edge("interpreting", "succeed", "completed",    [completed, done]),
        Edge("interpreting", "fail",    "failed",       [done]),
        Edge("interpreting", "cut",     "failed",       [done]),
    ],
)  # fmt: skip
