"""The lifecycles of items without delta events: `response.output_item.done` carries their content.

Interlock runs none of them: they come from the client or an upstream, or the server adds them.
"""

from typing import Final

from interlock.events.items import ItemKind
from interlock.fsm.emissions import added, done
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.subjects import AnyItem
from interlock.fsm.table import Edge


def _written_call(kind: ItemKind) -> Lifecycle[AnyItem]:
    return Lifecycle(
        name=kind,
        initial="absent",
        final={"completed", "incomplete"},
        edges=[
            #     in             on       goes to        and emits
            Edge("absent",      "open",  "in_progress", [added]),
            Edge("in_progress", "close", "completed",   [done]),
            Edge("in_progress", "cut",   "incomplete",  [done]),
        ],
    )  # fmt: skip


def _whole_item(kind: ItemKind) -> Lifecycle[AnyItem]:
    edges = [Edge("absent", "open", "completed", [added, done])]
    return Lifecycle(name=kind, initial="absent", final={"completed"}, edges=edges)


WRITTEN: Final = tuple(map(_written_call, ("local_shell_call", "computer_call", "tool_search_call", "program")))
"""The lifecycles of calls that the model writes."""

WHOLE: Final = tuple(
    map(
        _whole_item,
        (
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
        ),
    )
)
"""The lifecycles of items that are added and done at once, mostly outputs of tools."""
