"""The lifecycle of an image generation, with partial images while it runs.

The API has no status `incomplete` for it, so an unfinished image is `failed`.
"""

from interlock.fsm.emissions import added, done, partial_image, progress
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

in_progress = progress("image_generation_call.in_progress")
generating = progress("image_generation_call.generating")
completed = progress("image_generation_call.completed")

IMAGE_GENERATION_CALL = Lifecycle(
    name="image_generation_call",
    initial="absent",
    final={"completed", "failed"},
    edges=[
        #     in             on          goes to        and emits
        Edge("absent",      "open",     "in_progress", [added, in_progress]),
        Edge("in_progress", "close",    "ready"),
        Edge("in_progress", "cut",      "failed",      [done]),

        Edge("ready",       "run",      "generating",  [generating]),
        Edge("ready",       "fail",     "failed",      [done]),
        Edge("ready",       "cut",      "failed",      [done]),

        Edge("generating",  "progress", "generating",  [partial_image]),
        Edge("generating",  "succeed",  "completed",   [completed, done]),
        Edge("generating",  "fail",     "failed",      [done]),
        Edge("generating",  "cut",      "failed",      [done]),
    ],
)  # fmt: skip
