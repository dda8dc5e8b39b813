"""What an acceptor has to say about a stream. It knows no rule; it only names them."""

from __future__ import annotations

from attrs import frozen


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
        legal: The wire names of the events that would have been legal, where the fault is the event itself.
        about: Which item it is in, if that is not the one that the event is about.
    """

    rule: str
    message: str
    legal: tuple[str, ...] = ()
    about: About | None = None


@frozen
class Finding:
    """A rule that a stream breaks.

    Args:
        rule: The rule's number, `R1` to `R18`.
        event: The event, counted from 0, at which it shows; the number of events if something is missing at the end.
        sequence_number: The event's own number, if it has one.
        item: The id of the item that it is about, if it is about one.
        kind: The item's kind, if it is known.
        state: The state that the item (or the response) was in before the event came.
        came: The wire name of the event; empty at the end of the stream.
        legal: The wire names of the events that would have been legal, where the fault is the event itself.
        message: What is wrong.
    """

    rule: str
    event: int
    sequence_number: int | None
    item: str | None
    kind: str | None
    state: str
    came: str
    legal: tuple[str, ...]
    message: str
