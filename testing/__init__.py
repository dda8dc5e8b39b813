"""Streams for the tests of others: legal ones, broken ones, and an assertion that tells them apart.

Needs Hypothesis. What the streams may be is what the lifecycles allow; `docs/testing.md` shows how to fuzz a client.
"""

from interlock.testing.faults import RULES
from interlock.testing.legality import assert_legal, findings
from interlock.testing.scripts import ENDINGS, KINDS
from interlock.testing.strategies import Broken, broken_streams, frames, legal_streams, sse_bytes

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
