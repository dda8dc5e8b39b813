"""The spans of a gateway and of the server behind it, with the SDK of OpenTelemetry, which keeps them in memory."""

import httpx
import pytest
from live.agents import ask, calling, mcp
from live.mcp_servers import Workshop, running
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from interlock.serving import traces
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.gateway_config import upstream_of
from interlock.serving.settings import UpstreamSettings

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(scope="session")  # a process has one provider, and workers that steal tests come back to this module
def exporter():
    """Where the spans of this process go."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter):
    """Return the finished spans by name and kind: the id, the id of the parent, and the attributes."""
    exporter.clear()

    def finished():
        return {
            (span.name, span.kind.name, span.attributes.get("server.port")): (
                trace.format_span_id(span.context.span_id),
                span.parent and trace.format_span_id(span.parent.span_id),
                dict(span.attributes),
            )
            for span in exporter.get_finished_spans()
            if span.instrumentation_scope.name == traces.SCOPE
        }

    return finished


def attributes(model, response):
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.response.id": response["id"],
        "gen_ai.response.model": response["model"],
        "gen_ai.response.finish_reasons": (response["status"],),
        "gen_ai.usage.input_tokens": response["usage"]["input_tokens"],
        "gen_ai.usage.output_tokens": response["usage"]["output_tokens"],
    }


def test_a_trace_goes_through_a_gateway_to_the_server_behind_it(serve, spans) -> None:
    with serve(EmbeddedEngine()) as upstream:
        settings = UpstreamSettings(url=f"{upstream}/v1", api="responses", aliases={"fast": MODEL})
        with serve(Gateway([upstream_of(settings)])) as url:
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "baggage": "secret=1"}
            answer = httpx.post(f"{url}/v1/responses", json={"model": "fast", "input": "Hello"}, headers=headers).json()
    port = int(upstream.rpartition(":")[2])
    finished = spans()
    ours, call, behind = (
        finished["chat fast", "SERVER", None],
        finished["chat fast", "CLIENT", port],
        finished[f"chat {MODEL}", "SERVER", None],
    )
    usage = {f"gen_ai.usage.{kind}_tokens": answer["usage"][f"{kind}_tokens"] for kind in ("input", "output")}
    assert ours[1:] == (PARENT, attributes("fast", answer))
    assert call[1:] == (
        ours[0],
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "fast",
            "server.address": "127.0.0.1",
            "server.port": port,
            "gen_ai.response.finish_reasons": ("stop",),
            **usage,
        },
    )
    behind_id = behind[2]["gen_ai.response.id"]
    assert behind[1:] == (call[0], attributes(MODEL, {**answer, "id": behind_id, "model": MODEL}))
    assert {key[:2] for key in finished} == {  # the two servers end theirs in any order
        ("turn", "INTERNAL"),
        (f"chat {MODEL}", "SERVER"),
        ("chat fast", "CLIENT"),
        ("chat fast", "SERVER"),
    }


def test_tools_are_children_of_the_response(spans, exporter) -> None:
    with running(Workshop().server().streamable_http_app()) as base:
        outcome = ask(calling("mcp.shop.broken", "{}"), tools=[mcp(f"{base}/mcp")])
    (call,) = outcome.of("mcp_call")
    finished = spans()
    response = next(value for (name, _, _), value in finished.items() if name.startswith("chat"))
    tool = finished["execute_tool broken", "INTERNAL", None]
    assert tool[1:] == (
        response[0],
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "broken",
            "gen_ai.tool.call.id": call["id"],
            "error.type": "ToolFailedError",
        },
    )
    requests = [span for span in exporter.get_finished_spans() if span.attributes.get("mcp.method.name") == "tools/call"]
    assert tool[0] in {trace.format_span_id(span.parent.span_id) for span in requests}


def test_a_failure_of_the_upstream_is_the_error_of_its_call(serve, spans) -> None:
    settings = UpstreamSettings(url="http://127.0.0.1:9/v1", models=["m"], retries=0)
    with serve(Gateway([upstream_of(settings)])) as url:
        answer = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hello"})
    assert answer.status_code == 502
    errors = {key[:2]: value[2].get("error.type") for key, value in spans().items()}
    assert errors == {("chat m", "CLIENT"): "upstream_unreachable", ("chat m", "SERVER"): "ApiError"}
