"""What a call of an upstream adds to the metrics and the traces."""

from __future__ import annotations

from time import monotonic
from urllib.parse import urlsplit

from attrs import Factory, define, field

from interlock.serving import metrics, traces
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.engines.upstream.apis import UPSTREAM_APIS
from interlock.serving.engines.upstream.translator import Upstream
from interlock.serving.requests.api_errors import ApiError


@define(eq=False)
class ObservedCall:
    """A call of an upstream for one turn; `model` is a label, and `span` is open until `end`."""

    _upstream: Upstream
    _model: str
    _started_at: float = field(factory=monotonic, init=False)
    _attributes: traces.Attributes = field(default=Factory(lambda self: self._describe(), takes_self=True), init=False)
    span: traces.Span = field(
        default=Factory(lambda self: traces.start(f"chat {self._model}", "CLIENT", self._attributes), takes_self=True),
        init=False,
    )

    def _describe(self) -> traces.Attributes:
        parts = urlsplit(self._upstream.client.url)
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": UPSTREAM_APIS[self._upstream.api].provider,
            "gen_ai.request.model": self._model,
            "server.address": parts.hostname,
            "server.port": parts.port or (443 if parts.scheme == "https" else 80),
        }

    def end(self, outcome: EngineOutput | ApiError | None) -> None:
        """End the call with its last output, with an error, or with None if the gateway has cancelled it."""
        labels = [str(value) for value in self._attributes.values()]
        error_type = ""
        if isinstance(outcome, EngineOutput):
            usage = {"input": outcome.input_tokens, "output": outcome.output_tokens}
            for kind, tokens in usage.items():
                if tokens:
                    metrics.observe("gen_ai_client_token_usage", tokens, *labels, kind)
            self.span.set({f"gen_ai.usage.{kind}_tokens": tokens for kind, tokens in usage.items()})
            self.span.set({"gen_ai.response.finish_reasons": [str(outcome.finish_reason)]})
        else:
            error_type = "cancelled" if outcome is None else metrics.known_code(outcome.code, f"{outcome.status}")
            self.span.fail(error_type)
        metrics.observe("gen_ai_client_operation_duration_seconds", monotonic() - self._started_at, *labels, error_type)
        self.span.end()
