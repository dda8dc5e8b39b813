"""Where a session with an MCP server goes to. It knows neither the protocol nor the package that speaks it."""

from __future__ import annotations

from attrs import field, frozen

from interlock.serving.tools.reach import Reach

__all__ = ["Endpoint"]


@frozen
class Endpoint:
    """Where a session goes to.

    Args:
        url: The server's URL; one whose path ends with `/sse` is spoken to by server-sent events, any other one by streamable
            HTTP.
        headers: What every request carries, secrets among it.
        reach: What may be reached; None if the operator chose the URL.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    reach: Reach | None = field(default=None, repr=False)
