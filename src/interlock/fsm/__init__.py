"""The lifecycles and the driver, which decide the order of events.

The package does no IO, reads no clock and uses no random numbers.

    table        state machines as tables of edges
    lifecycle    tables whose edges emit events
    emissions    the events that the edges of items emit
    lifecycles   the tables of the response and of each kind of item
    subjects     the state of an item and of a response
    deltas       the inputs of the driver
    driver       runs the lifecycles of one response
    rebuilding   restores a driver's state from its events
    ids          sources of ids and time
    errors       the exceptions
    interop      tables for the package `transitions`

The package exports what an embedder needs, and imports it on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import exporter

if TYPE_CHECKING:
    from interlock.fsm.deltas import *
    from interlock.fsm.driver import ReadyCall, ResponseDriver
    from interlock.fsm.errors import DeclarationError, IllegalTransition, InterlockError
    from interlock.fsm.ids import Clock, Ids, SequentialIds
    from interlock.fsm.interop import as_transitions

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
    "Start",
    "Succeed",
    "Summary",
    "Text",
    "Usage",
    "as_transitions",
]

__getattr__ = exporter(__name__, __all__, [f"{__name__}.{home}" for home in ("deltas", "driver", "errors", "ids", "interop")])
