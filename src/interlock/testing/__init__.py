"""Assertions on streams, Hypothesis strategies for legal and broken streams, and a mock of a model's server.

The strategies need Hypothesis, and the mock the server; both are imported at first use. `docs/guides/testing.md` fuzzes a client
with the strategies, and `docs/guides/mock.md` describes the mock.

    streams        an assertion that a stream is legal, legal streams of random deltas, and ways to break one, by rule
    strategies     legal and broken streams for Hypothesis
    mock           a server whose answers a test scripts
    conformance    requests to any server, whose answers are judged
    pytest_plugin  the fixture `interlock`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import exporter

if TYPE_CHECKING:
    from interlock.testing.mock import Mock, MockRequest, MockServer, Scenario
    from interlock.testing.strategies import Broken, broken_streams, legal_streams, sse_bytes
    from interlock.testing.streams import ENDINGS, KINDS, RULES, assert_legal, findings, frames

__all__ = [
    "ENDINGS",
    "KINDS",
    "RULES",
    "Broken",
    "Mock",
    "MockRequest",
    "MockServer",
    "Scenario",
    "assert_legal",
    "broken_streams",
    "findings",
    "frames",
    "legal_streams",
    "sse_bytes",
]

_HOMES = {
    "mock": ("Mock", "MockRequest", "MockServer", "Scenario"),
    "strategies": ("Broken", "broken_streams", "legal_streams", "sse_bytes"),
}
"""The modules that define these names; `streams` defines the others."""


def __getattr__(name: str) -> object:
    """Import a name from its module, and no other module: each run of pytest imports this package, for its plugin."""
    home = next((home for home, names in _HOMES.items() if name in names), "streams")
    return exporter(__name__, __all__, [f"{__name__}.{home}"])(name)
