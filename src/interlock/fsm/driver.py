"""The driver: the composition of the lifecycles for one request.

It is fed deltas and fires edges; the events are what the edges emit. It owns the sequence number and the open items. At most one
of these is being written, the *active item*; the others wait for their tools. The driver is total: every delta is welcome in
every state. What a delta needs is opened first, what is in its way is closed first, and what says nothing in the state at
hand (a result for a call that has ended, text after the end) is passed over.

Which order is legal stands in the tables alone. The driver asks a state for its rows, and for the way to a trigger that is not
legal yet; it compares no names of states. Events are made where an edge fires (`_emit`). The one exception is the fast path in
`feed`: text in a state where text only streams is sent by the event of the edge that leads back to that state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Never, TypeVar, assert_never, cast

from attrs import frozen
from msgspec import UNSET
from msgspec.structs import replace

from interlock.events import response_object as response
from interlock.events.items import NOT_RUN, ItemKind, failure_fields
from interlock.events.json import as_json, clean
from interlock.events.parts import placed
from interlock.events.response_object import IncompleteDetails, ResponseError
from interlock.events.sse import Writer
from interlock.events.stream import StreamEvent
from interlock.fsm import deltas
from interlock.fsm.ids import Clock, Ids
from interlock.fsm.item_subject import RESULTS, ItemState, Late
from interlock.fsm.lifecycle import NO_FIELDS, Fields, stream_of
from interlock.fsm.lifecycles import DECLARED, Lifecycles
from interlock.fsm.rebuilding import bodies_of, open_items
from interlock.fsm.response_subject import SETTINGS, ResponseState, usage_of

T = TypeVar("T")
"""What an event is written as: bytes, or `Event`."""

_ANSWER: Final = deltas.Open("message", {"phase": "final_answer"})
_REASONING: Final = deltas.Open("reasoning")
_DEFAULT: Final = {"append": _ANSWER, "refuse": _ANSWER, "summarize": _REASONING}
"""What opens the item that a text belongs to when none is open that can take it, by the text's trigger."""

_NO_USAGE: Final = deltas.Usage()
_CUT: Final = "The response ended before the call did."
_ENGINE_FAILED: Final = "The engine failed while it generated the response."


@frozen
class ReadyCall:
    """A hosted call whose arguments are whole and whose tool has not started.

    Args:
        id: The item's id, for `Run`, `Succeed` and `Fail`.
        kind: The item's kind.
        fields: The item as it was shown last: `name`, `server_label`, `action`, …
        text: Its arguments or its code.
    """

    id: str
    kind: ItemKind
    fields: Mapping[str, object]
    text: str


class ResponseDriver(Generic[T]):
    """Turns deltas into the events of one response.

    Args:
        settings: The request's settings as the response echoes them (`interlock.events.resource.response_settings`). Fields that
            are no settings are passed over.
        writer: The form in which events are given.
        ids: Makes ids.
        clock: Returns the time, in whole seconds since the epoch.
        response_id: The response's id, where it is known already.
        created_at: When the response was created, in seconds since the epoch, where that is known already.
        additions: Returns what the server shows of the response when it has ended, beyond the API's fields.
        late: Returns the fields of an item that are known only when it is done, such as `encrypted_content`, of the item as it is
            shown then. It is not asked for what is no event, and must not raise.
        lifecycles: What it composes.
    """

    __slots__ = (
        *("_active", "_again", "_events", "_ids", "_late", "_lifecycles", "_number", "_open"),
        *("_response", "_usage", "_writer"),
    )

    def __init__(  # noqa: PLR0913 - a driver is handed all that it does not know
        self,
        settings: Mapping[str, object],
        *,
        writer: Writer[T],
        ids: Ids,
        clock: Clock,
        response_id: str | None = None,
        created_at: int | None = None,
        additions: Callable[[], Mapping[str, object]] = lambda: NO_FIELDS,
        late: Late | None = None,
        lifecycles: Lifecycles = DECLARED,
    ) -> None:
        self._writer = writer
        self._events: list[T] = []
        self._number = 0
        """The sequence number of the next event."""
        self._again: Callable[[str, int], T] | None = None
        """Writes a delta of the active item where its text only streams."""
        self._lifecycles = lifecycles
        self._ids = ids
        self._late = late
        self._open: dict[str, ItemState[Any]] = {}
        self._active: ItemState[Any] | None = None
        self._usage = _NO_USAGE
        self._response = ResponseState(
            lifecycles.response.states[lifecycles.response.initial],
            body=response.Response(
                id=response_id or ids("resp"),
                created_at=clock() if created_at is None else created_at,
                **cast("dict[str, Any]", {"model": "", **{name: value for name, value in settings.items() if name in SETTINGS}}),
            ),
            clock=clock,
            additions=additions,
        )

    @property
    def ended(self) -> bool:
        """Whether the terminal event was emitted."""
        return not self._response.state.rows

    @property
    def status(self) -> str:
        """The status of the response as it is now, without a copy of the rest."""
        return self._response.state.name if self.ended else "in_progress"

    @property
    def usage(self) -> deltas.Usage:
        """What the turns of the response have cost so far."""
        return self._usage

    @property
    def response(self) -> Mapping[str, object]:
        """A copy of the response object as it is now; once the stream has ended, that of its terminal event (rule R19)."""
        return cast("Mapping[str, object]", as_json(self._response.snapshot(self.status)))

    @property
    def ready(self) -> list[ReadyCall]:
        """The hosted calls that wait for their tool, in the order in which the model made them."""
        return [
            ReadyCall(item.id, item.kind, item.shown_as_json(), item.text)
            for item in self._open.values()
            if "run" in item.state.rows
        ]

    def take_up(self, frames: Iterable[bytes]) -> None:
        """Go on where another driver has left a stream; to be called once, before anything is fed.

        What was held back and never sent is lost: white space, an item without text, the state of a parser. So a stream that was
        taken up can be ended, by `Fault` or `Cancel`, and be asked for its response.

        Args:
            frames: The events of the stream so far, as an `SseWriter` writes them, in either dialect.

        Raises:
            ValueError: The frames are not the events of a stream that a driver has made.
        """
        bodies = bodies_of(frames)
        self._open = {item.id: item for item in open_items(self._response, bodies, self._lifecycles)}
        self._active = next((item for item in reversed(self._open.values()) if "close" in item.state.rows), None)
        self._number = len(bodies)

    def feed(self, changes: Iterable[deltas.Delta]) -> list[T]:
        """Feed deltas, and return the events that they make.

        Returns:
            The events, in order; a delta may make one, none, or many.

        Raises:
            TypeError: It is a single delta and not several, or one of them is no delta. The deltas before that one were taken;
                their events are returned by the next call.
        """
        if changes.__class__ is not list and isinstance(changes, deltas.DELTAS):
            raise TypeError(f"feed takes several deltas, such as a list of them, and not a single one: {changes!r}")
        events = self._events
        for delta in changes:
            again, item = self._again, self._active
            if again is not None and item is not None and type(delta) is str and delta:
                # The fast path: the last delta is written again, with this text and number.
                try:
                    data = delta.encode()
                except UnicodeEncodeError:
                    self._react(delta)  # half of a character: it has to be cleaned first
                    continue
                frame = again(delta, self._number)
                item.sent.write(data)  # after that, so that nothing is kept that was not written
                events.append(frame)
                self._number += 1
            elif self._response.state.rows:
                self._react(delta)
        self._events = []
        return events

    def _react(self, delta: deltas.Delta) -> None:  # noqa: C901, PLR0912 - one case for each delta, in one place
        """Carry out a delta; the commonest come first."""
        match delta:
            case str():
                self._add_text("append", delta)
            case deltas.Text():
                self._add_text("append", delta.text, delta.logprobs)
            case deltas.Open():
                self._begin_item(delta)
            case deltas.Close():
                self._close_active(delta.fields)
            case deltas.EndTurn(reason, usage):
                self._end_turn(reason, usage)
            case deltas.Start():
                self._try("start")
            case deltas.Finish():
                self._finish()
            case deltas.Reject(message):
                self._reject(message)
            case deltas.Refusal(text):
                self._add_text("refuse", text)
            case deltas.Summary(text):
                self._add_text("summarize", text)
            case deltas.Annotate(annotation, mark):
                self._annotate(annotation, mark)
            case deltas.EndPart():
                self._end_part()
            case deltas.Run(item_id):
                self._lead(item_id, "run")
            case deltas.Progress(item_id, fields):
                self._lead(item_id, "progress", fields)
            case deltas.EndOutput(item_id, outcome):
                self._lead(item_id, "end_output", {"outcome": outcome})
            case deltas.Succeed(item_id, fields):
                self._succeed(item_id, fields)
            case deltas.Fail(item_id, message):
                self._fail(item_id, message)
            case deltas.Enqueue():
                self._try("enqueue")
            case deltas.Fault(code, message, usage):
                self._end("fail", usage, error=ResponseError(code=code, message=message))
            case deltas.Cancel(usage):
                self._end("cancel", usage)
            case _:
                _refuse(delta)

    def _begin_item(self, opening: deltas.Open) -> ItemState[Any]:
        self._try("start")
        self._close_active()
        lifecycle = self._lifecycles.items[opening.kind]
        start = lifecycle.states[lifecycle.initial]
        item_id = self._ids(opening.body.prefix)
        body = replace(opening.body, id=item_id)
        if body.made:
            body = replace(body, **self._ids_of(opening))
        if "status" in opening.fields and start.rows["open"][0].rows:
            body = replace(body, status=UNSET)  # only an item that comes whole brings its status
        item: ItemState[Any] = ItemState(start, id=item_id, body=body, output_index=len(self._response.output), late=self._late)
        self._fire_item(item, "open")
        rows = item.state.rows
        if rows:
            self._open[item.id] = item
        if "close" in rows:
            self._active = item
        if "reveal" in rows and item.is_opaque:  # it says something although nobody can read it
            self._fire_item(item, "reveal")
        return item

    def _ids_of(self, opening: deltas.Open) -> dict[str, str]:
        """Return the ids that an item holds beside its own; one that is said to be null is left out."""
        return {
            name: self._id(name, opening.fields.get(name), prefix)
            for name, prefix in opening.body.made.items()
            if getattr(opening.body, name) is not None or name not in opening.fields
        }

    def _id(self, name: str, wanted: object, prefix: str) -> str:
        """Return an id that a field of an item holds: the one that is wanted, if it can be one (rule R7)."""
        taken = {getattr(item.body, name, None) for item in self._response.output}
        known = f"{wanted}" if f"{wanted}".startswith(f"{prefix}_") else f"{prefix}_{wanted}"
        while not wanted or known in taken:
            wanted = known = self._ids(prefix)
        return known

    def _add_text(self, trigger: str, text: str, logprobs: Sequence[Mapping[str, object]] = ()) -> None:
        if not text and not logprobs:
            return
        item = self._active
        if item is None or trigger not in item.state.rows:
            item = self._begin_item(_DEFAULT[trigger])
        text = clean(text)
        item.hold(text, logprobs)
        if not text:
            self._again = None  # the next text comes this way, where these log probabilities wait for it
            return
        rows = item.state.rows
        if "pad" in rows and text.isspace():
            trigger = "pad"
        elif trigger == "append" and "split" in rows and item.mixes:
            trigger = "split"
        source = item.state
        event = self._fire_item(item, trigger)
        if event is not None and item.state is source and trigger == "append" and not logprobs and stream_of(source) is not None:
            self._again = self._writer.repeat(event)

    def _close_active(self, fields: Fields = NO_FIELDS) -> None:
        item = self._active
        if item is not None:
            if fields:
                item.update(**{name: value for name, value in fields.items() if name in item.body.late})
            if "reveal" in item.state.rows and item.is_opaque:
                self._fire_item(item, "reveal")
            self._fire_item(item, "close")

    def _end_part(self) -> None:
        item = self._active
        if item is not None and "end_part" in item.state.rows:
            self._fire_item(item, "end_part")

    def _reject(self, message: str) -> None:
        item = self._active
        if item is not None:
            self._close_active()
            self._fail(item.id, message)

    def _annotate(self, annotation: Mapping[str, object], mark: str) -> None:
        item = self._active
        if item is None or "annotate" not in item.state.rows:
            return
        if not mark:
            self._fire_item(item, "annotate", annotation)
        elif place := item.find(mark):
            start, marked = place
            self._fire_item(item, "annotate", placed(annotation, start, marked[0]))
            item.marked = marked

    def _succeed(self, item_id: str, fields: Mapping[str, object]) -> None:
        item = self._open.get(item_id)
        if item is not None:
            self._lead(item_id, "succeed", {**RESULTS.get(item.kind, NO_FIELDS), **fields})

    def _fail(self, item_id: str, message: str) -> None:
        item = self._open.get(item_id)
        if item is not None:
            self._lead(item_id, "fail", failure_fields(item.kind, message))

    def _lead(self, item_id: str, trigger: str, args: Fields = NO_FIELDS) -> None:
        """Fire a tool's trigger, after those that lead to it; not for an item that cannot come to where it is legal."""
        item = self._open.get(item_id)
        if item is not None and trigger in item.state.ways:
            *before, last = item.state.ways[trigger]
            for step in before:
                self._fire_item(item, step)
            self._fire_item(item, last, args)

    def _end_turn(self, reason: deltas.FinishReason, usage: deltas.Usage) -> None:
        match reason:
            case "stop":
                self._usage += usage
                self._try("start")
                self._close_active()
            case "cut" if self._active is None or not self._active.kind.endswith("_call"):
                self._end_turn("stop", usage)
            case "cut":
                self._end("cut", usage)  # neither of the API's reasons is true, so none is given (rule R12)
            case "length":
                self._end("cut", usage, incomplete_details=IncompleteDetails(reason="max_output_tokens"))
            case "content_filter":
                self._end("cut", usage, incomplete_details=IncompleteDetails(reason="content_filter"))
            case "abort":
                self._end("cancel", usage)
            case "error":
                self._end("fail", usage, error=ResponseError(code="server_error", message=_ENGINE_FAILED))
            case _:
                assert_never(reason)

    def _finish(self) -> None:
        self._try("start")
        self._close_active()
        self._abandon("fail")
        self._fire(self._response, "complete", {"usage": usage_of(self._usage)})

    def _end(self, trigger: str, usage: deltas.Usage, **why: IncompleteDetails | ResponseError) -> None:
        self._usage += usage
        if trigger not in self._response.state.rows:
            self._try("start")
        self._abandon("cut")
        self._fire(self._response, trigger, {"usage": usage_of(self._usage), **why})

    def _abandon(self, trigger: str) -> None:
        """End every open item; one whose tool could still fail says why it did."""
        for item in list(self._open.values()):
            rows = item.state.rows
            message = NOT_RUN if "run" in rows else _CUT
            self._fire_item(item, trigger, failure_fields(item.kind, message) if "fail" in rows else NO_FIELDS)

    def _try(self, trigger: str) -> None:
        """Fire a trigger of the response where it is legal."""
        if trigger in self._response.state.rows:
            self._fire(self._response, trigger)

    def _fire_item(self, item: ItemState[Any], trigger: str, args: Fields = NO_FIELDS) -> StreamEvent | None:
        """Fire an edge of an item, and return the last event that it emitted."""
        event = self._fire(item, trigger, args)
        output, rows = self._response.output, item.state.rows
        if item.shown is not None and item.output_index == len(output):
            output.append(item)  # it was added
        if not rows:
            self._open.pop(item.id, None)
        if item is self._active and "close" not in rows:
            self._active = None
        return event

    def _fire(self, subject: Any, trigger: str, args: Fields = NO_FIELDS) -> StreamEvent | None:  # noqa: ANN401 - an item or the response
        """Fire an edge: make, number and write what it emits.

        If anything is raised in that (the writer and the clock are not ours), nothing has changed, so that another edge can end
        what this one could not.

        Returns:
            The last of the events, if there is one.

        Raises:
            IllegalTransition: The state has no such edge.
        """
        self._again = event = None
        dest, emissions = subject.state.row(trigger)
        if not emissions:
            subject.state = dest
            return None
        events, number, writer = self._events, self._number, self._writer
        count, saved = len(events), subject.save()
        try:
            subject.state, subject.args = dest, args
            for emission in emissions:
                event = emission.make(subject)
                event.sequence_number = number
                events.append(writer.write(event))
                number += 1
        except BaseException:
            subject.restore(saved)
            del events[count:]
            raise
        subject.args, self._number = NO_FIELDS, number
        return event


def _refuse(delta: Never) -> Never:
    """Refuse what is no delta; the type checkers see that no delta comes here."""
    raise TypeError(f"this is no delta: {delta!r}")
