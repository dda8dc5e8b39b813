"""Stores of responses and conversations, which later requests continue, fetch or delete; `open_store` opens the store at a URL.

Processes that share a store see one another's committed writes. A store handles neither requests nor HTTP.

    values          what a store stores and returns, the edits that write it, its form as bytes, and the errors
    tables          the lives of a stored response and of a conversation, as tables
    response_store  the methods of a store, and the threads of one that several processes share
    rows            the database: its layout, and the statements that carry out the effects of the tables
    sqlite          the stores in memory and in a file, with the package `apsw`
    postgres        the store in Postgres, with the package `psycopg`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from ipaddress import IPv6Address
from typing import Final, cast
from urllib.parse import parse_qsl, unquote, urlencode

from interlock.serving.store.response_store import ResponseStore
from interlock.serving.store.values import StoreUnusable

IN_MEMORY: Final = "memory:?ttl=never"
"""The default store of a server."""

LEAST_FILE: Final = 2**20
"""The fewest bytes to which a file may be limited: the tables, and the large response with which `Archive` probes it."""

TTL: Final = 30 * 86_400.0
"""The default number of seconds until a response expires: 30 days, as at OpenAI."""


def open_store(url: str = IN_MEMORY, *, create: bool = True) -> ResponseStore:
    """Return the store at a URL. It opens files and connections on first use.

    Without `create`, a store in SQLite or Postgres must exist.

    The URL is `memory:`, `sqlite:PATH`, or `postgresql://` as libpq reads it. Parameters follow a `?`; docs/guides/stores.md
    describes them.

    Raises:
        StoreUnusable: The URL is wrong, or the store's package is not installed; the message explains what to do.
    """
    scheme, colon, rest = url.partition(":")
    place, _, query = rest.partition("?")
    durations = {"ttl": _duration, "logs": _duration, "conversations": _duration}
    match scheme if colon else "":
        case "memory":
            if place:
                raise StoreUnusable("memory: takes no path.")
            parsers = {"ttl": _duration, "conversations": _duration, "max_bytes": _size, "max_responses": _count}
            parameters = _parameters(scheme, query, parsers)
            return _store_class("sqlite", "MemoryStore", "apsw", "serve")(**parameters)
        case "sqlite":
            if not place or place.startswith("//"):
                example = "sqlite:responses.db or sqlite:/var/lib/interlock/responses.db"
                raise StoreUnusable(f"sqlite: needs the path of a file, such as {example}.")
            file_parsers = {**durations, "busy": _seconds, "synchronous": _synchronous, "max_bytes": _file_size}
            parameters = _parameters(scheme, query, file_parsers)
            return _store_class("sqlite", "SqliteStore", "apsw", "serve")(place, create=create, **parameters)
        case "postgresql" | "postgres":
            if not place.startswith("//"):
                raise StoreUnusable(f"{scheme}: needs a server, such as {scheme}://127.0.0.1/interlock.")
            _require_server(scheme, rest)
            pairs = parse_qsl(query, keep_blank_values=True)
            own, others = (urlencode([pair for pair in pairs if (pair[0] in durations) is is_own]) for is_own in (True, False))
            parameters = _parameters(scheme, own, durations)
            url = f"{scheme}:{place}{'?' if others else ''}{others}"
            return _store_class("postgres", "PostgresStore", "psycopg", "postgres")(url, create=create, **parameters)
        case _:
            redacted = re.sub(r"^(\w+://)?.*@", r"\1…@", url)
            kinds = "memory:, sqlite:PATH or postgresql://HOST/DATABASE"
            raise StoreUnusable(f"{redacted} names no store; a store is {kinds}.")


def _require_server(scheme: str, rest: str) -> None:
    """Raise `StoreUnusable` for a URL whose password needs an escape, or with a wrong host; the message shows no part of it."""
    match = re.fullmatch(r"//([^@/?#]*@)?([^@/?#]*)([/?][^@#]*)?", rest)
    if match is None or re.search("%(?![0-9A-Fa-f]{2})", rest):
        escapes = "/ as %2F, ? as %3F, # as %23, @ as %40 and % as %25"
        raise StoreUnusable(f"{scheme}: cannot be read: in user name, password and parameters, write {escapes}.")
    for host in match[2].split(","):
        parts = re.fullmatch(r"(?:\[([^\]]*)\]|[^:\[\]]*)(?::([0-9]{0,5}))?", host)
        try:
            valid = parts is not None and int(parts[2] or 0) < 2**16 and (parts[1] is None or IPv6Address(unquote(parts[1])))
        except ValueError:
            valid = False
        if not valid:
            raise StoreUnusable(f"{scheme}: has a wrong host or port: an IPv6 address is in brackets, a port is at most 65535.")


def _store_class(module: str, name: str, package: str, extra: str) -> Callable[..., ResponseStore]:
    """Import the class of a store that needs a package, which an extra of Interlock installs."""
    try:
        return cast("Callable[..., ResponseStore]", getattr(import_module(f"interlock.serving.store.{module}"), name))
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        install = f"pip install 'interlock[{extra}]' (in a checkout, '.[{extra}]')"
        raise StoreUnusable(f"This store needs {package}: {install}") from error


def _parameters(scheme: str, query: str, parsers: Mapping[str, Callable[[str], object]]) -> dict[str, object]:
    """Parse the parameters of a URL. For an invalid value, a parser raises a `ValueError` that says what is valid."""
    parameters: dict[str, object] = {"ttl": TTL}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in parsers:
            raise StoreUnusable(f"{scheme}: takes {', '.join(parsers)}, and no parameter {name!r}.")
        try:
            parameters[name] = parsers[name](value)
        except ValueError as error:
            raise StoreUnusable(f"{scheme}: cannot take {name}={value[:40]}: {error}.") from error
    return parameters


def _duration(value: str) -> float | None:
    return None if value == "never" else _seconds(value, "a duration is like 900, 15m, 12h, 30d or never")


def _seconds(value: str, valid: str = "a duration is like 0.5, 90s or 15m") -> float:
    return _amount(value, {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}, valid)


def _size(value: str) -> int:
    return int(_amount(value.lower(), {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}, "a size is like 4096, 64k, 256m or 2g"))


def _file_size(value: str) -> int:
    size = _size(value)
    if size < LEAST_FILE:
        raise ValueError("a file needs at least 1m, or it has no room for the large response whose write ends an outage")
    return size


def _amount(value: str, units: Mapping[str, int], valid: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]?)", value, flags=re.ASCII)
    if match is None or match[2] not in units:
        raise ValueError(valid)
    return float(match[1]) * units[match[2]]


def _count(value: str) -> int:
    if re.fullmatch(r"[0-9]{1,9}", value) is None or int(value) < 1:
        raise ValueError("it is a whole number from 1 on")
    return int(value)


def _synchronous(value: str) -> str:
    if value not in {"normal", "full"}:
        raise ValueError("it is normal or full")
    return value
