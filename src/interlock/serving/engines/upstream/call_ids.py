"""Maps the ids of calls between the API and an upstream.

Each side follows from the other, so ids stay the same if a client sends the whole conversation itself.
"""

from __future__ import annotations

import re
from typing import Final

from interlock.serving.requests.normalize import short_id

SHARED_ID: Final = re.compile(r"call_(?!_)[a-zA-Z0-9_-]{1,35}")
"""Matches the ids of an upstream that are the same in the API."""
MARK: Final = "call__"
"""Begins the ids that stand for another id of the upstream."""
UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]|-(?=[0-9a-f]{2})")
"""Matches the characters that `MARK` ids write as bytes in hexadecimal digits."""
ESCAPED: Final = re.compile(rb"-([0-9a-f]{2})")
LONGEST_ID: Final = 1_024
"""The most characters of an id that is mapped; instead of a longer one, the server makes its own."""
FITTING_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""Matches the ids that most services accept from another one."""


def api_call_id(upstream_id: object) -> str:
    """Return the API's id for an upstream's, or "" if it has none: only letters, digits, `_` and `-` after `call_`."""
    if not isinstance(upstream_id, str) or not upstream_id or len(upstream_id) > LONGEST_ID:
        return ""
    if SHARED_ID.fullmatch(upstream_id):
        return upstream_id
    return MARK + UNSAFE.sub(lambda match: "".join(f"-{byte:02x}" for byte in match[0].encode(errors="replace")), upstream_id)


def upstream_call_id(call_id: str) -> str:
    """Return the upstream's id for one of the API's, and a short id for one that another server made and services refuse."""
    if not call_id.startswith(MARK):
        return call_id if FITTING_ID.fullmatch(call_id) else short_id(call_id)
    escaped = call_id.removeprefix(MARK).encode(errors="replace")
    return ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), escaped).decode(errors="replace") or short_id(call_id)
