"""Hiding what a stream says: its texts are replaced by their lengths, and its order, names and ids stay.

What may stay is listed; any other string is hidden, so that a field that nobody has heard of cannot leak.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

KEPT: Final = frozenset(
    {"type", "id", "object", "status", "role", "model", "phase", "item_id", "call_id", "name", "server_label", "container_id"}
    | {"response_id", "previous_response_id", "reason", "finish_reason", "service_tier", "truncation", "effort", "format"}
)
"""The fields whose strings stay: identities, kinds and states. No text of a user, a model or a tool stands in one."""

HIDDEN: Final = "•"

_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def redacted(value: object, field: str = "") -> object:
    """Return a JSON value with its texts hidden, each by as many marks as it has characters.

    Args:
        value: Any JSON value.
        field: The name of the field that holds it.
    """
    match value:
        case str():
            return value if field in KEPT else HIDDEN * len(value)
        case Mapping():
            members = cast("Mapping[str, object]", value)
            # The code of an error is the API's; any other code is a program.
            kept = {"code": members["code"]} if "message" in members and "code" in members else {}
            return {name: redacted(inner, name) for name, inner in members.items()} | kept
        case list():
            return [] if field == "bytes" else [redacted(inner) for inner in cast("list[object]", value)]
        case _:
            return value


def without_quotes(message: str) -> str:
    """Return the message of a finding without what it quotes of the stream.

    Args:
        message: What the judge says.
    """
    return _QUOTED.sub(f"'{HIDDEN * 3}'", message)
