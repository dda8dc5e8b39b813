"""Bodies as they go over the wire, written out plainly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpus_streams.legal import Body


DONE = b"data: [DONE]\n\n"


def framed(bodies: list[Body]) -> bytes:
    """Write a whole stream as server-sent events, with the end marker."""
    frames = [f"event: {body.get('type')}\ndata: {json.dumps(body, ensure_ascii=False)}\n\n" for body in bodies]
    return "".join(frames).encode() + DONE
