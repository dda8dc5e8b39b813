"""The lifecycles and the driver, which decide the order of events.

The package does no IO, reads no clock and uses no random numbers.

    table        state machines as tables of edges
    lifecycle    tables whose edges emit events, and the items and responses that go through them
    emissions    the events that the edges emit
    lifecycles   the tables of the response and of each kind of item
    deltas       the inputs of the driver
    driver       runs the lifecycles of one response
    rebuilding   restores a driver's state from its events

The package exports what an embedder needs, and imports it on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import exporter

if TYPE_CHECKING:
    from interlock.fsm.deltas import *
    from interlock.fsm.driver import Clock, Ids, ReadyCall, ResponseDriver, SequentialIds
    from interlock.fsm.table import DeclarationError, IllegalTransition, InterlockError, as_transitions

__all__ = [
    "Annotate",
    "Cancel",
    "Clock",
    "Close",
    "DeclarationError",
    "Delta",
    "EndOutput",
    "EndPart",
    "EndTurn",
    "Enqueue",
    "Fail",
    "Fault",
    "Finish",
    "FinishReason",
    "Ids",
    "IllegalTransition",
    "InterlockError",
    "Open",
    "Progress",
    "ReadyCall",
    "Refusal",
    "Reject",
    "ResponseDriver",
    "Run",
    "SequentialIds",
    "Silence",
    "Start",
    "Succeed",
    "Summary",
    "Text",
    "TokenLogprob",
    "Usage",
    "as_transitions",
]

__getattr__ = exporter(__name__, __all__, [f"{__name__}.{home}" for home in ("table", "deltas", "driver")])
