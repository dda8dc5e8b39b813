"""What a service adds to a call and wants back with it, such as the thought signature of Gemini's models.

Every client of every API sends the id of a call back, but few send unknown fields, so the id carries these extras: after the
service's own id, as JSON in letters, digits and `_`. Nothing is stored for that.
"""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final

from interlock.events.json import dumps, elements, is_object, parse

EXTRAS: Final = ("extra_content", "provider_specific_fields")
"""The fields of a call that go back to the service."""
SEPARATOR: Final = "-x"
"""Separates an id from its extras, which have no hyphens."""
LONGEST: Final = 65_536
"""The most characters of an id with extras. Longer extras are dropped, as is JSON of more than 16 times as many bytes."""


def extras_in(call: Mapping[str, object]) -> dict[str, object]:
    """Return the extras of a call of Chat Completions."""
    return {name: call[name] for name in EXTRAS if is_object(call.get(name)) and call[name]}


def add_extras(call_id: str, extras: Mapping[str, object], origin: str = "") -> str:
    """Return a call id with extras.

    Args:
        call_id: The id.
        extras: The extras by field; if there are none, the id stays the same.
        origin: Names the service that reads them; empty if that is unknown.
    """
    if not extras:
        return call_id
    packed = urlsafe_b64encode(zlib.compress(dumps([origin, extras]))).decode().rstrip("=")
    full = f"{call_id}{SEPARATOR}{packed.replace('_', '_1').replace('-', '_0')}"
    return full if len(full) <= LONGEST else call_id


def split_extras(call_id: str, origin: str | None = None) -> tuple[str, Mapping[str, object]]:
    """Return a call id without its extras, and the extras; none for an id without any, or with those of another service.

    Args:
        call_id: The id, which a client may have changed.
        origin: The service that would read the extras; None for any.
    """
    plain, separator, packed = call_id.rpartition(SEPARATOR)
    if not separator or len(call_id) > LONGEST:
        return call_id, {}
    packed = packed.replace("_0", "-").replace("_1", "_")
    try:
        text = zlib.decompressobj().decompress(urlsafe_b64decode(f"{packed}{'=' * (-len(packed) % 4)}"), 16 * LONGEST)
    except (ValueError, zlib.error):
        return call_id, {}
    source, extras = [*elements(parse(text)), None, None][:2]
    if not isinstance(source, str) or not is_object(extras):
        return call_id, {}
    return plain, extras_in(extras) if origin is None or source in ("", origin) else {}
