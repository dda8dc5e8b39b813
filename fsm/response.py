"""The response while it is being made: its state, its items, what it cost, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

from attrs import define, field

from interlock.events.json import dumps, members, parsed
from interlock.fsm.deltas import Usage
from interlock.fsm.ids import Clock
from interlock.fsm.item import Item
from interlock.fsm.lifecycle import Given, LifecycleState, Saved, Subject

_OBJECT: Final = (
    b'{%b"id":%b,"object":"response","created_at":%d,"status":"%b","completed_at":%b,"error":%b,"incomplete_details":%b,'
    b'"output":[%b],"usage":%b}'
)
_ENDING: Final = ("completed_at", "error", "incomplete_details")
_OWN: Final = frozenset({"id", "object", "created_at", "status", *_ENDING, "output", "usage"})


@define(eq=False)
class Response(Subject["Response"]):
    """One response.

    Args:
        state: Where its lifecycle stands.
        id: Its id.
        settings: The request's settings as the response echoes them (`interlock.events.resource`), as JSON, each with a comma
            before it. No other form of them is held while the response is made.
        created_at: When it was created, in seconds since the epoch.
        clock: Tells when it is completed.
        additions: Returns what its server shows of it when it has ended, beyond the API's fields.
        output: Its items, in the order of their `added`.
        ending: What is known of it once it has ended, by the API's names: `usage`, and where they apply `error`,
            `incomplete_details`, `completed_at`.
    """

    id: str
    settings: bytes = field(repr=False)
    created_at: int
    clock: Clock = field(repr=False)
    additions: Callable[[], Mapping[str, object]] = field(default=dict[str, object], repr=False)
    output: list[Item] = field(factory=list[Item])
    ending: Given = field(factory=dict[str, object])

    def save(self) -> Saved:
        """Return what firing an edge may change."""
        return self.state, self.settings, self.ending

    def restore(self, saved: Saved) -> None:
        """Undo what firing an edge has recorded.

        Args:
            saved: What `save` returned before.
        """
        self.state, self.settings, self.ending = cast("tuple[LifecycleState[Response], bytes, Given]", saved)

    def end(self, given: Given) -> None:
        """Record how the response ended.

        Args:
            given: `usage`, and `error` or `incomplete_details` where they apply.
        """
        additions = self.additions()
        if additions:
            settings = cast("Mapping[str, object]", parsed(b"{%b}" % self.settings[1:]))
            self.settings = echoed({**additions, **settings})
        self.ending = given

    def complete(self, given: Given) -> None:
        """Record that the response was completed; no other has a time of completion.

        Args:
            given: `usage`.
        """
        self.end({**given, "completed_at": self.clock()})

    @property
    def as_it_stands(self) -> bytes:
        """The object as it is now, as JSON: queued, in progress or ended (rule R13)."""
        return self._shown(self.state.name)

    @property
    def as_running(self) -> bytes:
        """The object of a response that runs, as JSON, even if an end follows at once."""
        return self._shown("in_progress")

    def _shown(self, status: str) -> bytes:
        ending = self.ending
        return _OBJECT % (
            self.settings[1:] + b"," if self.settings else b"",
            dumps(self.id),
            self.created_at,
            status.encode(),
            *[dumps(ending.get(name)) for name in _ENDING],
            b",".join([item.shown for item in self.output]),
            dumps(ending.get("usage")),
        )


def echoed(settings: Mapping[str, object]) -> bytes:
    """Return settings as JSON, each with a comma before it, without those that are no settings but the response's own fields.

    Args:
        settings: By the API's names.
    """
    return members({name: value for name, value in settings.items() if name not in _OWN})


def usage_object(usage: Usage) -> dict[str, object]:
    """Return a usage as the API shows it, with both detail objects (rule R13)."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
