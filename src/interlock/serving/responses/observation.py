"""What a run adds to the metrics, the traces and the log at its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from interlock.events.json import members
from interlock.serving import metrics, traces
from interlock.serving.metrics import known_code
from interlock.serving.requests.logs import FIELDS
from interlock.serving.responses.run import ResponseRun

if TYPE_CHECKING:
    from interlock.parsers.chunk import Recoveries

T = TypeVar("T")

logger = logging.getLogger(__name__)

OPERATION: Final = "chat"
"""The operation of every response, by the conventions for generative AI."""
PROVIDER: Final = "interlock"
DIGITS: Final = 3
"""The digits after the point of seconds, in the log."""


@contextmanager
def observe_run(model: str, label: str) -> Generator[Callable[[ResponseRun[Any]], None]]:
    """Observe a run of a model within the context; `label` is the model's name in metrics. The value reports the ended run."""
    started_at, attributes = monotonic(), {"gen_ai.operation.name": OPERATION, "gen_ai.request.model": model}
    metrics.count("interlock_open_streams")
    try:
        with traces.record(f"{OPERATION} {label}", "SERVER", attributes) as span:
            yield partial(_report, label, started_at, span)
    finally:
        metrics.count("interlock_open_streams", amount=-1)


def _report(model: str, started_at: float, span: traces.Span, run: ResponseRun[T]) -> None:
    """Report a response that has ended, and began at this time by the monotonic clock."""
    driver, seconds = run.driver, monotonic() - started_at
    if not driver.ended:
        return
    response, status, usage = driver.response, driver.status, driver.usage
    reason = _reason(run)
    _log_end(run, reason, seconds, None if run.delivery.first_at is None else run.delivery.first_at - started_at)
    if status == "failed":
        reason = known_code(reason)
    error_type = "" if status in {"completed", "incomplete"} else reason or status
    labels = (OPERATION, PROVIDER, model)
    if run.progress.first_output_at is not None:
        metrics.observe("gen_ai_server_time_to_first_token_seconds", run.progress.first_output_at - started_at, *labels)
    for token_seconds in run.progress.token_seconds:
        metrics.observe("gen_ai_server_time_per_output_token_seconds", token_seconds, *labels)
    metrics.observe("gen_ai_server_request_duration_seconds", seconds, *labels, error_type)
    metrics.count("interlock_responses_total", status, reason, model)
    for kind, amount in driver.event_counts.items():
        metrics.count("interlock_events_total", kind, amount=amount)
    for item in driver.items():
        metrics.count("interlock_items_total", str(item["type"]), str(item.get("status") or "completed"))
    if usage is not None:
        metrics.count("interlock_tokens_total", "input", model, amount=usage.input_tokens)
        metrics.count("interlock_tokens_total", "output", model, amount=usage.output_tokens)
        span.set({"gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens})
    _count_recoveries(run)
    span.set(
        {
            "gen_ai.response.id": driver.id,
            "gen_ai.response.model": str(response["model"]),
            "gen_ai.response.finish_reasons": [reason or status],
        }
    )
    if error_type:
        span.fail(error_type)


def _count_recoveries(run: ResponseRun[T]) -> None:
    """Count what the parser has repaired."""
    recoveries: Recoveries | None = getattr(run.generation.parser, "recoveries", None)
    for (family, kind), amount in (recoveries or {}).items():
        if family == "responses":
            metrics.count("interlock_upstream_repairs_total", kind, amount=amount)
        else:
            metrics.count("interlock_parser_recoveries_total", family, kind, amount=amount)


def _reason(run: ResponseRun[T]) -> str:
    """Return why a response is incomplete or has failed: the API's reason or an error code; else nothing."""
    response, status = run.driver.response, run.driver.status
    if status == "incomplete":
        return str(members(response["incomplete_details"]).get("reason") or "cut_call")
    return str(members(response["error"]).get("code") or "") if status == "failed" else ""


def _log_end(run: ResponseRun[T], reason: str, seconds: float, first: float | None) -> None:
    """Log how and why a response has ended, after how many seconds, and when its first event came."""
    if not logger.isEnabledFor(logging.INFO):
        return
    tenant = run.context.tenant
    status, count, usage = run.driver.status, run.driver.item_count, run.driver.usage
    fields: dict[str, object] = {
        "status": status,
        "reason": reason or None,
        "items": count,
        "input_tokens": usage and usage.input_tokens,
        "output_tokens": usage and usage.output_tokens,
        "first_event_seconds": None if first is None else round(first, DIGITS),
        "seconds": round(seconds, DIGITS),
        "tenant": tenant or None,
    }
    parts = [
        f"{status} ({reason})" if reason else status,
        f"{count} {'item' if count == 1 else 'items'}",
        *([] if usage is None else [f"{usage.input_tokens} tokens in, {usage.output_tokens} out"]),
        *([] if first is None else [f"first event after {first:.3f} s"]),
        f"{seconds:.3f} s",
        *([f"tenant {tenant}"] if tenant else []),
    ]
    known = {name: value for name, value in fields.items() if value is not None}
    logger.info("%s: %s", run.driver.id, ", ".join(parts), extra={FIELDS: known})
