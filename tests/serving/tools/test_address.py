"""The addresses that a request may reach, and the tool servers and tools that it declares."""

import asyncio
import socket
from ipaddress import ip_address

import pytest
from for_each import for_each
from mcp_types import CallToolResult, ImageContent, ResourceLink, TextContent

from interlock.events.items import ITEMS
from interlock.fsm.driver import ReadyCall
from interlock.serving.requests.api_errors import ToolError
from interlock.serving.requests.create import read_request
from interlock.serving.tools.address import AddressPolicy
from interlock.serving.tools.hosting import DeclaredServer, ListedTool, ResponseTools, ToolServers
from interlock.serving.tools.mcp_session import result_text


@pytest.fixture
def names(monkeypatch):
    """Resolve names to the given addresses, without DNS."""
    known = {}

    def look_up(host, port, *_arguments, **_more):
        if host not in known:
            raise socket.gaierror(-2, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


def resolve(allowed, host):
    try:
        return ", ".join(asyncio.run(AddressPolicy.of(allowed).resolve(host, 80)))
    except ToolError as error:
        return str(error)


@pytest.mark.parametrize(
    ("allowed", "host", "address"),
    [
        (["a.example"], "a.example", "93.184.215.14"),
        (["A.example."], "a.EXAMPLE.", "93.184.215.14"),
        (["*"], "a.example", "93.184.215.14"),
        (["*"], "93.184.215.14", "93.184.215.14"),
        (["93.184.215.14"], "93.184.215.14", "93.184.215.14"),
        (["inner.example", "10.1.0.0/16"], "inner.example", "10.1.2.3"),
        (["127.0.0.1"], "127.0.0.1", "127.0.0.1"),
        (["[::1]"], "::1", "::1"),
        (["localhost"], "localhost", "127.0.0.1"),
        (["localhost"], "127.0.0.1", "127.0.0.1"),
        (["10.0.0.0/8"], "::ffff:10.1.2.3", "10.1.2.3"),
    ],
)
def test_allowed_hosts_resolve_to_checked_addresses(names, allowed, host, address) -> None:
    names.update({"a.example": ["93.184.215.14"], "a.EXAMPLE.": ["93.184.215.14"]})
    names.update({"inner.example": ["10.1.2.3"], "localhost": ["127.0.0.1"]})
    assert resolve(allowed, host) == address


@pytest.mark.parametrize(
    ("allowed", "host", "message"),
    [
        ([], "a.example", "The host 'a.example' is not allowed on this server."),
        (["b.example"], "a.example", "The host 'a.example' is not allowed on this server."),
        (["a.example"], "93.184.215.14", "The host '93.184.215.14' is at 93.184.215.14, an address that is not allowed"),
        (["*"], "127.0.0.1", "The host '127.0.0.1' is at 127.0.0.1, an address that is not allowed"),
        (["*"], "::1", "The host '::1' is at ::1, an address"),
        (["*"], "::ffff:127.0.0.1", "The host '::ffff:127.0.0.1' is at 127.0.0.1, an address"),
        (["*"], "169.254.169.254", "The host '169.254.169.254' is at 169.254.169.254, an address"),
        (["*"], "64:ff9b::7f00:1", "The host '64:ff9b::7f00:1' is at 64:ff9b::7f00:1, an address"),
        (["*"], "2002:7f00:1::", "The host '2002:7f00:1::' is at 2002:7f00:1::, an address"),
        (["*"], "0.0.0.0", "The host '0.0.0.0' is at 0.0.0.0, an address"),  # noqa: S104 - that it cannot be reached is the point
        (["*"], "224.0.0.1", "The host '224.0.0.1' is at 224.0.0.1, an address"),
        (["*"], "inner.example", "The host 'inner.example' is at 10.1.2.3, an address"),
        (["mixed.example"], "mixed.example", "The host 'mixed.example' is at 10.1.2.3, an address"),
        (["*"], "nowhere.example", "The host 'nowhere.example' cannot be resolved."),
        (["10.0.0.0/8"], "inner.example", "The host 'inner.example' is not allowed on this server."),
    ],
)
def test_other_hosts_and_addresses_are_refused(names, allowed, host, message) -> None:
    names.update({"a.example": ["93.184.215.14"], "inner.example": ["10.1.2.3"]})
    names["mixed.example"] = ["93.184.215.14", "10.1.2.3"]
    assert resolve(allowed, host).startswith(message)


@pytest.mark.parametrize(
    "address",
    [
        *("0.1.2.3", "10.1.2.3", "100.64.0.1", "127.9.9.9", "169.254.169.254", "172.31.0.1", "192.0.0.9", "192.0.2.1"),
        *("192.88.99.1", "192.168.1.1", "198.19.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1"),
        *("255.255.255.255", "::", "::1", "::127.0.0.1", "::93.184.215.14", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *("64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::93.184.215.14", "100::1", "2001::1", "2001:0:4136:e378::1"),
        *("2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:5db8:d70e::1", "3fff::1", "5f00::1"),
        *("fc00::1", "fd12::1", "fe80::1", "fe80::1%lo", "fec0::1", "fef0::1", "ff02::1", "ff0e::1"),
    ],
)
def test_addresses_that_are_not_global_are_refused(names, address) -> None:
    names["a.example"] = [address]
    assert "an address that is not allowed" in resolve(["*"], address)
    assert "an address that is not allowed" in resolve(["*"], "a.example")


@pytest.mark.parametrize("address", ["1.1.1.1", "100.63.255.255", "198.20.0.1", "2606:4700::1111", "2a00::1", "64:ff9b::1.1.1.1"])
def test_global_addresses_are_allowed(names, address) -> None:
    names["a.example"] = [address]
    assert resolve(["*"], "a.example") == str(ip_address(address))


def test_an_odd_spelling_of_an_address_is_resolved_and_checked(names) -> None:
    names.update({name: ["127.0.0.1"] for name in ("2130706433", "0x7f.1", "127.1", "localhost.")})
    for spelling in ("2130706433", "0x7f.1", "127.1", "localhost."):
        assert "an address that is not allowed" in resolve(["*"], spelling)


def test_an_invalid_network_is_refused() -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        AddressPolicy.of(["10.0.0.0/99"])


def endpoint(**members):
    try:
        return DeclaredServer("s", {"type": "mcp", **members}).endpoint(AddressPolicy())
    except ToolError as error:
        return str(error)


def test_the_endpoint_of_a_server_has_its_url_and_headers() -> None:
    server = endpoint(server_url="https://a.example/mcp", headers={"X-A": "1"}, authorization="key")
    assert (server.url, server.headers) == ("https://a.example/mcp", (("X-A", "1"), ("Authorization", "Bearer key")))
    assert "key" not in repr(server)


@for_each(
    ("members", "message"),
    [
        ({}, "The tool has no 'server_url', and this server has no connectors."),
        ({"connector_id": "c"}, "The tool has no 'server_url', and this server has no connectors."),
        ({"server_url": "ftp://a.example"}, "The 'server_url' is not the URL of a web server."),
        ({"server_url": "http://"}, "The 'server_url' is not the URL of a web server."),
        ({"server_url": "http://[::"}, "The 'server_url' is not the URL of a web server."),
        ({"server_url": "http://a.example", "headers": {"Host": "b"}}, "The header 'Host' cannot be set."),
        ({"server_url": "http://a.example", "headers": {"X-A": 1}}, "The header 'X-A' cannot be set."),
        *(
            ({"server_url": "http://a.example", **members}, "A header for the server has an invalid name or value.")
            for members in (
                {"authorization": "secret\n"},
                {"authorization": "secret\r\nHost: b"},
                {"authorization": "secret\u0142"},
                {"authorization": ""},
                {"headers": {"X-A": " secret"}},
                {"headers": {"X-A": "sec\x00ret"}},
                {"headers": {"X A": "secret"}},
                {"headers": {"": "secret"}},
            )
        ),
    ],
)
def test_an_invalid_server_declaration_is_refused(members, message) -> None:
    assert endpoint(**members) == message


READ = ListedTool({"name": "read", "annotations": {"readOnlyHint": True}})
WRITE = ListedTool({"name": "write"})


def declared(**members):
    return DeclaredServer("s", {"type": "mcp", **members})


@pytest.mark.parametrize(
    ("rule", "tools"),
    [
        (None, ["read", "write"]),
        (["write"], ["write"]),
        ([], []),
        ({"tool_names": ["read"]}, ["read"]),
        ({"read_only": True}, ["read"]),
        ({"read_only": False}, ["write"]),
        ({"tool_names": ["write"], "read_only": True}, []),
        ({}, ["read", "write"]),
    ],
)
def test_tools_are_allowed_by_name_or_as_read_only(rule, tools) -> None:
    assert [tool.name for tool in declared(allowed_tools=rule).filter_allowed([READ, WRITE])] == tools


@pytest.mark.parametrize(
    ("rule", "tools"),
    [
        (None, ["read", "write"]),
        ("always", ["read", "write"]),
        ("never", []),
        ({"never": {"read_only": True}}, ["write"]),
        ({"never": {"tool_names": ["write"]}}, ["read"]),
        ({"always": {"tool_names": ["write"]}}, ["write"]),
        ({"always": {"tool_names": ["write"]}, "never": {"tool_names": ["read"]}}, ["write"]),
        ({}, ["read", "write"]),
    ],
)
def test_calls_need_approval_by_default_or_by_rule(rule, tools) -> None:
    assert [tool.name for tool in (READ, WRITE) if declared(require_approval=rule).needs_approval(tool)] == tools


def test_the_first_of_two_servers_with_one_label_is_used() -> None:
    first, second = ({"type": "mcp", "server_label": "s", "server_url": url} for url in ("http://1", "http://2"))
    request = read_request({"model": "m", "input": "Hi", "tools": [{"type": "web_search"}, first, second]})
    assert ResponseTools(ToolServers(), request, (), "")._servers == {"s": DeclaredServer("s", first)}


def test_calls_of_kinds_that_no_tool_server_runs_are_refused() -> None:
    tools = ResponseTools(ToolServers(), read_request({"model": "m", "input": "Hi"}), (), "")
    for kind in ("file_search_call", "image_generation_call"):
        assert kind in ITEMS
        with pytest.raises(ToolError, match=f"does not run calls of the kind '{kind}'"):
            tools._target(ReadyCall("x_1", kind, {}, ""), allowed=True)


def test_content_without_text_becomes_a_placeholder() -> None:

    image = ImageContent(type="image", data="aQ==", mime_type="image/png")
    link = ResourceLink(type="resource_link", name="r", uri="file:///r")
    text = TextContent(type="text", text="Look:")
    assert result_text(CallToolResult(content=[text, image, link])) == "Look:\n[image: image/png]\n[resource_link]"
    assert result_text(CallToolResult(content=[], structured_content={"a": 1})) == '{"a":1}'
    assert result_text(CallToolResult(content=[])) == ""
