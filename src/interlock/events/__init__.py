"""The vocabulary of a Responses stream: events, items, and how they are written and read. It knows no order.

    parts            content parts, annotations, log probabilities, and the ways in which a field may be left out
    items            every kind of item
    tools            tools, tool choices, text formats
    response_object  the response and the request
    stream           every event, and the messages of a WebSocket
    shapes           what is wrong with a JSON value, by such a type
    resource         the settings that a response repeats from its request
    sse              the writers: bytes of server-sent events, or objects
    decode           the decoder of server-sent events
    dialects         OpenAI's dialect and that of Open Responses
    json             JSON that can always be written
    conversion       to the types of the `openai` package, which it imports

What an embedder needs is exported here.
"""

from interlock.events.decode import SseDecoder, SseMessage
from interlock.events.dialects import DIALECTS, OPEN_RESPONSES, OPENAI, Dialect, DialectName
from interlock.events.items import ItemKind, result_fields
from interlock.events.resource import response_settings
from interlock.events.sse import CONTENT_TYPE, DONE_FRAME, EventWriter, SseWriter, Writer
from interlock.events.stream import StreamEvent

__all__ = [
    "CONTENT_TYPE",
    "DIALECTS",
    "DONE_FRAME",
    "OPENAI",
    "OPEN_RESPONSES",
    "Dialect",
    "DialectName",
    "EventWriter",
    "ItemKind",
    "SseDecoder",
    "SseMessage",
    "SseWriter",
    "StreamEvent",
    "Writer",
    "response_settings",
    "result_fields",
]
