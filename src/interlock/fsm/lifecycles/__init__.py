"""The lifecycles of the response and of every kind of item, by module.

response                                         the response itself
message, reasoning                               text of the model
client_calls                                     calls that the client runs
mcp_call, mcp_list_tools                         MCP servers
code_interpreter_call, searches                  code and searches that the server runs
image_generation_call                            images
apply_patch_call, shell_call, shell_call_output  patches and shells
compaction                                       a compacted conversation
unstreamed                                       items without delta events
"""

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from interlock.events.items import ItemKind
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.lifecycles.apply_patch_call import APPLY_PATCH_CALL
from interlock.fsm.lifecycles.client_calls import CLIENT_CALLS
from interlock.fsm.lifecycles.code_interpreter_call import CODE_INTERPRETER_CALL
from interlock.fsm.lifecycles.compaction import COMPACTION
from interlock.fsm.lifecycles.image_generation_call import IMAGE_GENERATION_CALL
from interlock.fsm.lifecycles.mcp_call import MCP_CALL
from interlock.fsm.lifecycles.mcp_list_tools import MCP_LIST_TOOLS
from interlock.fsm.lifecycles.message import MESSAGE
from interlock.fsm.lifecycles.reasoning import REASONING
from interlock.fsm.lifecycles.response import RESPONSE
from interlock.fsm.lifecycles.searches import SEARCHES
from interlock.fsm.lifecycles.shell_call import SHELL_CALL
from interlock.fsm.lifecycles.shell_call_output import SHELL_CALL_OUTPUT
from interlock.fsm.lifecycles.unstreamed import WHOLE, WRITTEN
from interlock.fsm.subjects import AnyItem, ResponseState

__all__ = ["DECLARED", "LIFECYCLES", "RESPONSE", "Lifecycles"]

LIFECYCLES: Final[Mapping[ItemKind, Lifecycle[AnyItem]]] = {
    lifecycle.name: lifecycle
    for lifecycle in (
        REASONING,
        MESSAGE,
        *CLIENT_CALLS,
        MCP_CALL,
        MCP_LIST_TOOLS,
        CODE_INTERPRETER_CALL,
        *SEARCHES,
        IMAGE_GENERATION_CALL,
        APPLY_PATCH_CALL,
        SHELL_CALL,
        SHELL_CALL_OUTPUT,
        COMPACTION,
        *WRITTEN,
        *WHOLE,
    )
}
"""The lifecycle of each kind of item."""


@frozen
class Lifecycles:
    """The lifecycles of a driver."""

    response: Lifecycle[ResponseState]
    items: Mapping[ItemKind, Lifecycle[AnyItem]]


DECLARED: Final = Lifecycles(RESPONSE, LIFECYCLES)
"""The lifecycles in this package. Only tests of the proof use others, with defects that the proof must find."""
