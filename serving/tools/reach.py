"""Where a request may send the server: hosts that the operator allowed, and addresses that are public or allowed as well.

A request names the URL of an MCP server, so without this anybody who may ask for a response could make the server fetch
what only it can reach. A name is therefore resolved here, every address that it has is judged, and the connection goes to
an address that was judged, so that a name cannot change its meaning in between. This module knows names and addresses,
not HTTP.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from attrs import frozen

from interlock.serving.errors import ToolError

__all__ = ["Reach"]

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

ANY: Final = "*"
LOCALHOST: Final = "localhost"
LOOPBACK: Final[tuple[Network, ...]] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))

GLOBAL: Final = IPv6Network("2000::/3")
"""Where global IPv6 addresses are. All others are local, or stand for IPv4 ones, such as `::127.0.0.1` and `fec0::1`."""

NAT64: Final = IPv6Network("64:ff9b::/96")
"""IPv6 addresses whose last four bytes are the IPv4 address that they lead to (RFC 6052)."""

SPECIAL: Final[tuple[Network, ...]] = tuple(
    map(
        ip_network,
        (
            # What the registries of special-purpose addresses (RFC 6890) do not call globally reachable. Python's `is_global`
            # differs between its releases, so it is asked as well and not alone.
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
            *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            *("224.0.0.0/4", "240.0.0.0/4"),
            # Protocols of the IETF, Teredo and ORCHID among them, documentation, and 6to4, which lead who knows where.
            *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
        ),
    )
)
"""Addresses within the ordinary ranges that are not global."""


@frozen
class Reach:
    """What the operator allowed.

    Args:
        hosts: The names that may be fetched from; `*` stands for all.
        networks: The addresses that may be fetched from although they are not public.
    """

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, allowed: Iterable[str]) -> Reach:
        """Read what `--allow-mcp-host` was given.

        Args:
            allowed: Names, addresses and networks (`10.1.0.0/16`). `localhost` means the name and its addresses; `*`
                means every name, and so every public address.

        Raises:
            ValueError: What has a slash is no network.
        """
        hosts: set[str] = set()
        networks: list[Network] = []
        for each in allowed:
            address = _address(each)
            if address is not None or "/" in each:
                networks.append(ip_network(each.strip("[]"), strict=False))
            elif each.lower() == LOCALHOST:
                hosts.add(LOCALHOST)
                networks.extend(LOOPBACK)
            else:
                hosts.add(each.lower().rstrip("."))
        return cls(frozenset(hosts), tuple(networks))

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses at which a host may be reached.

        Args:
            host: A name or an address.
            port: The port; it makes no difference to what is allowed.

        Raises:
            ToolError: The host is not allowed, has no address, or has one that is not allowed.
        """
        literal = _address(host)
        if literal is None and not self.hosts & {host.lower().rstrip("."), ANY}:
            raise ToolError(f"The host '{host}' is not allowed on this server.")
        addresses = [_mapped(each) for each in ([literal] if literal is not None else await _look_up(host, port))]
        for address in addresses:
            if not self._allows(address, named=literal is None):
                raise ToolError(f"The host '{host}' is at {address}, an address that is not allowed on this server.")
        return [str(address) for address in addresses]

    def _allows(self, address: Address, *, named: bool) -> bool:
        """Return whether an address may be reached: one that was allowed, or a public one behind an allowed name."""
        if any(address in network for network in self.networks):
            return True
        return (named or ANY in self.hosts) and _is_public(address)


def _mapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address holds as it is, else the address."""
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def _is_public(address: Address) -> bool:
    """Return whether an address is global; one that leads to an IPv4 address by NAT64 is if that is."""
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
    """Return every address of a name.

    Raises:
        ToolError: There is none.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    addresses = [ip_address(str(address[0]).partition("%")[0]) for *_, address in found]
    if not addresses:
        raise ToolError(f"The host '{host}' is not known.")
    return addresses
