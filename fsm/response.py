"""The response while it is being made: its state, its items, what it cost, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define, field

from interlock.events.spec import Scope
from interlock.fsm.deltas import Usage
from interlock.fsm.ids import Clock
from interlock.fsm.item import Item
from interlock.fsm.lifecycle import Given, Subject, Undo


@define(eq=False)
class Response(Subject["Response"]):
    """One response.

    Args:
        state: Where its lifecycle stands.
        id: Its id.
        settings: The request's settings as the response echoes them (`interlock.events.resource`).
        created_at: When it was created, in seconds since the epoch.
        clock: Tells when it is completed.
        additions: Returns what its server shows of it when it has ended, beyond the API's fields.
        output: Its items, in the order of their `added`.
        ending: What is known of it once it has ended, by the API's names: `usage`, and where they apply `error`,
            `incomplete_details`, `completed_at`.
    """

    id: str
    settings: Mapping[str, object] = field(repr=False)
    created_at: int
    clock: Clock = field(repr=False)
    additions: Callable[[], Mapping[str, object]] = field(default=dict[str, object], repr=False)
    output: list[Item] = field(factory=list[Item])
    ending: Given = field(factory=dict[str, object])

    def save(self) -> Undo:
        """Return a function that undoes what firing an edge has recorded since."""
        state, settings, ending = self.state, self.settings, self.ending

        def undo() -> None:
            self.state, self.settings, self.ending = state, settings, ending

        return undo

    def end(self, given: Given) -> None:
        """Record how the response ended.

        Args:
            given: `usage`, and `error` or `incomplete_details` where they apply.
        """
        self.settings = {**self.additions(), **self.settings}
        self.ending = given

    def complete(self, given: Given) -> None:
        """Record that the response was completed; no other has a time of completion.

        Args:
            given: `usage`.
        """
        self.end({**given, "completed_at": self.clock()})

    def shown(self, status: str) -> dict[str, object]:
        """Return the response object.

        Args:
            status: Its `status`.
        """
        return {
            **self.settings,
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "output": [item.shown for item in self.output],
            "usage": None,
            **self.ending,
        }

    def as_it_stands(self) -> dict[str, object]:
        """Return the object as it is now: queued, in progress or ended (rule R13)."""
        return self.shown(self.state.name)

    def as_running(self) -> dict[str, object]:
        """Return the object of a response that runs, even if an end follows at once."""
        return self.shown("in_progress")

    def address(self, scope: Scope) -> dict[str, object]:
        """Return the fields that address an event about the response: none, for the emission gives the response itself."""
        del scope
        return {}


def usage_object(usage: Usage) -> dict[str, object]:
    """Return a usage as the API shows it, with both detail objects (rule R13)."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
