"""API keys and their tenants.

All stored data belongs to a *tenant*, a short name derived from the API key, so that each key sees only its own data. With at
most one key, or if the keys share their data, the only tenant has an empty name. A gateway without keys of its own that passes
its clients' keys on has a tenant for each of those. `Keys` has digests, never the keys.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import field, frozen
from starlette.requests import HTTPConnection

API_KEY: Final = "x-api-key"
"""The header in which clients of Messages send their key."""

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
    passed: bool = False
    """Whether each key is accepted and has a tenant, because another server checks it."""

    @classmethod
    def of(cls, keys: Iterable[str], *, shared: bool = False, passed: bool = False) -> Keys:
        """Return the `Keys` for these keys; `shared` keys have one tenant. Without keys, every request is authorized.

        `passed` is whether the engine passes its clients' keys on to other servers.

        Raises:
            ValueError: A key is empty or cannot be sent in a header.
        """
        distinct = [*dict.fromkeys(keys)]
        for key in distinct:
            _check_key(key)
        names = {key: _tenant_name(key.encode()) for key in distinct}
        if len(distinct) <= 1 or shared:
            names = dict.fromkeys(distinct, "")
        # Headers are decoded as Latin-1, but clients encode keys in Latin-1 or UTF-8.
        return cls(
            tuple(
                (hashlib.sha256(key.encode(encoding)).digest(), name)
                for key, name in names.items()
                for encoding in ("utf-8", "latin-1")
            ),
            passed and not distinct and not shared,
        )

    def tenant(self, authorization: str) -> str | None:
        """Return the tenant of a request from its `Authorization` header; None if a valid key is required but missing."""
        scheme, _, key = authorization.partition(" ")
        if self.passed:
            return self.tenant_of_key(key if scheme.lower() == "bearer" else authorization)
        if not self.tenants:
            return ""
        return self.tenant_of_key(key) if scheme.lower() == "bearer" else None

    def tenant_of_key(self, key: str) -> str | None:
        """Return the tenant of a key from a header; None if the key is invalid. Takes the same time for every key."""
        sent = key.strip().encode("latin-1", "replace")
        if self.passed:
            return _tenant_name(sent) if sent else ""
        key_digest = hashlib.sha256(sent).digest()
        match = None
        for digest, tenant in self.tenants:
            if hmac.compare_digest(key_digest, digest):
                match = tenant
        return match


def _tenant_name(key: bytes) -> str:
    """Return the name of a key's tenant, which is the same in every process."""
    return hashlib.sha256(b"interlock tenant\0" + key).hexdigest()[:16]


def authorization_of(headers: Mapping[str, str]) -> str:
    """Return the `Authorization` header of a request, or what it would be with the key of `x-api-key`; empty without a key."""
    key = headers.get(API_KEY)
    return headers.get("authorization") or (f"Bearer {key}" if key else "")


def tenant_of(connection: HTTPConnection) -> str:
    """Return the tenant of an authorized request or WebSocket."""
    return str(connection.scope.get(TENANT, ""))
