"""The lifecycle of a request to an MCP server for its tools. The model writes none of it: it can only succeed, fail or be cut."""

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
