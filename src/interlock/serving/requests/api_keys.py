"""API keys and their tenants.

All stored data belongs to a *tenant*, a short name derived from the API key, so that each key sees only its own data. With at
most one key, or if the keys share their data, the only tenant has an empty name. `Keys` has digests, never the keys.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from attrs import field, frozen
from starlette.requests import HTTPConnection

TENANT: Final = "interlock.tenant"
"""The key of the tenant in the ASGI scope of a request."""


def _check_key(key: str) -> None:
    """Raise a `ValueError` if no client can send a key in a header; the message does not contain the key."""
    if not key:
        raise ValueError("the key is empty; omit it to accept every request")
    if key != key.strip():
        raise ValueError("the key begins or ends with white space, which a header cannot contain")
    if not key.isprintable():
        raise ValueError("the key has control characters, which a header cannot contain")
    if max(key) > "\xff":
        raise ValueError("the key has characters beyond Latin-1, which a header cannot contain")


@frozen
class Keys:
    """The API keys of a server: the SHA-256 digest of each, in every encoding that clients use, with its tenant."""

    tenants: tuple[tuple[bytes, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, keys: Iterable[str], *, shared: bool = False) -> Keys:
        """Return the `Keys` for these keys; `shared` keys have one tenant. Without keys, every request is authorized.

        Raises:
            ValueError: A key is empty or cannot be sent in a header.
        """
        distinct = [*dict.fromkeys(keys)]
        for key in distinct:
            _check_key(key)
        # A tenant's name is the same in every process.
        names = {key: hashlib.sha256(b"interlock tenant\0" + key.encode()).hexdigest()[:16] for key in distinct}
        if len(distinct) <= 1 or shared:
            names = dict.fromkeys(distinct, "")
        # Headers are decoded as Latin-1, but clients encode keys in Latin-1 or UTF-8.
        return cls(
            tuple(
                (hashlib.sha256(key.encode(encoding)).digest(), name)
                for key, name in names.items()
                for encoding in ("utf-8", "latin-1")
            )
        )

    def tenant(self, authorization: str) -> str | None:
        """Return the tenant of a request from its `Authorization` header; None if a valid key is required but missing."""
        scheme, _, key = authorization.partition(" ")
        if not self.tenants:
            return ""
        return self.tenant_of_key(key) if scheme.lower() == "bearer" else None

    def tenant_of_key(self, key: str) -> str | None:
        """Return the tenant of a key from a header; None if the key is invalid. Takes the same time for every key."""
        key_digest = hashlib.sha256(key.strip().encode("latin-1", "replace")).digest()
        match = None
        for digest, tenant in self.tenants:
            if hmac.compare_digest(key_digest, digest):
                match = tenant
        return match


def tenant_of(connection: HTTPConnection) -> str:
    """Return the tenant of an authorized request or WebSocket."""
    return str(connection.scope.get(TENANT, ""))
