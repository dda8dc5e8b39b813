"""For the tests of others: an assertion that a stream is legal, and Hypothesis strategies for legal and broken streams.

`assert_legal`, `findings` and `frames` need no further package. The strategies need Hypothesis (the extra `testing`) and are
imported when they are first used; `docs/testing.md` shows how to fuzz a client with them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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


def __getattr__(name: str) -> object:
    """Import a strategy (PEP 562).

    Raises:
        AttributeError: The name is not exported.
        ModuleNotFoundError: Hypothesis is not installed.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("interlock.testing.strategies"), name)
