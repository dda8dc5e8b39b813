"""The lifecycle of the response itself (rules R1 and R3).

A cancelled response, for which the API has no event, ends with `response.incomplete`. A response that ends while it is
queued is first said to be in progress, because every stream says so once.
"""

from interlock.events import spec
from interlock.fsm.lifecycle import Emission, Lifecycle
from interlock.fsm.response import Response
from interlock.fsm.table import Edge


def _shown(response: Response) -> dict[str, object]:
    return {"response": response.as_it_stands()}


def _running(response: Response) -> dict[str, object]:
    return {"response": response.as_running()}


created = Emission(spec.CREATED, _shown)
queued = Emission(spec.QUEUED, _shown)
in_progress = Emission(spec.IN_PROGRESS, _running)
completed = Emission(spec.COMPLETED, _shown, accept=Response.complete)
incomplete = Emission(spec.INCOMPLETE, _shown, accept=Response.end)
failed = Emission(spec.FAILED, _shown, accept=Response.end)

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
