"""The lifecycles of items without delta events: `response.output_item.done` carries their content.

Interlock runs none of them: they come from the client or an upstream, or the server adds them.
"""

from typing import Final

from interlock.events.items import ITEMS, ItemKind
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


WRITTEN: Final = tuple(_written_call(kind) for kind, item in ITEMS.items() if item.events == "bracket")
"""The lifecycles of calls that the model writes."""

WHOLE: Final = tuple(_whole_item(kind) for kind, item in ITEMS.items() if item.events == "none")
"""The lifecycles of items that are added and done at once, mostly outputs of tools."""
