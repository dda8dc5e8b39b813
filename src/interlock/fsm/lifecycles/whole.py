"""The lifecycles of items that are added and done at once, mostly tool outputs."""

from typing import Any, Final

from interlock.events.items import ItemKind
from interlock.fsm.emissions import added, done
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.subjects import ItemState
from interlock.fsm.table import Edge


def _whole(kind: ItemKind) -> Lifecycle[ItemState[Any]]:
    return Lifecycle(
        name=kind,
        initial="absent",
        final={"completed"},
        edges=[
            #     in         on      goes to      and emits
            Edge("absent",  "open", "completed", [added, done]),
        ],
    )  # fmt: skip


_KINDS: Final[tuple[ItemKind, ...]] = (
    "mcp_approval_request",
    "apply_patch_call_output",
    "local_shell_call_output",
    "computer_call_output",
    "tool_search_output",
    "program_output",
    "function_call_output",
    "custom_tool_call_output",
    "mcp_approval_response",
    "additional_tools",
    "agent_message",
    "multi_agent_call",
    "multi_agent_call_output",
)
WHOLE: Final = tuple(map(_whole, _KINDS))
"""The lifecycles of the items that are added and done at once."""
