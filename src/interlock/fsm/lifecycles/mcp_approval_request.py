"""The lifecycle of asking whether a tool on an MCP server may be called.

All of the call is known when the question is asked, and the answer comes by another request; so it is whole at once.
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
