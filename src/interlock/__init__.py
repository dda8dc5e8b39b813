"""Interlock: a finite-state-machine streaming engine for Responses, Chat Completions and Messages.

    events/    the types on the wire
    fsm/       the lifecycles and the driver, which decide the order of events
    dialects/  tables that turn a response into a stream of another API
    parsers/   from model output to deltas, the input of the driver
    judges/    validators of streams, behind `interlock check`
    serving/   the server, the engines, the command, the vLLM plugin; the only package with IO
    verify/    the proof of all tables, behind `interlock verify`
    diagram/   pictures and text formats of tables
    testing/   assertions and strategies for tests
    embedding  a driver with defaults
    serve      the public names of the server, for an application with its own engine
    lazy       lazy exports

The package exports the public names for embedders and imports each on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import exporter

if TYPE_CHECKING:
    from interlock.dialects.chat import ChatTransducer
    from interlock.dialects.messages import MessagesTransducer
    from interlock.embedding import *
    from interlock.events import *
    from interlock.fsm import *
    from interlock.judges import *
    from interlock.parsers import *

__all__ = [
    "CONTENT_TYPE",
    "DONE_FRAME",
    "OPENAI",
    "OPEN_RESPONSES",
    "Annotate",
    "AnyEvent",
    "Cancel",
    "ChatParser",
    "ChatTransducer",
    "Chunk",
    "Close",
    "Delta",
    "EndOutput",
    "EndPart",
    "EndReason",
    "EndTurn",
    "Enqueue",
    "EventWriter",
    "Fail",
    "FamilyParser",
    "Fault",
    "Finding",
    "Finish",
    "FinishReason",
    "Format",
    "HarmonyParser",
    "InterlockError",
    "Judge",
    "MessagesTransducer",
    "Open",
    "Parser",
    "PlainParser",
    "Progress",
    "ReadyCall",
    "Refusal",
    "Reject",
    "ResponseDriver",
    "Routing",
    "Run",
    "SequentialIds",
    "Silence",
    "SseWriter",
    "Start",
    "StopParser",
    "StreamEvent",
    "Succeed",
    "Summary",
    "Tagged",
    "Text",
    "TokenLogprob",
    "Usage",
    "Verdict",
    "__version__",
    "driver_for",
    "judge",
    "now",
    "parser_for",
    "random_id",
    "response_settings",
    "result_fields",
]

__version__ = "0.1.0"

__getattr__ = exporter(
    __name__,
    __all__,
    [
        *("interlock.events", "interlock.fsm", "interlock.parsers", "interlock.embedding", "interlock.judges"),
        *("interlock.dialects.chat", "interlock.dialects.messages"),
    ],
)


def __dir__() -> list[str]:
    """Return the exported names."""
    return __all__
