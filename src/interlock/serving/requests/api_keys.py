"""API keys and their tenants.

All stored data belongs to a *tenant*, a short name derived from the API key, so that each key sees only its own data. With at
most one key, or if the keys share their data, the only tenant has an empty name. A gateway without keys of its own that passes
its clients' keys on has a tenant for each of those. A file of keys names the tenants itself, so that a tenant can change its key
and keep its data. `Keys` has digests, never the keys.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from attrs import define, field
from starlette.requests import HTTPConnection

API_KEY: Final = "x-api-key"
"""The header in which clients of Messages send their key."""

TENANT: Final = "interlock.tenant"
"""The key of the tenant in the ASGI scope of a request. Without API keys, a mounting application may set it."""

ENCODINGS: Final = ("utf-8", "latin-1")
"""The encodings in which clients send keys. The server decodes headers as Latin-1."""

TENANT_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Matches the names of tenants in a file of keys."""

logger = logging.getLogger(__name__)


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


@define
class Keys:
    """The API keys of a server: the SHA-256 digest of each, in every encoding that clients use, with its tenant.

    Only `reload` changes an object, so that all parts of a server which hold it have the same keys.
    """

    tenants: tuple[tuple[bytes, str], ...] = field(default=(), repr=False)
    passed: bool = False
    """Whether each key is accepted and has a tenant, because another server checks it."""
    file: Path | None = None
    """The file of the keys, which `reload` reads."""

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
        return cls(_digests(names), passed and not distinct and not shared)

    @classmethod
    def of_file(cls, file: Path) -> Keys:
        """Return the `Keys` in a file: each line is a key, or a tenant's name and a key; `#` begins a comment.

        The tenant of a key without a name is that of a server with one key.

        Raises:
            OSError: The file cannot be read.
            ValueError: The file has no key, or a line is invalid.
        """
        return cls(_digests(_read_keys(file)), file=file)

    @property
    def count(self) -> int:
        """The number of keys."""
        return len(self.tenants) // len(ENCODINGS)

    def reload(self, level: int = logging.INFO) -> bool:
        """Read the file again, log the result, and return whether the file is valid; otherwise the keys stay as they are.

        `level` is that of the log line for a valid file.
        """
        assert self.file is not None  # noqa: S101 - only the server of a file is asked to reload it
        try:
            self.tenants = _digests(_read_keys(self.file))
        except (OSError, ValueError) as error:
            logger.error("the API keys stay as they are: %s: %s", self.file, error)  # noqa: TRY400 - the error says enough
            return False
        logger.log(level, "%s: API keys: %d, tenants: %d", self.file, self.count, len({name for _, name in self.tenants}))
        return True

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
        sent = key.strip(" \t").encode("latin-1", "replace")  # a proxy that counts keys takes other white space as part of one
        if self.passed:
            return _tenant_name(sent) if sent else ""
        key_digest = hashlib.sha256(sent).digest()
        match = None
        for digest, tenant in self.tenants:
            if hmac.compare_digest(key_digest, digest):
                match = tenant
        return match


def _digests(names: Mapping[str, str]) -> tuple[tuple[bytes, str], ...]:
    """Return the digests of keys, in each encoding, with the names of their tenants."""
    return tuple((hashlib.sha256(key.encode(encoding)).digest(), name) for key, name in names.items() for encoding in ENCODINGS)


def _read_keys(file: Path) -> dict[str, str]:
    """Return the keys of a file with the names of their tenants. No error contains a key."""
    names: dict[str, str] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        match [] if line.startswith("#") else line.split():
            case []:
                continue
            case [key]:
                name = ""
            case [name, key] if TENANT_NAME.fullmatch(name):
                pass
            case _:
                raise ValueError(f"line {number} is not a key, or the name of a tenant and its key")
        try:
            _check_key(key)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if names.setdefault(key, name) != name:
            raise ValueError(f"line {number} has the key of another tenant")
    if not names:
        raise ValueError("the file has no key")
    return names


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
