"""The calls that the client runs, and the items that come whole, most of which are the outputs of such calls."""

from typing import Final

from interlock.events.items import ITEMS, ItemKind
from interlock.fsm.emissions import (
    ItemEmission,
    added,
    arguments_delta,
    arguments_done,
    command_added,
    command_delta,
    command_done,
    done,
    input_delta,
    input_done,
    patch_delta,
    patch_done,
)
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.subjects import AnyItem
from interlock.fsm.table import Edge


def _call(kind: ItemKind, text_delta: ItemEmission, text_done: ItemEmission) -> Lifecycle[AnyItem]:
    """Return the lifecycle of a call that streams one text: the arguments of a function, or free text."""
    return Lifecycle(
        name=kind,
        initial="absent",
        final={"completed", "incomplete"},
        edges=[
            #     in             on        goes to        and emits
            Edge("absent",      "open",   "in_progress", [added]),
            Edge("in_progress", "append", "in_progress", [text_delta]),
            Edge("in_progress", "close",  "completed",   [text_done, done]),
            Edge("in_progress", "cut",    "incomplete",  [text_done, done]),
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


CLIENT_CALLS: Final = (
    _call("function_call", arguments_delta, arguments_done),
    _call("custom_tool_call", input_delta, input_done),
    APPLY_PATCH_CALL,
    SHELL_CALL,
    *(_silent_call(kind) for kind, item in ITEMS.items() if item.events == "bracket"),
)
"""The lifecycles of calls that the client runs."""

WHOLE: Final = tuple(_whole_item(kind) for kind, item in ITEMS.items() if item.events == "none")
"""The lifecycles of items that are added and done at once."""
