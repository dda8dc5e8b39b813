"""What the model writes for people: reasoning and messages, which consist of parts, one at a time.

Blank text never becomes an item (rule R18 of docs/evidence/rules.md): white space waits in `pending`, and joins the first delta if other
text follows.
"""

from typing import Final

from interlock.fsm.emissions import (
    added,
    annotation_added,
    done,
    part_done,
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

TEXT_ITEMS: Final = (REASONING, MESSAGE)
"""The lifecycles of what the model writes for people."""
