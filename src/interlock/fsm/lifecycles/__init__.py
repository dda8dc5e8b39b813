"""The lifecycles of the response and of every kind of item, by module.

response                                         the response itself
message, reasoning                               text of the model
function_call, custom_tool_call                  calls that the client runs
mcp_call, mcp_list_tools                         MCP servers
code_interpreter_call, web_search_call           code and searches that the server runs
file_search_call, image_generation_call          file searches and images
apply_patch_call, shell_call, shell_call_output  patches and shells
compaction                                       a compacted conversation
written                                          calls without delta events, sent in full when done
whole                                            items that are added and done at once
"""

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from interlock.events.items import ItemKind
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.lifecycles.apply_patch_call import APPLY_PATCH_CALL
from interlock.fsm.lifecycles.code_interpreter_call import CODE_INTERPRETER_CALL
from interlock.fsm.lifecycles.compaction import COMPACTION
from interlock.fsm.lifecycles.custom_tool_call import CUSTOM_TOOL_CALL
from interlock.fsm.lifecycles.file_search_call import FILE_SEARCH_CALL
from interlock.fsm.lifecycles.function_call import FUNCTION_CALL
from interlock.fsm.lifecycles.image_generation_call import IMAGE_GENERATION_CALL
from interlock.fsm.lifecycles.mcp_call import MCP_CALL
from interlock.fsm.lifecycles.mcp_list_tools import MCP_LIST_TOOLS
from interlock.fsm.lifecycles.message import MESSAGE
from interlock.fsm.lifecycles.reasoning import REASONING
from interlock.fsm.lifecycles.response import RESPONSE
from interlock.fsm.lifecycles.shell_call import SHELL_CALL
from interlock.fsm.lifecycles.shell_call_output import SHELL_CALL_OUTPUT
from interlock.fsm.lifecycles.web_search_call import WEB_SEARCH_CALL
from interlock.fsm.lifecycles.whole import WHOLE
from interlock.fsm.lifecycles.written import WRITTEN
from interlock.fsm.subjects import ItemState, ResponseState

__all__ = ["DECLARED", "LIFECYCLES", "RESPONSE", "Lifecycles"]

LIFECYCLES: Final[Mapping[ItemKind, Lifecycle[ItemState[Any]]]] = {
    lifecycle.name: lifecycle
    for lifecycle in (
        REASONING,
        MESSAGE,
        FUNCTION_CALL,
        CUSTOM_TOOL_CALL,
        MCP_CALL,
        MCP_LIST_TOOLS,
        CODE_INTERPRETER_CALL,
        WEB_SEARCH_CALL,
        FILE_SEARCH_CALL,
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
    items: Mapping[ItemKind, Lifecycle[ItemState[Any]]]


DECLARED: Final = Lifecycles(RESPONSE, LIFECYCLES)
"""The lifecycles in this package. Only tests of the proof use others, with defects that the proof must find."""
