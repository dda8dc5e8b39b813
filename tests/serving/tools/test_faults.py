"""After any fault of an MCP server, the stream is legal, the failed item has the reason, and no task or session is left."""

import asyncio
import json
import logging
import subprocess
import sys
import threading
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from live.agents import ask, calling, mcp, servers
from live.engines import StagedEngine, step
from live.mcp_servers import Workshop, answer, plain, result, running
from one_run import begin_response

from interlock.fsm.deltas import Fault
from interlock.serving.requests.create import read_request
from interlock.serving.responses.run import NullWriter, RequestContext
from interlock.serving.tools import address
from interlock.serving.tools import mcp_session as sessions
from interlock.serving.tools.address import Endpoint
from interlock.serving.tools.mcp_session import Session

ECHO = calling("mcp.shop.echo", '{"text": "a"}')
CONTINUED = ("completed", "message")


def listing_fault(outcome):
    """Return why the tools could not be listed, after a check that the response continued without them."""
    assert (outcome.response["status"], outcome.output[-1]["type"]) == CONTINUED
    (listed,) = outcome.of("mcp_list_tools")
    assert listed["tools"] == []
    return listed["error"]


def call_fault(outcome):
    """Return why the call failed, after a check that the response continued and the model read the reason."""
    assert (outcome.response["status"], outcome.output[-1]["type"]) == CONTINUED
    (call,) = outcome.of("mcp_call")
    assert call["status"] == "failed"
    message = call["error"]["content"][0]["text"]
    assert outcome.engine.turns[1].items[-1]["output"] == f"Error: {message}"
    return message


def test_an_unreachable_server_fails_the_listing() -> None:
    assert listing_fault(ask(tools=[mcp("http://127.0.0.1:1/mcp")])) == "The server cannot be reached."
    assert listing_fault(ask(tools=[mcp("http://127.0.0.1:1/sse")])) == "The server cannot be reached."


def test_a_host_that_is_not_allowed_gets_no_request() -> None:
    seen = []
    with running(plain(gate=seen.append)) as base:
        outcome = ask(tools=[mcp(f"{base}/mcp")], runner=servers(allowed=()))
        private = ask(tools=[mcp(f"{base}/mcp")], runner=servers(allowed=("*",)))
    assert "is at 127.0.0.1, an address that is not allowed on this server." in listing_fault(outcome)
    assert "is at 127.0.0.1, an address that is not allowed on this server." in listing_fault(private)
    assert seen == []


def test_the_host_header_keeps_the_name() -> None:
    seen = []
    with running(plain(gate=lambda scope: seen.append(dict(scope["headers"])[b"host"]))) as base:
        port = base.rpartition(":")[2]
        outcome = ask(ECHO, tools=[mcp(f"http://localhost:{port}/mcp")], runner=servers(allowed=("localhost",)))
    assert outcome.of("mcp_call")[0]["output"] == "said"
    assert set(seen) == {f"localhost:{port}".encode()}


def test_a_redirect_to_elsewhere_is_not_followed() -> None:
    seen = []

    async def redirect(scope, _receive, send):
        if scope["type"] == "http":
            await answer(send, 307, b"", location=f"{target}/mcp")

    with running(plain(gate=seen.append)) as target, running(redirect) as base:
        outcome = ask(tools=[mcp(f"{base}/mcp")])
    assert listing_fault(outcome).startswith("Redirect to http://127.0.0.1:")
    assert seen == []


@pytest.mark.parametrize("path", ["mcp", "sse"])
@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "The server refuses the authorization (HTTP 401)."), (403, "The server refuses access (HTTP 403).")],
)
def test_a_refused_authorization_fails_the_listing(path, status, message) -> None:
    with running(plain(gate=lambda _: status)) as base:
        assert listing_fault(ask(tools=[mcp(f"{base}/{path}", authorization="wrong")])) == message


def test_a_refused_authorization_fails_a_call() -> None:
    async def refuse(_rpc, send):
        await answer(send, 401, b"{}")

    with running(plain(refuse)) as base:
        outcome = ask(ECHO, tools=[mcp(f"{base}/mcp")])
    assert call_fault(outcome) == "The server refuses the authorization (HTTP 401)."


def test_a_broken_session_is_replaced() -> None:
    rpc = []

    async def refuse_once(request, send):
        rpc.append(request)
        response = result(request, {"content": [{"type": "text", "text": "again"}]})
        await answer(send, 401 if len(rpc) == 1 else 200, response)

    with running(plain(refuse_once)) as base:
        outcome = ask(ECHO, ECHO, tools=[mcp(f"{base}/mcp")])
    assert [(item["status"], item.get("output")) for item in outcome.of("mcp_call")] == [("failed", None), ("completed", "again")]


def test_unreachable_addresses_of_a_name_are_skipped(monkeypatch) -> None:
    async def look_up(_host, _port):
        return [ip_address(each) for each in ("::1", "127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(address, "_look_up", look_up)
    with running(plain()) as base:
        outcome = ask(ECHO, tools=[mcp(base.replace("127.0.0.1", "localhost") + "/mcp")], runner=servers(allowed=("localhost",)))
    assert outcome.of("mcp_call")[0]["output"] == "said"


@pytest.mark.parametrize("path", ["mcp", "sse"])
@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"<html>", "text/html"),
        (200, b"{}", "application/json"),
        (200, b"no JSON", "application/json"),
        (200, b"data: no JSON\n\n", "text/event-stream"),
        (200, b"\xff\xfe\x00", "application/octet-stream"),
        (404, b"nothing here", "text/plain"),
        (500, b"", "text/plain"),
    ],
)
def test_an_answer_of_another_protocol_fails_the_listing_with_one_log_line(path, status, body, kind, monkeypatch, caplog) -> None:
    monkeypatch.setattr(sessions, "OPENING_SECONDS", 0.5)

    async def other(scope, _receive, send):
        if scope["type"] == "http":
            await answer(send, status, body, kind)

    with running(other) as base:
        message = listing_fault(ask(tools=[mcp(f"{base}/{path}")]))
    assert caplog.text.count("\n") == 1
    assert [each.getMessage() for each in caplog.records] == [f"The tools of 'shop' could not be listed: {message!r}"]


def test_a_list_of_invalid_tools_is_one_line_in_the_log(caplog) -> None:
    listed = [{"name": f"t\n{n}", "inputSchema": {"type": "object", "x-mcp-header": 7}} for n in range(3)]
    with running(plain(tools=[*listed, {"name": 7}])) as base:
        assert listing_fault(ask(tools=[mcp(f"{base}/mcp")])) == "The server's answer does not follow MCP."
    assert caplog.text.count("\n") == 1


def test_messages_of_other_mcp_sessions_are_still_logged(caplog) -> None:
    logging.getLogger("mcp.client.sse").error("Somebody else's.")
    assert [each.getMessage() for each in caplog.records] == ["Somebody else's."]


def test_an_error_does_not_repeat_the_url_of_the_server() -> None:
    with running(plain(gate=lambda _: 404)) as base:
        secret = base.replace("http://", "http://user:secret@")
        outcome = ask(tools=[mcp(f"{secret}/sse?key=secret")])
    assert listing_fault(outcome) == "The server answers HTTP 404."
    assert "secret" not in json.dumps([event.get("item") for event in outcome.events])


@pytest.mark.parametrize(
    ("url", "headers", "message"),
    [
        (None, {"X-Key": "secret\n"}, "A header for the server has an invalid name or value."),
        (None, {"X Key": "secret"}, "A header for the server has an invalid name or value."),
        ("http://h:x/mcp", {}, "Communication with the server failed: Invalid port: 'x'"),
        ("http://127.0.0.1:1\\@a.example/", {}, "The host 'a.example' is not allowed on this server."),
        ("http://2130706433/mcp", {}, "The host '2130706433' is not allowed on this server."),
    ],
)
def test_invalid_urls_and_headers_are_refused(url, headers, message) -> None:
    with running(plain()) as base:
        assert listing_fault(ask(tools=[mcp(url or f"{base}/mcp", headers=headers)])) == message


def test_a_compressed_response_is_refused() -> None:
    async def pack(_rpc, send):
        await answer(send, 200, b"\x1f\x8b", **{"content-encoding": "gzip"})

    with running(plain(pack)) as base:
        message = "The server compresses its responses, although it was asked not to."
        assert call_fault(ask(ECHO, tools=[mcp(f"{base}/mcp")])) == message


def test_a_call_fails_if_the_server_lists_no_tools() -> None:
    with running(plain(tools=())) as base:
        outcome = ask(ECHO, tools=[mcp(f"{base}/mcp")])
    assert outcome.output[0]["tools"] == []
    assert "error" not in outcome.output[0]
    assert call_fault(outcome) == "The MCP server 'shop' has no tool 'echo' that may be called."


def test_a_server_whose_tools_could_not_be_listed_is_not_called() -> None:
    outcome = ask(ECHO, tools=[mcp("http://127.0.0.1:1/mcp")])
    assert call_fault(outcome) == "The MCP server 'shop' has not listed its tools."


def small(count):
    return [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(count)]


@pytest.mark.parametrize("settings", [{}, {"allowed_tools": ["t1"]}])
@pytest.mark.parametrize(
    ("tools", "message"),
    [
        (small(15_000), "The answer has more than 20000 JSON values."),
        (small(1_025), "The server lists more than 1024 tools."),
        ([{**small(1)[0], "icons": [{"src": ""}] * 12_000}], "The answer has more than 20000 JSON values."),
    ],
)
def test_a_list_of_too_many_tools_is_refused(tools, message, settings) -> None:
    with running(plain(tools=tools)) as base:
        assert listing_fault(ask(tools=[mcp(f"{base}/mcp", **settings)])).endswith(message)


def test_a_list_of_the_maximum_number_of_tools_is_accepted() -> None:
    with running(plain(tools=small(1_024))) as base:
        outcome = ask(tools=[mcp(f"{base}/mcp", allowed_tools={"tool_names": ["t1000", [], "t3"]})])
    assert [tool["name"] for tool in outcome.output[0]["tools"]] == ["t3", "t1000"]


@pytest.mark.parametrize("path", ["mcp", "sse"])
def test_an_answer_of_10_mb_is_refused(path) -> None:
    server = Workshop().server()
    application = server.sse_app() if path == "sse" else server.streamable_http_app()
    with running(application) as base:
        outcome = ask(calling("mcp.shop.big", "{}"), tools=[mcp(f"{base}/{path}")])
    assert call_fault(outcome).endswith("The answer is larger than 1000000 bytes.")
    assert len(json.dumps(outcome.events)) < 100_000


def test_an_answer_of_10_mb_in_events_is_refused() -> None:
    async def stream(_rpc, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(1_000):
            await send({"type": "http.response.body", "body": b"data: " + b"x" * 10_000, "more_body": True})
        await send({"type": "http.response.body", "body": b"\n\n"})

    with running(plain(stream)) as base:
        assert call_fault(ask(ECHO, tools=[mcp(f"{base}/mcp")])) == "The answer is larger than 1000000 bytes."


@pytest.mark.parametrize("before", [b"", b'data: {"jsonrpc": "2.0", "method": "notifications/message"}\n\n'])
@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_an_event_with_too_many_values_is_refused(before, size) -> None:
    async def stream(rpc, send):
        body = before + b"data: " + result(rpc, {"content": [0] * 20_000}) + b"\n\n: \n\n"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for start in range(0, len(body), size):
            await send({"type": "http.response.body", "body": body[start : start + size], "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    with running(plain(stream)) as base:
        assert call_fault(ask(ECHO, tools=[mcp(f"{base}/mcp")])) == "The answer has more than 20000 JSON values."


def test_many_small_events_are_accepted() -> None:
    async def stream(rpc, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(200):
            await send({"type": "http.response.body", "body": b": " + b"x," * 5_000 + b"\n\n", "more_body": True})
        response = result(rpc, {"content": [{"type": "text", "text": "at last"}]})
        await send({"type": "http.response.body", "body": b"data: " + response + b"\n\n"})

    with running(plain(stream)) as base:
        assert ask(ECHO, tools=[mcp(f"{base}/mcp")]).of("mcp_call")[0]["output"] == "at last"


def test_an_error_of_a_tool_fails_its_call() -> None:
    with running(Workshop().server().streamable_http_app()) as base:
        outcome = ask(calling("mcp.shop.broken", "{}"), tools=[mcp(f"{base}/mcp")])
    assert call_fault(outcome) == "Error executing tool broken: The machine is out of paper."


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ({"content": [], "isError": True}, "The tool failed and did not say why."),
        ({"content": 7}, "The server's answer does not follow MCP."),
    ],
)
def test_an_invalid_answer_of_a_tool_fails_its_call(response, message) -> None:
    async def speak(rpc, send):
        await answer(send, 200, result(rpc, response))

    with running(plain(speak)) as base:
        assert call_fault(ask(ECHO, tools=[mcp(f"{base}/mcp")])) == message


def test_a_protocol_error_has_the_first_line_of_the_servers_message() -> None:
    async def refuse(rpc, send):
        error = {"code": -32602, "message": "Echo wants a text.\nAnd more."}
        await answer(send, 200, json.dumps({"jsonrpc": "2.0", "id": rpc["id"], "error": error}).encode())

    with running(plain(refuse)) as base:
        assert call_fault(ask(ECHO, tools=[mcp(f"{base}/mcp")])) == "Echo wants a text."


@pytest.mark.parametrize("path", ["mcp", "sse"])
def test_a_tool_that_hangs_is_cancelled_after_its_time(path) -> None:
    shop = Workshop()
    application = shop.server().sse_app() if path == "sse" else shop.server().streamable_http_app()
    with running(application) as base:
        outcome = ask(calling("mcp.shop.hang", "{}"), tools=[mcp(f"{base}/{path}")], runner=servers(0.2))
        assert shop.cancelled.wait(5)
    assert call_fault(outcome) == "The server did not answer within 0.2 seconds."


def test_a_silent_server_fails_the_listing_after_a_timeout(monkeypatch) -> None:
    monkeypatch.setattr(sessions, "OPENING_SECONDS", 0.2)

    async def silent(scope, receive, _send):
        if scope["type"] == "http":
            await receive()
            await receive()  # until the client goes
            await receive()

    with running(silent) as base:
        assert listing_fault(ask(tools=[mcp(f"{base}/mcp")])) == "The server did not answer within 0.2 seconds."


MORTAL = """
import os, sys
sys.path.insert(0, sys.argv[1])
from live.mcp_servers import plain, running
async def die(request, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": b'{"jsonrpc"', "more_body": True})
    os._exit(1)
with running(plain(die)) as base:
    print(base, flush=True)
    sys.stdin.read()
"""


def test_a_server_that_dies_during_a_call_fails_the_call() -> None:
    command = [sys.executable, "-c", MORTAL, str(Path(__file__).parents[2] / "support")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own program
        base = server.stdout.readline().strip()
        outcome = ask(ECHO, tools=[mcp(f"{base}/mcp")])
        server.stdin.close()
        assert server.wait() == 1
    assert call_fault(outcome).startswith("Communication with the server failed")


def test_a_server_error_is_logged_and_not_repeated(monkeypatch, caplog) -> None:
    def fail(*_arguments):
        raise RuntimeError("a secret")

    with running(plain()) as base:
        monkeypatch.setattr(Session, "call", fail)
        outcome = ask(ECHO, tools=[mcp(f"{base}/mcp")])
        monkeypatch.setattr(Session, "list_tools", fail)
        unlisted = ask(tools=[mcp(f"{base}/mcp")])
    assert call_fault(outcome) == listing_fault(unlisted) == "The server had an error while it ran the tool."
    assert len(caplog.records) == 2


def hanging(base, runner):
    """A response whose tool hangs."""
    engine = StagedEngine([step(calling("mcp.shop.hang", "{}"), "stop")])
    request = read_request({"model": "staged", "input": "Hi", "tools": [mcp(f"{base}/mcp")]})
    return begin_response(RequestContext(request, request.input), engine, NullWriter(), tools=runner)


@pytest.mark.parametrize("how", ["interrupted", "cancelled", "left"])
def test_a_response_that_ends_during_a_call_cancels_it(how) -> None:
    shop = Workshop()

    async def end(base):
        before, runner = asyncio.all_tasks(), servers()
        run = hanging(base, runner)
        events = run.events()

        async def collect():
            async for _ in events:
                if how == "left" and any(item.get("arguments") for item in run.driver.response["output"]):
                    return

        collecting = asyncio.create_task(collect())
        if how != "left":
            await asyncio.to_thread(shop.started.wait)
        if how == "interrupted":
            run.control.interrupt(Fault("server_error", "The server is shutting down."))
        elif how == "cancelled":
            collecting.cancel()
        await asyncio.wait([collecting])
        await events.aclose()
        assert (asyncio.all_tasks(), runner.open) == (before, set())
        return run.driver.response

    with running(shop.server().streamable_http_app()) as base:
        response = asyncio.run(end(base))
        if how != "left":
            assert shop.cancelled.wait(5)
    if how == "interrupted":
        assert [item.get("status") for item in response["output"]] == [None, "failed"]
        assert response["status"] == "failed"


def test_a_client_that_disconnects_during_a_call_cancels_it(serve) -> None:
    shop, runner = Workshop(), servers()
    engine = StagedEngine([step(calling("mcp.shop.hang", "{}"), "stop")])
    with running(shop.server().streamable_http_app()) as base, serve(engine, tools=runner) as url:
        body = {"model": "staged", "input": "Hi", "stream": True, "tools": [mcp(f"{base}/mcp")]}
        with httpx.stream("POST", f"{url}/v1/responses", json=body) as stream:
            lines = stream.iter_lines()
            while next(lines) != "event: response.mcp_call_arguments.done":
                pass
            assert shop.started.wait(5)
        assert shop.cancelled.wait(5)
    assert not runner.open


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_session_ends_although_its_server_keeps_the_connection(stubborn, monkeypatch) -> None:
    monkeypatch.setattr(sessions, "CLOSING_SECONDS", 0.2)
    release = threading.Event()

    async def hold(scope, receive, send):
        if scope["type"] == "http" and scope["method"] == "DELETE":
            release.set()
            await receive()
            while stubborn and (await receive())["type"] != "http.disconnect":
                pass
            return
        if scope["type"] == "http":
            await plain_one(scope, receive, named(send))

    def named(send):
        async def sending(message):
            if message["type"] == "http.response.start":
                message["headers"].append((b"mcp-session-id", b"1"))
            await send(message)

        return sending

    plain_one = plain()

    async def close(base):
        session = Session(Endpoint(f"{base}/mcp"), 1.0)
        tools = await session.list_tools()
        await session.close()
        return [tool.name for tool in tools], len(asyncio.all_tasks())

    with running(hold) as base:
        assert asyncio.run(close(base)) == (["echo"], 1)
        assert release.wait(5)


def test_a_list_of_too_many_pages_is_an_error(monkeypatch) -> None:
    monkeypatch.setattr(sessions, "PAGES", 3)
    cursors = []

    async def paged(scope, receive, send):
        if scope["type"] != "http":
            return
        message = await receive()
        body = json.loads(message.get("body") or b"null")
        if (body or {}).get("method") != "tools/list":

            async def receive_message():
                return message

            await application(scope, receive_message, send)
            return
        cursors.append(body["params"].get("cursor") if "params" in body else None)
        tool = {"name": f"t{len(cursors)}", "inputSchema": {"type": "object"}}
        await answer(send, 200, result(body, {"tools": [tool], "nextCursor": str(len(cursors))}))

    application = plain()
    with running(paged) as base:
        outcome = ask(tools=[mcp(f"{base}/mcp")])
    assert listing_fault(outcome) == "The server lists its tools in more than 3 pages."
    assert cursors == [None, "1", "2"]
