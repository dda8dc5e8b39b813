"""The lifecycle of a web search, which also opens pages and finds text in them.

A search that fails has no `completed` event.
"""

from interlock.fsm.emissions import added, done, web_completed, web_in_progress, web_searching
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

WEB_SEARCH_CALL = Lifecycle(
    name="web_search_call",
    initial="absent",
    final={"completed", "incomplete", "failed"},
    edges=[
        #     in             on         goes to        and emits
        Edge("absent",      "open",    "in_progress", [added, web_in_progress]),
        Edge("in_progress", "close",   "ready"),
        Edge("in_progress", "cut",     "incomplete",  [done]),

        Edge("ready",       "run",     "searching",   [web_searching]),
        Edge("ready",       "fail",    "failed",      [done]),
        Edge("ready",       "cut",     "failed",      [done]),

        Edge("searching",   "succeed", "completed",   [web_completed, done]),
        Edge("searching",   "fail",    "failed",      [done]),
        Edge("searching",   "cut",     "failed",      [done]),
    ],
)  # fmt: skip
