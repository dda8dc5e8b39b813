"""The writer of a stream that a request wants padded, so that the sizes of its frames do not show its texts."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable
from typing import Final

from attrs import frozen
from msgspec.structs import replace

from interlock.events.dialects import Dialect
from interlock.events.sse import SseWriter, Writer
from interlock.events.stream import StreamEvent
from interlock.serving.requests.create import ResponseRequest

BLOCK: Final = 16
"""OpenAI's service pads a delta to a multiple of so many characters."""
LETTERS: Final = string.ascii_letters + string.digits


def stream_writer(request: ResponseRequest, dialect: Dialect) -> Writer[bytes]:
    """Return the writer of the stream of a request."""
    options = request.stream_options
    writer = SseWriter(dialect)
    return ObfuscatingWriter(writer) if options is not None and options.include_obfuscation else writer


@frozen
class ObfuscatingWriter:
    """Writes delta events with random characters in `obfuscation`."""

    writer: SseWriter

    def write(self, event: StreamEvent) -> bytes:
        """Return an event as a frame, padded if it is a delta that has the field."""
        if "obfuscation" in event.__struct_fields__:
            text: str = getattr(event, "delta")  # noqa: B009 - the type of the event is not known to the checkers
            event = replace(event, obfuscation="".join(secrets.choice(LETTERS) for _ in range(-len(text) % BLOCK)))
        return self.writer.write(event)

    def repeat(self, event: StreamEvent) -> Callable[[str, int], bytes]:
        """Return a function that writes the event with another text and sequence number."""
        return lambda text, number: self.write(replace(event, delta=text, sequence_number=number))
