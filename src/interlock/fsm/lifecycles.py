"""The grammar of a stream: the lifecycles of the response and of every kind of item, and what holds between them.

**A stream is lifecycles that run together**: one of the response, and one of each item. A lifecycle is a finite-state machine,
written as a table: in this state, on this trigger, go to that state and emit these events. Only an edge that fires emits events,
so no stream can have an order of events that no path through a table has.

**What a table says.** A state is named after the status that the item then shows, if the API has that status for its kind;
otherwise after what is happening, and the item shows `in_progress`. In `absent` nothing is known of an item, in `pending` no
event has shown it yet, and in `ready` a call waits for its tool. The triggers mean the same everywhere:

- `open`, `close`: the item begins; nothing more will be written to it
- `append`: text, of the only text of an item or of a part of it
- `refuse`, `summarize`: text of a refusal, or of a summary of the reasoning
- `pad`: white space that waits for other text
- `split`: text with log probabilities after text without them, or the reverse
- `annotate`: a citation of the open part
- `end_part`, `end_output`: the open part, or the output of a shell command, is complete
- `reveal`: the item has encrypted content, so it is shown even if it has no text
- `run`, `progress`: the tool of a hosted call starts, or has output
- `succeed`, `fail`: the tool ended with a result, or without
- `cut`: the item has to end now, whatever is missing

Two rules hold for every table, and its construction checks them (`interlock.fsm.lifecycle`). Events are nested: each has a
place before it and one after it, outside the item, in it, in a part, and so on (`interlock.events.stream.Place`), and on every
path the places meet. And every state that can last leads to a final state with `cut`, and with `fail` if a tool or the response
could still fail there, so a stream can end legally at any moment.

**What a table cannot say** is said here, and done by the driver, nowhere else. One rule holds between items: at most one is
being written. It is the *active item*, whose state has an edge for `close`; the others wait for their tools. An item that opens
closes the active one first. And in six places the driver chooses the trigger, because the choice depends on contents, which no
state has:

1. White space fires `pad` instead of `append` in a state that has `pad` (rule R18).
2. Text fires `split` instead of `append` if only one of the text so far and the new text has log probabilities (rule R15).
3. An item with encrypted content also fires `reveal`, after it opens and before it closes (rule R18).
4. A turn that stops inside a call cuts the response; inside text, which is complete wherever it stops, it only closes the item
   (rule R12).
5. A delta that its item cannot take first fires what makes it legal: text for which the active item has no edge opens a message
   or a reasoning item, and a result of a tool that has not started starts it (`State.paths`).
6. The arguments of a call that are blank or `null` are `{}`, because clients and tools need an object: such a text waits, and
   before `close` a call without any other text fires `append` for `{}` (rule R18).

Otherwise there are no conditions: no guard on an edge, no flag beside a state. A delta for which no path exists changes nothing.
"""

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from interlock.events.items import ITEMS, ItemKind
from interlock.fsm.emissions import (
    ItemEmission,
    added,
    annotation_added,
    arguments_delta,
    arguments_done,
    code_delta,
    code_done,
    command_added,
    command_delta,
    command_done,
    completed,
    created,
    done,
    failed,
    in_progress,
    incomplete,
    input_delta,
    input_done,
    keepalive,
    mcp_arguments_delta,
    mcp_arguments_done,
    output_cut,
    output_delta,
    output_done,
    part_done,
    partial_image,
    patch_delta,
    patch_done,
    progress,
    queued,
    reasoning_delta,
    reasoning_done,
    reasoning_part_added,
    refusal_delta,
    refusal_done,
    refusal_part_added,
    summary_delta,
    summary_done,
    summary_part_added,
    summary_part_done,
    text_delta,
    text_done,
    text_part_added,
)
from interlock.fsm.lifecycle import AnyItem, Lifecycle, ResponseState
from interlock.fsm.table import Edge

RESPONSE = Lifecycle(
    name="response",
    initial="absent",
    final={"completed", "incomplete", "failed", "cancelled"},
    edges=[
        #     in             on          goes to        and emits
        Edge("absent",      "enqueue",  "queued",      [created, queued]),
        Edge("absent",      "start",    "in_progress", [created, in_progress]),

        Edge("queued",      "start",    "in_progress", [in_progress]),
        Edge("queued",      "silence",  "queued",      [keepalive]),
        Edge("queued",      "cut",      "incomplete",  [in_progress, incomplete]),
        Edge("queued",      "fail",     "failed",      [in_progress, failed]),
        Edge("queued",      "cancel",   "cancelled",   [in_progress, incomplete]),

        Edge("in_progress", "silence",  "in_progress", [keepalive]),
        Edge("in_progress", "complete", "completed",   [completed]),
        Edge("in_progress", "cut",      "incomplete",  [incomplete]),
        Edge("in_progress", "fail",     "failed",      [failed]),
        Edge("in_progress", "cancel",   "cancelled",   [incomplete]),
    ],
)  # fmt: skip
"""The response itself (rules R1 and R3 of docs/evidence/rules.md).

The API has no event for a cancelled response, so it ends with `response.incomplete`. A queued response that ends before it starts
first emits `response.in_progress`, because every stream has that event. `silence` changes nothing, but shows clients and proxies
that the stream lives.
"""

# What the model writes for people: reasoning and messages, which consist of parts, one at a time. Blank text never becomes an
# item (rule R18): white space waits in `pending`, and joins the first delta if other text follows.

REASONING = Lifecycle(
    name="reasoning",
    initial="absent",
    final={"dropped", "completed", "incomplete"},
    regions={"between_parts": ["in_progress", "sealed"]},
    edges=[
        #     in                on           goes to           and emits
        Edge("absent",         "open",      "pending"),
        Edge("pending",        "pad",       "pending"),
        Edge("pending",        "append",    "reasoning_text", [added, reasoning_part_added, reasoning_delta]),
        Edge("pending",        "summarize", "summary_text",   [added, summary_part_added, summary_delta]),
        Edge("pending",        "reveal",    "sealed",         [added]),
        Edge("pending",        "close",     "dropped"),
        Edge("pending",        "cut",       "dropped"),

        Edge("reasoning_text", "append",    "reasoning_text", [reasoning_delta]),
        Edge("reasoning_text", "summarize", "summary_text",   [reasoning_done, part_done, summary_part_added, summary_delta]),
        Edge("reasoning_text", "end_part",  "in_progress",    [reasoning_done, part_done]),
        Edge("reasoning_text", "close",     "completed",      [reasoning_done, part_done, done]),
        Edge("reasoning_text", "cut",       "incomplete",     [reasoning_done, part_done, done]),

        Edge("summary_text",   "summarize", "summary_text",   [summary_delta]),
        Edge("summary_text",   "append",    "reasoning_text", [summary_done, summary_part_done, reasoning_part_added, reasoning_delta]),
        Edge("summary_text",   "end_part",  "in_progress",    [summary_done, summary_part_done]),
        Edge("summary_text",   "close",     "completed",      [summary_done, summary_part_done, done]),
        Edge("summary_text",   "cut",       "incomplete",     [summary_done, summary_part_done, done]),

        Edge("sealed",         "pad",       "sealed"),

        Edge("between_parts",  "append",    "reasoning_text", [reasoning_part_added, reasoning_delta]),
        Edge("between_parts",  "summarize", "summary_text",   [summary_part_added, summary_delta]),
        Edge("between_parts",  "close",     "completed",      [done]),
        Edge("between_parts",  "cut",       "incomplete",     [done]),
    ],
)  # fmt: skip
"""Reasoning: parts of reasoning text and of summary. Encrypted or withheld reasoning is an item even without text: `reveal` adds
it, and text may follow."""

MESSAGE = Lifecycle(
    name="message",
    initial="absent",
    final={"dropped", "completed", "incomplete"},
    edges=[
        #     in             on          goes to        and emits
        Edge("absent",      "open",     "pending"),
        Edge("pending",     "pad",      "pending"),
        Edge("pending",     "append",   "output_text", [added, text_part_added, text_delta]),
        Edge("pending",     "refuse",   "refusal",     [added, refusal_part_added, refusal_delta]),
        Edge("pending",     "close",    "dropped"),
        Edge("pending",     "cut",      "dropped"),

        Edge("output_text", "append",   "output_text", [text_delta]),
        Edge("output_text", "split",    "output_text", [text_done, part_done, text_part_added, text_delta]),
        Edge("output_text", "annotate", "output_text", [annotation_added]),
        Edge("output_text", "refuse",   "refusal",     [text_done, part_done, refusal_part_added, refusal_delta]),
        Edge("output_text", "end_part", "in_progress", [text_done, part_done]),
        Edge("output_text", "close",    "completed",   [text_done, part_done, done]),
        Edge("output_text", "cut",      "incomplete",  [text_done, part_done, done]),

        Edge("refusal",     "refuse",   "refusal",     [refusal_delta]),
        Edge("refusal",     "append",   "output_text", [refusal_done, part_done, text_part_added, text_delta]),
        Edge("refusal",     "end_part", "in_progress", [refusal_done, part_done]),
        Edge("refusal",     "close",    "completed",   [refusal_done, part_done, done]),
        Edge("refusal",     "cut",      "incomplete",  [refusal_done, part_done, done]),

        Edge("in_progress", "append",   "output_text", [text_part_added, text_delta]),
        Edge("in_progress", "refuse",   "refusal",     [refusal_part_added, refusal_delta]),
        Edge("in_progress", "close",    "completed",   [done]),
        Edge("in_progress", "cut",      "incomplete",  [done]),
    ],
)  # fmt: skip
"""A message: parts of output text and refusals.

A part of output text has log probabilities for all of its text or for none (rule R15). Where log probabilities begin or end,
text fires `split` instead of `append`, and begins another part.
"""

# The calls that the client runs, and the items without deltas, most of which are the outputs of such calls.


def _call(kind: ItemKind, text: ItemEmission, text_end: ItemEmission) -> Lifecycle[AnyItem]:
    """Return the lifecycle of a call that streams one text: the arguments of a function, or free text."""
    return Lifecycle(
        name=kind,
        initial="absent",
        final={"completed", "incomplete"},
        edges=[
            #     in             on        goes to        and emits
            Edge("absent",      "open",   "in_progress", [added]),
            Edge("in_progress", "append", "in_progress", [text]),
            Edge("in_progress", "close",  "completed",   [text_end, done]),
            Edge("in_progress", "cut",    "incomplete",  [text_end, done]),
        ],
    )  # fmt: skip


APPLY_PATCH_CALL = Lifecycle(
    name="apply_patch_call",
    initial="absent",
    final={"completed", "incomplete"},
    edges=[
        #     in             on        goes to        and emits
        Edge("absent",      "open",   "in_progress", [added]),
        Edge("in_progress", "append", "diff",        [patch_delta]),
        Edge("in_progress", "close",  "completed",   [done]),
        Edge("in_progress", "cut",    "incomplete",  [done]),

        Edge("diff",        "append", "diff",        [patch_delta]),
        Edge("diff",        "close",  "completed",   [patch_done, done]),
        Edge("diff",        "cut",    "incomplete",  [patch_done, done]),
    ],
)  # fmt: skip
"""A patch, whose diff streams. One that deletes a file has no diff, and so no diff events."""

SHELL_CALL = Lifecycle(
    name="shell_call",
    initial="absent",
    final={"completed", "incomplete"},
    edges=[
        #     in             on          goes to        and emits
        Edge("absent",      "open",     "in_progress", [added]),
        Edge("in_progress", "append",   "command",     [command_added, command_delta]),
        Edge("in_progress", "close",    "completed",   [done]),
        Edge("in_progress", "cut",      "incomplete",  [done]),

        Edge("command",     "append",   "command",     [command_delta]),
        Edge("command",     "end_part", "in_progress", [command_done]),
        Edge("command",     "close",    "completed",   [command_done, done]),
        Edge("command",     "cut",      "incomplete",  [command_done, done]),
    ],
)  # fmt: skip
"""A call of a shell: its commands are parts, written one after another."""


def _silent_call(kind: ItemKind) -> Lifecycle[AnyItem]:
    """Return the lifecycle of a call without events between `added` and `done`, which carries its content."""
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
    """Return the lifecycle of an item that is added and done at once."""
    edges = [Edge("absent", "open", "completed", [added, done])]
    return Lifecycle(name=kind, initial="absent", final={"completed"}, edges=edges)


# The calls of tools that the server runs, and what it makes itself: lists of tools, and compactions. A call whose arguments are
# complete waits in `ready` until its tool starts. `run`, `succeed` and `fail` tell what its tool did (rule R11). A call that
# never runs, because it is refused or the response ends, fails from `ready`.

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
"""An image, with partial images while it is drawn. The API has no status `incomplete` for it, so an unfinished one is
`failed`."""

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
"""The conversation so far, encrypted so that only the server can read it. The item has no status; a failed compaction has an
empty `encrypted_content`."""

LIFECYCLES: Final[Mapping[ItemKind, Lifecycle[AnyItem]]] = {
    lifecycle.name: lifecycle
    for lifecycle in (
        REASONING,
        MESSAGE,
        _call("function_call", arguments_delta, arguments_done),
        _call("custom_tool_call", input_delta, input_done),
        APPLY_PATCH_CALL,
        SHELL_CALL,
        *(_silent_call(kind) for kind, item in ITEMS.items() if item.events == "bracket"),
        MCP_CALL,
        MCP_LIST_TOOLS,
        CODE_INTERPRETER_CALL,
        *map(_search, ("web_search_call", "file_search_call")),
        IMAGE_GENERATION_CALL,
        SHELL_CALL_OUTPUT,
        COMPACTION,
        *(_whole_item(kind) for kind, item in ITEMS.items() if item.events == "none"),
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
