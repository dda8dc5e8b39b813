"""Lifecycles: tables whose edges emit events, and the items and responses that go through them.

A lifecycle is a `Table` (see `interlock.fsm.table`) whose effects are emissions: functions that take the item or response and
return one event. Construction also checks that the events are nested correctly and that `cut` ends every open state.

A subject is an item or a response on its way through its lifecycle: the state and the fields so far; for an item, also its unsent
text. Its methods record the contents of events. `interlock.fsm.driver` fires the edges, and `interlock.fsm.emissions` makes the
events. `docs/evidence/rules.md` has the rules (R6, …).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from io import BytesIO
from types import MappingProxyType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar, get_type_hints

from attrs import frozen
from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from interlock.events import items
from interlock.events import response_object as response
from interlock.events.json import EMPTY, as_json, clean, members
from interlock.events.parts import AnyAnnotation, Json, Part
from interlock.events.stream import Place, StreamEvent, wire_name
from interlock.fsm import deltas
from interlock.fsm.table import State, Table

S = TypeVar("S")
"""The subject of a lifecycle: an item, or the response."""

B = TypeVar("B", bound=items.Item)
"""The class of the item in `interlock.events.items`."""

Fields: TypeAlias = Mapping[str, object]
"""Fields by the API's names: of an item, or the arguments of a trigger, such as the result of a tool or an annotation."""

NO_FIELDS: Final[Fields] = MappingProxyType({})
"""The arguments of a trigger that has none."""


@frozen
class Emission(Generic[S]):
    """The function that makes one event of an edge.

    Args:
        make: Updates the subject (opens a part, completes a text) and returns the event.
        event: The event's class.
    """

    make: Callable[[S], StreamEvent]
    event: type[StreamEvent]

    def __str__(self) -> str:
        """Return the event's wire name, which labels the edge in a diagram."""
        return wire_name(self.event)


def emission(make: Callable[[S], StreamEvent]) -> Emission[S]:
    """Decorate a function that makes an event; its return annotation is the event's class."""
    return Emission(make, get_type_hints(make)["return"])


LifecycleState: TypeAlias = State[str, Emission[S]]
"""A compiled state of a lifecycle."""


class Lifecycle(Table[str, Emission[S]]):
    """The table of the states and events of an item or of the response; its name is the kind of item, or `response`.

    Raises:
        DeclarationError: The table is invalid; a state that is neither initial nor final has no edge to a final state for
            `cut`, or for `fail` if a tool may run or the response may complete; or an edge emits an event in the wrong place,
            such as a delta outside a part. The message names the state. Or a class variable of the kind names a field that the
            kind lacks.
    """

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for fact, names in items.misnamed_fields(items.ITEMS.get(self.name, items.Item)).items():
            raise self.refusal(f"`{fact}` names fields that the item lacks: {', '.join(names)}")
        for state in self.states.values():
            if state.rows and state.name != self.initial:
                self._check_escapes(state)
        self._check_brackets()

    def _check_escapes(self, state: LifecycleState[S]) -> None:
        for trigger in ("cut", "fail") if state.rows.keys() & {"run", "succeed", "complete"} else ("cut",):
            if trigger not in state.rows:
                raise self.refusal(f"state {state.name!r} has no edge for {trigger!r}")
            dest, _ = state.rows[trigger]
            if dest.rows:
                raise self.refusal(f"{trigger!r} in state {state.name!r} does not lead to a final state")

    def _check_brackets(self) -> None:
        for name, places in self.conditions(Place.OUTSIDE, self._follow).items():
            if len(places) > 1:
                entered = " and in place ".join(repr(place.value) for place in places)
                raise self.refusal(f"state {name!r} is entered in place {entered}")
            (place,) = places
            if name in self.final and place not in {Place.OUTSIDE, Place.AFTER}:
                raise self.refusal(f"state {name!r} is final in place {place.value!r}")
            if name not in self.final and place is Place.AFTER:
                raise self.refusal(f"state {name!r} is not final, but the item has ended")

    def _follow(self, state: LifecycleState[S], place: Place) -> Iterator[tuple[str, Place]]:
        """Yield the state that each edge enters, and the place after its events."""
        for trigger, (dest, emissions) in state.rows.items():
            after = place
            for emit in emissions:
                event = emit.event
                if event.before is not after:
                    at = f"{trigger!r} in state {state.name!r}"
                    raise self.refusal(f"{at} emits {wire_name(event)} in place {after.value!r}, not {event.before.value!r}")
                after = event.after
            yield dest.name, after


class Subject(Struct, Generic[S], eq=False):
    """An item or the response in its lifecycle."""

    state: LifecycleState[S]
    args: Fields = NO_FIELDS
    """The arguments of the current trigger."""

    def save(self) -> Self:
        """Return a copy for `restore`."""
        return replace(self)

    def restore(self, backup: Subject[S]) -> None:
        """Undo the changes of an edge whose events could not be made or written."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(backup, name))


AnySubject: TypeAlias = Subject[Any]
"""An item or the response."""


@cache
def stream_of(state: LifecycleState[S]) -> Emission[S] | None:
    """Return the emission of the delta in a state that only streams text, or None for any other state.

    In such a state, `append` stays in the state and emits only this event, and white space has no trigger of its own.
    """
    match state.rows.get("append"):
        case (dest, (emit,)) if dest is state and "pad" not in state.rows:
            return emit
        case _:
            return None


FinalFields: TypeAlias = Callable[[Mapping[str, object]], Fields]
"""Returns the fields of an item that become known just before it is done; its argument is the item as JSON."""


class OpenPart(Struct, frozen=True):
    """The open part of an item, or its last one: a part of a text, a command, the output of a command, or a partial image."""

    index: int = -1
    complete: Part | None = None
    """The complete part, after the event that completes its text and before the event that completes the part."""
    logprobs: list[Json] = []
    """The sent log probabilities of its text. It grows in place."""
    annotations: tuple[AnyAnnotation, ...] = ()
    mark_end: tuple[int, int] = (0, 0)
    """Where the next annotation's mark may begin: after the last one, in characters and in bytes."""
    printed: tuple[BytesIO, ...] = ()
    """What a command has printed so far to standard output and standard error, in UTF-8. They grow in place."""


_LOOKBACK: Final = 2048
"""How many bytes before the end of a part are searched again after a mark that was not found."""


class ItemState(Subject["AnyItem"], Generic[B], kw_only=True):
    """An item in its lifecycle."""

    id: str
    body: B
    """The item as the API shows it. It is replaced, never mutated, because events refer to it."""
    output_index: int
    """The item's index in the response once it is added (rule R6)."""
    final_fields: FinalFields | None = None
    shown_body: B | None = None
    """The item in its last `added` or `done` event, and so in the response (rule R13)."""
    shown_json: tuple[B | None, Mapping[str, object]] = (None, EMPTY)
    """A body, and the same as plain JSON values: the last one that was needed."""
    part: OpenPart = field(default_factory=OpenPart)
    sent_text: BytesIO = field(default_factory=BytesIO)
    """The sent part of the open text in UTF-8. A list or a `StringIO` (up to Python 3.12) would keep an object for each delta."""
    last_text: str = ""
    """The last complete text."""
    unsent: str = ""
    """Text that no event has sent yet: white space that waits (rule R18), or the text of the current delta."""
    unsent_logprobs: Sequence[Json] = ()
    lengths: tuple[int, ...] = ()
    """The lengths of what grows in place, when `save` was called."""

    @property
    def kind(self) -> str:
        """The item's type."""
        return wire_name(type(self.body))

    @property
    def text(self) -> str:
        """The last complete text of the item or one of its parts, or else the sent part of the open text."""
        return self.last_text or self.sent_text.getvalue().decode()

    @property
    def has_encrypted_content(self) -> bool:
        """Whether the item has encrypted or withheld content."""
        return bool(self.body.encrypted_field and getattr(self.body, self.body.encrypted_field))

    @property
    def mixes_logprobs(self) -> bool:
        """Whether log probabilities belong to the sent text or to the unsent text, but not to both."""
        return bool(self.part.logprobs) is not bool(self.unsent_logprobs)

    def save(self) -> Self:
        """Note the lengths of what grows in place, and return a copy for `restore`."""
        part = self.part
        self.lengths = len(part.logprobs), self.sent_text.tell()
        if part.printed:
            self.lengths += tuple([text.tell() for text in part.printed])
        return replace(self)

    def restore(self, backup: Subject[AnyItem]) -> None:
        """Undo the changes of an edge whose events could not be made or written."""
        super().restore(backup)
        count, *sizes = self.lengths
        del self.part.logprobs[count:]
        for text, size in zip((self.sent_text, *self.part.printed), sizes, strict=True):
            text.truncate(text.seek(size))

    def update(self, **fields: object) -> None:
        """Set fields of the item, by the API's names."""
        self.body = replace(self.body, **fields)

    def show(self) -> B:
        """Set the status from the current state, record that an event shows the item, and return the item."""
        statuses, name = items.literals_of(type(self.body), "status"), self.state.name
        if statuses and getattr(self.body, "status", None) in {UNSET, "in_progress"}:
            self.body = replace(self.body, status=name if name in statuses else "in_progress")
        self.shown_body = self.body
        return self.body

    def hold(self, text: str, logprobs: Sequence[Mapping[str, object]]) -> None:
        """Hold text until the next delta event sends it; `text` may be empty if its log probabilities come first.

        A delta has log probabilities for all of its text or for none (rule R15), so drop them unless they cover all unsent text.
        """
        complete = bool(logprobs) and bool(self.unsent_logprobs or not self.unsent)
        self.unsent += text
        self.unsent_logprobs = (*self.unsent_logprobs, *logprobs) if complete else ()

    def send(self) -> str:
        """Return the unsent text for a delta event, and record it as sent; log probabilities that were not sent are dropped."""
        text, self.unsent, self.unsent_logprobs = self.unsent, "", ()
        self.sent_text.write(text.encode())
        return text

    def send_logprobs(self) -> list[Json]:
        """Return the unsent log probabilities for a delta event, and record them as sent."""
        logprobs, self.unsent_logprobs = [*self.unsent_logprobs], ()
        self.part.logprobs.extend(logprobs)
        return logprobs

    def end_text(self) -> str:
        """Record that the open text is complete (rule R9), and return it."""
        self.last_text, self.sent_text = self.sent_text.getvalue().decode(), BytesIO()
        return self.last_text

    def open_part(self, parts: Sequence[object]) -> int:
        """Record that a part begins after `parts`, and return its index (rule R8)."""
        self.part = OpenPart(len(parts))
        return self.part.index

    def update_part(self, **fields: object) -> None:
        """Set fields of the open part."""
        self.part = replace(self.part, **fields)

    def find(self, text: str) -> tuple[int, tuple[int, int]] | None:
        """Return where a text begins in characters, and ends in characters and in bytes, after the last annotation's mark.

        After a text that is not there, only the last bytes of the part are searched again, so that any number of such texts
        costs as much as the part is long.
        """
        needle = clean(text).encode()
        characters, position = self.part.mark_end
        with self.sent_text.getbuffer() as buffer:
            rest = bytes(buffer[position:])
        at = rest.find(needle)
        if at < 0:
            skipped = rest[: max(len(rest) - _LOOKBACK, 0)].decode(errors="ignore")
            self.update_part(mark_end=(characters + len(skipped), position + len(skipped.encode())))
            return None
        start = characters + len(rest[:at].decode())
        return start, (start + len(text), position + at + len(needle))

    def shown_as_json(self) -> Mapping[str, object]:
        """Return the item in its last `added` or `done` event, as plain JSON values; it is converted once after each event."""
        if self.shown_json[0] is not self.shown_body:
            self.shown_json = self.shown_body, members(as_json(self.shown_body))
        return self.shown_json[1]


AnyItem: TypeAlias = ItemState[Any]
"""An item of any kind in its lifecycle."""


class ResponseState(Subject["ResponseState"], kw_only=True):
    """A response in its lifecycle."""

    body: response.Response
    """The response as the API shows it; its status and output are current only after its end. Replaced, never mutated."""
    clock: Callable[[], int]
    additions: Callable[[], Mapping[str, object]] = dict[str, object]
    """Returns the fields outside the API that the server adds when the response ends."""
    output: list[AnyItem] = []
    """The items, in the order of their `added` events."""

    def end(self, **fields: object) -> response.Response:
        """Record the end of the response, and return the final response."""
        self.body = self.snapshot(self.state.name, **self.additions(), **self.args, **fields)
        return self.body

    def snapshot(self, status: str, **fields: object) -> response.Response:
        """Return the response with a status and its items so far."""
        return replace(self.body, status=status, output=[item.shown_body for item in self.output], **fields)


def usage_of(usage: deltas.Usage | None) -> response.ResponseUsage | None:
    """Convert usage to the API's form, with both detail objects (rule R13), or null if nobody counted the tokens."""
    if usage is None:
        return None
    return response.ResponseUsage(
        input_tokens=usage.input_tokens,
        input_tokens_details=response.InputTokensDetails(
            cached_tokens=usage.cached_tokens, cache_write_tokens=usage.cache_write_tokens
        ),
        output_tokens=usage.output_tokens,
        output_tokens_details=response.OutputTokensDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.input_tokens + usage.output_tokens,
    )
