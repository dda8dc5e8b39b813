"""Random ids and the clock, which the sans-IO layers below receive as arguments."""

from __future__ import annotations

import os
import time

__all__ = ["now", "random_id"]


def random_id(prefix: str) -> str:
    """Create an id: a prefix such as `msg`, `call` or `resp`, an underscore, and 128 random bits in hex."""
    return f"{prefix}_{os.urandom(16).hex()}"


def now() -> int:
    """Return the time in whole seconds since the epoch."""
    return int(time.time())
