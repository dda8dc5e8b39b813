"""Secrets for an MCP server reach only that server, at the address that was checked, under the name that the request gives."""

import json
import logging
import ssl
import threading
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
import uvicorn
from live.engines import StagedEngine, prompt_text, step, steps
from live.mcp_servers import plain, running

from interlock.serving.build import build
from interlock.serving.http.server import ServerThread, listen
from interlock.serving.settings import Settings
from interlock.serving.tools import address, mcp_session
from interlock.serving.tools.address import AddressPolicy
from interlock.serving.tools.hosting import ToolServers

SECRET = "tk-5f3c9a"  # noqa: S105 - of nothing
CALL = '<|channel|>commentary to=mcp.shop.echo <|constrain|>json<|message|>{"text": "a"}<|call|>'
TURNS = [step(CALL), step("", "stop")], steps("<|channel|>final<|message|>Done.<|return|>")
CERTIFICATE = Path(__file__).parents[2] / "support" / "live" / "mcp_test.pem"


@pytest.fixture
def names(monkeypatch):
    """Resolve names to the given addresses in turn; the last one stays."""
    known, real = {}, address._look_up

    async def look_up(host, port):
        if host not in known:
            return await real(host, port)
        addresses = known[host]
        return [ip_address(addresses.pop(0) if len(addresses) > 1 else addresses[0])]

    monkeypatch.setattr(address, "_look_up", look_up)  # and not `socket.getaddrinfo`, which uvloop does not call
    return known


def tool(url, **members):
    return {"type": "mcp", "server_label": "shop", "server_url": url, "require_approval": "never", **members}


def ask(reach, *tools, **members):
    """Ask a real server once; gives the stream's text, the response as it is stored, and the engine."""
    engine = StagedEngine(*TURNS)
    with ServerThread(build(Settings(), engine, tools=ToolServers(policy=AddressPolicy.of(reach)))) as url:
        body = {"model": "staged", "input": "Hi", "tools": [*tools], **members}
        streamed = httpx.post(f"{url}/v1/responses", json={**body, "stream": True}, timeout=60)
        if streamed.status_code != 200:
            return streamed.text, None, engine
        created = json.loads(streamed.text.partition("data: ")[2].partition("\n")[0])
        stored = httpx.get(f"{url}/v1/responses/{created['response']['id']}", timeout=60)
        return streamed.text, stored, engine


def outcome(stored):
    (call,) = [item for item in stored.json()["output"] if item["type"] == "mcp_call"]
    return call["output"] if call["status"] == "completed" else call["error"]["content"][0]["text"]


@pytest.mark.parametrize("path", ["mcp", "refusing"])
def test_secrets_are_in_no_prompt_log_stream_or_store(caplog, path) -> None:
    caplog.set_level(logging.DEBUG)
    seen = []

    def note(scope):
        seen.append(dict(scope["headers"]))
        return 401 if scope["path"] == "/refusing" else None

    with running(plain(gate=note)) as base:
        secrets = {"authorization": SECRET, "headers": {"X-Key": f"{SECRET}-2"}}
        text, stored, engine = ask(["localhost"], tool(f"{base}/{path}", **secrets))
    assert {(head[b"authorization"], head[b"x-key"]) for head in seen} == {(f"Bearer {SECRET}".encode(), f"{SECRET}-2".encode())}
    rendered = "".join(map(prompt_text, engine.turns))
    assert "shop" in rendered
    for where, surface in {
        "the prompt": rendered,
        "what an engine is given": repr([turn.request.tools for turn in engine.turns]),
        "the object": repr(engine.turns),
        "the stream": text,
        "the store": stored.text,
        "the log": caplog.text + repr([record.args for record in caplog.records]),
    }.items():
        assert SECRET not in surface, where


@pytest.mark.parametrize(
    "secrets",
    [
        {"authorization": f"{SECRET}\n"},
        {"authorization": f"{SECRET}\u0142"},
        {"authorization": [SECRET]},
        {"headers": {"X-Key": f"{SECRET}\r\nHost: b"}},
        {"headers": {"X-Key": {"v": SECRET}}},
        {"headers": {"Host": SECRET}},
        {"headers": SECRET},
    ],
)
def test_a_secret_that_cannot_be_sent_is_not_repeated(caplog, secrets) -> None:
    caplog.set_level(logging.DEBUG)
    with running(plain()) as base:
        text, stored, engine = ask(["localhost"], tool(f"{base}/mcp", **secrets))
    assert SECRET not in text
    assert SECRET not in caplog.text
    assert stored is None or SECRET not in stored.text
    assert SECRET not in repr(engine.turns)


def test_a_name_is_resolved_and_checked_for_each_request(names) -> None:
    with running(plain()) as base:
        port = base.rpartition(":")[2]
        names["shop.test"] = ["127.0.0.1", "127.0.0.1", "127.0.0.1", "10.0.0.1"]
        url = f"http://shop.test:{port}/mcp"
        _, stored, _ = ask(["shop.test", "127.0.0.0/8"], tool(url))
    assert "10.0.0.1, an address that is not allowed on this server" in json.dumps(stored.json()["output"])


def test_a_connection_goes_to_the_checked_address_with_the_name_as_host(names) -> None:
    hosts = []

    def note(scope):
        hosts.append((dict(scope["headers"])[b"host"].decode(), scope["server"][0]))

    with running(plain(gate=note)) as base:
        port = base.rpartition(":")[2]
        names["shop.test"] = ["127.0.0.1"]
        _, stored, _ = ask(["shop.test", "127.0.0.1"], tool(f"http://shop.test:{port}/mcp"))
    assert outcome(stored) == "said"
    assert set(hosts) == {(f"shop.test:{port}", "127.0.0.1")}


@pytest.fixture
def secured():
    """An MCP server behind TLS whose certificate is for `mcp.test`; gives its port."""
    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        plain(), log_level="critical", ssl_certfile=CERTIFICATE, ssl_keyfile=CERTIFICATE, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, args=([listening],), daemon=True).start()
    yield listening.getsockname()[1]
    server.should_exit = True


@pytest.mark.parametrize(("host", "text"), [("mcp.test", "said"), ("other.test", None)])
def test_tls_checks_the_name_and_not_the_address(names, secured, monkeypatch, host, text) -> None:
    trusting = ssl.create_default_context(cafile=CERTIFICATE)
    monkeypatch.setattr(mcp_session, "_certificates", lambda: trusting)
    names[host] = ["127.0.0.1"]
    _, stored, _ = ask([host, "127.0.0.1"], tool(f"https://{host}:{secured}/mcp"))
    if text is None:
        assert "The server cannot be reached." in json.dumps(stored.json()["output"])
    else:
        assert outcome(stored) == text
