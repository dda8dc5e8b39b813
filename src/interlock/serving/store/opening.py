"""Where responses are stored, as one says it on a command line: `memory:`, `sqlite:PATH`, `redis://…`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, Literal, TypeAlias, cast
from urllib.parse import parse_qsl

from interlock.serving.store.interface import ResponseStore
from interlock.serving.store.store_errors import StoreUnfit

__all__ = ["IN_MEMORY", "TTL", "open_store"]

IN_MEMORY: Final = "memory:?ttl=never"
"""The store of a server whose owner names none."""

TTL: Final = 30 * 86_400.0
"""Seconds for which a response is stored, if nothing else is said: as long as OpenAI does."""

MIN_CONNECTIONS: Final = 2
"""To Redis: one of them only listens."""

_UNITS: Final[Mapping[str, int]] = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SIZES: Final[Mapping[str, int]] = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}

Reader: TypeAlias = Callable[[str], object]
"""Reads the value of a parameter; raises `ValueError`."""


def open_store(url: str = IN_MEMORY) -> ResponseStore:
    """Create the store that a URL names. Nothing is opened or connected yet: that happens when the store is first needed.

    `memory:`, `sqlite:PATH`, and `redis://`, `rediss://` or `valkey://` with host, port and database. Parameters come after a
    `?`: `ttl` and `logs` (how long responses and the events of ended ones are stored: `30d`, `12h`, `900` seconds, or `never`
    removed), for SQLite `synchronous` (`normal` or `full`), `busy` and `max_bytes`, for memory `max_bytes` and `max_responses`,
    for Redis `max_connections` (2 or more).

    Args:
        url: It.

    Raises:
        StoreUnfit: The URL says nothing that is known, or what the store needs is not installed; the message says what to do.
    """
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in _SCHEMES:
        raise StoreUnfit(f"{_shown(url)} names no store; a store is memory:, sqlite:PATH, redis://HOST, rediss:// or valkey://.")
    place, _, query = rest.partition("?")
    return _SCHEMES[scheme](scheme, place, query)


def _memory(scheme: str, place: str, query: str) -> ResponseStore:
    if place:
        raise StoreUnfit(f"{scheme}: takes no path.")
    parameters = _read(scheme, query, {"ttl": _duration, "max_bytes": _size, "max_responses": int})
    return _store("sqlite", "MemoryStore", "apsw")(**{"ttl": TTL, **parameters})


def _sqlite(scheme: str, place: str, query: str) -> ResponseStore:
    if not place or place.startswith("//"):
        raise StoreUnfit(
            f"{scheme}: needs the path of a file, such as sqlite:responses.db or sqlite:/var/lib/interlock/responses.db."
        )
    readers: dict[str, Reader] = {
        "ttl": _duration, "logs": _duration, "synchronous": _level, "busy": _duration, "max_bytes": _size
    }  # fmt: skip
    parameters = _read(scheme, query, readers)
    return _store("sqlite", "SqliteStore", "apsw")(place, **{"ttl": TTL, **parameters})


def _redis(scheme: str, place: str, query: str) -> ResponseStore:
    if not re.match(r"//[^/]", place):
        raise StoreUnfit(f"{scheme}: needs a host, such as {scheme}://127.0.0.1:6379/0.")
    parameters = _read(scheme, query, {"ttl": _duration, "logs": _duration, "max_connections": _connections})
    make = _store("redis", "RedisStore", "redis")
    return make(f"{scheme.replace('valkey', 'redis')}:{place}", **{"ttl": TTL, **parameters})


_SCHEMES: Final[Mapping[str, Callable[[str, str, str], ResponseStore]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "redis": _redis,
    "rediss": _redis,
    "valkey": _redis,
}


def _store(extra: str, name: str, package: str) -> Callable[..., ResponseStore]:
    """Return a class of stores, whose package may not be installed; its folder has the name of the extra."""
    try:
        return cast("Callable[..., ResponseStore]", getattr(import_module(f"interlock.serving.store.{extra}"), name))
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise StoreUnfit(f"This store needs {package}: pip install {package}") from error


def _read(scheme: str, query: str, readers: Mapping[str, Reader]) -> dict[str, object]:
    """Return the parameters of a URL."""
    parameters: dict[str, object] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in readers:
            raise StoreUnfit(f"{scheme}: takes {', '.join(readers)}, and no parameter {name!r}.")
        try:
            parameters[name] = readers[name](value)
        except ValueError as error:
            raise StoreUnfit(f"{scheme}: cannot take {name}={value}.") from error
    return parameters


def _duration(value: str) -> float | None:
    if value == "never":
        return None
    return _amount(value, _UNITS)


def _size(value: str) -> int:
    return int(_amount(value.lower(), _SIZES))


def _connections(value: str) -> int:
    if re.fullmatch(r"[0-9]{1,6}", value) is None or int(value) < MIN_CONNECTIONS:
        raise StoreUnfit(f"max_connections is a whole number from {MIN_CONNECTIONS} to 999999, and cannot be {value!r}.")
    return int(value)


def _amount(value: str, units: Mapping[str, int]) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]?)", value, flags=re.ASCII)
    if match is None or match[2] not in units:
        raise ValueError(value)
    return float(match[1]) * units[match[2]]


def _level(value: str) -> Literal["normal", "full"]:
    if value not in {"normal", "full"}:
        raise ValueError(value)
    return "full" if value == "full" else "normal"


def _shown(url: str) -> str:
    """Return a URL without the password that may be in it."""
    return re.sub(r"//[^@/]*@", "//…@", url)
