"""The lifecycle of a request for the tools of an MCP server. The model writes no part of it."""

from interlock.fsm.emissions import added, done, list_completed, list_failed, list_in_progress
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

MCP_LIST_TOOLS = Lifecycle(
    name="mcp_list_tools",
    initial="absent",
    final={"completed", "failed"},
    edges=[
        #     in             on         goes to        and emits
        Edge("absent",      "open",    "in_progress", [added, list_in_progress]),
        Edge("in_progress", "succeed", "completed",   [list_completed, done]),
        Edge("in_progress", "fail",    "failed",      [list_failed, done]),
        Edge("in_progress", "cut",     "failed",      [list_failed, done]),
    ],
)  # fmt: skip
