"""The lifecycle of a shell call: its commands are parts, written one after another."""

from interlock.fsm.emissions import added, command_added, command_delta, command_done, done
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

SHELL_CALL = Lifecycle(
    name="shell_call",
    initial="absent",
    final={"completed", "incomplete"},
    edges=[
        #     in             on          goes to        and emits
        Edge("absent",      "open",     "in_progress", [added]),
        Edge("in_progress", "append",   "command",     [command_added, command_delta]),
        Edge("in_progress", "close",    "completed",   [done]),
        Edge("in_progress", "cut",      "incomplete",  [done]),

        Edge("command",     "append",   "command",     [command_delta]),
        Edge("command",     "end_part", "in_progress", [command_done]),
        Edge("command",     "close",    "completed",   [command_done, done]),
        Edge("command",     "cut",      "incomplete",  [command_done, done]),
    ],
)  # fmt: skip
