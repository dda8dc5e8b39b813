"""The upstreams of a gateway, from its settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from interlock.parsers import Tagged
from interlock.serving.engines.upstream.translator import Upstream
from interlock.serving.engines.upstream.upstream_client import Timeouts, UpstreamClient
from interlock.serving.settings import Settings, SettingsError, UpstreamSettings

FIELDS: Final[Mapping[str, str]] = {"url": "upstream", "key": "upstream_key", "family": "family"}
"""The fields of `Settings` that stand for those of a table."""


def upstreams_of(settings: Settings) -> list[Upstream]:
    """Return the upstream at the URL, or those of the file if there is no URL; a model `ALIAS=NAME` is an alias.

    Raises:
        SettingsError: A value cannot be used, or two upstreams have the same model.
    """
    if settings.upstream is None:
        place = settings.place("upstreams")
        upstreams = [upstream_of(table, f"{place}[{index}]") for index, table in enumerate(settings.upstreams)]
        _require_distinct(upstreams, place)
        return upstreams
    first, between = settings.upstream_timeout[0], settings.upstream_timeout[-1]
    table = UpstreamSettings(
        url=settings.upstream,
        api=settings.upstream_api,
        models=tuple(name for name in settings.model if "=" not in name),
        aliases=dict(name.split("=", 1) for name in settings.model if "=" in name),
        family=settings.family,
        key=settings.upstream_key,
        pass_key=settings.pass_key,
        first_timeout=first,
        between_timeout=between,
        retries=settings.upstream_retries,
    )
    try:
        return [upstream_of(table, "")]
    except SettingsError as error:
        raise settings.error(FIELDS[error.place.lstrip(".")], error.message) from None


def upstream_of(table: UpstreamSettings, place: str = "upstream") -> Upstream:
    """Return the upstream of a table; the `SettingsError` of a wrong value has its key after `place`."""
    try:
        return Upstream(
            UpstreamClient(
                _base_url(table.url),
                _key(table),
                table.pass_key,
                Timeouts(table.connect_timeout, table.first_timeout, table.between_timeout),
                table.retries,
            ),
            table.api,
            table.models,
            table.aliases,
            None if table.family is None else family_format(table.family),
            table.fields,
            table.short_call_ids,
            table.late_system,
            table.facts,
        )
    except SettingsError as error:
        raise SettingsError(f"{place}.{error.place}", error.message) from None


def _key(table: UpstreamSettings) -> str | None:
    if table.key is not None and table.key_variable is not None:
        raise SettingsError("key_variable", "give a 'key' or a 'key_variable', not both")
    if table.key_variable is None:
        return _sendable(table.key or None, "key")
    if not os.environ.get(table.key_variable):
        raise SettingsError("key_variable", f"the environment has no variable {table.key_variable}")
    return _sendable(os.environ[table.key_variable], "key_variable")


def family_format(name: str) -> Tagged:
    """Return the format of a model family, or of reasoning alone; raise `SettingsError` for an unknown one."""
    from interlock.parsers.families import DEFAULT_REASONING, REASONINGS  # noqa: PLC0415 - only gateways with a family load them

    if name in DEFAULT_REASONING:
        return Tagged(name, DEFAULT_REASONING[name])
    if name in REASONINGS:
        return Tagged(None, name)
    names = ", ".join(dict.fromkeys((*DEFAULT_REASONING, *REASONINGS)))
    raise SettingsError("family", f"unknown family {name!r}; choose one of {names}")


def _sendable(key: str | None, name: str) -> str | None:
    """Return a key; raise `SettingsError` if a header cannot contain it. The message does not have the key."""
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise SettingsError(name, "a key has only printable ASCII characters, and no white space at its ends")
    return key


def _base_url(url: str) -> str:
    """Return a URL without a trailing slash; its path defaults to `/v1`."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise SettingsError("url", f"{url!r} is invalid: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError("url", f"{url!r} is not an HTTP URL")
    if parts.query or parts.fragment or parts.username is not None:
        raise SettingsError("url", "a URL of an upstream has no user, query or fragment")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def _require_distinct(upstreams: list[Upstream], place: str) -> None:
    seen: dict[str, int] = {}
    for index, upstream in enumerate(upstreams):
        for name in (*upstream.models, *upstream.aliases):
            if seen.setdefault(name, index) != index:
                raise SettingsError(f"{place}[{index}]", f"upstream[{seen[name]}] has the model {name!r} already")
