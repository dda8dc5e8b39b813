"""Interlock: a finite-state-machine streaming engine for the Responses API.

`interlock.parsers` turns what a model wrote into deltas, `interlock.fsm` turns deltas into events in a legal order,
`interlock.events` writes them, `interlock.testing` judges streams in tests, and `interlock.serving` is the only package with IO.

What an embedder needs is exported here too, and imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from interlock.embedding import driver_for, now, random_id
    from interlock.events import (
        CONTENT_TYPE,
        DONE_FRAME,
        OPEN_RESPONSES,
        OPENAI,
        Event,
        EventWriter,
        SseWriter,
        response_settings,
        result_fields,
    )
    from interlock.fsm import (
        Annotate,
        Cancel,
        Close,
        Delta,
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
    from interlock.parsers import Chunk, HarmonyParser, Parser, PlainParser, Routing, VllmParser, parser_for

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
    "EndPart",
    "EndTurn",
    "Enqueue",
    "Event",
    "EventWriter",
    "Fail",
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
    "Succeed",
    "Summary",
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

_HOMES: Final = ("interlock.events", "interlock.fsm", "interlock.parsers", "interlock.fsm.acceptor", "interlock.embedding")
"""Where the exported names are defined: each of these modules has an `__all__`."""


def __getattr__(name: str) -> object:
    """Import an exported name (PEP 562), so that the command starts without what it does not use.

    Raises:
        AttributeError: The name is not exported.
    """
    if name in __all__:
        for home in map(import_module, _HOMES):
            if name in home.__all__:
                return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the exported names."""
    return __all__
