"""The order of the events of each kind of item, and where their contents are, by hand for the oracle (docs/evidence/rules.md)."""

from __future__ import annotations

from typing import Final

_TEXT: Final = "content_part.added (output_text.delta | output_text.annotation.added)* output_text.done content_part.done"
_REFUSAL: Final = "content_part.added refusal.delta* refusal.done content_part.done"
_REASONED: Final = "content_part.added reasoning_text.delta* reasoning_text.done content_part.done"
_SUMMARIZED: Final = (
    "reasoning_summary_part.added reasoning_summary_text.delta* reasoning_summary_text.done reasoning_summary_part.done"
)
_COMMAND: Final = "shell_call_command.added shell_call_command.delta* shell_call_command.done"
PARTS: Final = f"({_TEXT} | {_REFUSAL} | {_REASONED} | {_SUMMARIZED} | {_COMMAND})*"
"""A sequence of complete parts (R8)."""

WHOLE: Final = frozenset(
    {
        *("apply_patch_call_output", "local_shell_call_output", "computer_call_output", "tool_search_output"),
        *("program_output", "function_call_output", "custom_tool_call_output", "mcp_approval_response", "additional_tools"),
        *("agent_message", "multi_agent_call", "multi_agent_call_output"),
    }
)
"""The kinds of items that may be added with a result and any status; they have no events between `added` and `done`."""

TEXT_FIELDS: Final = {
    "function_call": "arguments",
    "mcp_call": "arguments",
    "custom_tool_call": "input",
    "code_interpreter_call": "code",
    "apply_patch_call": "diff",
}
"""The field that holds the text, by kind of item whose text has no parts (R9)."""
SERVER_MADE: Final = frozenset({"mcp_list_tools", "shell_call_output", "compaction"})
"""The kinds that only the server makes; the model writes none of their content."""

_CODE: Final = "added code_interpreter_call.in_progress code_interpreter_call_code.delta* code_interpreter_call_code.done"
_MCP: Final = "added mcp_call.in_progress (mcp_call_arguments.delta | mcp_call.in_progress)* > mcp_call_arguments.done"
"""An approved call may be in progress twice; `rules.r10_lifecycle` counts these events."""
_ARGUMENTS: Final = "added function_call_arguments.delta* function_call_arguments.done done"
_INPUT: Final = "added custom_tool_call_input.delta* custom_tool_call_input.done done"
_LIST: Final = "added mcp_list_tools.in_progress"
_IMAGE: Final = "added image_generation_call.in_progress"
_IMAGES: Final = "image_generation_call.generating image_generation_call.partial_image*"
_MESSAGE: Final = f"added ({_TEXT} | {_REFUSAL})* done"
_REASONING: Final = f"added ({_REASONED} | {_SUMMARIZED})* done"


def _searches(call: str) -> dict[str | None, str]:
    """Return the orders of events of a hosted search, by final status."""
    return {
        "completed": f"added {call}.in_progress > {call}.searching {call}.completed done",
        "failed": f"added {call}.in_progress ({call}.searching)? done",
        "incomplete": f"added {call}.in_progress done",
    }


_PATCH: Final = (
    "added (apply_patch_call_operation_diff.delta apply_patch_call_operation_diff.delta* apply_patch_call_operation_diff.done"
    " | apply_patch_call_operation_diff.done)? done"
)
_SHELL: Final = f"added ({_COMMAND})* done"
_PRINTED: Final = "added (shell_call_output_content.delta* shell_call_output_content.done)* done"
_NO_EVENTS: Final = "added done"
_ENDS: Final = ("completed", "incomplete")
ORDERS: Final[dict[str, dict[str | None, str]]] = {
    "reasoning": {"completed": _REASONING, "incomplete": _REASONING, None: _REASONING},
    "message": {"completed": _MESSAGE, "incomplete": _MESSAGE},
    "function_call": {"completed": _ARGUMENTS, "incomplete": _ARGUMENTS},
    "custom_tool_call": {"completed": _INPUT, "incomplete": _INPUT, None: _INPUT},
    "mcp_call": {
        "completed": f"{_MCP} mcp_call.completed done",
        "failed": f"{_MCP} mcp_call.failed done",
        "incomplete": f"{_MCP} done",
        None: f"{_MCP} (mcp_call.completed | mcp_call.failed)? done",
    },
    "mcp_list_tools": {None: f"{_LIST} (mcp_list_tools.completed | mcp_list_tools.failed) done"},
    "mcp_approval_request": {None: "added done"},
    "code_interpreter_call": {
        "completed": f"{_CODE} > code_interpreter_call.interpreting code_interpreter_call.completed done",
        "failed": f"{_CODE} (code_interpreter_call.interpreting)? done",
        "incomplete": f"{_CODE} done",
    },
    "web_search_call": _searches("web_search_call"),
    "file_search_call": _searches("file_search_call"),
    "image_generation_call": {
        "completed": f"{_IMAGE} > {_IMAGES} image_generation_call.completed done",
        "failed": f"{_IMAGE} ({_IMAGES})? done",
    },
    "apply_patch_call": {"completed": _PATCH, "in_progress": _PATCH},
    "shell_call": dict.fromkeys(_ENDS, _SHELL),
    "shell_call_output": dict.fromkeys(_ENDS, _PRINTED),
    "local_shell_call": dict.fromkeys(_ENDS, _NO_EVENTS),
    "computer_call": dict.fromkeys(_ENDS, _NO_EVENTS),
    "tool_search_call": dict.fromkeys(_ENDS, _NO_EVENTS),
    "program": {None: _NO_EVENTS},
    "compaction": {None: "added > compaction.compacting? done"},
    **{kind: dict.fromkeys((None, "in_progress", "completed", "incomplete", "failed"), _NO_EVENTS) for kind in sorted(WHOLE)},
}
"""The order of events by kind of item and final status, which is None for an item without one.

An expression has event names without the leading `response.`; `added` and `done` stand for `response.output_item.added` and
`.done`. `>` precedes the events that the tool of a hosted call causes: the first starts the tool, and the last before `done`
completes it.
"""

MORE_EVENTS: Final = {
    "mcp_list_tools": "mcp_list_tools.completed mcp_list_tools.failed",
    "shell_call_output": "shell_call_output_content.delta shell_call_output_content.done",
}
"""The events that a tool causes which does not start with an event, by kind of item."""
