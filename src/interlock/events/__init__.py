"""The types of a Responses stream: events and items, and their encoding and decoding. `interlock.fsm` defines their order.

parts            content parts, annotations, log probabilities, and types for fields that may be omitted
items            all kinds of items
tools            tools, tool choices, text formats
response_object  the response
request          the body of a request for a response
settings_echo    the settings that a response echoes from its request
stream           all events
steering         the events about the steering of a response
shapes           validation of JSON values against these types
sse              server-sent events: writers and a decoder
dialects         the dialects of OpenAI and Open Responses
messages         the events and objects of Anthropic's Messages
chat             the chunks and objects of OpenAI's Chat Completions, and what an upstream adds to a call
json             JSON encoding that accepts any text
rulebook         the rules of streams, known deviations from them, and findings
conversion       conversion to the types of the `openai` package; only this module imports `openai`

The package exports what applications with an embedded Interlock need.
"""

from interlock.events.dialects import DIALECTS, OPEN_RESPONSES, OPENAI, Dialect, DialectName
from interlock.events.items import ItemKind, result_fields
from interlock.events.settings_echo import response_settings
from interlock.events.sse import CONTENT_TYPE, DONE_FRAME, EventWriter, SseDecoder, SseMessage, SseWriter, Writer
from interlock.events.stream import AnyEvent, StreamEvent

__all__ = [
    "CONTENT_TYPE",
    "DIALECTS",
    "DONE_FRAME",
    "OPENAI",
    "OPEN_RESPONSES",
    "AnyEvent",
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
