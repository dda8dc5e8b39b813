"""The driver: the composition of the lifecycles for one request.

It is told deltas and fires edges; the events are what the edges emit. It owns the sequence number and the open items, of
which at most one, the one under the *pen*, is being written; the others wait for their tools. It is total: every delta is
welcome in every state. What a delta needs is opened first, what is in its way is closed first, and what says nothing in
the state at hand (a result for a call that has ended, text after the end) is passed over.

There is no way to an event but `_fire`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar, assert_never

from attrs import frozen

from interlock.events.items import ITEMS, NOT_RUN, ItemKind, failure_fields
from interlock.events.json import clean
from interlock.events.sse import Writer
from interlock.fsm import deltas
from interlock.fsm.ids import Clock, Ids
from interlock.fsm.item import Item
from interlock.fsm.lifecycle import stream_of
from interlock.fsm.lifecycles import DECLARED, Lifecycles
from interlock.fsm.response import Response

T = TypeVar("T")
"""What an event is written as: bytes, or `Event`."""

_DEFAULT: Final[Mapping[str, tuple[ItemKind, Mapping[str, object]]]] = {
    "append": ("message", {"phase": "final_answer"}),
    "refuse": ("message", {"phase": "final_answer"}),
    "summarize": ("reasoning", {}),
}
"""The item that a text belongs to when none is open that can take it, by the text's trigger."""

_LEADS_TO: Final[Mapping[str, tuple[str, ...]]] = {
    "run": ("close",),
    "progress": ("close", "run"),
    "succeed": ("close", "run"),
    "fail": ("close",),
}
"""The triggers that bring a call to where a tool's trigger is legal, in their order."""

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


class ResponseDriver(Generic[T]):
    """Turns deltas into the events of one response.

    Args:
        settings: The request's settings as the response echoes them (`interlock.events.resource.response_settings`).
        writer: The form in which events are given.
        ids: Makes ids.
        clock: Tells the time.
        response_id: The response's id, where it is known already.
        additions: Gives what the server shows of the response when it has ended, beyond the API's fields.
        lifecycles: What it composes.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        writer: Writer[T],
        ids: Ids,
        clock: Clock,
        response_id: str | None = None,
        additions: Callable[[], Mapping[str, object]] = dict[str, object],
        lifecycles: Lifecycles = DECLARED,
    ) -> None:
        self._lifecycles = lifecycles
        self._writer = writer
        self._ids = ids
        self._sequence_number = 0
        self._events: list[T] = []
        self._open: dict[str, Item] = {}
        self._pen: Item | None = None
        self._stamp: Callable[[str, int], T] | None = None
        self._response = Response(
            id=response_id or ids("resp"),
            state=lifecycles.response.states[lifecycles.response.initial],
            settings=settings,
            created_at=clock(),
            clock=clock,
            additions=additions,
        )

    @property
    def ended(self) -> bool:
        """Whether the terminal event was emitted."""
        return not self._response.state.rows

    @property
    def response(self) -> Mapping[str, object]:
        """The response object as it is now; once the stream has ended, that of its terminal event (rule R19)."""
        return self._response.as_ended() if self.ended else self._response.as_running()

    @property
    def ready(self) -> list[ReadyCall]:
        """The hosted calls that wait for their tool, in the order in which the model made them."""
        return [
            ReadyCall(item.id, item.spec.kind, dict(item.fields), item.text or item.sent.getvalue().decode())
            for item in self._open.values()
            if "run" in item.state.rows
        ]

    def feed(self, told: Iterable[deltas.Delta]) -> list[T]:
        """Take deltas and give the events that they make, in order.

        Args:
            told: What happened, in order.

        Returns:
            The events; a delta may make one, none, or many.
        """
        events = self._events
        for delta in told:
            stamp = self._stamp
            if stamp is not None and isinstance(delta, str) and delta:
                # The hot path: text where text only streams. All of the frame but the text was rendered before.
                events.append(stamp(delta, self._sequence_number))
                self._sequence_number += 1
            elif not self.ended:
                self._react(delta)
        self._events = []
        return events

    def _react(self, delta: deltas.Delta) -> None:  # noqa: C901, PLR0912 - one case for each delta, in one place
        """Say what each delta does; the order of the cases is that of the deltas' definitions."""
        match delta:
            case str(text):
                self._write("append", text)
            case deltas.Text(text, logprobs):
                self._write("append", text, logprobs)
            case deltas.Open(kind, fields):
                self._begin_item(kind, fields)
            case deltas.Close():
                self._put_down_pen()
            case deltas.Reject(message):
                self._reject(message)
            case deltas.EndTurn(reason, usage):
                self._end_turn(reason, usage)
            case deltas.Refusal(text):
                self._write("refuse", text)
            case deltas.Summary(text):
                self._write("summarize", text)
            case deltas.Annotate(annotation):
                self._annotate(annotation)
            case deltas.EndPart():
                self._end_part()
            case deltas.Run(item_id):
                self._lead(item_id, "run", {})
            case deltas.Progress(item_id, fields):
                self._lead(item_id, "progress", fields)
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
                self._response.usage += usage
                self._response.error = {"code": code, "message": message}
                self._end("fail")
            case deltas.Cancel(usage):
                self._response.usage += usage
                self._end("cancel")
            case _:
                assert_never(delta)

    def _begin(self) -> None:
        self._try(self._response, "start")

    def _begin_item(self, kind: ItemKind, fields: Mapping[str, object]) -> Item:
        self._begin()
        self._put_down_pen()
        spec, lifecycle = ITEMS[kind], self._lifecycles.items[kind]
        known = {**fields, **{name: self._id(name, fields.get(name), prefix) for name, prefix in spec.made.items()}}
        item = Item(lifecycle.states[lifecycle.initial], spec, self._ids(spec.prefix), self._response.output, known)
        self._open[item.id] = item
        self._fire(item, "open")
        if "close" in item.state.rows:
            self._pen = item
        return item

    def _id(self, name: str, given: object, prefix: str) -> str:
        """Give an id that a field of an item holds: the one that was given, if it can be one (rule R7)."""
        taken = {item.fields.get(name) for item in self._response.output}
        known = f"{given}" if f"{given}".startswith(f"{prefix}_") else f"{prefix}_{given}"
        while not given or known in taken:
            given = known = self._ids(prefix)
        return known

    def _write(self, trigger: str, text: str, logprobs: Sequence[Mapping[str, object]] = ()) -> None:
        if not text and not logprobs:
            return
        item = self._pen
        if item is None or trigger not in item.state.rows:
            item = self._begin_item(*_DEFAULT[trigger])
        text = clean(text)
        item.hold(text, logprobs)
        if not text:
            self._stamp = None  # the next text comes this way, where these log probabilities wait for it
            return
        if trigger == "append" and item.mixes:
            self._end_part()  # a part has log probabilities for all of its text, or for none
        self._fire(item, "pad" if "pad" in item.state.rows and text.isspace() else trigger)
        emission = stream_of(item.state)
        if emission is not None and not logprobs:
            static: dict[str, object] = {"logprobs": []} if "logprobs" in emission.spec.fields else {}
            values = {**item.address(emission.spec.scope), **static}
            self._stamp = self._writer._stamp(emission.spec, values, item.sent.write)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - see `_fire`

    def _put_down_pen(self) -> None:
        if self._pen is not None:
            self._fire(self._pen, "close")

    def _end_part(self) -> None:
        if self._pen is not None:
            self._try(self._pen, "end_part")

    def _reject(self, message: str) -> None:
        item = self._pen
        if item is not None:
            self._put_down_pen()
            self._fail(item.id, message)

    def _annotate(self, annotation: Mapping[str, object]) -> None:
        if self._pen is not None and "annotate" in self._pen.state.rows:
            self._pen.annotate(annotation)
            self._fire(self._pen, "annotate")

    def _succeed(self, item_id: str, fields: Mapping[str, object]) -> None:
        item = self._open.get(item_id)
        if item is not None:
            self._lead(item_id, "succeed", {**item.spec.result, **fields})

    def _fail(self, item_id: str, message: str) -> None:
        item = self._open.get(item_id)
        if item is not None:
            self._lead(item_id, "fail", failure_fields(item.spec.kind, message))

    def _lead(self, item_id: str, trigger: str, fields: Mapping[str, object]) -> None:
        """Fire a tool's trigger, after those that lead to it; not for an item that has ended or whose kind has no tool."""
        item = self._open.get(item_id)
        if item is None or trigger not in self._lifecycles.items[item.spec.kind].triggers:
            return
        for step in _LEADS_TO[trigger]:
            if trigger not in item.state.rows:
                self._try(item, step)
        if trigger not in item.state.rows:
            return  # it is running already
        if trigger == "progress":
            item.show_progress(fields)
        else:
            item.fields.update(fields)
        self._fire(item, trigger)

    def _end_turn(self, reason: deltas.FinishReason, usage: deltas.Usage) -> None:
        self._response.usage += usage
        match reason:
            case "stop":
                self._begin()
                self._put_down_pen()
            case "length":
                self._response.incomplete_details = {"reason": "max_output_tokens"}
                self._end("cut")
            case "content_filter":
                self._response.incomplete_details = {"reason": "content_filter"}
                self._end("cut")
            case "abort":
                self._end("cancel")
            case "error":
                self._response.error = {"code": "server_error", "message": _ENGINE_FAILED}
                self._end("fail")
            case _:
                assert_never(reason)

    def _finish(self) -> None:
        self._begin()
        self._put_down_pen()
        for item in list(self._open.values()):
            self._abandon(item, "fail")
        self._fire(self._response, "complete")

    def _end(self, trigger: str) -> None:
        if trigger not in self._response.state.rows:
            self._begin()
        for item in list(self._open.values()):
            self._abandon(item, "cut")
        self._fire(self._response, trigger)

    def _abandon(self, item: Item, trigger: str) -> None:
        dest, _ = item.state.rows[trigger]
        if dest.name == "failed":
            item.fields.update(failure_fields(item.spec.kind, NOT_RUN if "run" in item.state.rows else _CUT))
        self._fire(item, trigger)

    def _try(self, subject: Item | Response, trigger: str) -> None:
        """Fire a trigger where it is legal."""
        if trigger in subject.state.rows:
            self._fire(subject, trigger)

    def _fire(self, subject: Item | Response, trigger: str) -> None:
        """Number and write what an edge emits: the one place where events are made.

        Raises:
            IllegalTransition: The state has no such edge. Nothing has changed.
        """
        self._stamp = None
        for spec, values in subject.take(trigger):
            # The one caller of what makes an event, which nobody else can do without naming what is private.
            event = self._writer._write(spec, values, self._sequence_number)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            self._events.append(event)
            self._sequence_number += 1
        if not subject.state.rows:
            self._open.pop(subject.id, None)
        if subject is self._pen and "close" not in subject.state.rows:
            self._pen = None
