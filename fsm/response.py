"""The response while it is being made: its state, its items, what it cost, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define, field

from interlock.events.spec import Scope
from interlock.fsm.deltas import Usage
from interlock.fsm.ids import Clock
from interlock.fsm.item import Item
from interlock.fsm.lifecycle import Subject


@define(eq=False)
class Response(Subject["Response"]):
    """One response.

    Args:
        state: Where its lifecycle stands.
        id: Its id.
        settings: The request's settings as the response echoes them (`interlock.events.resource`).
        created_at: When it was created, in seconds since the epoch.
        clock: Tells when it is completed.
        additions: Gives what its server shows of it when it has ended, beyond the API's fields.
        output: Its items, in the order of their `added`.
        usage: What its turns have cost so far.
        error: What made it fail: `code` and `message`.
        incomplete_details: What cut it: `reason`.
    """

    id: str
    settings: Mapping[str, object] = field(repr=False)
    created_at: int
    clock: Clock = field(repr=False)
    additions: Callable[[], Mapping[str, object]] = field(default=dict[str, object], repr=False)
    output: list[Item] = field(factory=list[Item])
    usage: Usage = field(factory=Usage)
    error: Mapping[str, object] | None = None
    incomplete_details: Mapping[str, object] | None = None
    completed_at: int | None = None

    def end(self) -> None:
        """Record that the response is over; only one that was completed has a time of completion."""
        self.settings = {**self.additions(), **self.settings}
        if self.state.name == "completed":
            self.completed_at = self.clock()

    def shown(self, status: str, usage: Mapping[str, object] | None) -> dict[str, object]:
        """Give the response object.

        Args:
            status: Its `status`.
            usage: Its `usage`.
        """
        return {
            **self.settings,
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "completed_at": self.completed_at,
            "error": self.error,
            "incomplete_details": self.incomplete_details,
            "output": [item.shown for item in self.output],
            "usage": usage,
        }

    def as_begun(self) -> dict[str, object]:
        """Give the object of an event that begins the response, which shows it as it stands: queued or in progress."""
        return self.shown(self.state.name, None)

    def as_running(self) -> dict[str, object]:
        """Give the object of a response that runs; it shows no end, even if one follows at once."""
        return {**self.shown("in_progress", None), "error": None, "incomplete_details": None}

    def as_ended(self) -> dict[str, object]:
        """Give the object of a terminal event (rule R13)."""
        return self.shown(self.state.name, usage_object(self.usage))

    def address(self, scope: Scope) -> dict[str, object]:
        """Give the fields that address an event about the response: none, for the emission gives the response itself."""
        del scope
        return {}


def usage_object(usage: Usage) -> dict[str, object]:
    """Give a usage as the API shows it, with both detail objects (rule R13)."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
