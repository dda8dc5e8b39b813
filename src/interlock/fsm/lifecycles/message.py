"""The lifecycle of a message: parts of output text and refusal, one at a time.

A blank message never becomes an item (rule R18 of docs/rules.md): white space waits in `pending`, and joins the first delta
if other text follows.

A part of output text has log probabilities for all of its text or for none (rule R15). Where log probabilities begin or
end, text fires `split` instead of `append`, and begins another part.
"""

from interlock.fsm.emissions import (
    added,
    annotation_added,
    done,
    part_done,
    refusal_delta,
    refusal_done,
    refusal_part_added,
    text_delta,
    text_done,
    text_part_added,
)
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

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
