"""The response while it is being made: where its lifecycle stands, its items, and the response as far as it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from interlock.events import response_object as response
from interlock.fsm import deltas
from interlock.fsm.ids import Clock
from interlock.fsm.item_subject import ItemState
from interlock.fsm.lifecycle import Subject

_OWN: Final = frozenset(
    {"id", "object", "created_at", "status", "completed_at", "error", "incomplete_details", "output", "usage"}
)
SETTINGS: Final = {*response.Response.__struct_fields__} - _OWN
"""The fields of a response that are settled when it is created."""


class ResponseState(Subject["ResponseState"], kw_only=True):
    """One response.

    Args:
        state: Where its lifecycle stands.
        body: It as the API shows it, but for its status and its output. It is replaced and never changed.
        clock: Tells when it is completed.
        additions: Returns what its server shows of it when it has ended, beyond the API's fields.
        output: Its items, in the order of their `added`.
    """

    body: response.Response
    clock: Clock
    additions: Callable[[], Mapping[str, object]] = dict[str, object]
    output: list[ItemState[Any]] = []  # noqa: RUF012 - msgspec makes a new one for each response

    def end(self, **fields: object) -> response.Response:
        """Record how the response ended, and return it as it is then."""
        self.body = self.snapshot(self.state.name, **self.additions(), **self.args, **fields)
        return self.body

    def snapshot(self, status: str, **fields: object) -> response.Response:
        """Return the response as it is now (rule R13)."""
        return replace(self.body, status=status, output=[item.shown for item in self.output], **fields)


def usage_of(usage: deltas.Usage) -> response.Usage:
    """Return a usage as the API shows it, with both detail objects (rule R13)."""
    return response.Usage(
        input_tokens=usage.input_tokens,
        input_tokens_details=response.InputTokensDetails(
            cached_tokens=usage.cached_tokens, cache_write_tokens=usage.cache_write_tokens
        ),
        output_tokens=usage.output_tokens,
        output_tokens_details=response.OutputTokensDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.input_tokens + usage.output_tokens,
    )
