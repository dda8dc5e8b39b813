"""The order of an item's events, as regular expressions over their names (rules R8 and R10 of docs/rules.md).

An expression has event names without the leading `response.`; `added` and `done` stand for `response.output_item.added` and
`.done`. Compilation maps each name to a letter, so an item's events form a word.
"""

from __future__ import annotations

import re
from typing import Final

from interlock.fsm.oracle.api_fields import EVENTS

_NAMES: Final = [name for name in re.findall(r"^    ([a-z_.]+)", EVENTS, re.MULTILINE) if name.count(".") > 1]
LETTERS: Final = {name: chr(0xE000 + number) for number, name in enumerate(_NAMES)}
"""The letter of each event of an item, from Unicode's private use area."""
_SHORT: Final = {name.removeprefix("response.").removeprefix("output_item."): letter for name, letter in LETTERS.items()}
_NAME_OF: Final = {letter: name for name, letter in _SHORT.items()}


def _letters(names: str) -> str:
    """Return the word for space-separated event names."""
    return "".join(_SHORT[name] for name in names.split())


def spelled(word: str) -> str:
    """Return the event names of a word."""
    return " · ".join(_NAME_OF[letter] for letter in word)


def _expression(text: str) -> re.Pattern[str]:
    """Compile an expression over event names."""
    return re.compile(re.sub(r"\s+", "", re.sub(r"[a-z_.]+", lambda name: _SHORT[name[0]], text)))


_TEXT: Final = "content_part.added (output_text.delta | output_text.annotation.added)* output_text.done content_part.done"
_REFUSAL: Final = "content_part.added refusal.delta* refusal.done content_part.done"
_REASONED: Final = "content_part.added reasoning_text.delta* reasoning_text.done content_part.done"
_SUMMARY: Final = (
    "reasoning_summary_part.added reasoning_summary_text.delta* reasoning_summary_text.done reasoning_summary_part.done"
)
_COMMAND: Final = "shell_call_command.added shell_call_command.delta* shell_call_command.done"
_PARTS: Final = f"({_TEXT} | {_REFUSAL} | {_REASONED} | {_SUMMARY} | {_COMMAND})*"
PARTS: Final = _expression(_PARTS)
"""A sequence of complete parts (R8)."""
IN_PARTS: Final = str.maketrans(dict.fromkeys(set(LETTERS.values()) - {_SHORT[name] for name in re.findall(r"[a-z_.]+", _PARTS)}))
"""A table for `str.translate` that removes all letters except part events."""

WHOLE: Final = frozenset(
    {
        *("apply_patch_call_output", "local_shell_call_output", "computer_call_output", "tool_search_output"),
        *("program_output", "function_call_output", "custom_tool_call_output", "mcp_approval_response", "additional_tools"),
        *("agent_message", "multi_agent_call", "multi_agent_call_output"),
    }
)
"""The kinds of items that may be added with a result and any status; they have no events between `added` and `done`."""

_CODE: Final = "added code_interpreter_call.in_progress code_interpreter_call_code.delta* code_interpreter_call_code.done"
_MCP: Final = "added mcp_call.in_progress (mcp_call_arguments.delta | mcp_call.in_progress)* mcp_call_arguments.done"
"""An approved call may be in progress twice; `rules.r10_lifecycle` counts these events."""
_ARGUMENTS: Final = "added function_call_arguments.delta* function_call_arguments.done done"
_INPUT: Final = "added custom_tool_call_input.delta* custom_tool_call_input.done done"
_LIST: Final = "added mcp_list_tools.in_progress"
_IMAGE: Final = "added image_generation_call.in_progress"
_IMAGES: Final = "image_generation_call.generating image_generation_call.partial_image*"
_MESSAGE: Final = f"added ({_TEXT} | {_REFUSAL})* done"
_REASONING: Final = f"added ({_REASONED} | {_SUMMARY})* done"


def _searches(call: str) -> dict[str | None, str]:
    """Return the orders of events of a hosted search, by final status."""
    return {
        "completed": f"added {call}.in_progress {call}.searching {call}.completed done",
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
_ORDERS: Final[dict[str, dict[str | None, str]]] = {
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
        "completed": f"{_CODE} code_interpreter_call.interpreting code_interpreter_call.completed done",
        "failed": f"{_CODE} (code_interpreter_call.interpreting)? done",
        "incomplete": f"{_CODE} done",
    },
    "web_search_call": _searches("web_search_call"),
    "file_search_call": _searches("file_search_call"),
    "image_generation_call": {
        "completed": f"{_IMAGE} {_IMAGES} image_generation_call.completed done",
        "failed": f"{_IMAGE} ({_IMAGES})? done",
    },
    "apply_patch_call": {"completed": _PATCH, "in_progress": _PATCH},
    "shell_call": dict.fromkeys(_ENDS, _SHELL),
    "shell_call_output": dict.fromkeys(_ENDS, _PRINTED),
    "local_shell_call": dict.fromkeys(_ENDS, _NO_EVENTS),
    "computer_call": dict.fromkeys(_ENDS, _NO_EVENTS),
    "tool_search_call": dict.fromkeys(_ENDS, _NO_EVENTS),
    "program": {None: _NO_EVENTS},
    "compaction": {None: "added compaction.compacting? done"},
    **{kind: dict.fromkeys((None, "in_progress", "completed", "incomplete", "failed"), _NO_EVENTS) for kind in sorted(WHOLE)},
}
ORDERS: Final = {kind: {status: _expression(text) for status, text in orders.items()} for kind, orders in _ORDERS.items()}
"""The order of events by kind of item and final status, which is None for an item without one."""

_RUNNING: Final = {
    "code_interpreter_call": "code_interpreter_call.interpreting code_interpreter_call.completed",
    "web_search_call": "web_search_call.searching web_search_call.completed",
    "file_search_call": "file_search_call.searching file_search_call.completed",
    "image_generation_call": "image_generation_call.generating image_generation_call.completed",
    "mcp_call": "mcp_call_arguments.done mcp_call.completed",
    "compaction": "compaction.compacting",
}
RUNNING: Final = {kind: tuple(_letters(names)) for kind, names in _RUNNING.items()}
"""The event that starts the tool of a hosted call, and the event that completes it if there is one, by kind (R11)."""

_ALSO: Final = {
    "mcp_call": "mcp_call.failed",
    "mcp_list_tools": "mcp_list_tools.completed mcp_list_tools.failed",
    "image_generation_call": "image_generation_call.partial_image",
    "shell_call_output": "shell_call_output_content.delta shell_call_output_content.done",
}
TOOL_EVENTS: Final = {kind: _letters(f"{_RUNNING.get(kind, '')} {_ALSO.get(kind, '')} done") for kind in _RUNNING | _ALSO}
"""The events that an item's tool causes, and `done`, by kind; only these may come after a later item begins."""
