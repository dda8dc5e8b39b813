"""A page whose name leads to this machine (DNS rebinding) cannot use the server, its viewer or its WebSockets."""

import json
import socket

import httpx
import pytest
from live.command import serve_command
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from interlock.serving.engines.embedded import EmbeddedEngine

REFUSED = "The host '{}' is not allowed. The operator of the server can allow it with --allowed-host."
FOREIGN_PAGE = (
    "Pages of the origin 'https://evil.example' are not allowed. The operator of the server can allow it with --cors-origin."
)


def error(host):
    """The body of an error for a host."""
    fields = {"type": "invalid_request_error", "param": None, "code": "host_not_allowed"}
    return {"error": {"message": REFUSED.format(host), **fields}}


def get(url, host, path="/v1/models", **headers):
    answer = httpx.get(f"{url}{path}", headers={"host": host, **headers})
    return answer.status_code, answer.json() if answer.status_code == 403 else None


def test_a_server_on_loopback_answers_only_to_names_of_this_machine() -> None:
    with serve_command("--view") as command:
        port = command.url.rpartition(":")[2]
        allowed = ["127.0.0.1", "localhost", f"LocalHost:{port}", "app.localhost", "localhost.", "[::1]:80"]
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
        assert [get(command.url, host) for host in foreign] == [(403, error(host)) for host in foreign]
        assert get(command.url, "evil.example", "/interlock/") == (403, error("evil.example"))
        assert get(command.url, "localhost", "/interlock/") == (200, None)
        assert [get(command.url, "10.0.0.7", path) for path in ("/health", "/ready")] == [(200, None)] * 2
        message = {"type": "permission_error", "message": REFUSED.format("evil.example")}
        refused = get(command.url, "evil.example", **{"anthropic-version": "2023-06-01"})
        assert refused == (403, {"type": "error", "error": message, "request_id": None})


def test_a_server_on_other_addresses_answers_to_all_hosts_unless_some_are_named() -> None:
    with serve_command("--host", "0.0.0.0", "--api-key", "k") as command:  # noqa: S104 - the test is about this address
        assert get(command.url, "any.example", authorization="Bearer k") == (200, None)
    with serve_command(
        "--host",
        "0.0.0.0",  # noqa: S104 - likewise
        INTERLOCK_ALLOWED_HOST="api.example *.ours.example",
        INTERLOCK_API_KEY="k",
    ) as command:
        hosts = ["api.example", "a.ours.example:443", "ours.example", "other.example"]
        answers = [get(command.url, host, authorization="Bearer k") for host in hosts]
    assert answers == [(200, None), (200, None), (403, error("ours.example")), (403, error("other.example"))]


def test_a_file_names_the_allowed_hosts(tmp_path) -> None:
    config = tmp_path / "interlock.toml"
    config.write_text('[serve]\nallowed_host = ["api.example"]\n')
    with serve_command("--config", config) as command:
        assert [get(command.url, host) for host in ("api.example", "localhost")] == [(200, None), (403, error("localhost"))]


@pytest.mark.parametrize(
    ("headers", "refusal"),
    [
        ({"host": "evil.example", "origin": "http://evil.example"}, ("host_not_allowed", REFUSED.format("evil.example"))),
        ({"host": "api.example", "origin": "https://evil.example"}, ("origin_not_allowed", FOREIGN_PAGE)),
    ],
)
def test_a_websocket_of_a_foreign_host_or_page_is_refused_with_the_reason(serve, headers, refusal) -> None:
    with serve(EmbeddedEngine(), allowed_host=["api.example"]) as url:
        address = url.replace("http", "ws") + "/v1/responses"
        fields = {name: value for name, value in headers.items() if name != "host"}
        with pytest.raises(InvalidStatus) as refused, connect_as(address, headers["host"], fields):
            pass
    answer = refused.value.response
    body = json.loads(answer.body)["error"]
    assert (answer.status_code, body["code"], body["message"]) == (403, *refusal)


def connect_as(address, host, headers):
    """Connect to an address in the name of another host."""
    place = address.removeprefix("ws://").partition("/")[0]
    machine, _, port = place.partition(":")
    return connect(address.replace(place, host), sock=socket.create_connection((machine, port)), additional_headers=headers)
