"""What an acceptor has to say about a stream. It knows no rule; it only names them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import frozen

Severity: TypeAlias = Literal["error", "deviation", "not_judged"]
"""How bad a finding is.

`error`: the published contract or a known client breaks. `deviation`: it is unusual, and every client that was tried copes.
`not_judged`: an event or a kind of item that no lifecycle here knows; only what holds for all events is judged of it.
"""


@frozen
class About:
    """Which item a fault is in.

    Args:
        item: The item's id.
        kind: Its kind, if it is known.
        state: The state that it is in.
    """

    item: str
    kind: str | None
    state: str


@frozen
class Fault:
    """A rule that an event breaks, before it is known where in the stream it stands.

    Args:
        rule: The rule's number, `R1` to `R18`.
        message: What is wrong, without its place.
        expected: The wire names of the events that were legal here, where the fault is the event itself.
        about: Which item it is in, if that is not the one that the event is about.
        habit: The habit of real services that it is (`interlock.fsm.acceptor.deviations`); empty for an error.
    """

    rule: str
    message: str
    expected: tuple[str, ...] = ()
    about: About | None = None
    habit: str = ""


@frozen
class Finding:
    """A rule that a stream breaks.

    Args:
        rule: The rule's number, `R1` to `R18`.
        severity: How bad it is.
        event: The event, counted from 0, at which it shows; the number of events if something is missing at the end.
        sequence_number: The event's own number, if it has one.
        item: The id of the item that it is about, if it is about one.
        kind: The item's kind, if it is known.
        state: The state that the item (or the response) was in before the event came.
        came: The wire name of the event; empty at the end of the stream.
        expected: The wire names of the events that were legal here, where the fault is the event itself.
        message: What is wrong.
        habit: The habit of real services that it is (`interlock.fsm.acceptor.deviations`); empty for an error.
        line: The line of the file on which the event begins, counted from 1; None where no bytes were read.
    """

    rule: str
    severity: Severity
    event: int
    sequence_number: int | None
    item: str | None
    kind: str | None
    state: str
    came: str
    expected: tuple[str, ...]
    message: str
    habit: str = ""
    line: int | None = None
