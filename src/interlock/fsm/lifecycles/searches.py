"""The lifecycles of searches that the server runs: of the web, which also opens pages and finds text in them, and of files.

A search that fails has no `completed` event.
"""

from typing import Final

from interlock.events.items import ItemKind
from interlock.fsm.emissions import added, done, progress
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.subjects import AnyItem
from interlock.fsm.table import Edge


def _search(kind: ItemKind) -> Lifecycle[AnyItem]:
    in_progress, searching, completed = (progress(f"{kind}.{step}") for step in ("in_progress", "searching", "completed"))
    return Lifecycle(
        name=kind,
        initial="absent",
        final={"completed", "incomplete", "failed"},
        edges=[
            #     in             on         goes to        and emits
            Edge("absent",      "open",    "in_progress", [added, in_progress]),
            Edge("in_progress", "close",   "ready"),
            Edge("in_progress", "cut",     "incomplete",  [done]),

            Edge("ready",       "run",     "searching",   [searching]),
            Edge("ready",       "fail",    "failed",      [done]),
            Edge("ready",       "cut",     "failed",      [done]),

            Edge("searching",   "succeed", "completed",   [completed, done]),
            Edge("searching",   "fail",    "failed",      [done]),
            Edge("searching",   "cut",     "failed",      [done]),
        ],
    )  # fmt: skip


SEARCHES: Final = tuple(map(_search, ("web_search_call", "file_search_call")))
