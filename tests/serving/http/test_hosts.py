"""A page whose name leads to this machine (DNS rebinding) cannot use the server, its viewer or its WebSockets."""

import socket

import httpx
import pytest
from live.command import serve_command
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.settings import Settings, SettingsError

REFUSED = (400, "Invalid host header")
FOREIGN_PAGE = (
    "Pages of the origin 'https://evil.example' are not allowed. The operator of the server can allow it with --cors-origin."
)


def get(url, host, path="/v1/models", **headers):
    answer = httpx.get(f"{url}{path}", headers={"host": host, **headers})
    return answer.status_code, None if answer.status_code == 200 else answer.text


def test_a_server_on_loopback_answers_only_to_names_of_this_machine() -> None:
    with serve_command("--view") as command:
        port = command.url.rpartition(":")[2]
        allowed = ["127.0.0.1", "localhost", f"LocalHost:{port}", "app.localhost", "[::1]:80"]
        foreign = [
            "evil.example",
            f"evil.example:{port}",
            "127.evil.example",
            "localhost.evil.example",
            "[::2]",
            "a:b:c",
            "192.168.0.1",
        ]
        assert [get(command.url, host) for host in allowed] == [(200, None)] * len(allowed)
        assert [get(command.url, host) for host in foreign] == [REFUSED] * len(foreign)
        assert get(command.url, "evil.example", "/interlock/") == REFUSED
        assert get(command.url, "localhost", "/interlock/") == (200, None)
        assert [get(command.url, "10.0.0.7", path) for path in ("/health", "/ready")] == [(200, None)] * 2


def test_a_server_on_other_addresses_answers_to_all_hosts_unless_some_are_named() -> None:
    with serve_command("--host", "0.0.0.0", "--api-key", "k") as command:  # noqa: S104 - the test is about this address
        assert get(command.url, "any.example", authorization="Bearer k") == (200, None)
    with serve_command(
        "--host",
        "0.0.0.0",  # noqa: S104 - likewise
        INTERLOCK_ALLOWED_HOST="api.example,*.ours.example",
        INTERLOCK_API_KEY="k",
    ) as command:
        hosts = ["api.example", "a.ours.example:443", "ours.example", "other.example"]
        answers = [get(command.url, host, authorization="Bearer k") for host in hosts]
    assert answers == [(200, None), (200, None), REFUSED, REFUSED]


@pytest.mark.parametrize("host", ["a*b", "http://a.example", "a.example:80", "*example", "::1", ""])
def test_a_value_that_is_no_host_is_refused_at_the_start(host) -> None:
    with pytest.raises(SettingsError, match=r"^allowed_host: .* is no host, such as "):
        Settings(allowed_host=[host])


def test_a_file_names_the_allowed_hosts(tmp_path) -> None:
    config = tmp_path / "interlock.toml"
    config.write_text('[serve]\nallowed_host = ["api.example"]\n')
    with serve_command("--config", config) as command:
        assert [get(command.url, host) for host in ("api.example", "localhost")] == [(200, None), REFUSED]


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({"host": "evil.example", "origin": "http://evil.example"}, *REFUSED),
        ({"host": "api.example", "origin": "https://evil.example"}, 403, FOREIGN_PAGE),
    ],
)
def test_a_websocket_of_a_foreign_host_or_page_is_refused_with_the_reason(serve, headers, status, reason) -> None:
    with serve(EmbeddedEngine(), allowed_host=["api.example"]) as url:
        address = url.replace("http", "ws") + "/v1/responses"
        fields = {name: value for name, value in headers.items() if name != "host"}
        with pytest.raises(InvalidStatus) as refused, connect_as(address, headers["host"], fields):
            pass
    answer = refused.value.response
    assert (answer.status_code, reason in answer.body.decode()) == (status, True)


def connect_as(address, host, headers):
    """Connect to an address in the name of another host."""
    place = address.removeprefix("ws://").partition("/")[0]
    machine, _, port = place.partition(":")
    return connect(address.replace(place, host), sock=socket.create_connection((machine, port)), additional_headers=headers)


@pytest.mark.parametrize(("path", "origin"), [("/v1/responses", "https://evil.example"), ("/v1/no", "http://testserver")])
def test_a_server_that_cannot_answer_a_websocket_closes_it(path, origin) -> None:
    app = build(Settings(), EmbeddedEngine())

    async def without_extension(scope, receive, send) -> None:
        await app({**scope, "extensions": {}} if scope["type"] == "websocket" else scope, receive, send)

    with (
        pytest.raises(WebSocketDisconnect) as raised,
        TestClient(without_extension).websocket_connect(path, headers={"origin": origin}),
    ):
        pass
    assert raised.value.code == 1008
