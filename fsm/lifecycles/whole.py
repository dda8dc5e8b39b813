"""The lifecycles of items that come whole: outputs of tools above all, which somebody else has made."""

from collections.abc import Mapping
from typing import Final

from interlock.events.items import ITEMS, ItemKind
from interlock.fsm.emissions import added, done
from interlock.fsm.item import Item
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge


def _whole(kind: ItemKind) -> Lifecycle[Item]:
    return Lifecycle(
        name=kind,
        initial="absent",
        final={"completed"},
        edges=[
            #     in         on      goes to      and emits
            Edge("absent",  "open", "completed", [added, done]),
        ],
    )  # fmt: skip


WHOLE: Final[Mapping[ItemKind, Lifecycle[Item]]] = {kind: _whole(kind) for kind, spec in ITEMS.items() if spec.whole}
"""The lifecycle of each kind that comes whole."""
