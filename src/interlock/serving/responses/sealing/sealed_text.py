"""The envelope: bytes that nobody can read or change who lacks the key, as a text that clients can carry.

A sealed content is the base64 of

    1 byte      the version, 1
    8 bytes     the id of the key
    12 bytes    the nonce, random
    the rest    the content, encrypted with AES-256-GCM, and the 16 bytes that authenticate it

What is authenticated beside the content are the first nine bytes and what the content is bound to: its kind, the model and the
tenant. A random nonce lets one key seal 2**32 contents (NIST SP 800-38D, 8.3).
"""

from __future__ import annotations

import asyncio
import binascii
import secrets
from functools import cache
from typing import TYPE_CHECKING, Final

from attrs import frozen

from interlock.events.json import dumps
from interlock.fsm.errors import InterlockError
from interlock.serving.responses.sealing.sealing_keys import ID_BYTES, Key, SealingKeys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["Binding", "Envelope", "SealError"]

VERSION: Final = b"\x01"
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
HEAD: Final = len(VERSION) + ID_BYTES
SHORTEST: Final = HEAD + NONCE_BYTES + TAG_BYTES

SLICE: Final = 2**18
"""Characters of base64 that are decoded before others have their turn: a few milliseconds."""


class SealError(InterlockError):
    """A sealed content that this server cannot take. The message is for the client, and says nothing of what is in it."""


@frozen
class Binding:
    """What a sealed content is bound to: it can be opened as nothing else.

    Args:
        kind: The type of the item that carries it.
        model: The name of the model that is asked for.
        tenant: Whose it is; an empty text where a server tells nobody apart.
    """

    kind: str
    model: str
    tenant: str = ""

    def authenticated(self, head: bytes) -> bytes:
        """Return what is authenticated beside the content.

        Args:
            head: The version and the id of the key.
        """
        return head + dumps([self.kind, self.model, self.tenant])


@frozen
class Envelope:
    """Seals contents, and opens what was sealed with one of its keys.

    Args:
        keys: The server's.
    """

    keys: SealingKeys

    def seal(self, binding: Binding, content: bytes) -> str:
        """Return a content sealed.

        Args:
            binding: What it is bound to.
            content: Any bytes, fewer than 2**31.
        """
        key = self.keys.sealing
        head, nonce = VERSION + key.id, secrets.token_bytes(NONCE_BYTES)
        sealed = _cipher(key).encrypt(nonce, content, binding.authenticated(head))
        return binascii.b2a_base64(head + nonce + sealed, newline=False).decode("ascii")

    async def open(self, binding: Binding, text: str) -> bytes:
        """Return what was sealed; others have their turn meanwhile, because there may be many contents, and long ones.

        Args:
            binding: What it has to be bound to.
            text: What a client sent.

        Raises:
            SealError: It is no sealed content, was changed, is bound to something else, or its key is not here.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see `_cipher`

        sealed = await _decoded(text)
        if len(sealed) < SHORTEST or not sealed.startswith(VERSION):
            raise SealError("it was not made by a server of this kind, or is not whole")
        head, nonce = sealed[:HEAD], sealed[HEAD : HEAD + NONCE_BYTES]
        key = self.keys.by_id(head[len(VERSION) :])
        if key is None:
            raise SealError("it was sealed with a key that this server does not have")
        try:
            return _cipher(key).decrypt(nonce, sealed[HEAD + NONCE_BYTES :], binding.authenticated(head))
        except InvalidTag:
            raise SealError("it was changed, or belongs to another kind of item, another model or somebody else") from None


@cache
def _cipher(key: Key) -> AESGCM:
    """Return the cipher of a key. The package is imported here, so that a server that seals nothing does not need it."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    return AESGCM(key.secret)


async def _decoded(text: str) -> bytes:
    """Return the bytes of a text in base64, of which there is one way only to write them.

    Raises:
        SealError: It is not base64.
    """
    decoded = bytearray()
    for start in range(0, len(text), SLICE):
        piece = text[start : start + SLICE]
        try:
            written = piece.encode("ascii")
            decoded += (said := binascii.a2b_base64(written, strict_mode=True))
        except ValueError:
            raise SealError("it is not base64") from None
        if binascii.b2a_base64(said, newline=False) != written:
            raise SealError("it is not base64")
        await asyncio.sleep(0)
    return bytes(decoded)
