"""The lifecycle of reasoning: parts of reasoning text and of summary, one at a time.

Blank reasoning never becomes an item (rule R18 of docs/rules.md): white space waits in `pending`. Encrypted or withheld
reasoning is an item even without text: `reveal` adds it, and text may follow.
"""

from interlock.fsm.emissions import (
    added,
    done,
    part_done,
    reasoning_delta,
    reasoning_done,
    reasoning_part_added,
    summary_delta,
    summary_done,
    summary_part_added,
    summary_part_done,
)
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

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
