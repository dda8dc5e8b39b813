"""The driver: the composition of the lifecycles for one request.

It is fed deltas and fires edges; the events are what the edges emit. It owns the sequence number and the open items. At most one
of these is being written, the *active item*; the others wait for their tools. The driver is total: every delta is welcome in
every state. What a delta needs is opened first, what is in its way is closed first, and what says nothing in the state at
hand (a result for a call that has ended, text after the end) is passed over.

Which order is legal stands in the tables alone. The driver asks a state for its rows, and for the way to a trigger that is not
legal yet; it compares no names of states. Events are made where an edge fires (`interlock.fsm.emitter`). The one exception is the
hot path in `feed`: text in a state where text only streams repeats the event of the edge that leads back to that state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Never, TypeVar, assert_never, cast

from attrs import frozen

from interlock.events.annotations import placed
from interlock.events.items import ITEMS, NOT_RUN, ItemKind, ItemSpec, failure_fields
from interlock.events.json import clean, parsed
from interlock.events.sse import Writer
from interlock.fsm import deltas
from interlock.fsm.emitter import Emitter
from interlock.fsm.ids import Clock, Ids
from interlock.fsm.item import Item, Late
from interlock.fsm.lifecycle import NO_FIELDS, Given, stream_of
from interlock.fsm.lifecycles import DECLARED, Lifecycles
from interlock.fsm.rebuilding import bodies_of, open_items
from interlock.fsm.response import Response, echoed, usage_object

T = TypeVar("T")
"""What an event is written as: bytes, or `Event`."""

_DEFAULT: Final[Mapping[str, tuple[ItemKind, Mapping[str, object]]]] = {
    "append": ("message", {"phase": "final_answer"}),
    "refuse": ("message", {"phase": "final_answer"}),
    "summarize": ("reasoning", {}),
}
"""The item that a text belongs to when none is open that can take it, by the text's trigger."""

_NO_USAGE: Final = deltas.Usage()
_CUT: Final = "The response ended before the call did."
_ENGINE_FAILED: Final = "The engine failed while it generated the response."


@frozen
class ReadyCall:
    """A hosted call whose arguments are whole and whose tool has not started.

    Args:
        id: The item's id, for `Run`, `Succeed` and `Fail`.
        kind: The item's kind.
        fields: What it was opened with: `name`, `server_label`, `action`, …
        text: Its arguments or its code.
    """

    id: str
    kind: ItemKind
    fields: Mapping[str, object]
    text: str


class ResponseDriver(Emitter[T]):
    """Turns deltas into the events of one response.

    Args:
        settings: The request's settings as the response echoes them (`interlock.events.resource.response_settings`).
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

    __slots__ = ("_active", "_ids", "_late", "_lifecycles", "_open", "_response", "_usage")

    def __init__(  # noqa: PLR0913 - a driver is handed all that it does not know
        self,
        settings: Mapping[str, object],
        *,
        writer: Writer[T],
        ids: Ids,
        clock: Clock,
        response_id: str | None = None,
        created_at: int | None = None,
        additions: Callable[[], Mapping[str, object]] = dict[str, object],
        late: Late | None = None,
        lifecycles: Lifecycles = DECLARED,
    ) -> None:
        super().__init__(writer)
        self._lifecycles = lifecycles
        self._ids = ids
        self._late = late
        self._open: dict[str, Item] = {}
        self._active: Item | None = None
        self._usage = _NO_USAGE
        self._response = Response(
            id=response_id or ids("resp"),
            state=lifecycles.response.states[lifecycles.response.initial],
            settings=echoed(settings),
            created_at=clock() if created_at is None else created_at,
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
        shown = self._response.as_it_stands if self.ended else self._response.as_running
        return cast("Mapping[str, object]", parsed(shown))

    @property
    def ready(self) -> list[ReadyCall]:
        """The hosted calls that wait for their tool, in the order in which the model made them."""
        return [
            ReadyCall(item.id, item.spec.kind, dict(item.fields), item.said)
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
        self._sequence_number = len(bodies)

    def feed(self, told: Iterable[deltas.Delta]) -> list[T]:
        """Feed deltas, and return the events that they make.

        Args:
            told: What happened, in order.

        Returns:
            The events, in order; a delta may make one, none, or many.

        Raises:
            TypeError: It is a single delta and not several, or one of them is no delta. The deltas before that one were taken;
                their events are returned by the next call.
        """
        if told.__class__ is not list and isinstance(told, deltas.DELTAS):
            raise TypeError(f"feed takes several deltas, such as a list of them, and not a single one: {told!r}")
        events = self._events
        for delta in told:
            stream = self._stream
            if stream is not None and isinstance(delta, str) and delta:
                # The hot path: text where text only streams. All of the frame but the text was rendered before.
                events.append(stream(delta, self._sequence_number))
                self._sequence_number += 1
            elif self._response.state.rows:
                self._react(delta)
        self._events = []
        return events

    def _react(self, delta: deltas.Delta) -> None:  # noqa: C901, PLR0912 - one case for each delta, in one place
        """Carry out a delta; the order of the cases is that of the deltas' definitions."""
        match delta:
            case str(text):
                self._add_text("append", text)
            case deltas.Text(text, logprobs):
                self._add_text("append", text, logprobs)
            case deltas.Open(kind, fields):
                self._begin_item(kind, fields)
            case deltas.Close(fields):
                self._close_active(fields)
            case deltas.Reject(message):
                self._reject(message)
            case deltas.EndTurn(reason, usage):
                self._end_turn(reason, usage)
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
            case deltas.Start():
                self._begin()
            case deltas.Enqueue():
                self._try(self._response, "enqueue")
            case deltas.Finish():
                self._finish()
            case deltas.Fault(code, message, usage):
                self._end("fail", usage, error={"code": code, "message": message})
            case deltas.Cancel(usage):
                self._end("cancel", usage)
            case _:
                _refuse(delta)

    def _begin(self) -> None:
        self._try(self._response, "start")

    def _begin_item(self, kind: ItemKind, fields: Mapping[str, object]) -> Item:
        self._begin()
        self._close_active()
        spec, lifecycle = ITEMS[kind], self._lifecycles.items[kind]
        if spec.made:
            fields = {**fields, **self._ids_of(spec, fields)}
        item = Item(lifecycle.states[lifecycle.initial], spec, self._ids(spec.prefix), self._response.output, fields, self._late)
        self._fire(item, "open")
        rows = item.state.rows
        if rows:
            self._open[item.id] = item
        if "close" in rows:
            self._active = item
            self._reveal(item)
        return item

    def _ids_of(self, spec: ItemSpec, fields: Mapping[str, object]) -> Mapping[str, object]:
        """Return the ids that an item holds."""
        return {
            name: self._id(name, fields.get(name), prefix)
            for name, prefix in spec.made.items()
            if name not in spec.constant or fields.get(name, prefix) is not None
        }

    def _reveal(self, item: Item) -> None:
        """Add an item that says something although nobody can read it."""
        if "reveal" in item.state.rows and item.is_opaque:
            self._fire(item, "reveal")

    def _id(self, name: str, given: object, prefix: str) -> str:
        """Return an id that a field of an item holds: the one that was given, if it can be one (rule R7)."""
        taken = {item.fields.get(name) for item in self._response.output}
        known = f"{given}" if f"{given}".startswith(f"{prefix}_") else f"{prefix}_{given}"
        while not given or known in taken:
            given = known = self._ids(prefix)
        return known

    def _add_text(self, trigger: str, text: str, logprobs: Sequence[Mapping[str, object]] = ()) -> None:
        if not text and not logprobs:
            return
        item = self._active
        if item is None or trigger not in item.state.rows:
            item = self._begin_item(*_DEFAULT[trigger])
        text = clean(text)
        item.hold(text, logprobs)
        if not text:
            self._stream = None  # the next text comes this way, where these log probabilities wait for it
            return
        rows = item.state.rows
        if "pad" in rows and text.isspace():
            trigger = "pad"
        elif trigger == "append" and "split" in rows and item.mixes:
            trigger = "split"
        source = item.state
        self._fire(item, trigger)
        delta = stream_of(source) if item.state is source and trigger == "append" and not logprobs else None
        if delta is not None:
            self._repeat(item, delta)

    def _close_active(self, known: Given = NO_FIELDS) -> None:
        item = self._active
        if item is not None:
            if known:
                item.learn({name: value for name, value in known.items() if name in item.spec.late})
            self._reveal(item)
            self._fire(item, "close")

    def _end_part(self) -> None:
        if self._active is not None:
            self._try(self._active, "end_part")

    def _reject(self, message: str) -> None:
        item = self._active
        if item is not None:
            self._close_active()
            self._fail(item.id, message)

    def _annotate(self, annotation: Mapping[str, object], mark: str) -> None:
        item = self._active
        if item is None or "annotate" not in item.state.rows:
            return
        if mark:
            found = item.find(mark)
            if found is None:
                return
            annotation = placed(annotation, *found)
        self._fire(item, "annotate", annotation)

    def _succeed(self, item_id: str, fields: Mapping[str, object]) -> None:
        item = self._open.get(item_id)
        if item is not None:
            self._lead(item_id, "succeed", {**item.spec.result, **fields})

    def _fail(self, item_id: str, message: str) -> None:
        item = self._open.get(item_id)
        if item is not None:
            self._lead(item_id, "fail", failure_fields(item.spec.kind, message))

    def _lead(self, item_id: str, trigger: str, given: Given = NO_FIELDS) -> None:
        """Fire a tool's trigger, after those that lead to it; not for an item that cannot come to where it is legal."""
        item = self._open.get(item_id)
        if item is not None and trigger in item.state.ways:
            *before, last = item.state.ways[trigger]
            for step in before:
                self._fire(item, step)
            self._fire(item, last, given)

    def _end_turn(self, reason: deltas.FinishReason, usage: deltas.Usage) -> None:
        match reason:
            case "stop":
                self._usage += usage
                self._begin()
                self._close_active()
            case "cut" if self._active is None or not self._active.spec.kind.endswith("_call"):
                self._end_turn("stop", usage)
            case "cut":
                self._end("cut", usage)  # neither of the API's reasons is true, so none is given (rule R12)
            case "length":
                self._end("cut", usage, incomplete_details={"reason": "max_output_tokens"})
            case "content_filter":
                self._end("cut", usage, incomplete_details={"reason": "content_filter"})
            case "abort":
                self._end("cancel", usage)
            case "error":
                self._end("fail", usage, error={"code": "server_error", "message": _ENGINE_FAILED})
            case _:
                assert_never(reason)

    def _finish(self) -> None:
        self._begin()
        self._close_active()
        self._abandon("fail")
        self._fire(self._response, "complete", {"usage": usage_object(self._usage)})

    def _end(self, trigger: str, usage: deltas.Usage, **why: Mapping[str, object]) -> None:
        self._usage += usage
        if trigger not in self._response.state.rows:
            self._begin()
        self._abandon("cut")
        self._fire(self._response, trigger, {"usage": usage_object(self._usage), **why})

    def _abandon(self, trigger: str) -> None:
        """End every open item; one whose tool could still fail says why it did."""
        for item in list(self._open.values()):
            rows = item.state.rows
            message = NOT_RUN if "run" in rows else _CUT
            self._fire(item, trigger, failure_fields(item.spec.kind, message) if "fail" in rows else NO_FIELDS)

    def _try(self, subject: Item | Response, trigger: str) -> None:
        """Fire a trigger where it is legal."""
        if trigger in subject.state.rows:
            self._fire(subject, trigger)

    def _fire(self, subject: Item | Response, trigger: str, given: Given = NO_FIELDS) -> None:
        """Fire an edge; see `Emitter`."""
        self._emit(subject, trigger, given)
        rows = subject.state.rows
        if not rows:
            self._open.pop(subject.id, None)
        if subject is self._active and "close" not in rows:
            self._active = None


def _refuse(delta: Never) -> Never:
    """Refuse what is no delta; the type checkers see that no delta comes here."""
    raise TypeError(f"this is no delta: {delta!r}")
