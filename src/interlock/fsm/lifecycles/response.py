"""The lifecycle of the response itself (rules R1 and R3 of docs/evidence/rules.md).

The API has no event for a cancelled response, so it ends with `response.incomplete`. A queued response that ends before it starts
first emits `response.in_progress`, because every stream has that event. `silence` changes nothing, but shows clients and proxies
that the stream lives.
"""

from interlock.events.stream import Completed, Created, Failed, Incomplete, InProgress, Keepalive, Queued
from interlock.fsm.lifecycle import Lifecycle, emission
from interlock.fsm.subjects import ResponseState
from interlock.fsm.table import Edge


@emission
def created(response: ResponseState) -> Created:
    return Created(response.snapshot(response.state.name))


@emission
def queued(response: ResponseState) -> Queued:
    return Queued(response.snapshot("queued"))


@emission
def in_progress(response: ResponseState) -> InProgress:
    return InProgress(response.snapshot("in_progress"))


@emission
def keepalive(_response: ResponseState) -> Keepalive:
    return Keepalive()


@emission
def completed(response: ResponseState) -> Completed:
    return Completed(response.end(completed_at=response.clock()))


@emission
def incomplete(response: ResponseState) -> Incomplete:
    return Incomplete(response.end())


@emission
def failed(response: ResponseState) -> Failed:
    return Failed(response.end())


RESPONSE = Lifecycle(
    name="response",
    initial="absent",
    final={"completed", "incomplete", "failed", "cancelled"},
    edges=[
        #     in             on          goes to        and emits
        Edge("absent",      "enqueue",  "queued",      [created, queued]),
        Edge("absent",      "start",    "in_progress", [created, in_progress]),

        Edge("queued",      "start",    "in_progress", [in_progress]),
        Edge("queued",      "silence",  "queued",      [keepalive]),
        Edge("queued",      "cut",      "incomplete",  [in_progress, incomplete]),
        Edge("queued",      "fail",     "failed",      [in_progress, failed]),
        Edge("queued",      "cancel",   "cancelled",   [in_progress, incomplete]),

        Edge("in_progress", "silence",  "in_progress", [keepalive]),
        Edge("in_progress", "complete", "completed",   [completed]),
        Edge("in_progress", "cut",      "incomplete",  [incomplete]),
        Edge("in_progress", "fail",     "failed",      [failed]),
        Edge("in_progress", "cancel",   "cancelled",   [incomplete]),
    ],
)  # fmt: skip
