"""The lifecycle of the response itself (rules R1 and R3).

A cancelled response, for which the API has no event, ends with `response.incomplete`. A response that ends while it is
queued is first said to be in progress, because every stream says so once.
"""

from interlock.events import spec
from interlock.fsm.lifecycle import Edge, Emission, Lifecycle
from interlock.fsm.response import Response

created: Emission[Response] = Emission(spec.CREATED, lambda response: {"response": response.as_begun()})
queued: Emission[Response] = Emission(spec.QUEUED, lambda response: {"response": response.as_begun()})
in_progress: Emission[Response] = Emission(spec.IN_PROGRESS, lambda response: {"response": response.as_running()})
completed: Emission[Response] = Emission(
    spec.COMPLETED, lambda response: {"response": response.as_ended()}, Response.end
)
incomplete = Emission(spec.INCOMPLETE, lambda response: {"response": response.as_ended()}, Response.end)
failed = Emission(spec.FAILED, lambda response: {"response": response.as_ended()}, Response.end)

RESPONSE = Lifecycle(
    item="response",
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
