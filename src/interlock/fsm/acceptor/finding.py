"""The reports of a validator: faults, and findings, which locate faults in a stream."""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import frozen

Severity: TypeAlias = Literal["error", "deviation", "not_judged"]
"""How serious a finding is.

`error`: the published contract or a known client breaks. `deviation`: unusual, but every tested client copes.
`not_judged`: an unknown event or kind of item, which is checked only against the rules for all events.
"""


@frozen
class ItemRef:
    """The item of a fault, with its state before the event."""

    id: str
    kind: str | None
    state: str


@frozen
class Fault:
    """A broken rule, without its place in the stream.

    Args:
        rule: `R1` to `R18`.
        message: What is wrong.
        expected: The wire names of the events that would have been legal, if the fault is the event itself.
        item: The item, if it is not the event's.
        deviation: A name in `DEVIATIONS`; empty for an error.
    """

    rule: str
    message: str
    expected: tuple[str, ...] = ()
    item: ItemRef | None = None
    deviation: str = ""


@frozen
class Finding:
    """A broken rule, with its place in the stream.

    Args:
        rule: `R1` to `R18`.
        severity: How serious it is.
        event: The number of the event, from 0; the number of all events for a fault at the end of the stream.
        sequence_number: The event's own number, if it has one.
        item: The id of the item, if the finding is about one.
        kind: The kind of the item, if it is known.
        state: The state of the item, or else of the response, before the event.
        received: The wire name of the event; empty at the end of the stream.
        expected: The wire names of the events that would have been legal, if the fault is the event itself.
        message: What is wrong.
        deviation: The name of the deviation; empty for an error.
        line: The line where the event begins, from 1; None if no bytes were read.
    """

    rule: str
    severity: Severity
    event: int
    sequence_number: int | None
    item: str | None
    kind: str | None
    state: str
    received: str
    expected: tuple[str, ...]
    message: str
    deviation: str = ""
    line: int | None = None
