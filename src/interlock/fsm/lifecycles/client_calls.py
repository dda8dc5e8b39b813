"""The lifecycles of calls that the client runs: a function call streams its arguments, a custom tool call its input, free text."""

from typing import Final

from interlock.events.items import ItemKind
from interlock.fsm.emissions import ItemEmission, added, arguments_delta, arguments_done, done, input_delta, input_done
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.subjects import AnyItem
from interlock.fsm.table import Edge


def _call(kind: ItemKind, text_delta: ItemEmission, text_done: ItemEmission) -> Lifecycle[AnyItem]:
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


CLIENT_CALLS: Final = (
    _call("function_call", arguments_delta, arguments_done),
    _call("custom_tool_call", input_delta, input_done),
)
