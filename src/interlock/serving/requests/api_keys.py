"""API keys: who may come in, and whose the things are that a request stores.

Keys are held as digests alone. Everything that is stored belongs to a *tenant*, a short name that is made of the key, so that
what came with one key does not exist for another. With one key or none there is one tenant, whose name is empty.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from attrs import field, frozen
from starlette.requests import HTTPConnection

__all__ = ["TENANT", "Keys", "check_key", "tenant_of"]

TENANT: Final = "interlock.tenant"
"""Where the scope of a request holds its tenant."""

NAME_LENGTH: Final = 16
"""Characters of a tenant's name, each of four bits."""

LAST_OF_LATIN_1: Final = "\xff"


def check_key(key: str) -> None:
    """Refuse a key that no client could send in a header.

    Args:
        key: The API key.

    Raises:
        ValueError: The message says what is wrong with it, and does not repeat it.
    """
    if not key:
        raise ValueError("the key is empty; to let everybody in, give none at all")
    if key != key.strip():
        raise ValueError("the key begins or ends with white space, which is no part of a header")
    if not key.isprintable():
        raise ValueError("the key has control characters, which a header cannot hold")
    if max(key) > LAST_OF_LATIN_1:
        raise ValueError("the key has characters beyond Latin-1, which a header cannot hold")


@frozen
class Keys:
    """The API keys of a server, as digests with the tenant of each.

    Args:
        tenants: SHA-256 digests of the keys, each in the encodings in which clients send it, with its tenant.
    """

    tenants: tuple[tuple[bytes, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, keys: Iterable[str], *, shared: bool = False) -> Keys:
        """Return the digests of some keys.

        Args:
            keys: The keys; none to let everybody in.
            shared: Whether what was stored with one key is there for the others too.

        Raises:
            ValueError: One of the keys is empty, or cannot be sent in a header.
        """
        given = [*dict.fromkeys(keys)]
        for key in given:
            check_key(key)
        apart = len(given) > 1 and not shared
        # A header's bytes come as Latin-1, whatever they meant: clients send a key in that or in UTF-8.
        return cls(
            tuple(
                (hashlib.sha256(key.encode(encoding)).digest(), _name(key) if apart else "")
                for key in given
                for encoding in ("utf-8", "latin-1")
            )
        )

    def tenant(self, authorization: str) -> str | None:
        """Return the tenant of a request; without any keys, everybody is the one tenant.

        Args:
            authorization: Its header `Authorization`.

        Returns:
            None if the header has none of the keys.
        """
        scheme, _, key = authorization.partition(" ")
        if not self.tenants:
            return ""
        return self.tenant_with(key) if scheme.lower() == "bearer" else None

    def tenant_with(self, key: str) -> str | None:
        """Return the tenant that a key belongs to; how long that takes says nothing of the keys.

        Args:
            key: As a header has it.
        """
        given = hashlib.sha256(key.strip().encode("latin-1", "replace")).digest()
        found = None
        for digest, tenant in self.tenants:
            if hmac.compare_digest(given, digest):
                found = tenant
        return found


def _name(key: str) -> str:
    """Return the name of a tenant, the same in every process that knows the key."""
    return hashlib.sha256(b"interlock tenant\0" + key.encode()).hexdigest()[:NAME_LENGTH]


def tenant_of(connection: HTTPConnection) -> str:
    """Return the tenant of a request that was let in.

    Args:
        connection: The request, or the WebSocket.
    """
    tenant: str = connection.scope.get(TENANT, "")
    return tenant
