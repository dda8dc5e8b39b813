"""The lifecycle of a request for the tools of an MCP server. The model writes no part of it."""

from interlock.fsm.emissions import added, done, progress
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

in_progress = progress("mcp_list_tools.in_progress")
completed = progress("mcp_list_tools.completed")
failed = progress("mcp_list_tools.failed")

MCP_LIST_TOOLS = Lifecycle(
    name="mcp_list_tools",
    initial="absent",
    final={"completed", "failed"},
    edges=[
        #     in             on         goes to        and emits
        Edge("absent",      "open",    "in_progress", [added, in_progress]),
        Edge("in_progress", "succeed", "completed",   [completed, done]),
        Edge("in_progress", "fail",    "failed",      [failed, done]),
        Edge("in_progress", "cut",     "failed",      [failed, done]),
    ],
)  # fmt: skip
