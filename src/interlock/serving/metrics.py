"""The metrics of a server for Prometheus: their declarations, and the functions that count.

`METRICS` declares each metric; docs/guides/metrics.md describes them. They are in the default registry of `prometheus_client`, so
a host such as vLLM shows them on its own page. Without that package nothing is counted.

The names that begin with `gen_ai_` and `mcp_` are those of OpenTelemetry's semantic conventions for generative AI and MCP, and
their buckets are those that these advise (github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai). Labels have few
values: a name from a request or another server becomes `other` unless the configuration lists it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from attrs import frozen

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram
    from prometheus_client import Metric as PrometheusMetric

SHARED_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder in which several processes share their metrics; `prometheus_client` reads it."""

OTHER: Final = "other"
"""The value of a label whose own value is not known in advance."""

SECONDS: Final = tuple(2**power / 100 for power in range(14))
FIRST_TOKEN_SECONDS: Final = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TOKEN_SECONDS: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKENS: Final = tuple(4.0**power for power in range(14))
MCP_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

CODES: Final = frozenset({
    "array_above_max_length", "cancelled", "compaction_failed", "context_length_exceeded", "conversation_locked",
    "duplicate_tool_name", "empty_array", "empty_string", "events_expired", "headers_too_large", "invalid_api_key",
    "invalid_body", "invalid_encrypted_content", "invalid_header", "invalid_host", "invalid_json", "invalid_json_schema",
    "invalid_prompt", "invalid_script", "invalid_stream_id", "invalid_type", "invalid_value", "missing_required_parameter",
    "model_not_found", "mutually_exclusive_parameters", "no_rule_matches", "object_above_max_properties",
    "origin_not_allowed", "previous_response_not_found", "rate_limit_exceeded", "request_too_large", "server_error",
    "shutting_down", "store_unavailable", "string_above_max_length", "unbreakable", "unknown_parameter",
    "unsupported_content_encoding", "unsupported_content_type", "unsupported_parameter", "unsupported_value",
    "upstream_disconnected", "upstream_error", "upstream_redirect", "upstream_timeout", "upstream_unauthorized",
    "upstream_unreachable", "websocket_connection_limit_reached", "websocket_stream_limit_reached",
})  # fmt: skip
"""The error codes that labels may have; those of other servers may be anything."""


@frozen
class Metric:
    """The declaration of a metric; a histogram has `buckets`."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: Sequence[str] = ()
    buckets: Sequence[float] = ()


_SERVER: Final = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
_ADDRESS: Final = ("server_address", "server_port")
_CLIENT: Final = (*_SERVER, *_ADDRESS)

METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in (
    Metric("gen_ai_server_request_duration_seconds", "histogram",
           "Time from the beginning of a response to its end, tools included.", (*_SERVER, "error_type"), SECONDS),
    Metric("gen_ai_server_time_to_first_token_seconds", "histogram",
           "Time from the beginning of a response to the model's first output.", _SERVER, FIRST_TOKEN_SECONDS),
    Metric("gen_ai_server_time_per_output_token_seconds", "histogram",
           "Mean time of each output token after the first, for each turn.", _SERVER, TOKEN_SECONDS),
    Metric("gen_ai_client_operation_duration_seconds", "histogram",
           "Duration of a gateway's call of an upstream, retries included.", (*_CLIENT, "error_type"), SECONDS),
    Metric("gen_ai_client_token_usage", "histogram",
           "Tokens that the upstream counted for a call.", (*_CLIENT, "gen_ai_token_type"), TOKENS),
    Metric("gen_ai_execute_tool_duration_seconds", "histogram", "Duration of a call of a tool that the server runs.",
           ("gen_ai_operation_name", "gen_ai_tool_name", "error_type"), SECONDS),
    Metric("mcp_client_operation_duration_seconds", "histogram",
           "Duration of a request to an MCP server.", ("mcp_method_name", "error_type"), MCP_SECONDS),

    Metric("interlock_responses_total", "counter",
           "Responses that have ended; `reason` says why an incomplete or failed one did.", ("status", "reason", "model")),
    Metric("interlock_open_streams", "gauge", "Responses in progress, streamed or not."),
    Metric("interlock_events_total", "counter", "Events of ended responses.", ["event"]),
    Metric("interlock_items_total", "counter", "Items of ended responses.", ("item", "status")),
    Metric("interlock_tokens_total", "counter", "Tokens of ended responses.", ("type", "model")),
    Metric("interlock_parser_recoveries_total", "counter",
           "Malformed output of a model that a parser read anyway.", ("family", "kind")),
    Metric("interlock_upstream_faults", "gauge",
           "Processes whose last request for an upstream's list of models failed.", _ADDRESS),
    Metric("interlock_upstream_retries_total", "counter",
           "Further attempts of calls of an upstream; `error_type` says why.", (*_ADDRESS, "error_type")),
    Metric("interlock_upstream_repairs_total", "counter",
           "Breaches of the rules of a stream in what a Responses upstream sent, repaired by the gateway.", ["rule"]),
    Metric("interlock_refused_requests_total", "counter", "Requests that received an error in place of a response.", ["reason"]),
    Metric("interlock_store_errors_total", "counter", "Failed writes and rounds of maintenance of the store.", ["error"]),
    Metric("interlock_adoptions_total", "counter", "Responses that this server ended because their own server was lost."),
    Metric("interlock_keep_alives_total", "counter", "Events and comments that broke the silence of a stream."),
    Metric("interlock_websocket_connections", "gauge", "Open WebSockets."),
    Metric("interlock_websocket_lanes", "gauge", "Lanes of open WebSockets: sequences of requests with one `stream_id`."),
)}  # fmt: skip
"""Every metric by its name."""


@cache
def _registered() -> tuple[Mapping[str, Counter | Gauge], Mapping[str, Histogram]]:
    """Register all metrics, and return the numbers and the histograms by name; none if `prometheus_client` is not installed."""
    try:
        from prometheus_client import Counter, Gauge, Histogram  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return {}, {}
    numbers: dict[str, Counter | Gauge] = {}
    histograms: dict[str, Histogram] = {}
    for each in METRICS.values():
        match each.type:
            case "counter":
                numbers[each.name] = Counter(each.name, each.meaning, each.labels)
            case "gauge":
                numbers[each.name] = Gauge(each.name, each.meaning, each.labels, multiprocess_mode="livesum")
            case "histogram":
                histograms[each.name] = Histogram(each.name, each.meaning, each.labels, buckets=each.buckets)
    return numbers, histograms


@cache
def _number(name: str, labels: tuple[str, ...]) -> Counter | Gauge | None:
    metric = _registered()[0].get(name)
    return metric.labels(*labels) if metric is not None and labels else metric


@cache
def _histogram(name: str, labels: tuple[str, ...]) -> Histogram | None:
    metric = _registered()[1].get(name)
    return None if metric is None else metric.labels(*labels)


def register() -> bool:
    """Register all metrics, so that a page has them from the start; return whether `prometheus_client` is installed."""
    return any(_registered())


def count(name: str, *labels: str, amount: float = 1) -> None:
    """Add to a counter or a gauge."""
    metric = _number(name, labels)
    if metric is not None:
        metric.inc(amount)


def observe(name: str, value: float, *labels: str) -> None:
    """Add a value to a histogram."""
    metric = _histogram(name, labels)
    if metric is not None:
        metric.observe(value)


@contextmanager
def measure(name: str, *labels: str) -> Generator[None]:
    """Add the duration of the context to a histogram; its last label is the class of the error that leaves the context."""
    started_at, error_type = monotonic(), ""
    try:
        yield
    except BaseException as error:
        error_type = type(error).__name__
        raise
    finally:
        observe(name, monotonic() - started_at, *labels, error_type)


def known_code(code: str | None, default: str = OTHER) -> str:
    """Return an error code as a label, `default` for None."""
    if code is None:
        return default
    return code if code in CODES else OTHER


def page(accept: str) -> tuple[bytes, str] | None:
    """Return the page of all metrics, of all processes, and its media type; None if `prometheus_client` is not installed."""
    if not register():
        return None
    from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics  # noqa: PLC0415 - an extra
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

    disable_created_metrics()  # type: ignore[no-untyped-call]  # the package does not annotate it
    registry = REGISTRY
    if SHARED_FOLDER in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # the package does not annotate it
        registry.register(_Processes(Path(os.environ[SHARED_FOLDER])))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


@frozen
class _Processes:
    """Collects the metrics about each process that shares its own in the folder, with its `pid`."""

    folder: Path

    def collect(self) -> Iterable[PrometheusMetric]:
        from prometheus_client import ProcessCollector  # noqa: PLC0415 - an extra

        collected: dict[str, PrometheusMetric] = {}
        for file in sorted(self.folder.glob("gauge_livesum_*.db")):  # `forget` removes those of a process that has exited
            pid = file.stem.rpartition("_")[2]
            for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect():
                samples = [sample._replace(labels={"pid": pid}) for sample in metric.samples]
                metric.samples = collected[metric.name].samples + samples if metric.name in collected else samples
                collected[metric.name] = metric
        return collected.values()


def share() -> None:
    """Share the metrics of this process with those that it forks. Call this before anything is counted."""
    if SHARED_FOLDER not in os.environ:
        os.environ[SHARED_FOLDER] = tempfile.mkdtemp(prefix="interlock-metrics-")
        _made_folders.append(os.environ[SHARED_FOLDER])


_made_folders: Final[list[str]] = []


def forget(process: int) -> None:
    """Remove the gauges of a process that has exited; its counters stay."""
    if register() and SHARED_FOLDER in os.environ:
        from prometheus_client.multiprocess import (  # noqa: PLC0415 - an extra
            mark_process_dead,  # pyright: ignore[reportUnknownVariableType]  # the package does not annotate it
        )

        mark_process_dead(process)  # type: ignore[no-untyped-call]  # the package does not annotate it


def unshare() -> None:
    """Remove the folder that `share` made."""
    for folder in _made_folders:
        shutil.rmtree(folder, ignore_errors=True)
