"""The SSRF guard: which hosts and addresses a request may make the server reach.

All addresses of a host are checked, and the connection goes to one of them, so that a second DNS answer has no effect.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from attrs import field, frozen

from interlock.serving.requests.api_errors import ToolError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

ANY: Final = "*"

GLOBAL: Final = IPv6Network("2000::/3")
"""The global unicast IPv6 addresses, which exclude local addresses (`fec0::1`) and IPv4-compatible ones (`::127.0.0.1`)."""

NAT64: Final = IPv6Network("64:ff9b::/96")
"""IPv6 addresses that lead to the IPv4 address in their last four bytes (RFC 6052)."""

SPECIAL: Final[tuple[Network, ...]] = tuple(
    map(
        ip_network,
        (
            # The special-purpose addresses (RFC 6890) that are not globally reachable, 6to4 relays (192.88.99.0/24), and
            # multicast. `is_global` alone is not enough, because it differs between Python releases.
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
            *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            *("224.0.0.0/4", "240.0.0.0/4"),
            # IETF protocols such as Teredo and ORCHID; documentation; and 6to4. A Teredo or 6to4 address leads to an IPv4
            # address inside it, which is not checked.
            *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
        ),
    )
)


@frozen
class AddressPolicy:
    """The hosts (`*` for all, at public addresses) and networks that the operator allows; none by default."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, allowed: Iterable[str]) -> AddressPolicy:
        """Parse the values of `--allow-mcp-host`: names, addresses and networks (`10.1.0.0/16`).

        `localhost` means the name and its addresses; `*` means every name, and so every public address.

        Raises:
            ValueError: A value with a slash is not a network.
        """
        hosts: set[str] = set()
        networks: list[Network] = []
        for value in allowed:
            if _address(value) is not None or "/" in value:
                networks.append(ip_network(value.strip("[]"), strict=False))
            elif value.lower() == "localhost":
                hosts.add("localhost")
                networks += IPv4Network("127.0.0.0/8"), IPv6Network("::1/128")
            else:
                hosts.add(value.lower().rstrip("."))
        return cls(frozenset(hosts), tuple(networks))

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the allowed addresses of a host, which is a name or an address.

        Raises:
            ToolError: The host is not allowed, has no address, or has one that is not allowed.
        """
        literal = _address(host)
        if literal is None and not self.hosts & {host.lower().rstrip("."), ANY}:
            raise ToolError(f"The host '{host}' is not allowed on this server.")
        candidates = [literal] if literal is not None else await _look_up(host, port)
        # An IPv4-mapped IPv6 address counts as its IPv4 address.
        addresses = [(isinstance(each, IPv6Address) and each.ipv4_mapped) or each for each in candidates]
        for address in addresses:
            if not self._allows(address, named=literal is None):
                raise ToolError(f"The host '{host}' is at {address}, an address that is not allowed on this server.")
        return [str(address) for address in addresses]

    def _allows(self, address: Address, *, named: bool) -> bool:
        if any(address in network for network in self.networks):
            return True
        return (named or ANY in self.hosts) and _is_public(address)


def _is_public(address: Address) -> bool:
    """Return whether an address is global. For a NAT64 address, its IPv4 address decides."""
    if isinstance(address, IPv6Address) and address in NAT64:
        return _is_public(IPv4Address(address.packed[-4:]))
    if isinstance(address, IPv6Address) and address not in GLOBAL:
        return False
    return address.is_global and not any(address in network for network in SPECIAL)


def _address(text: str) -> Address | None:
    try:
        return ip_address(text.strip("[]"))
    except ValueError:
        return None


async def _look_up(host: str, port: int) -> list[Address]:
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        entries = []
    addresses = [ip_address(str(address[0]).partition("%")[0]) for *_, address in entries]
    if not addresses:
        raise ToolError(f"The host '{host}' cannot be resolved.")
    return addresses


@frozen
class Endpoint:
    """The destination of a session with an MCP server. Without a policy, the operator chose the URL, so it is not checked.

    A URL path that ends with `/sse` selects MCP's older transport instead of streamable HTTP.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    policy: AddressPolicy | None = field(default=None, repr=False)
