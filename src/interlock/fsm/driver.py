"""The driver: runs the lifecycles of one response and its items.

The driver takes deltas, fires edges and returns the events that the edges emit. It owns the sequence number and the open items.
At most one open item, the *active item*, is being written; the others wait for their tools. The driver accepts every delta in
every state. It opens the item that the delta needs, closes an item in the way, and ignores a delta without effect (a result for a
call that has ended, text after the end).

Only the lifecycles, which are tables of edges, define which order is legal. The driver looks up the edges of a state, and the
path to a trigger that is not legal yet; it never compares names of states. It makes events where an edge fires (`_fire`), with
two exceptions. Where a state only streams text, the fast path in `feed` rewrites the last delta event with the new text and
number, and `mark_unstored` rewrites the terminal event. `docs/evidence/rules.md` has the rules (R7, …).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, Never, TypeAlias, TypeVar

from attrs import field, frozen
from msgspec import UNSET
from msgspec.structs import replace

from interlock.events import response_object as response
from interlock.events.items import ITEMS, NOT_RUN, ItemKind, fields_of
from interlock.events.json import as_json, clean, members
from interlock.events.parts import Json, set_position
from interlock.events.response_object import IncompleteDetails, ResponseError
from interlock.events.sse import Writer
from interlock.events.stream import ResponseEvent, StreamEvent, wire_name
from interlock.fsm import deltas
from interlock.fsm.lifecycle import (
    NO_FIELDS,
    AnyItem,
    AnySubject,
    Fields,
    FinalFields,
    ItemState,
    ResponseState,
    stream_of,
    usage_of,
)
from interlock.fsm.lifecycles import DECLARED, Lifecycles
from interlock.fsm.rebuilding import restore

T = TypeVar("T")
"""The type of a written event: `bytes` or `StreamEvent`."""

Ids: TypeAlias = Callable[[str], str]
"""Makes ids that are unique in a response, each from its prefix without the underscore, such as `msg`, `call` or `resp`."""

Clock: TypeAlias = Callable[[], int]
"""Returns the time, in whole seconds since the epoch."""

_SETTINGS: Final = {*response.Response.__struct_fields__} - response.RUN_FIELDS
"""The fields of a response that its settings provide."""

_ANSWER: Final = deltas.Open("message", {"phase": "final_answer"})
_DEFAULT: Final = {"append": _ANSWER, "refuse": _ANSWER, "summarize": deltas.Open("reasoning")}
"""The item to open if the active item does not accept a text, by the trigger of the text."""

_ARGUMENTS: Final = ("arguments",)
"""The path of a text that is the JSON of a call's arguments."""
_NO_ARGUMENTS: Final = "{}"

_CUT: Final = "The response ended before the call did."
_ENGINE_FAILED: Final = "The engine failed while it generated the response."


@frozen
class SequentialIds:
    """Numbers the ids of each prefix from 1, for reproducible output."""

    _counted: Counter[str] = field(factory=Counter[str], init=False)

    def __call__(self, prefix: str) -> str:
        """Return `<prefix>_1`, then `<prefix>_2`, and so on."""
        self._counted[prefix] += 1
        return f"{prefix}_{self._counted[prefix]}"


@frozen
class ReadyCall:
    """A hosted call whose arguments are complete and whose tool has not started.

    Args:
        id: The item's id, for `Run`, `Succeed` and `Fail`.
        kind: The item's kind.
        fields: The item as the last event showed it: `name`, `server_label`, `action`, …
        text: The arguments or the code.
    """

    id: str
    kind: ItemKind
    fields: Mapping[str, Json]
    text: str


class ResponseDriver(Generic[T]):
    """Turns deltas into the events of one response.

    Args:
        settings: The request's settings as the response echoes them (`interlock.events.response_settings`). Other fields are
            ignored.
        writer: Writes the events.
        ids: Makes ids.
        clock: Returns the time, in whole seconds since the epoch.
        response_id: The response's id; None for a new one.
        created_at: When the response was created, in seconds since the epoch; None for now.
        additions: Returns extra fields that the server adds to a response that ends.
        final_fields: Returns the fields of an item that become known just before its `output_item.done`, such as
            `encrypted_content`. Must not raise.
        lifecycles: The lifecycles of the response and of the items.
        summarizes: Whether the text of reasoning is sent as its summary.
    """

    __slots__ = (
        *("_active", "_counts", "_events", "_final", "_ids", "_final_fields", "_lifecycles", "_number", "_open", "_repeated"),
        *("_response", "_summarizes", "_terminal", "_usage", "_used_ids", "_write_delta", "_writer", "rejected"),
    )

    def __init__(  # noqa: PLR0913 - the driver does no IO, so its dependencies are arguments
        self,
        settings: Mapping[str, object],
        *,
        writer: Writer[T],
        ids: Ids,
        clock: Clock,
        response_id: str | None = None,
        created_at: int | None = None,
        additions: Callable[[], Mapping[str, object]] = lambda: NO_FIELDS,
        final_fields: FinalFields | None = None,
        lifecycles: Lifecycles = DECLARED,
        summarizes: bool = False,
    ) -> None:
        self._writer = writer
        self._summarizes = summarizes
        self._events: list[T] = []
        self._number = 0
        """The sequence number of the next event."""
        self._used_ids: dict[str, tuple[set[object], int]] = {}
        self._write_delta: Callable[[str, int], T] | None = None
        """Writes the next delta of the active item without firing an edge; None if an edge has to fire."""
        self._repeated: tuple[type[StreamEvent], int] = (StreamEvent, 0)
        """The type of the deltas that `_write_delta` writes, and the number of the first of them."""
        self._counts: Counter[type[StreamEvent]] = Counter()
        self._lifecycles = lifecycles
        self._ids = ids
        self._final_fields = final_fields
        self._open: dict[str, AnyItem] = {}
        self._active: AnyItem | None = None
        self.rejected: tuple[str, ...] = ()
        """The ids of the items that a `Reject` has ended."""
        self._usage: deltas.Usage | None = deltas.Usage()
        self._terminal: StreamEvent | None = None
        self._final: Mapping[str, object] | None = None
        """The copy of the response that has ended."""
        self._response = ResponseState(
            lifecycles.response.states[lifecycles.response.initial],
            body=replace(
                response.Response(
                    id=response_id or ids("resp"), created_at=clock() if created_at is None else created_at, model=""
                ),
                **{name: value for name, value in settings.items() if name in _SETTINGS},
            ),
            clock=clock,
            additions=additions,
        )

    def __repr__(self) -> str:
        items = "".join(f", {item.kind} in {item.state.name!r}" for item in self._open.values())
        return f"<ResponseDriver {self.id} in {self._response.state.name!r}{items}, {self._number} events>"

    @property
    def ended(self) -> bool:
        """Whether the driver has emitted the terminal event."""
        return not self._response.state.rows

    @property
    def status(self) -> str:
        """The status of the response: `in_progress` until it has ended."""
        return self._response.state.name if self.ended else "in_progress"

    @property
    def usage(self) -> deltas.Usage | None:
        """The tokens that the response has used so far, or None if nobody counted them."""
        return self._usage

    @property
    def id(self) -> str:
        """The id of the response."""
        return self._response.body.id

    @property
    def response(self) -> Mapping[str, Json]:
        """A copy of the current response object; after the end, the object of the terminal event (rule R19), copied once."""
        if self._final is not None:
            return self._final
        snapshot = self._response.snapshot(self.status)
        if not self.ended:
            return members(as_json(snapshot))
        self._final = {**members(as_json(replace(snapshot, output=[]))), "output": self.items()}
        return self._final

    @property
    def event_counts(self) -> Mapping[str, int]:
        """The number of events of each type that this driver has written."""
        self._count_repeated()
        return {wire_name(kind): count for kind, count in self._counts.items()}

    @property
    def item_count(self) -> int:
        """The number of items that the response has so far."""
        return len(self._response.output)

    def items(self, start: int = 0) -> list[Mapping[str, object]]:
        """Return the items from an index on, as their last events showed them. Do not change them: each is copied once."""
        return [item.shown_as_json() for item in self._response.output[start:]]

    @property
    def all_items_ended(self) -> bool:
        """Whether no item is open."""
        return not self._open

    @property
    def ready(self) -> list[ReadyCall]:
        """The hosted calls whose tools have not started, in the order in which the model made them."""
        return [
            ReadyCall(item.id, item.kind, item.shown_as_json(), item.text)
            for item in self._open.values()
            if "run" in item.state.rows
        ]

    def resume(self, frames: Sequence[bytes], first: int = 0) -> None:
        """Restore the state that another driver reached in a stream, to end the stream. Call it once, before the first `feed`.

        State that no event shows is lost: waiting white space, an item that no event has added, the state of a parser.
        So end a resumed stream with `Fault` or `Cancel`; it cannot continue. `response` works as usual.

        Another release may have written the stream, and its first events may be lost. What cannot be read is left out. An item
        that cannot be restored ends as its last event has shown it.

        Args:
            frames: The last events of the stream so far, one in each entry, as an `SseWriter` writes them, in either dialect.
            first: The number of the first of them.
        """
        if first or frames:
            self._open = {item.id: item for item in restore(self._response, frames, first, self._lifecycles)}
            self._active = next((item for item in reversed(self._open.values()) if "close" in item.state.rows), None)
            self._number = first + len(frames)

    def feed(self, changes: Iterable[deltas.Delta]) -> list[T]:
        """Process deltas and return their events, in order.

        Raises:
            TypeError: `changes` is a single delta, or an entry is not a delta. The driver processes the entries before it; the
                next call returns their events.
        """
        if changes.__class__ is not list and isinstance(changes, deltas.DELTAS):
            raise TypeError(f"feed takes a list of deltas, not a single delta: {changes!r}")
        events = self._events
        for delta in changes:
            write_delta, item = self._write_delta, self._active
            if write_delta is not None and item is not None and type(delta) is str and delta:
                # The fast path rewrites the last delta event with this text and number.
                try:
                    data = delta.encode()
                except UnicodeEncodeError:
                    self._react(delta)  # `clean` has to replace a lone surrogate first
                    continue
                frame = write_delta(delta, self._number)
                item.sent_text.write(data)  # after the frame, so that `sent_text` never has text that was not written
                events.append(frame)
                self._number += 1
            elif self._response.state.rows:
                self._react(delta)
        self._events = []
        return events

    def mark_unstored(self) -> T:
        """Set `store` to false in a response that has ended, and return a new terminal event to send instead.

        Raises:
            ValueError: The response has not ended.
        """
        if isinstance(self._terminal, ResponseEvent):
            self._response.body, self._final = replace(self._response.body, store=False), None
            return self._writer.write(replace(self._terminal, response=self._response.body))
        raise ValueError("a response that has not ended has no terminal event")

    def _react(self, delta: deltas.Delta) -> None:  # noqa: C901, PLR0912 - one case for each delta, in one place
        """Process a delta; the most frequent ones come first."""
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
                self._fire_if_legal("start")
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
                self._fire_via_shortest_path(item_id, "run")
            case deltas.Progress(item_id, fields):
                self._fire_via_shortest_path(item_id, "progress", fields)
            case deltas.EndOutput(item_id, outcome):
                self._fire_via_shortest_path(item_id, "end_output", {"outcome": outcome})
            case deltas.Succeed(item_id, fields):
                self._succeed(item_id, fields)
            case deltas.Fail(item_id, message):
                self._fail(item_id, message)
            case deltas.Enqueue():
                self._fire_if_legal("enqueue")
            case deltas.Silence():
                self._fire_if_legal("silence")
            case deltas.Fault(code, message, usage):
                self._end("fail", usage, error=ResponseError.of(code, message))
            case deltas.Cancel(usage):
                self._end("cancel", usage)
            case _:
                nothing: Never = delta  # so type checkers prove that every delta has a case
                raise TypeError(f"not a delta: {nothing!r}")

    def _begin_item(self, opening: deltas.Open) -> AnyItem:
        self._fire_if_legal("start")
        self._close_active()
        lifecycle = self._lifecycles.items[opening.kind]
        start = lifecycle.states[lifecycle.initial]
        item_id = self._ids(opening.body.prefix)
        body = replace(opening.body, id=item_id)
        if body.generated_ids:
            body = replace(body, **self._ids_of(opening))
        if "status" in opening.fields and start.rows["open"][0].rows:
            body = replace(body, status=UNSET)  # the lifecycle sets it, unless the item is added and done at once
        item: AnyItem = ItemState(
            start,
            id=item_id,
            body=body,
            output_index=len(self._response.output),
            final_fields=self._final_fields,
            last_text=opening.text,
        )
        self._fire_item(item, "open")
        rows = item.state.rows
        if rows:
            self._open[item.id] = item
        if "close" in rows:
            self._active = item
        if "reveal" in rows and item.has_encrypted_content:  # encrypted content counts as content
            self._fire_item(item, "reveal")
        return item

    def _ids_of(self, opening: deltas.Open) -> dict[str, str]:
        """Return the ids in an item besides its own, such as `call_id`; an explicit null stays null."""
        return {
            name: self._id(name, opening.fields.get(name), prefix)
            for name, prefix in opening.body.generated_ids.items()
            if getattr(opening.body, name) is not None or name not in opening.fields
        }

    def _id(self, name: str, value: object, prefix: str) -> str:
        """Return the id for a field of an item: `value`, with its prefix, if it is unused, else a new one (rule R7).

        Several calls may have the same `container_id`.
        """
        if name == "container_id" and value:
            return str(value)
        used, count = self._used_ids.get(name, (set[object](), 0))
        output = self._response.output
        used.update(getattr(item.body, name, None) for item in output[count:])
        self._used_ids[name] = used, len(output)
        result = f"{value}" if f"{value}".startswith(f"{prefix}_") else f"{prefix}_{value}"
        while not value or result in used:
            value = result = self._ids(prefix)
        return result

    def _add_text(self, trigger: str, text: str, logprobs: Sequence[Mapping[str, object]] = ()) -> None:
        if not text and not logprobs:
            return
        item = self._active
        if self._summarizes and trigger == "append" and item is not None and "summarize" in item.state.rows:
            trigger = "summarize"
        if item is None or trigger not in item.state.rows:
            item = self._begin_item(_DEFAULT[trigger])
        text = clean(text)
        item.hold(text, logprobs)
        if not text:
            self._count_repeated()
            self._write_delta = None  # so that the next text fires an edge, which sends these log probabilities
            return
        if item.body.text_path == _ARGUMENTS and not item.sent_text.tell() and "null".startswith(item.unsent.strip()):
            return  # perhaps they are blank or null, which is known when the call ends
        rows = item.state.rows
        if "pad" in rows and text.isspace():
            trigger = "pad"
        elif trigger == "append" and "split" in rows and item.mixes_logprobs:
            trigger = "split"
        source = item.state
        event = self._fire_item(item, trigger)
        if event is not None and item.state is source and trigger == "append" and not logprobs and stream_of(source) is not None:
            self._write_delta, self._repeated = self._writer.repeat(event), (event.__class__, self._number)

    def _close_active(self, fields: Fields = NO_FIELDS) -> None:
        item = self._active
        if item is not None:
            if fields:
                item.update(**fields_of(ITEMS[item.kind], "known_at_done", fields))
            if "reveal" in item.state.rows and item.has_encrypted_content:
                self._fire_item(item, "reveal")
            if item.body.text_path == _ARGUMENTS and not item.sent_text.tell():
                item.unsent = _NO_ARGUMENTS if item.unsent.strip() in ("", "null") else item.unsent
                self._fire_item(item, "append")
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
            self.rejected += (item.id,)

    def _annotate(self, annotation: Mapping[str, object], mark: str) -> None:
        item = self._active
        if item is None or "annotate" not in item.state.rows:
            return
        if not mark:
            self._fire_item(item, "annotate", annotation)
        elif (found := item.find(mark)) is not None:
            start, mark_end = found
            self._fire_item(item, "annotate", set_position(annotation, start, mark_end[0]))
            item.update_part(mark_end=mark_end)

    def _find(self, item_id: str) -> AnyItem | None:
        """Return an open item; with an empty id, the one that opened last."""
        return self._open.get(item_id) if item_id else next(reversed(self._open.values()), None)

    def _succeed(self, item_id: str, fields: Mapping[str, object]) -> None:
        item = self._find(item_id)
        if item is not None:
            result = fields_of(ITEMS[item.kind], "tool_result", fields)
            self._fire_via_shortest_path(item_id, "succeed", {**item.body.no_result, **result})

    def _fail(self, item_id: str, message: str) -> None:
        item = self._find(item_id)
        if item is not None:
            self._fire_via_shortest_path(item_id, "fail", item.body.failure_fields(message))

    def _fire_via_shortest_path(self, item_id: str, trigger: str, args: Fields = NO_FIELDS) -> None:
        """Fire a tool's trigger, and before it the triggers that make it legal. Do nothing if it can no longer become legal."""
        item = self._find(item_id)
        if item is not None and trigger in item.state.paths:
            *before, last = item.state.paths[trigger]
            for step in before:
                if step == "close":
                    self._close_active()  # only the active item has an edge for it
                else:
                    self._fire_item(item, step)
            self._fire_item(item, last, args)

    def _end_turn(self, reason: deltas.FinishReason, usage: deltas.Usage | None) -> None:
        if reason == "cut" and (self._active is None or self._active.body.stops_anywhere):
            reason = "stop"
        end = deltas.TURN_ENDS[reason]
        match end.trigger:
            case "":
                self._usage = deltas.total(self._usage, usage)
                self._fire_if_legal("start")
                self._close_active()
            case "fail":
                self._end("fail", usage, error=ResponseError.of("server_error", _ENGINE_FAILED))
            case trigger if end.detail:
                self._end(trigger, usage, incomplete_details=IncompleteDetails(reason=end.detail))
            case trigger:
                self._end(trigger, usage)

    def _finish(self) -> None:
        self._fire_if_legal("start")
        self._close_active()
        self._abandon("fail")
        self._terminal = self._fire(self._response, "complete", {"usage": usage_of(self._usage)})

    def _end(self, trigger: str, usage: deltas.Usage | None, **why: IncompleteDetails | ResponseError) -> None:
        self._usage = deltas.total(self._usage, usage)
        if trigger not in self._response.state.rows:
            self._fire_if_legal("start")
        self._abandon("cut")
        self._terminal = self._fire(self._response, trigger, {"usage": usage_of(self._usage), **why})

    def _abandon(self, trigger: str) -> None:
        """End every open item; a call whose tool could still fail gets an error message."""
        for item in list(self._open.values()):
            rows = item.state.rows
            message = NOT_RUN if "run" in rows else _CUT
            self._fire_item(item, trigger, item.body.failure_fields(message) if "fail" in rows else NO_FIELDS)

    def _fire_if_legal(self, trigger: str) -> None:
        if trigger in self._response.state.rows:
            self._fire(self._response, trigger)

    def _fire_item(self, item: AnyItem, trigger: str, args: Fields = NO_FIELDS) -> StreamEvent | None:
        """Fire an edge of an item and return its last event."""
        event = self._fire(item, trigger, args)
        output, rows = self._response.output, item.state.rows
        if item.shown_body is not None and item.output_index == len(output):
            output.append(item)  # the edge emitted `output_item.added`
        if not rows:
            self._open.pop(item.id, None)
        if item is self._active and "close" not in rows:
            self._active = None
        return event

    def _fire(self, subject: AnySubject, trigger: str, args: Fields = NO_FIELDS) -> StreamEvent | None:
        """Fire an edge: make, number and write its events. Return the last one, or None.

        If the writer or the clock raises, nothing changes, so that another edge can still end the stream.

        Raises:
            IllegalTransition: The state has no edge for the trigger.
        """
        self._count_repeated()
        self._write_delta = event = None
        dest, emissions = subject.state.row(trigger)
        if not emissions:
            subject.state = dest
            return None
        events, number, writer = self._events, self._number, self._writer
        count, backup, kinds = len(events), subject.save(), list[type[StreamEvent]]()
        try:
            subject.state, subject.args = dest, args
            for emission in emissions:
                event = emission.make(subject)
                event.sequence_number = number
                events.append(writer.write(event))
                kinds.append(event.__class__)
                number += 1
        except BaseException:
            subject.restore(backup)
            del events[count:]
            raise
        subject.args, self._number = NO_FIELDS, number
        self._counts.update(kinds)
        return event

    def _count_repeated(self) -> None:
        """Count the deltas that `_write_delta` has written since the last call."""
        if self._write_delta is not None:
            kind, first = self._repeated
            self._counts[kind] += self._number - first
            self._repeated = kind, self._number
