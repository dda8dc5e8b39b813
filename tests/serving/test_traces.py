"""The spans of a gateway and its upstream, kept in memory by the OpenTelemetry SDK, and the metrics of a server."""

import ast
import re
import sys
from contextlib import contextmanager
from inspect import signature
from pathlib import Path

import httpx
import pytest
from live.agents import ask, calling, mcp
from live.mcp_servers import Workshop, running
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from websockets.sync.client import connect

import interlock
from interlock.fsm.deltas import Fault
from interlock.serving import metrics, traces
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.upstream_client import upstream_error
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.requests.api_errors import ApiError, EngineError, invalid
from interlock.serving.settings import UpstreamSettings

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(scope="session")  # a process has one provider, and workers that steal tests come back to this module
def exporter():
    """The in-memory exporter for the spans of this process."""
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


def test_a_trace_continues_through_a_gateway_to_its_upstream(serve, spans) -> None:
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


def test_tool_spans_are_children_of_the_response_span(spans, exporter) -> None:
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


def test_an_upstream_failure_sets_the_error_type_of_both_spans(serve, spans) -> None:
    settings = UpstreamSettings(url="http://127.0.0.1:9/v1", models=["m"], retries=0)
    with serve(Gateway([upstream_of(settings)])) as url:
        answer = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hello"})
    assert answer.status_code == 502
    errors = {key[:2]: value[2].get("error.type") for key, value in spans().items()}
    assert errors == {("chat m", "CLIENT"): "upstream_unreachable", ("chat m", "SERVER"): "ApiError"}


# Metrics, as differences between whole pages of `/metrics`


DOCS = Path(__file__).parents[2] / "docs"


def samples(text):
    """The values of a page by name and labels, without the buckets of histograms, which would take a second to parse."""
    text = re.sub(r"^\w+_(bucket|created)\{.*\n", "", text, flags=re.MULTILINE)
    return {
        (sample.name, *sample.labels.items()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(("interlock_", "gen_ai_", "mcp_")) and not sample.name.endswith(("_bucket", "_created"))
    }


def page():
    text, _ = metrics.page("")
    return samples(text.decode())


@contextmanager
def changed():
    """Fill a dictionary with the changes within the context, without the sums of times."""
    before, result = page(), {}
    yield result
    result |= {
        " ".join([key[0], *(value for _, value in key[1:] if value)]): value - before.get(key, 0)
        for key, value in page().items()
        if value != before.get(key, 0) and not key[0].endswith("_seconds_sum")
    }


def ask_for(url, **body):
    return httpx.post(f"{url}/v1/responses", json={"model": MODEL, "input": "Hello", **body})


def test_a_response_through_a_gateway_is_counted_by_both_servers(serve) -> None:
    with changed() as counts, serve(EmbeddedEngine()) as upstream:
        port = upstream.rpartition(":")[2]
        settings = UpstreamSettings(url=f"{upstream}/v1", api="responses", aliases={"fast": MODEL})
        with serve(Gateway([upstream_of(settings)])) as url:
            body = ask_for(url, model="fast", stream=True).text
            assert "response.completed" in body
            assert samples(httpx.get(f"{url}/metrics").text).keys() >= {("interlock_open_streams",)}
    client, server = "chat openai fast", f"127.0.0.1 {port}"
    assert counts == {
        "interlock_responses_total fast completed": 1,
        f"interlock_responses_total {MODEL} completed": 1,
        **{
            f"interlock_events_total response.{name}": 2 * count
            for name, count in {
                "created": 1,
                "in_progress": 1,
                "output_item.added": 2,
                "content_part.added": 2,
                "reasoning_text.delta": body.count("event: response.reasoning_text.delta"),
                "reasoning_text.done": 1,
                "output_text.delta": body.count("event: response.output_text.delta"),
                "output_text.done": 1,
                "content_part.done": 2,
                "output_item.done": 2,
                "completed": 1,
            }.items()
        },
        "interlock_items_total reasoning completed": 2,
        "interlock_items_total message completed": 2,
        **{f"interlock_tokens_total {name} {kind}": count for kind, count in TOKENS.items() for name in ("fast", MODEL)},
        **{
            f"gen_ai_server_{name}_seconds_count chat interlock {model}": 1
            for name in ("request_duration", "time_to_first_token", "time_per_output_token")
            for model in ("fast", MODEL)
        },
        f"gen_ai_client_operation_duration_seconds_count {client} {server}": 1,
        **{f"gen_ai_client_token_usage_count {client} {kind} {server}": 1 for kind in TOKENS},
        **{f"gen_ai_client_token_usage_sum {client} {kind} {server}": count for kind, count in TOKENS.items()},
    }


TOKENS = {"input": 7, "output": 17}
"""What the embedded engine counts for the request of `ask_for`."""


def test_an_incomplete_response_is_counted_with_its_reason(serve) -> None:
    with changed() as counts, serve(EmbeddedEngine()) as url:
        ask_for(url, max_output_tokens=16)
    assert [key for key in counts if key.startswith("interlock_responses")] == [
        f"interlock_responses_total {MODEL} max_output_tokens incomplete"
    ]


def test_a_response_in_progress_is_an_open_stream(serve) -> None:
    with (
        serve(EmbeddedEngine(rate=1)) as url,
        httpx.stream("POST", f"{url}/v1/responses", json={"model": MODEL, "input": "Hello", "stream": True}) as answer,
    ):
        chunks = answer.iter_bytes()
        next(chunks)
        assert samples(httpx.get(f"{url}/metrics").text)[("interlock_open_streams",)] == 1


def test_refused_requests_are_counted_by_reason(serve) -> None:
    with changed() as counts, serve(EmbeddedEngine(), api_key=["k"]) as url:
        headers = {"authorization": "Bearer k"}
        httpx.post(f"{url}/v1/responses", json={"model": MODEL, "input": "Hello"})
        httpx.post(f"{url}/v1/responses", json={"model": "gone", "input": "Hello"}, headers=headers)
        httpx.post(f"{url}/v1/responses", json={"model": MODEL}, headers=headers)
        httpx.get(f"{url}/v1/nothing", headers=headers)
    assert counts == {
        f"interlock_refused_requests_total {reason}": 1
        for reason in ("invalid_api_key", "model_not_found", "missing_required_parameter", "http_404")
    }


def test_sockets_and_their_lanes_are_counted(serve) -> None:
    before = page()
    with (
        changed() as counts,
        serve(EmbeddedEngine()) as url,
        connect(f"{url.replace('http', 'ws', 1)}/v1/responses") as socket,
    ):
        socket.send(f'{{"type": "response.create", "model": "{MODEL}", "input": "Hello", "stream_id": "a"}}')
        while "response.completed" not in socket.recv():
            pass
        values, keys = page(), [(f"interlock_websocket_{name}",) for name in ("connections", "lanes")]
        assert [values[key] - before.get(key, 0) for key in keys] == [1, 1]
        socket.send("{")
        assert "error" in socket.recv()
    assert [key for key in counts if "socket" in key or "refused" in key] == ["interlock_refused_requests_total invalid_json"]


def test_calls_of_tools_and_of_mcp_servers_are_timed() -> None:
    with running(Workshop().server().streamable_http_app()) as base, changed() as counts:
        ask(calling("mcp.shop.echo", '{"text": "a"}'), tools=[mcp(f"{base}/mcp")])
        ask(calling("mcp.shop.broken", "{}"), tools=[mcp(f"{base}/mcp")])
    assert {key: value for key, value in counts.items() if key.startswith(("gen_ai_execute", "mcp"))} == {
        "gen_ai_execute_tool_duration_seconds_count execute_tool other": 1,
        "gen_ai_execute_tool_duration_seconds_count ToolFailedError execute_tool other": 1,
        "mcp_client_operation_duration_seconds_count initialize": 2,
        "mcp_client_operation_duration_seconds_count tools/list": 2,
        "mcp_client_operation_duration_seconds_count tools/call": 2,
    }


def status(url, key=None):
    return httpx.get(f"{url}/metrics", headers={} if key is None else {"authorization": f"Bearer {key}"}).status_code


def test_the_metrics_page_needs_the_metrics_key_or_else_an_api_key(serve) -> None:
    with serve(EmbeddedEngine()) as url:
        assert status(url) == 200
    with serve(EmbeddedEngine(), api_key=["k"]) as url:
        assert [status(url), status(url, "other"), status(url, "k")] == [401, 401, 200]
    with serve(EmbeddedEngine(), api_key=["k"], metrics_key="m") as url:
        assert [status(url), status(url, "k"), status(url, "m")] == [401, 401, 200]
    with serve(EmbeddedEngine(), metrics_key="m") as url:
        assert [status(url), status(url, "m"), ask_for(url).status_code] == [401, 200, 200]


def test_the_error_for_a_wrong_key_mentions_the_key_of_the_metrics_page(serve) -> None:
    def refusal(url):
        return httpx.get(f"{url}/metrics", headers={"authorization": "Bearer x"}).json()["error"]["message"]

    passes = Gateway([upstream_of(UpstreamSettings(url="http://127.0.0.1:9/v1", pass_key=True))])
    servers = [serve(EmbeddedEngine(), api_key=["k"]), serve(EmbeddedEngine(), api_key=["k"], metrics_key="m"), serve(passes)]
    messages = []
    for server in servers:
        with server as url:
            messages.append(refusal(url))
    wrong = "Incorrect API key provided."
    assert messages == [wrong, *[f"{wrong} This page has its own, that of --metrics-key."] * 2]


def test_a_passed_on_key_does_not_open_the_metrics_page(serve) -> None:
    gateway = Gateway([upstream_of(UpstreamSettings(url="http://127.0.0.1:9/v1", pass_key=True))])
    with serve(gateway) as url:
        assert [status(url), status(url, "any")] == [401, 401]
    with serve(gateway, metrics_key="m") as url:
        assert [status(url, "any"), status(url, "m")] == [401, 200]


def test_metrics_are_disabled_without_prometheus_client(serve, monkeypatch) -> None:
    with monkeypatch.context() as context:
        context.setitem(sys.modules, "prometheus_client", None)
        assert metrics._registered.__wrapped__() == ({}, {})
    before = samples(generate_latest().decode())
    monkeypatch.setattr(metrics, "_registered", lambda: ({}, {}))
    for cached in ("_number", "_histogram"):
        monkeypatch.setattr(metrics, cached, getattr(metrics, cached).__wrapped__)
    with serve(EmbeddedEngine()) as url:
        assert ask_for(url).json()["status"] == "completed"
        answer = httpx.get(f"{url}/metrics")
    assert samples(generate_latest().decode()) == before
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        404,
        "This server has no metrics: install interlock[metrics].",
    )


def subclasses(kind):
    """Yield a class and all classes that inherit from it."""
    yield kind
    for each in kind.__subclasses__():
        yield from subclasses(each)


def texts(node, constants):
    """Yield the texts that an expression may have."""
    match node:
        case ast.Constant(str(text)):
            yield text
        case ast.Name(name):
            yield from constants.get(name, ())
        case ast.IfExp(body=one, orelse=other) | ast.BoolOp(values=[one, other]):
            yield from texts(one, constants)
            yield from texts(other, constants)


def codes_in(tree, constants, makers):
    """Yield every text that is an argument `code` of one of the makers, or that the name `code` gets."""
    for node in ast.walk(tree):
        values = []
        match node:
            case ast.Call(ast.Name(name), arguments, keywords) if name in makers:
                values = [*arguments[makers[name] :][:1], *(each.value for each in keywords if each.arg == "code")]
            case ast.Call(ast.Name("cls"), _, keywords):
                values = [each.value for each in keywords if each.arg == "code"]
            case ast.arguments(args=parameters, defaults=[*defaults]):
                values = [value for one, value in zip(parameters[::-1], defaults[::-1], strict=False) if one.arg == "code"]
            case ast.Assign([ast.Name("code")], value) | ast.AnnAssign(ast.Name("code"), _, value):
                values = [value]
        for value in values:
            yield from texts(value, constants)


def test_the_codes_of_errors_are_the_metric_labels() -> None:
    """Metrics would count a code that `CODES` lacks as `other`."""
    trees = [ast.parse(path.read_text()) for path in (Path(interlock.__file__).parent / "serving").rglob("*.py")]
    constants = {}
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant):
                constants.setdefault(node.target.id, set()).add(node.value.value)
    kinds = [Fault, invalid, upstream_error, *subclasses(ApiError), *subclasses(EngineError)]
    makers = {each.__name__: [*signature(each).parameters].index("code") for each in kinds}
    assert {code for tree in trees for code in codes_in(tree, constants, makers)} == metrics.CODES
    assert (metrics.known_code("their_own_code"), metrics.known_code(None, "http_500")) == ("other", "http_500")


def test_the_documentation_lists_every_metric() -> None:
    text = (DOCS / "guides" / "metrics.md").read_text("utf-8")
    for metric in metrics.METRICS.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        assert f"| `{metric.name}` | {metric.type} | {labels} | {metric.meaning} |" in text
    assert text.count("\n| `interlock_") + text.count("\n| `gen_ai_") + text.count("\n| `mcp_") == len(metrics.METRICS)
