"""The base of transducers: reads events as triggers of a table, and encodes what its effects make.

A driver with an `EntryWriter` returns *entries*: events, and the texts of repeated delta events. So a driver that undoes an event
has not changed the transducer, and a text only replaces the one in the last frame.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar

from attrs import frozen
from msgspec import Struct
from msgspec.structs import replace

from interlock.events import items, stream
from interlock.events.json import as_json, dumps, encode
from interlock.events.parts import ReasoningText
from interlock.events.response_object import IncompleteDetails, Response
from interlock.events.sse import COMMENT
from interlock.fsm.deltas import REASON_OF_DETAIL, TURN_ENDS, TurnEnd
from interlock.fsm.table import Machine, Table

E = TypeVar("E", bound=StrEnum)
"""The type of the effects."""
D = TypeVar("D", bound=Struct)
"""The type of the other API's events."""


def end_of(response: Response) -> TurnEnd | None:
    """Return the end of the last turn of an incomplete response; None if the API has no reason for it."""
    details = response.incomplete_details
    return TURN_ENDS[REASON_OF_DETAIL.get(details.reason, "length")] if isinstance(details, IncompleteDetails) else None


StreamEntry: TypeAlias = stream.StreamEvent | str
"""An event, or the text of a delta event like the last one."""

STATUSES: Final[Mapping[str, int]] = {"invalid_prompt": 400, "rate_limit_exceeded": 429}
"""The HTTP status for the error of a response, by its code; 500 for any other."""

OVERFLOW: Final = re.compile(r"context (?:window|length)", re.IGNORECASE)
"""Is in the errors that say that a prompt is too long, for which clients shorten the conversation."""

MARK: Final = "\x00"
"""Stands for the text in a frame; in JSON it is an escape, which no field around it has."""


def begins_object(arguments: str) -> bool:
    """Return whether the beginning of a call's arguments is that of a JSON object; nothing at all is."""
    return arguments.lstrip()[:1] in ("{", "")


class EventTrigger(StrEnum):
    """What an event says to a transducer."""

    BEGIN = "begin"
    """The response begins."""
    TEXT = "text"
    """More text for the user."""
    REFUSE = "refuse"
    """More of a refusal."""
    ANNOTATE = "annotate"
    """An annotation of the text."""
    THINK = "think"
    """More reasoning."""
    SEAL = "seal"
    """The reasoning ends."""
    CALL = "call"
    """A call of a client's tool begins, whose arguments begin as an object does."""
    QUOTE = "quote"
    """A call of a client's tool begins, whose arguments are no object."""
    ARGUE = "argue"
    """More of the call's arguments."""
    CLOSE = "close"
    """A text or a client's call ends."""
    USE = "use"
    """A call of a tool of the server is complete."""
    RESULT = "result"
    """The result of such a call."""
    END = "end"
    """The response is completed or incomplete."""
    FAIL = "fail"
    """The response failed."""


ServerCall: TypeAlias = items.McpCall | items.CodeInterpreterCall | items.WebSearchCall
TriggerStep: TypeAlias = tuple[EventTrigger, object]
"""A trigger, and what its effects need: a text, an item or a response."""

_T = EventTrigger


@frozen
class EntryWriter:
    """Returns events as they are, and the texts of repeated delta events."""

    def write(self, event: stream.StreamEvent) -> StreamEntry:
        """Return the event."""
        return event

    def repeat(self, event: stream.StreamEvent) -> Callable[[str, int], StreamEntry]:
        """Return a function that returns the text."""
        del event
        return lambda text, _number: text


class Transducer(ABC, Generic[E, D]):
    """Turns the events of one response into those of another API.

    Args:
        thinks: Whether the reasoning is sent, or only its signature.
    """

    table: Table[EventTrigger, E]
    end: ClassVar[bytes] = b""
    """What follows the last frame; `encode` returns it too."""
    ping: ClassVar[bytes] = COMMENT
    """What breaks a silence; `encode` returns it for `keepalive`."""

    def __init__(self, *, thinks: bool = True) -> None:
        self._thinks = thinks
        self._machine = Machine.at_start(self.table)
        self._calls: dict[str, ServerCall] = {}
        """The calls of the server's tools that `USE` has not shown yet, by the id of the item."""
        self._undecided_call: items.FunctionCall | None = None
        """The call of a function whose first arguments will show whether they are an object."""
        self.stop_sequence: str | None = None
        """The stop string that ended the output, which no event shows; set it before the response ends."""
        self.input_tokens = 0
        """The tokens of the prompt as far as they are known before the usage; set it before the response begins."""
        self.status = 200
        """The HTTP status of the whole answer, once its events have been read."""
        self._sections: Sequence[bytes] = ()
        """What is around the texts in the frame of the last delta; nothing if the API does not show such texts."""

    @property
    def has_ended(self) -> bool:
        """Whether the stream has its last event."""
        return not self._machine.state.rows

    def encode(self, entries: Iterable[StreamEntry]) -> bytes:
        """Return the frames of entries; an `IllegalTransition` is a fault of the table or of the driver."""
        frames: list[bytes] = []
        for entry in entries:
            if isinstance(entry, str):
                frames.append(encode(entry).join(self._sections))
            else:
                frames += self._frames(entry)
        return b"".join(frames)

    def encode_whole(self, events: Iterable[stream.StreamEvent]) -> tuple[int, bytes]:
        """Return the HTTP status and the JSON body of an answer that is not streamed, from all events of the response."""
        whole = self.fold(each for event in events for each in self.feed(event))
        return self.status, dumps(whole)

    def _frames(self, event: stream.StreamEvent) -> Iterator[bytes]:
        """Yield the frames of an event, and prepare for further texts of a delta event."""
        if isinstance(event, stream.Keepalive):
            yield self.ping
        events = self.feed(event)
        yield from map(self.frame, events)
        # A delta whose edges have fired leads to the same state again, so another one only shows what is around its text.
        repeats = events and hasattr(event, "delta") and not getattr(event, "logprobs", None)
        again = self.feed(replace(event, delta=MARK)) if repeats else ()
        self._sections = self.frame(again[-1]).split(encode(MARK)) if again else ()
        if events and self.has_ended:
            yield self.end

    def fork(self) -> Self:
        """Return a transducer in the same state, which goes its own way."""
        other = copy(self)
        vars(other).update({name: copy(value) for name, value in vars(self).items()})
        return other

    @property
    def state_key(self) -> tuple[str, int, bool]:
        """The state, how much waits for another one, and whether a call has begun: what the further stream depends on."""
        return self._machine.state.name, 0, self._undecided_call is not None

    def feed(self, event: stream.StreamEvent) -> list[D]:
        """Return the events that one event becomes."""
        api_events: list[D] = []
        for trigger, argument in self._read(event):
            for effect in self._machine.fire(trigger):
                api_events += self.make(effect, argument)
        return api_events

    @abstractmethod
    def make(self, effect: E, argument: object) -> Sequence[D]:
        """Return the events of an effect."""

    @abstractmethod
    def frame(self, event: D) -> bytes:
        """Return an event as it is sent."""

    @abstractmethod
    def fold(self, events: Iterable[D]) -> Struct:
        """Return the whole answer that the events of a stream add up to, or the error that ended it."""

    def _read(self, event: stream.StreamEvent) -> Iterator[TriggerStep]:  # noqa: C901, PLR0912 - one case for each event, in one place
        match event:
            case stream.TextDelta():
                yield _T.TEXT, event
            case stream.RefusalDelta():
                yield _T.REFUSE, event.delta
            case stream.AnnotationAdded():
                yield _T.ANNOTATE, as_json(event.annotation)
            case stream.ReasoningDelta() | stream.SummaryDelta() if self._thinks:
                yield _T.THINK, event.delta
            case stream.ArgumentsDelta():
                if self._undecided_call is not None:
                    yield _T.CALL if begins_object(event.delta) else _T.QUOTE, self._undecided_call
                    self._undecided_call = None
                yield _T.ARGUE, event.delta
            case stream.PartAdded(part=ReasoningText()) if self._thinks and event.content_index:
                yield _T.THINK, "\n\n"
            case stream.SummaryPartAdded() if self._thinks and event.summary_index:
                yield _T.THINK, "\n\n"
            case stream.PartDone() if not isinstance(event.part, ReasoningText):
                yield _T.CLOSE, None
            case stream.ItemAdded(item=items.FunctionCall() as call):
                self._undecided_call = call
            case stream.ItemAdded(item=items.McpCall() | items.CodeInterpreterCall() | items.WebSearchCall() as call):
                self._calls[str(call.id)] = call
            case stream.McpArgumentsDone():
                yield _T.USE, replace(self._calls.pop(event.item_id), arguments=event.arguments)
            case stream.CodeDone():
                yield _T.USE, replace(self._calls.pop(event.item_id), code=event.code)
            case stream.ItemDone():
                yield from self._read_item(event.item)
            case stream.Created():
                yield _T.BEGIN, event.response
            case stream.Completed() | stream.Incomplete():
                yield _T.END, event.response
            case stream.Failed():
                error = event.response.error
                self.status = STATUSES.get(error.code, 500) if error else 500
                yield _T.FAIL, event.response
            case _:
                return

    def _read_item(self, item: items.OutputItem) -> Iterator[TriggerStep]:
        match item:
            case items.Reasoning():
                yield _T.SEAL, item.encrypted_content or ""
            case items.FunctionCall():
                if self._undecided_call is not None:
                    yield _T.CALL, item
                    self._undecided_call = None
                yield _T.CLOSE, None
            case items.CustomToolCall():
                yield _T.CALL, item
                yield _T.ARGUE, item
                yield _T.CLOSE, None
            case items.McpCall() | items.CodeInterpreterCall() | items.WebSearchCall():
                if self._calls.pop(str(item.id), None) is not None:
                    yield _T.USE, item
                yield _T.RESULT, item
            case _:
                return


AnyTransducer: TypeAlias = Transducer[Any, Any]
