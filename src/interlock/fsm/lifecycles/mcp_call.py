"""The lifecycle of a tool call to an MCP server.

The `done` event of the arguments waits until the tool starts (rule R11 of docs/rules.md), so a call whose arguments are complete is
`ready`. A call that never runs, because it is refused or the response ends, fails from `ready`.
"""

from interlock.fsm.emissions import added, done, mcp_arguments_delta, mcp_arguments_done, progress
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

in_progress = progress("mcp_call.in_progress")
completed = progress("mcp_call.completed")
failed = progress("mcp_call.failed")

MCP_CALL = Lifecycle(
    name="mcp_call",
    initial="absent",
    final={"completed", "incomplete", "failed"},
    edges=[
        #     in             on         goes to        and emits
        Edge("absent",      "open",    "in_progress", [added, in_progress]),
        Edge("in_progress", "append",  "in_progress", [mcp_arguments_delta]),
        Edge("in_progress", "close",   "ready"),
        Edge("in_progress", "cut",     "incomplete",  [mcp_arguments_done, done]),

        Edge("ready",       "run",     "calling",     [mcp_arguments_done]),
        Edge("ready",       "fail",    "failed",      [mcp_arguments_done, failed, done]),
        Edge("ready",       "cut",     "failed",      [mcp_arguments_done, failed, done]),

        Edge("calling",     "succeed", "completed",   [completed, done]),
        Edge("calling",     "fail",    "failed",      [failed, done]),
        Edge("calling",     "cut",     "failed",      [failed, done]),
    ],
)  # fmt: skip
