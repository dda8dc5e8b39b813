"""The lifecycle of a file search. Its queries are known when the item opens."""

from interlock.fsm.emissions import added, done, file_completed, file_in_progress, file_searching
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

FILE_SEARCH_CALL = Lifecycle(
    name="file_search_call",
    initial="absent",
    final={"completed", "incomplete", "failed"},
    edges=[
        #     in             on         goes to        and emits
        Edge("absent",      "open",    "in_progress", [added, file_in_progress]),
        Edge("in_progress", "close",   "ready"),
        Edge("in_progress", "cut",     "incomplete",  [done]),

        Edge("ready",       "run",     "searching",   [file_searching]),
        Edge("ready",       "fail",    "failed",      [done]),
        Edge("ready",       "cut",     "failed",      [done]),

        Edge("searching",   "succeed", "completed",   [file_completed, done]),
        Edge("searching",   "fail",    "failed",      [done]),
        Edge("searching",   "cut",     "failed",      [done]),
    ],
)  # fmt: skip
