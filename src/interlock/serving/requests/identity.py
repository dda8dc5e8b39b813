"""Ids that nobody can guess, and the time: the chance and the clock that the layers below are handed."""

from __future__ import annotations

import os
import time

__all__ = ["now", "random_id"]

ID_BYTES = 16


def random_id(prefix: str) -> str:
    """Create an id from 128 random bits.

    Args:
        prefix: What it begins with, without the underscore: `msg`, `call`, `resp`.
    """
    return f"{prefix}_{os.urandom(ID_BYTES).hex()}"


def now() -> int:
    """Return the time, in whole seconds since the epoch."""
    return int(time.time())
