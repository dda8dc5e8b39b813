"""Assertions on streams, and Hypothesis strategies for legal and broken streams, to test clients and servers.

The strategies need Hypothesis, and are imported at first use. `docs/testing.md` fuzzes a client with them.

    legality    an assertion that a stream is legal, and legal streams of random deltas
    strategies  legal and broken streams for Hypothesis
    faults      ways to break a stream, by rule
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.late import exporter
from interlock.testing.faults import RULES
from interlock.testing.legality import ENDINGS, KINDS, assert_legal, findings, frames

if TYPE_CHECKING:
    from interlock.testing.strategies import Broken, broken_streams, legal_streams, sse_bytes

__all__ = [
    "ENDINGS",
    "KINDS",
    "RULES",
    "Broken",
    "assert_legal",
    "broken_streams",
    "findings",
    "frames",
    "legal_streams",
    "sse_bytes",
]

__getattr__ = exporter(__name__, __all__, ["interlock.testing.strategies"])
