"""Leases: for how long an owner may not be heard of, and in which state of its life a stored response is."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from interlock.fsm.processes.stored import STORED, StoredEffect, StoredTrigger
from interlock.fsm.table import Machine, State

__all__ = ["LEASE", "RENEW", "Lease", "has_lapsed", "machine_at"]

LEASE: Final = 15.0
"""Seconds that a lease lasts, if nothing else is said."""

RENEW: Final = 5.0
"""Seconds after which an owner renews its lease: it may fail twice before others take over."""


@frozen
class Lease:
    """The right to write the events of one response.

    Args:
        tenant: To whom the response belongs.
        response_id: The response.
        owner: Who has the lease.
        epoch: How many have had it, this owner included; the store takes nothing from those before.
    """

    tenant: str
    response_id: str
    owner: str
    epoch: int


def has_lapsed(until: float, now: float, lease: float = LEASE) -> bool:
    """Return whether a lease is over.

    A lease that ends much later than one that begins now was given before the clock was set back, as by a restart of the machine:
    it is over as well, because nobody would wait for its end. A clock that is set back a little, as clocks are, ends no lease.

    Args:
        until: When it ends, by the clock of the store.
        now: What that clock shows.
        lease: How long a lease lasts, in seconds.
    """
    return not now < until <= now + 2 * lease


def machine_at(name: str, *, lapsed: bool, expired: bool) -> Machine[StoredTrigger, StoredEffect]:
    """Return the life of a response where it is now; what time alone does to it is fired.

    Args:
        name: The state that was written last.
        lapsed: Whether its lease is over; of no meaning where nobody has one.
        expired: Whether nothing was written about it for as long as responses are stored.
    """
    machine = Machine[StoredTrigger, StoredEffect](_state(name))
    happened = [StoredTrigger.LAPSE] * lapsed + [StoredTrigger.EXPIRE] * expired
    for trigger in happened:
        if trigger in machine.state.rows:
            machine.fire(trigger)
    return machine


def _state(name: str) -> State[StoredTrigger, StoredEffect]:
    return STORED.states[name]
