"""The spans of a server for OpenTelemetry. Without its SDK, `opentelemetry-api` records none.

Names and attributes follow OpenTelemetry's semantic conventions for generative AI, and no attribute has content. The
`traceparent` of a request names the parent of its spans, and calls of upstreams carry their own; the package `mcp` does so for
MCP servers. Without `opentelemetry-api` nothing is passed on either.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import define

if TYPE_CHECKING:
    from opentelemetry.trace import Span as RecordedSpan

Kind: TypeAlias = Literal["SERVER", "CLIENT", "INTERNAL"]
Attributes: TypeAlias = Mapping[str, str | int | list[str] | None]
"""The attributes of a span; those that are None are left out."""

SCOPE: Final = "interlock"

HAS_API: Final = find_spec("opentelemetry") is not None


@define(eq=False)
class Span:
    """A span, which may be recorded; `start` makes it, and `end` ends it."""

    recorded: RecordedSpan | None = None

    def set(self, attributes: Attributes) -> None:
        """Set attributes."""
        if self.recorded is not None and self.recorded.is_recording():
            self.recorded.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def fail(self, error_type: str) -> None:
        """Mark the span as failed."""
        if self.recorded is not None:
            from opentelemetry import trace  # noqa: PLC0415 - an extra

            self.set({"error.type": error_type})
            self.recorded.set_status(trace.StatusCode.ERROR)

    def inject(self, headers: MutableMapping[str, str]) -> None:
        """Add the `traceparent` of the span to the headers of a request."""
        if self.recorded is not None:
            from opentelemetry import propagate, trace  # noqa: PLC0415 - an extra

            propagate.inject(headers, trace.set_span_in_context(self.recorded))

    def end(self) -> None:
        """End the span."""
        if self.recorded is not None:
            self.recorded.end()


def start(name: str, kind: Kind, attributes: Attributes) -> Span:
    """Start a span, whose parent is the active one.

    A span without a parent is not recorded, unless it is a `SERVER` span and a provider is set.
    """
    if not HAS_API:
        return Span()
    from opentelemetry import trace  # noqa: PLC0415 - an extra

    has_parent = trace.get_current_span().get_span_context().is_valid
    if not has_parent and (kind != "SERVER" or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)):
        return Span()
    span = Span(trace.get_tracer(SCOPE).start_span(name, kind=trace.SpanKind[kind]))
    span.set(attributes)
    return span


@contextmanager
def record(name: str, kind: Kind, attributes: Attributes) -> Generator[Span]:
    """Start a span that is active in the context, and ends with it; an `Exception` marks it as failed."""
    span = start(name, kind, attributes)
    if span.recorded is None:
        yield span
        return
    from opentelemetry import trace  # noqa: PLC0415 - an extra

    try:
        with trace.use_span(span.recorded, record_exception=False, set_status_on_exception=False):
            yield span
    except Exception as error:
        span.fail(type(error).__name__)
        raise
    finally:
        span.end()


@contextmanager
def continue_trace(headers: Mapping[str, str]) -> Generator[None]:
    """Make the `traceparent` of a request the parent of the spans in the context, unless a span is active already.

    The request's `baggage` is ignored, because it would reach every upstream.
    """
    if not HAS_API:
        yield
        return
    from opentelemetry import context, propagate, trace  # noqa: PLC0415 - an extra

    names = propagate.get_global_textmap().fields - {"baggage"}
    carried = {name: headers[name] for name in names if name in headers}
    if not carried or trace.get_current_span().get_span_context().is_valid:
        yield
        return
    token = context.attach(propagate.extract(carried))
    try:
        yield
    finally:
        context.detach(token)
