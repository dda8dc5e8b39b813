"""The keys that contents are sealed with: one that seals, and those before it, which still open what they sealed.

It knows how keys are written down, and nothing of what they seal.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import secrets
from typing import Final

from attrs import field, frozen

__all__ = ["KEYS_VARIABLE", "Key", "SealingKeys"]

KEYS_VARIABLE: Final = "INTERLOCK_KEYS"
"""The environment variable that holds the keys: 32 bytes each in base64, with commas between them, the one that seals first."""

RANDOM_KEY: Final = (
    f"{KEYS_VARIABLE} is not set: what this process seals (encrypted reasoning, compactions) opens in no other process, and not "
    "after a restart."
)
"""What is said at the start of a server that has made its own key."""

KEY_BYTES: Final = 32
ID_BYTES: Final = 8
PURPOSE: Final = b"interlock key id\0"


@frozen
class Key:
    """A key of AES-256.

    Args:
        secret: Its 32 bytes.
    """

    secret: bytes = field(repr=False)

    @property
    def id(self) -> bytes:
        """What a sealed content names its key by: 8 bytes of a hash, from which nobody learns the key."""
        return hashlib.sha256(PURPOSE + self.secret).digest()[:ID_BYTES]


@frozen
class SealingKeys:
    """The keys of a server.

    Args:
        sealing: Seals, and opens what it sealed.
        others: Only open: keys from before a rotation, and those that are to seal next.
    """

    sealing: Key
    others: tuple[Key, ...] = ()

    @classmethod
    def from_text(cls, text: str) -> SealingKeys:
        """Parse keys: 32 bytes each in base64, with commas between them.

        Args:
            text: The value of `INTERLOCK_KEYS`; white space around a key is passed over.

        Raises:
            ValueError: A key is none, or stands there twice. The message names it by its place, and says nothing of it.
        """
        keys = [_key(place, written.strip()) for place, written in enumerate(text.split(","), start=1)]
        for place, key in enumerate(keys, start=1):
            if key in keys[: place - 1]:
                raise ValueError(f"key {place} repeats key {keys.index(key) + 1}")
        return cls(keys[0], tuple(keys[1:]))

    @classmethod
    def from_environment(cls) -> SealingKeys | None:
        """Return the keys that `INTERLOCK_KEYS` holds, or None if it is not set.

        Raises:
            ValueError: The variable holds no keys; the message names it.
        """
        text = os.environ.get(KEYS_VARIABLE)
        try:
            return None if text is None else cls.from_text(text)
        except ValueError as error:
            raise ValueError(f"{KEYS_VARIABLE}: {error}") from None

    @classmethod
    def random(cls) -> SealingKeys:
        """Create a key that lasts as long as the process."""
        return cls(Key(secrets.token_bytes(KEY_BYTES)))

    def by_id(self, key_id: bytes) -> Key | None:
        """Return the key that a sealed content names, or None if this server does not have it.

        Args:
            key_id: The id of a key.
        """
        return next((key for key in (self.sealing, *self.others) if key.id == key_id), None)


def _key(place: int, written: str) -> Key:
    try:
        secret = binascii.a2b_base64(written.encode("ascii"), strict_mode=True)
    except ValueError:  # which a wrong character raises as well
        raise ValueError(f"key {place} is not base64") from None
    if len(secret) != KEY_BYTES:
        raise ValueError(f"key {place} has {len(secret)} bytes instead of {KEY_BYTES}")
    return Key(secret)
