"""Interlock: a finite-state-machine streaming engine for the Responses API.

`interlock.parsers` turns what a model wrote into deltas, `interlock.fsm` turns deltas into events in a legal order,
`interlock.events` writes them, `interlock.testing` judges streams in tests, and `interlock.serving` is the only package with IO.

    events/    the vocabulary
    fsm/       the lifecycles and the driver
    parsers/   what a model wrote, as deltas
    serving/   the server, the engines, the command, the plugin
    testing/   for the tests of others
    embedding  a driver with defaults
    late       names that are imported when they are first used

What an embedder needs is exported here too, and imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.late import exporter

if TYPE_CHECKING:
    from interlock.embedding import driver_for, now, random_id
    from interlock.events import (
        CONTENT_TYPE,
        DONE_FRAME,
        OPEN_RESPONSES,
        OPENAI,
        EventWriter,
        SseWriter,
        StreamEvent,
        response_settings,
        result_fields,
    )
    from interlock.fsm import (
        Annotate,
        Cancel,
        Close,
        Delta,
        EndOutput,
        EndPart,
        EndTurn,
        Enqueue,
        Fail,
        Fault,
        Finish,
        FinishReason,
        InterlockError,
        Open,
        Progress,
        ReadyCall,
        Refusal,
        Reject,
        ResponseDriver,
        Run,
        SequentialIds,
        Start,
        Succeed,
        Summary,
        Text,
        Usage,
    )
    from interlock.fsm.acceptor import Finding, Judge, Verdict, judge
    from interlock.parsers import Chunk, FamilyParser, HarmonyParser, Parser, PlainParser, Routing, Tagged, VllmParser, parser_for

__all__ = [
    "CONTENT_TYPE",
    "DONE_FRAME",
    "OPENAI",
    "OPEN_RESPONSES",
    "Annotate",
    "Cancel",
    "Chunk",
    "Close",
    "Delta",
    "EndOutput",
    "EndPart",
    "EndTurn",
    "Enqueue",
    "EventWriter",
    "Fail",
    "FamilyParser",
    "Fault",
    "Finding",
    "Finish",
    "FinishReason",
    "HarmonyParser",
    "InterlockError",
    "Judge",
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
    "SseWriter",
    "Start",
    "StreamEvent",
    "Succeed",
    "Summary",
    "Tagged",
    "Text",
    "Usage",
    "Verdict",
    "VllmParser",
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
    ["interlock.events", "interlock.fsm", "interlock.parsers", "interlock.fsm.acceptor", "interlock.embedding"],
)


def __dir__() -> list[str]:
    """Return the exported names."""
    return __all__
