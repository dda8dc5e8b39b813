"""What the server gives to clients so that only a server of its kind can read it again: encrypted reasoning and compactions.

`keys` reads the keys, `envelope` seals bytes and opens them, `items` says what of which item is sealed. What that protects, and
what it does not, is in docs/state.md.
"""

from __future__ import annotations

from interlock.serving.responses.sealing.sealed_text import Binding, Envelope, SealError
from interlock.serving.responses.sealing.sealing_keys import KEYS_VARIABLE, RANDOM_KEY, SealingKeys
from interlock.serving.responses.sealing.seals import REASONING_WANTED, Seals, require_openable

__all__ = [
    "KEYS_VARIABLE",
    "RANDOM_KEY",
    "REASONING_WANTED",
    "Binding",
    "Envelope",
    "SealError",
    "SealingKeys",
    "Seals",
    "require_openable",
]
