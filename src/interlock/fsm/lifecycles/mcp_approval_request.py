"""The lifecycle of a request for approval to call a tool of an MCP server.

The call is complete when the item is added, and the answer comes in another request, so the item is done at once.
"""

from interlock.fsm.emissions import added, done
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

MCP_APPROVAL_REQUEST = Lifecycle(
    name="mcp_approval_request",
    initial="absent",
    final={"completed"},
    edges=[
        #     in         on      goes to      and emits
        Edge("absent",  "open", "completed", [added, done]),
    ],
)  # fmt: skip
