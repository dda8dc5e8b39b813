"""The configuration of a gateway: its upstreams, from options or a TOML file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
from attrs import frozen
from msgspec import Meta, Struct

from interlock.fsm.errors import InterlockError
from interlock.parsers import Tagged
from interlock.serving.engines.engine import ModelFacts
from interlock.serving.engines.upstream.apis import UPSTREAM_APIS
from interlock.serving.engines.upstream.translator import Upstream
from interlock.serving.engines.upstream.upstream_client import Timeouts, UpstreamClient

PLACE: Final = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
"""Matches the text of a msgspec error, and the path of the wrong value."""

Seconds = Annotated[float, Meta(gt=0)]
Value: TypeAlias = str | int | float | bool
"""The value of an option in the file."""


@frozen
class ConfigError(InterlockError):
    """A setting is invalid; `key` is its path in the file."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


class UpstreamSettings(Struct, kw_only=True, forbid_unknown_fields=True):
    """A table `[[upstream]]` of the file; docs/gateway.md explains the keys."""

    url: str
    api: str = "chat"
    models: list[str] = []
    aliases: dict[str, str] = {}
    family: str | None = None
    key: str | None = None
    key_variable: str | None = None
    pass_key: bool = False
    connect_timeout: Seconds = 10
    first_timeout: Seconds = 600
    between_timeout: Seconds = 600
    retries: Annotated[int, Meta(ge=0, le=10)] = 2
    fields: dict[str, str] = {}
    short_call_ids: bool = False
    facts: dict[str, ModelFacts] = {}

    def upstream(self) -> Upstream:
        """Return the upstream; raise `ConfigError` for an invalid value."""
        if self.api not in UPSTREAM_APIS:
            raise ConfigError("api", f"unknown API {self.api!r}; choose one of {', '.join(UPSTREAM_APIS)}")
        timeouts = Timeouts(self.connect_timeout, self.first_timeout, self.between_timeout)
        return Upstream(
            UpstreamClient(_base_url(self.url), self._key(), self.pass_key, timeouts, self.retries),
            self.api,
            self.models,
            self.aliases,
            None if self.family is None else family_format(self.family),
            self.fields,
            self.short_call_ids,
            self.facts,
        )

    def _key(self) -> str | None:
        if self.key is not None and self.key_variable is not None:
            raise ConfigError("key_variable", "give a 'key' or a 'key_variable', not both")
        if self.key_variable is None:
            return _sendable(self.key or None, "key")
        if not os.environ.get(self.key_variable):
            raise ConfigError("key_variable", f"the environment has no variable {self.key_variable}")
        return _sendable(os.environ[self.key_variable], "key_variable")


class GatewayConfig(Struct, kw_only=True, forbid_unknown_fields=True):
    """The file: the upstreams, and under `[serve]` defaults for options of `interlock serve`, named with underscores."""

    upstream: list[UpstreamSettings] = []
    serve: dict[str, Value | list[Value]] = {}

    def upstreams(self) -> list[Upstream]:
        """Return the upstreams; a `ConfigError` has the path of the wrong key."""
        upstreams: list[Upstream] = []
        for index, settings in enumerate(self.upstream):
            try:
                upstreams.append(settings.upstream())
            except ConfigError as error:
                raise ConfigError(f"upstream[{index}].{error.key}", error.message) from None
        _require_distinct(upstreams)
        return upstreams


def read_config(path: Path) -> GatewayConfig:
    """Read a TOML file.

    Raises:
        OSError: The file cannot be read.
        ConfigError: It is not TOML, or has an unknown key or a wrong value.
    """
    try:
        return msgspec.toml.decode(path.read_bytes(), type=GatewayConfig)
    except msgspec.ValidationError as error:
        raise _config_error(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError("", f"not TOML: {error}") from None


def read_upstream(settings: Mapping[str, object]) -> Upstream:
    """Return the upstream of a table's settings; raise `ConfigError` for an unknown key or a wrong value."""
    try:
        return msgspec.convert(settings, UpstreamSettings).upstream()
    except msgspec.ValidationError as error:
        raise _config_error(error) from None


def _config_error(error: msgspec.ValidationError) -> ConfigError:
    match = PLACE.fullmatch(str(error))
    assert match is not None  # noqa: S101 - it matches everything
    return ConfigError(match[2] or "", match[1])


def family_format(name: str) -> Tagged:
    """Return the format of a model family, or of reasoning alone; raise `ConfigError` for an unknown one."""
    from interlock.parsers.families import DEFAULT_REASONING, REASONINGS  # noqa: PLC0415 - only gateways with a family load them

    if name in DEFAULT_REASONING:
        return Tagged(name, DEFAULT_REASONING[name])
    if name in REASONINGS:
        return Tagged(None, name)
    names = ", ".join(dict.fromkeys((*DEFAULT_REASONING, *REASONINGS)))
    raise ConfigError("family", f"unknown family {name!r}; choose one of {names}")


def _sendable(key: str | None, name: str) -> str | None:
    """Return a key; raise `ConfigError` if a header cannot contain it. The message does not have the key."""
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise ConfigError(name, "a key has only printable ASCII characters, and no white space at its ends")
    return key


def _base_url(url: str) -> str:
    """Return a URL without a trailing slash; its path defaults to `/v1`."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError("url", f"{url!r} is invalid: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("url", f"{url!r} is not an HTTP URL")
    if parts.query or parts.fragment or parts.username is not None:
        raise ConfigError("url", "a URL of an upstream has no user, query or fragment")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def _require_distinct(upstreams: list[Upstream]) -> None:
    seen: dict[str, int] = {}
    for index, upstream in enumerate(upstreams):
        for name in (*upstream.models, *upstream.aliases):
            if seen.setdefault(name, index) != index:
                raise ConfigError(f"upstream[{index}]", f"upstream[{seen[name]}] has the model {name!r} already")
