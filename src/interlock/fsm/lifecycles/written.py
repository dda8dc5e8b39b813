"""The lifecycles of calls that the model writes and that have no delta events: `output_item.done` carries their content.

Interlock runs none of them; their output comes from the client or an upstream.
"""

from typing import Any, Final

from interlock.events.items import ItemKind
from interlock.fsm.emissions import added, done
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.subjects import ItemState
from interlock.fsm.table import Edge


def _written(kind: ItemKind) -> Lifecycle[ItemState[Any]]:
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


_KINDS: Final[tuple[ItemKind, ...]] = ("local_shell_call", "computer_call", "tool_search_call", "program")
WRITTEN: Final = tuple(map(_written, _KINDS))
"""The lifecycles of these calls, which differ only in name."""
