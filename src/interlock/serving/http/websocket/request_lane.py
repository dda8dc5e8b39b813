"""A lane: the requests of one `stream_id` in their order.

It knows the order of requests and when a run is to be interrupted. How a request becomes a run, and where its events go, is for
the connection.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from attrs import define, field

from interlock.fsm.deltas import Cancel, Fault
from interlock.fsm.processes.lane import LANE, LaneEffect, LaneTrigger
from interlock.fsm.table import Machine
from interlock.serving.http.websocket.frames import Ask

__all__ = ["Interruptible", "Lane"]


class Interruptible(Protocol):
    """A run, as far as a lane knows it."""

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End it as soon as possible, and legally."""
        ...


CANCEL: Final = Cancel()


def _start_of_lane() -> Machine[LaneTrigger, LaneEffect]:
    return Machine[LaneTrigger, LaneEffect].at_start(LANE)


@define(eq=False)
class Lane:
    """One lane.

    Args:
        stream_id: Its name; None for the one without a name.
    """

    stream_id: str | None
    size: int = field(default=0, init=False)
    """The bytes that its connection counts for the request that was started."""
    _queue: deque[Ask] = field(factory=deque[Ask], init=False)
    _run: Interruptible | None = field(default=None, init=False)
    _machine: Machine[LaneTrigger, LaneEffect] = field(factory=_start_of_lane, init=False)

    @property
    def in_flight(self) -> int:
        """The number of requests that were started or wait."""
        return len(self._queue) + (LaneTrigger.END in self._machine.state.rows)

    def ask(self, ask: Ask) -> Ask | None:
        """Queue a request, or return it if the lane is idle: it is to be begun (`begin`) and, last, ended (`end`).

        Args:
            ask: The request.
        """
        return self._fire(LaneTrigger.ASK, ask)

    def begin(self, run: Interruptible) -> None:
        """Note the run of the request that was started.

        Args:
            run: What makes the response.
        """
        self._run = run
        self._fire(LaneTrigger.BEGUN)

    def end(self) -> Ask | None:
        """End the request that was started, and return the next one of the queue, which is to be begun."""
        self._run = None
        return self._fire(LaneTrigger.END)

    def cancel(self) -> None:
        """Cancel the request that was started, if there is one."""
        self._fire(LaneTrigger.CANCEL)

    def leave(self) -> None:
        """Cancel the request that was started, and forget those in the queue: the client has gone."""
        self._fire(LaneTrigger.LEAVE)

    def _fire(self, trigger: LaneTrigger, ask: Ask | None = None) -> Ask | None:
        following: Ask | None = None
        for effect in self._machine.fire(trigger):
            match effect:
                case LaneEffect.BEGIN:
                    following = ask
                case LaneEffect.QUEUE if ask is not None:
                    self._queue.append(ask)
                case LaneEffect.ADVANCE if self._queue:
                    following = self._fire(LaneTrigger.ASK, self._queue.popleft())
                case LaneEffect.INTERRUPT if self._run is not None:
                    self._run.interrupt(CANCEL)
                case LaneEffect.CLEAR:
                    self._queue.clear()
                case _:
                    pass
        return following
