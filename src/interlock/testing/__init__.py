"""For the tests of others: an assertion that a stream is legal, and Hypothesis strategies for legal and broken streams.

`assert_legal`, `findings` and `frames` need no further package. The strategies need Hypothesis (the extra `testing`) and are
imported when they are first used; `docs/testing.md` shows how to fuzz a client with them.

    legality    an assertion that a stream is legal
    strategies  legal and broken streams for Hypothesis
    scripts     legal streams of random deltas
    faults      how a stream is broken, by rule
    mutations   random changes of a stream
    chance      where choices come from
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.late import exporter
from interlock.testing.faults import RULES
from interlock.testing.legality import assert_legal, findings
from interlock.testing.scripts import ENDINGS, KINDS, frames

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
