"""The calls of tools that the server runs, and what it makes itself: lists of tools, and compactions.

A call whose arguments are complete waits in `ready` until its tool starts. `run`, `succeed` and `fail` tell what its tool did (rule
R11 of docs/evidence/rules.md). A call that never runs, because it is refused or the response ends, fails from `ready`.
"""

from typing import Final

from interlock.events.items import ItemKind
from interlock.fsm.emissions import (
    added,
    code_delta,
    code_done,
    done,
    mcp_arguments_delta,
    mcp_arguments_done,
    output_cut,
    output_delta,
    output_done,
    partial_image,
    progress,
)
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.subjects import AnyItem
from interlock.fsm.table import Edge

MCP_CALL = Lifecycle(
    name="mcp_call",
    initial="absent",
    final={"completed", "incomplete", "failed"},
    edges=[
        #     in             on         goes to        and emits
        Edge("absent",      "open",    "in_progress", [added, progress("mcp_call.in_progress")]),
        Edge("in_progress", "append",  "in_progress", [mcp_arguments_delta]),
        Edge("in_progress", "close",   "ready"),
        Edge("in_progress", "cut",     "incomplete",  [mcp_arguments_done, done]),

        Edge("ready",       "run",     "calling",     [mcp_arguments_done]),
        Edge("ready",       "fail",    "failed",      [mcp_arguments_done, progress("mcp_call.failed"), done]),
        Edge("ready",       "cut",     "failed",      [mcp_arguments_done, progress("mcp_call.failed"), done]),

        Edge("calling",     "succeed", "completed",   [progress("mcp_call.completed"), done]),
        Edge("calling",     "fail",    "failed",      [progress("mcp_call.failed"), done]),
        Edge("calling",     "cut",     "failed",      [progress("mcp_call.failed"), done]),
    ],
)  # fmt: skip
"""A call of a tool on an MCP server. The `done` event of its arguments waits until the tool starts."""

MCP_LIST_TOOLS = Lifecycle(
    name="mcp_list_tools",
    initial="absent",
    final={"completed", "failed"},
    edges=[
        #     in             on         goes to        and emits
        Edge("absent",      "open",    "in_progress", [added, progress("mcp_list_tools.in_progress")]),
        Edge("in_progress", "succeed", "completed",   [progress("mcp_list_tools.completed"), done]),
        Edge("in_progress", "fail",    "failed",      [progress("mcp_list_tools.failed"), done]),
        Edge("in_progress", "cut",     "failed",      [progress("mcp_list_tools.failed"), done]),
    ],
)  # fmt: skip
"""A request for the tools of an MCP server. The model writes no part of it."""

CODE_INTERPRETER_CALL = Lifecycle(
    name="code_interpreter_call",
    initial="absent",
    final={"completed", "incomplete", "failed"},
    edges=[
        #     in              on         goes to         and emits
        Edge("absent",       "open",    "in_progress",  [added, progress("code_interpreter_call.in_progress")]),
        Edge("in_progress",  "append",  "in_progress",  [code_delta]),
        Edge("in_progress",  "close",   "ready",        [code_done]),
        Edge("in_progress",  "cut",     "incomplete",   [code_done, done]),

        Edge("ready",        "run",     "interpreting", [progress("code_interpreter_call.interpreting")]),
        Edge("ready",        "fail",    "failed",       [done]),
        Edge("ready",        "cut",     "failed",       [done]),

        Edge("interpreting", "succeed", "completed",    [progress("code_interpreter_call.completed"), done]),
        Edge("interpreting", "fail",    "failed",       [done]),
        Edge("interpreting", "cut",     "failed",       [done]),
    ],
)  # fmt: skip
"""Code. `interpreting` tells that it runs; only a successful run has `completed`."""


def _search(kind: ItemKind) -> Lifecycle[AnyItem]:
    """Return the lifecycle of a search, of the web (which also opens pages) or of files; one that fails has no `completed`."""
    return Lifecycle(
        name=kind,
        initial="absent",
        final={"completed", "incomplete", "failed"},
        edges=[
            #     in             on         goes to        and emits
            Edge("absent",      "open",    "in_progress", [added, progress(f"{kind}.in_progress")]),
            Edge("in_progress", "close",   "ready"),
            Edge("in_progress", "cut",     "incomplete",  [done]),

            Edge("ready",       "run",     "searching",   [progress(f"{kind}.searching")]),
            Edge("ready",       "fail",    "failed",      [done]),
            Edge("ready",       "cut",     "failed",      [done]),

            Edge("searching",   "succeed", "completed",   [progress(f"{kind}.completed"), done]),
            Edge("searching",   "fail",    "failed",      [done]),
            Edge("searching",   "cut",     "failed",      [done]),
        ],
    )  # fmt: skip


IMAGE_GENERATION_CALL = Lifecycle(
    name="image_generation_call",
    initial="absent",
    final={"completed", "failed"},
    edges=[
        #     in             on          goes to        and emits
        Edge("absent",      "open",     "in_progress", [added, progress("image_generation_call.in_progress")]),
        Edge("in_progress", "close",    "ready"),
        Edge("in_progress", "cut",      "failed",      [done]),

        Edge("ready",       "run",      "generating",  [progress("image_generation_call.generating")]),
        Edge("ready",       "fail",     "failed",      [done]),
        Edge("ready",       "cut",      "failed",      [done]),

        Edge("generating",  "progress", "generating",  [partial_image]),
        Edge("generating",  "succeed",  "completed",   [progress("image_generation_call.completed"), done]),
        Edge("generating",  "fail",     "failed",      [done]),
        Edge("generating",  "cut",      "failed",      [done]),
    ],
)  # fmt: skip
"""An image, with partial images while it is drawn. The API has no status `incomplete` for it, so an unfinished one is `failed`."""

SHELL_CALL_OUTPUT = Lifecycle(
    name="shell_call_output",
    initial="absent",
    final={"completed"},
    edges=[
        #     in             on            goes to        and emits
        Edge("absent",      "open",       "in_progress", [added]),
        Edge("in_progress", "progress",   "printing",    [output_delta]),
        Edge("in_progress", "end_output", "in_progress", [output_done]),
        Edge("in_progress", "succeed",    "completed",   [done]),
        Edge("in_progress", "fail",       "completed",   [done]),
        Edge("in_progress", "cut",        "completed",   [done]),

        Edge("printing",    "progress",   "printing",    [output_delta]),
        Edge("printing",    "end_output", "in_progress", [output_done]),
        Edge("printing",    "fail",       "completed",   [output_cut, done]),
        Edge("printing",    "cut",        "completed",   [output_cut, done]),
    ],
)  # fmt: skip
"""The output of a shell on the server.

The commands run one after another. Each streams its output, and then its outcome. If the shell fails or the response ends, a
command that is still printing gets the outcome `timeout`.
"""

COMPACTION = Lifecycle(
    name="compaction",
    initial="absent",
    final={"completed"},
    edges=[
        #     in             on         goes to        and emits
        Edge("absent",      "open",    "in_progress", [added]),
        Edge("in_progress", "run",     "compacting",  [progress("compaction.compacting")]),
        Edge("in_progress", "fail",    "completed",   [done]),
        Edge("in_progress", "cut",     "completed",   [done]),

        Edge("compacting",  "succeed", "completed",   [done]),
        Edge("compacting",  "fail",    "completed",   [done]),
        Edge("compacting",  "cut",     "completed",   [done]),
    ],
)  # fmt: skip
"""The conversation so far, encrypted so that only the server can read it. The item has no status; a failed compaction has an empty
`encrypted_content`."""

HOSTED_CALLS: Final = (
    MCP_CALL,
    MCP_LIST_TOOLS,
    CODE_INTERPRETER_CALL,
    *map(_search, ("web_search_call", "file_search_call")),
    IMAGE_GENERATION_CALL,
    SHELL_CALL_OUTPUT,
    COMPACTION,
)
"""The lifecycles of what the server runs or makes."""
