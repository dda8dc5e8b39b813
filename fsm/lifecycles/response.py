"""The lifecycle of the response itself (rules R1 and R3).

A cancelled response, for which the API has no event, ends with `response.incomplete`. A response that ends while it is
queued is first said to be in progress, because every stream says so once.
"""

from typing import TypeAlias

from interlock.events import spec
from interlock.fsm.lifecycle import Emission, Lifecycle
from interlock.fsm.response import Response
from interlock.fsm.table import Edge

ResponseEmission: TypeAlias = Emission[Response]

_SHOWN = {"response": "as_it_stands"}
_RUNNING = {"response": "as_running"}

created: ResponseEmission = Emission(spec.CREATED, _SHOWN)
queued: ResponseEmission = Emission(spec.QUEUED, _SHOWN)
in_progress: ResponseEmission = Emission(spec.IN_PROGRESS, _RUNNING)
completed: ResponseEmission = Emission(spec.COMPLETED, _SHOWN, accept=Response.complete)
incomplete: ResponseEmission = Emission(spec.INCOMPLETE, _SHOWN, accept=Response.end)
failed: ResponseEmission = Emission(spec.FAILED, _SHOWN, accept=Response.end)

RESPONSE = Lifecycle(
    name="response",
    initial="absent",
    final={"completed", "incomplete", "failed", "cancelled"},
    edges=[
        #     in             on          goes to        and emits
        Edge("absent",      "enqueue",  "queued",      [created, queued]),
        Edge("absent",      "start",    "in_progress", [created, in_progress]),

        Edge("queued",      "start",    "in_progress", [in_progress]),
        Edge("queued",      "cut",      "incomplete",  [in_progress, incomplete]),
        Edge("queued",      "fail",     "failed",      [in_progress, failed]),
        Edge("queued",      "cancel",   "cancelled",   [in_progress, incomplete]),

        Edge("in_progress", "complete", "completed",   [completed]),
        Edge("in_progress", "cut",      "incomplete",  [incomplete]),
        Edge("in_progress", "fail",     "failed",      [failed]),
        Edge("in_progress", "cancel",   "cancelled",   [incomplete]),
    ],
)  # fmt: skip
