"""Logs each response at its end."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from interlock.events.json import as_text, members
from interlock.serving.requests.logs import FIELDS

if TYPE_CHECKING:
    from interlock.serving.responses.run import ResponseRun

T = TypeVar("T")

logger = logging.getLogger(__name__)

DIGITS: Final = 3
"""The digits after the point of seconds."""


def log_end(run: ResponseRun[T], started_at: float) -> None:
    """Log how a response that began at `started_at` has ended. The name of a tenant is a digest of its key."""
    if not logger.isEnabledFor(logging.INFO):
        return
    tenant = run.context.tenant
    response, usage, now = run.driver.response, run.driver.usage, monotonic()
    status, count = run.driver.status, run.driver.item_count
    details, error = members(response.get("incomplete_details")), members(response.get("error"))
    reason = as_text(details.get("reason")) or as_text(error.get("code"))
    first = None if run.first_at is None else round(run.first_at - started_at, DIGITS)
    fields: dict[str, object] = {
        "status": status,
        "reason": reason or None,
        "items": count,
        "input_tokens": usage and usage.input_tokens,
        "output_tokens": usage and usage.output_tokens,
        "first_event_seconds": first,
        "seconds": round(now - started_at, DIGITS),
        "tenant": tenant or None,
    }
    parts = [
        f"{status} ({reason})" if reason else status,
        f"{count} {'item' if count == 1 else 'items'}",
        *([] if usage is None else [f"{usage.input_tokens} tokens in, {usage.output_tokens} out"]),
        *([] if first is None else [f"first event after {first:.3f} s"]),
        f"{fields['seconds']:.3f} s",
        *([f"tenant {tenant}"] if tenant else []),
    ]
    known = {name: value for name, value in fields.items() if value is not None}
    logger.info("%s: %s", run.driver.id, ", ".join(parts), extra={FIELDS: known})
