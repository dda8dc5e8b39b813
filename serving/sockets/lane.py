"""A lane: the requests of one `stream_id` in their order, and the response that the next one may continue.

It knows the order of requests and when a run is to be interrupted. How a request becomes a run, and where its events go, is for
the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from attrs import define, field

from interlock.fsm.deltas import Cancel, Fault
from interlock.fsm.table import Machine
from interlock.serving.sockets.frames import Ask
from interlock.serving.sockets.tables import LANE, LaneEffect, LaneTrigger

__all__ = ["Continued", "Interruptible", "Lane"]


class Continued(Protocol):
    """A response that a later request can continue."""

    @property
    def id(self) -> str:
        """The id of the response."""
        ...


K = TypeVar("K", bound=Continued)
"""What a server keeps of a response, so that it can be continued."""


class Interruptible(Protocol):
    """A run, as far as a lane knows it."""

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End it as soon as possible, and legally."""
        ...


CANCEL: Final = Cancel()


def _start_of_lane() -> Machine[LaneTrigger, LaneEffect]:
    return Machine[LaneTrigger, LaneEffect].at_start(LANE)


@define(eq=False)
class Lane(Generic[K]):
    """One lane.

    Args:
        stream_id: Its name; None for the one without a name.
        start: Starts a request of this lane in a task; the task fires `begun` (by `begin`) and, last, `end` (by `end`).
    """

    stream_id: str | None
    _start: Callable[[Lane[K], Ask], None]
    latest: K | None = field(default=None, init=False)
    """The response that ended last, whether it is stored or not."""
    _queue: deque[Ask] = field(factory=deque[Ask], init=False)
    _run: Interruptible | None = field(default=None, init=False)
    _machine: Machine[LaneTrigger, LaneEffect] = field(factory=_start_of_lane, init=False)

    @property
    def waiting(self) -> list[Ask]:
        """The requests in the queue."""
        return list(self._queue)

    @property
    def in_flight(self) -> int:
        """The number of requests that were started or wait."""
        return len(self._queue) + (LaneTrigger.END in self._machine.state.rows)

    def ask(self, ask: Ask) -> None:
        """Start a request if the lane is idle, else queue it.

        Args:
            ask: The request.
        """
        self._fire(LaneTrigger.ASK, ask)

    def begin(self, run: Interruptible) -> None:
        """Note the run of the request that was started.

        Args:
            run: What makes the response.
        """
        self._run = run
        self._fire(LaneTrigger.BEGUN)

    def end(self) -> None:
        """End the request that was started, and start the next one of the queue."""
        self._run = None
        self._fire(LaneTrigger.END)

    def cancel(self) -> None:
        """Cancel the request that was started, if there is one."""
        self._fire(LaneTrigger.CANCEL)

    def leave(self) -> None:
        """Cancel the request that was started, and forget those in the queue: the client has gone."""
        self._fire(LaneTrigger.LEAVE)

    def _fire(self, trigger: LaneTrigger, ask: Ask | None = None) -> None:
        for effect in self._machine.fire(trigger):
            match effect:
                case LaneEffect.BEGIN if ask is not None:
                    self._start(self, ask)
                case LaneEffect.QUEUE if ask is not None:
                    self._queue.append(ask)
                case LaneEffect.ADVANCE if self._queue:
                    self._fire(LaneTrigger.ASK, self._queue.popleft())
                case LaneEffect.INTERRUPT if self._run is not None:
                    self._run.interrupt(CANCEL)
                case LaneEffect.CLEAR:
                    self._queue.clear()
                case _:
                    pass
