"""The format `responses`: turns the events of any Responses service into deltas.

Services omit or repeat events, rename and renumber items, or send an item only in the last event. So the parser reads each event
as a statement about an item: more of a text, a whole text, or the whole item, of which it writes only the new content.

Items are written one at a time (rule R10), so they queue in the order in which they began. The parser writes the active item
until the service ends it, or until another begins while this one seems complete. More text of a message or reasoning then begins
a new item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec
import orjson
from attrs import define, field, frozen

from interlock.events.items import ITEMS, TEXTS, ClientCall, Exit, ItemKind, Timeout, example, open_item
from interlock.events.json import as_json, as_text, elements, members
from interlock.events.parts import AnyAnnotation, Logprob
from interlock.events.shapes import mismatches
from interlock.fsm.deltas import (
    REASON_OF_DETAIL,
    Annotate,
    Close,
    Delta,
    EndOutput,
    EndPart,
    EndTurn,
    Fail,
    Fault,
    FinishReason,
    Progress,
    Refusal,
    Run,
    Succeed,
    Summary,
    Text,
    TokenLogprob,
    Usage,
)
from interlock.fsm.lifecycle import Fields
from interlock.fsm.lifecycles import LIFECYCLES
from interlock.parsers.chunk import Chunk, ChunkError, Recoveries
from interlock.parsers.item_writers import Alignment, ItemWriter, StreamWriter, join_text, writer_for
from interlock.parsers.routing import PREAMBLE, EndReason, Route, Routing, as_arguments, finish_reason_of, is_json

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]

TextPlace: TypeAlias = tuple[str, int]
"""A text of an item: the subject of its events in `TEXTS`, and its index in the item."""


DELTAS: Final[Mapping[str, Callable[[str], Delta]]] = {"refusal": Refusal, "reasoning_summary_text": Summary}
"""The deltas of the texts that are not plain ones, by the subject of their events."""

OWN_TEXTS: Final = {text.kind: subject for subject, text in TEXTS.items() if not text.index}
"""The subject of the text that is a field of the item, by kind of item."""

SUBJECT_ALIASES: Final = {"reasoning": "reasoning_text", "reasoning_summary": "reasoning_summary_text"}
"""The subjects, by their names in Open Responses and older services."""

PARTS: Final = {"text": "output_text", **{text.part: subject for subject, text in TEXTS.items() if text.part}}
"""The subjects of parts by type; older services have an output text of the type `text`."""

PLAIN: Final = {(text.kind, text.parts): subject for subject, text in reversed([*TEXTS.items()])}
"""The subject of a part that is plain text, by kind of item and list of parts."""

HOSTED_KINDS: Final = frozenset(kind for kind, item in ITEMS.items() if item.tool_result is not None)
"""The kinds of item that the service completes itself."""

FUNCTION_CALLS: Final = frozenset(kind for kind, item in ITEMS.items() if item.answer and "arguments" in item.text_path)
"""The kinds of calls of the client's functions."""
NAMED_CALLS: Final = frozenset(kind for kind, item in ITEMS.items() if issubclass(item, ClientCall))
"""The kinds of calls of the tools that the client names."""

EARLY_RESULTS: Final = frozenset({"action", "queries"})
"""Result fields that may be known when the item opens."""

START_EVENTS: Final = frozenset(
    str(edge.effects[0]).removeprefix("response.")
    for kind, lifecycle in LIFECYCLES.items()
    for edge in lifecycle.edges
    if edge.trigger == "run" and kind not in OWN_TEXTS
)
"""The events that report the start of a tool without text."""

SEARCH: Final[Fields] = {"type": "search", "query": ""}
"""The action of a web search before the service sends it."""

PARTED_KINDS: Final = frozenset(text.kind for text in TEXTS.values() if text.part)
"""The kinds of item whose texts are parts."""
WHOLE_KINDS: Final = frozenset(kind for kind, item in ITEMS.items() if item.events == "none")
"""The items that are added and done at once."""

STATUSES: Final[Mapping[str, ItemStatus]] = {"incomplete": "incomplete", "failed": "failed"}
"""The statuses that a service may end an item with; every other one is `completed`."""
FINAL_STATUSES: Final = ("completed", "failed")
"""The statuses that end an item. An item that is `incomplete` stays open, for the driver to end with the response."""

CUT_STATUSES: Final = ("in_progress", "incomplete")
"""The statuses of an item that is cut by the end of the response."""

FINISH_REASONS: Final[Mapping[str, FinishReason]] = MappingProxyType(
    {"completed": "stop", "done": "stop", "incomplete": "length", "failed": "error", "cancelled": "abort"}
)
"""The finish reasons, by the last words of terminal events and by the statuses of a response."""

NOT_ENDED: Final = "The service ended the response before the call."
CONTRADICTION: Final = "The service sent a call whose content differs from its deltas."
FAILURE: Final = "The service failed."


@define(eq=False)
class _UpstreamItem:
    """An item of the service, with its unwritten deltas; the active item has a `writer`."""

    kind: ItemKind
    id: str
    index: object
    fields: dict[str, object] = field(factory=dict[str, object])
    """The valid fields."""
    raw: Fields = field(factory=dict[str, object])
    """The item as the service sent it last."""
    status: ItemStatus = "in_progress"
    texts: dict[TextPlace, list[str]] = field(factory=dict[TextPlace, list[str]])
    """All texts that were received, in chunks."""
    place: TextPlace | None = None
    """The text that was received last."""
    annotations: dict[TextPlace, int] = field(factory=dict[TextPlace, int])
    """The number of annotations of each text."""
    alignment: Alignment = field(factory=Alignment)
    pending: list[Delta] = field(factory=list[Delta])
    writer: ItemWriter | None = None

    @property
    def is_shown(self) -> bool:
        """Whether the stream shows the item yet: a message, for example, needs text first."""
        needs_content = self.kind in PARTED_KINDS or self.kind in WHOLE_KINDS
        return bool(self.pending) or self.status != "in_progress" or not needs_content

    @property
    def seems_complete(self) -> bool:
        """Whether nothing seems to be missing, although the service has not ended the item."""
        if self.kind not in FUNCTION_CALLS:
            return self.kind in PARTED_KINDS
        chunks = self.texts.get((OWN_TEXTS[self.kind], 0), [])
        return self.status != "incomplete" and bool(chunks) and chunks[-1].rstrip().endswith("}") and is_json("".join(chunks))

    @property
    def is_for_client(self) -> bool:
        """Whether the client acts on the item, so that wrong content does harm."""
        return self.kind not in PARTED_KINDS and self.kind not in HOSTED_KINDS

    def is_contradicted_by(self, text: str, received: str) -> bool:
        """Return whether the received text of a complete call of the client differs from the whole text of the call."""
        is_complete = self.is_for_client and self.raw.get("status") not in CUT_STATUSES
        return is_complete and text.strip() not in ("", received.strip())

    def received(self, place: TextPlace) -> str:
        """Return the text received so far."""
        return "".join(self.texts.get(place, ()))

    def add(self, place: TextPlace, text: str, entries: Sequence[TokenLogprob] = ()) -> None:
        """Add more of a text."""
        if self.place not in (place, None):
            self.end_part()
        self.place = place
        self.texts.setdefault(place, []).append(text)
        delta = DELTAS.get(place[0], str)
        if delta is str and not entries and self.alignment.idle:
            self.pending.append(text)
        elif delta is str:
            for entry in entries:
                self.alignment.add(entry)
            text, entries = self.alignment.find(text)
            self.pending += [Text(text, entries)] if entries else [text] if text else []
        else:
            self.pending.append(delta(text))

    def end_part(self) -> None:
        """End the part that is being received."""
        self.flush()
        self.pending.append(EndPart())

    def flush(self) -> None:
        """Write text that ends inside a token and waits for the rest of it."""
        text, entries = self.alignment.flush()
        self.pending += [Text(text, entries)] if text else []
        self.alignment = Alignment()

    def update(self, item: Fields) -> None:
        """Copy the valid fields of an item."""
        self.raw = item
        self.fields |= _legal_fields(self.kind, item)

    def opening(self) -> Fields:
        """Return the opening fields: all except texts and fields known only at the end."""
        late = {*ITEMS[self.kind].known_at_done, *(ITEMS[self.kind].tool_result or ()), "error"} - EARLY_RESULTS
        fields = {name: value for name, value in self.fields.items() if name not in late}
        match self.kind:
            case kind if "action" in ITEMS[kind].required_at_open:
                return {"action": SEARCH, **fields}
            case "apply_patch_call" if "diff" in members(fields.get("operation")):
                return {**fields, "operation": {**members(fields["operation"]), "diff": ""}}
            case "shell_call":
                return {**fields, "action": {**members(fields.get("action")), "commands": []}}
            case _:
                return fields

    def ending(self) -> list[Delta]:
        """Return the deltas that end the item after its text."""
        kind = ITEMS[self.kind]
        late = Close({name: self.fields[name] for name in kind.known_at_done if name in self.fields})
        if kind.tool_result is None:
            return [late]
        if self.status != "completed":
            return [late, Fail("", _error_text(self.raw) or NOT_ENDED)]
        results = {name: self.fields[name] for name in kind.tool_result if self.fields.get(name) is not None}
        return [late, *self._print(), Succeed("", results)]

    def _print(self) -> Iterator[Delta]:
        """Yield the output of shell commands."""
        if self.kind == "shell_call_output":
            for output in map(members, elements(self.raw.get("output"))):
                yield Progress("", {name: as_text(output.get(name)) for name in ("stdout", "stderr")})
                yield EndOutput("", _without_invalid_fields(output.get("outcome"), Exit | Timeout) or {"type": "timeout"})


def finish_reason(event: Fields) -> FinishReason | None:
    """Return why the turn ended, if an event ends it."""
    verb = as_text(event.get("type")).removeprefix("response.")
    if verb not in FINISH_REASONS:
        return None
    response = members(event.get("response"))
    if REASON_OF_DETAIL.get(members(response.get("incomplete_details")).get("reason")) == "content_filter":
        return "content_filter"
    return FINISH_REASONS.get(as_text(response.get("status")), FINISH_REASONS[verb])


def _prefix(call_id: str) -> str:
    """Return a call id with the prefix `call_`, which the driver adds to calls, so that outputs still match their calls."""
    return call_id if not call_id or call_id.startswith("call_") else f"call_{call_id}"


@frozen(eq=False)
class _RepeatedText:
    """A text, and the fields that further events with more of it share with the last one."""

    item: _UpstreamItem
    place: TextPlace
    event_type: object
    index_name: str
    index: object

    def continues(self, event: Fields) -> bool:
        """Return whether an event has more of the text, without log probabilities."""
        return (
            event.get("type") == self.event_type
            and event.get("item_id") == self.item.id
            and event.get(self.index_name) == self.index
            and not event.get("logprobs")
        )


@define(eq=False)
class ResponsesParser:
    """Parses the events of a Responses service; each chunk has one event as its `delta`. See `Parser`.

    The fast path handles more text of the only item in the queue, if that text passes through unchanged (`_stream`).

    The driver makes the ids and indices.

    Args:
        routing: Routes the calls: one of a function that stands for another tool becomes that tool's item.
        include: The request's `include`; encrypted content and log probabilities are passed on if it names them.
        api_call_id: Returns the API's id for a call id of the service, or "".
    """

    _routing: Routing = field(factory=Routing)
    _include: frozenset[object] = frozenset()
    _api_call_id: Callable[[str], str] = _prefix
    _items: list[_UpstreamItem] = field(factory=list[_UpstreamItem], init=False)
    """The items of the turn."""
    _queue: list[_UpstreamItem] = field(factory=list[_UpstreamItem], init=False)
    """The items that are not completely written."""
    _active: _UpstreamItem | None = field(default=None, init=False)
    _stream: _RepeatedText | None = field(default=None, init=False)
    """The text that the last event was about, if the fast path can handle more of it."""
    _out: list[Delta] = field(factory=list[Delta], init=False)
    recoveries: Recoveries = field(factory=Recoveries, init=False)

    @classmethod
    def from_request(cls, body: Fields) -> ResponsesParser:
        """Return a parser for one response to a request."""
        include = frozenset(value for value in elements(body.get("include")) if isinstance(value, str))
        return cls(Routing.from_request(body), include)

    def count_repair(self, rule: str) -> None:
        """Count a breach of a rule of streams (docs/evidence/rules.md)."""
        self.recoveries["responses", rule] += 1

    @property
    def all_done(self) -> bool:
        """Whether the turn has items, and the service has ended each of them."""
        return bool(self._items) and all(item.status in FINAL_STATUSES for item in self._items)

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of an event, in either dialect."""
        event = members(chunk.delta)
        stream, self._stream = self._stream, None
        if stream is not None and stream.continues(event):
            text = event.get("delta")
            if isinstance(text, str) and text:
                stream.item.texts[stream.place].append(text)
                self._stream = stream
                return [text]
        if chunk.delta is None and (chunk.text or isinstance(chunk.token_ids, str)):
            raise ChunkError(chunk, "delta")
        self._read(event)
        if self._stream is not None and not self._passes_through(self._stream.item):
            self._stream = None
        return self._take()

    def end(self, reason: EndReason, usage: Usage) -> list[Delta]:
        """End the turn. If the service completed it, items that it did not end are complete, but hosted calls fail."""
        reason = self._flush(finish_reason_of(reason))
        deltas = [*self._take(), EndTurn(reason, usage)]
        self._items, self._queue, self._active, self._stream = [], [], None, None
        return deltas

    # Reading events.

    def _read(self, event: Fields) -> None:
        """Read an event, and write what is complete."""
        subject, _, verb = as_text(event.get("type")).removeprefix("response.").rpartition(".")
        subject = SUBJECT_ALIASES.get(subject, subject)
        match subject, verb:
            case _, "delta" if subject in TEXTS:
                self._read_delta(subject, event)
            case _, "done" if subject in TEXTS:
                self._read_part(subject, event, event)
            case "output_item", "added" | "done":
                self._read_item(verb, members(event.get("item")), event.get("output_index"))
            case "content_part" | "reasoning_summary_part", "done":
                part = members(event.get("part"))
                self._read_part(PARTS.get(as_text(part.get("type")), ""), event, part)
            case "output_text.annotation", "added":
                self._annotate(event)
            case "image_generation_call", "partial_image":
                self._add_delta(subject, event, Progress("", {"partial_image_b64": as_text(event.get("partial_image_b64"))}))
            case _ if f"{subject}.{verb}" in START_EVENTS:
                self._add_delta(subject, event, Run(""))
            case "", "error":
                self._fail(members(event.get("error")) or event)
            case "", _ if verb in FINISH_REASONS:
                self._end_response(event)
            case _:
                pass
        self._advance()

    def _read_delta(self, subject: str, event: Fields) -> None:
        text = as_arguments(event.get("delta"))
        if text:
            item, place = self._place(subject, event)
            self._add(item, place, text, self._entries(event))
            index = TEXTS[subject].index
            if subject not in DELTAS and item.id and item.id == event.get("item_id"):
                self._stream = _RepeatedText(item, place, event.get("type"), index, event.get(index))

    def _passes_through(self, item: _UpstreamItem) -> bool:
        """Return whether only this item is being written, and its text passes through unchanged."""
        return self._queue == [item] and item.alignment.idle and isinstance(item.writer, StreamWriter)

    def _read_part(self, subject: str, event: Fields, part: Fields) -> None:
        """Read a whole text, which is in a part or in the event itself."""
        if subject and part.get(TEXTS[subject].field):
            self._complete_part(*self._place(subject, event), part)

    def _place(self, subject: str, event: Fields) -> tuple[_UpstreamItem, TextPlace]:
        """Return the item of a text, and its place there."""
        item = self._find(TEXTS[subject].kind, event.get("item_id"), event.get("output_index"))
        index = event.get(TEXTS[subject].index)
        last = 0 if item.place is None else item.place[1]
        return item, (subject, index if isinstance(index, int) else last)

    def _read_item(self, verb: str, body: Fields, index: object) -> None:
        kind = as_text(body.get("type"))
        if kind not in ITEMS:
            return
        if verb == "added":
            self._update(self._find(kind, body.get("id"), index, begins=True), body)
        else:
            self._end_item(self._find(kind, body.get("id"), index), body)

    def _end_response(self, event: Fields) -> None:
        """Read the last event, which repeats all items."""
        reason, response = finish_reason(event), members(event.get("response"))
        bodies = [body for body in map(members, elements(response.get("output"))) if as_text(body.get("type")) in ITEMS]
        ids = [body.get("id") for body in bodies]
        streamed = [*self._items]
        unmatched = [*streamed]
        for index, body in enumerate(bodies):
            alike = [item for item in unmatched if item.kind == body["type"]]
            item = next((item for item in alike if item.id == body.get("id")), None)
            item = item or next((item for item in alike if item.id not in ids), None)
            if item is not None:
                unmatched.remove(item)
            elif _is_repeated(body, streamed):
                continue
            else:
                self.count_repair("R13")
                item = self._begin(str(body["type"]), body.get("id"), index)
            self._end_item(item, body)
            if reason != "stop" and body.get("status") in CUT_STATUSES:
                item.status = "incomplete"
        if event["type"] == "response.failed":
            self._fail(members(response.get("error")))

    def _fail(self, error: Fields) -> None:
        self._flush("error")
        self._out.append(Fault(as_text(error.get("code")) or "server_error", as_text(error.get("message")) or FAILURE))

    def _annotate(self, event: Fields) -> None:
        item, place = self._place("output_text", event)
        if place in item.texts:
            self._add_annotations(item, place, [event.get("annotation")])

    def _add_annotations(self, item: _UpstreamItem, place: TextPlace, annotations: Sequence[object]) -> None:
        legal = [Annotate(each) for each in (_without_invalid_fields(each, AnyAnnotation) for each in annotations) if each]
        item.annotations[place] = item.annotations.get(place, 0) + len(annotations)
        if item in self._queue:
            item.pending += legal

    def _add_delta(self, kind: ItemKind, event: Fields, delta: Delta) -> None:
        item = self._find(kind, event.get("item_id"), event.get("output_index"))
        if item in self._queue:
            item.pending.append(delta)

    def _add(self, item: _UpstreamItem, place: TextPlace, text: str, entries: Sequence[TokenLogprob] = ()) -> None:
        """Add more of a text. Ignore it for an ended item, except a message or reasoning that the service left open or empty."""
        if item.status in FINAL_STATUSES and item.kind not in PARTED_KINDS:
            return
        if item not in self._queue:
            if item.kind not in PARTED_KINDS or (item.status != "in_progress" and item.texts):
                return
            item.status = "in_progress"
            self._queue.append(item)
        item.add(place, text, entries)

    def _complete(self, item: _UpstreamItem, place: TextPlace, text: str, entries: Sequence[TokenLogprob] = ()) -> None:
        """Add the new content of a whole text."""
        received = item.received(place)
        if text.startswith(received):
            if text != received:
                self.count_repair("R9")
                self._add(item, place, text[len(received) :], () if received else entries)
        elif _is_same_json(received, text) or (
            _has_all_characters(received, text) and not item.is_contradicted_by(text, received)
        ):
            return
        elif item.kind in PARTED_KINDS:
            self.count_repair("R9")
            item.end_part()
            self._add(item, place, text)
        elif item.is_for_client and item in self._queue:
            self._out.append(Fault("server_error", CONTRADICTION))

    def _complete_part(self, item: _UpstreamItem, place: TextPlace, part: Fields) -> None:
        self._complete(item, place, as_arguments(part.get(TEXTS[place[0]].field)), self._entries(part))
        self._add_annotations(item, place, elements(part.get("annotations"))[item.annotations.get(place, 0) :])

    def _end_item(self, item: _UpstreamItem, body: Fields) -> None:
        """Read the whole item with which the service ends an item; ignore it if the item has ended already."""
        if item.status == "in_progress":
            self._update(item, body)
            self._read_whole(item)
            has_failed = item.kind in HOSTED_KINDS and not body.get("status") and body.get("error")
            item.status = "failed" if has_failed else STATUSES.get(as_text(body.get("status")), "completed")

    def _update(self, item: _UpstreamItem, body: Fields) -> None:
        if item.kind == "reasoning" and "reasoning.encrypted_content" not in self._include:
            body = {name: value for name, value in body.items() if name != "encrypted_content"}
        call_id = body.get("call_id")
        if isinstance(call_id, str):
            body = {**body, "call_id": self._api_call_id(call_id)}
        item.update(body)

    def _read_whole(self, item: _UpstreamItem) -> None:
        wholes = [*_complete_texts(item.kind, item.raw)]
        places = _received_places([place for place, _ in wholes], [*item.texts])
        for place, part in wholes:
            self._complete_part(item, places.get(place, place), part)

    def _entries(self, event: Fields) -> Sequence[TokenLogprob]:
        """Return the log probabilities in an event or part, if the request wants them."""
        logprobs = event.get("logprobs")
        wanted = logprobs and "message.output_text.logprobs" in self._include
        return _without_invalid_fields(logprobs, list[Logprob]) or () if wanted else ()

    def _find(self, kind: ItemKind, item_id: object, index: object, *, begins: bool = False) -> _UpstreamItem:
        """Return the item with an id, else with an index; without both, the newest one; if there is none, a new item.

        Services reuse indices, so an index finds only items that the service has not ended, and if the item `begins`, only
        items without an `added` event.
        """
        active = self._active
        if active is not None and active.kind == kind and active.id == item_id != "":
            return active
        alike = [item for item in reversed(self._items) if item.kind == kind]
        item = next((item for item in alike if item.id == item_id), None) if item_id else None
        if item is None:
            unended = [item for item in alike if item.status == "in_progress" and not (begins and item.raw)]
            anywhere = not item_id and index is None
            item = next((item for item in unended if anywhere or item.index == index), None)
        if item is None and not begins:
            self.count_repair("R7")
        return item or self._begin(kind, item_id, index)

    def _begin(self, kind: ItemKind, item_id: object, index: object) -> _UpstreamItem:
        item = _UpstreamItem(kind, as_text(item_id), index)
        self._items.append(item)
        self._queue.append(item)
        return item

    # Writing: one item at a time.

    def _advance(self) -> None:
        """Write the active item, and when it ends, the next ones."""
        while (item := self._active or self._next()) is not None:
            self._write(item)
            if not self._may_close(item):
                return
            if item.status not in FINAL_STATUSES:
                self.count_repair("R10")
            self._close(item)

    def _may_close(self, item: _UpstreamItem) -> bool:
        """Return whether an item is finished; a last call of the client waits, because the last event may show its truncation."""
        is_followed = self._is_followed(item)
        if item.status in FINAL_STATUSES:
            return is_followed or not item.is_for_client
        return is_followed and item.seems_complete

    def _next(self, *, has_ended: bool = False) -> _UpstreamItem | None:
        """Open the next item and return it; None while an added one has nothing to show, because items keep their order.

        Once the turn `has_ended`, the next one that has something to show is opened.
        """
        for item in self._queue:
            writer = self._open(item) if item.is_shown else None
            if writer is not None:
                item.writer, self._active = writer, item
                return item
            if item.raw and not has_ended:
                break
        return None

    def _open(self, item: _UpstreamItem) -> ItemWriter | None:
        """Open an item; return None while a field is missing. An item that ends without that field becomes a message."""
        fields = item.opening()
        writer: ItemWriter = StreamWriter(Route(item.kind, fields))
        if item.kind in NAMED_CALLS and as_text(fields.get("name")):
            route = self._routing.in_namespace(fields.get("namespace"), str(fields["name"]))
            if route.kind == item.kind:
                writer = StreamWriter(Route(item.kind, {**fields, **route.fields}))
            elif item.kind in FUNCTION_CALLS and "namespace" not in fields:
                writer = writer_for(route, as_text(fields.get("call_id")))
        try:
            self._out += writer.open()
        except ValueError:
            if item.status == "in_progress":
                return None
            writer = writer_for(PREAMBLE)
            self._out += writer.open()
        return writer

    def _write(self, item: _UpstreamItem) -> None:
        writer, pending = item.writer, item.pending
        item.pending = []
        assert writer is not None  # noqa: S101 - `_next` has set it
        for delta in pending:
            self._out += writer.write(delta) if isinstance(delta, str) else [delta]

    def _close(self, item: _UpstreamItem) -> None:
        """End the active item."""
        item.flush()
        self._write(item)
        writer, item.writer, self._active = item.writer, None, None
        assert writer is not None  # noqa: S101 - likewise
        self._out += item.ending() if writer.route.kind == item.kind else writer.close()
        self._queue.remove(item)

    def _is_followed(self, item: _UpstreamItem) -> bool:
        return len(self._queue) > 1 and any(other.is_shown for other in self._queue if other is not item)

    def _flush(self, reason: FinishReason) -> FinishReason:
        """Write all items up to a truncated one, which stays open, and return why the turn ends."""
        if reason == "stop":
            for unended in [item for item in self._queue if item.status == "in_progress"]:
                self.count_repair("R7")
                self._read_whole(unended)
                unended.status = "failed" if unended.kind in HOSTED_KINDS else "completed"
        elif self._queue and self._queue[-1].kind in FUNCTION_CALLS and not self._queue[-1].seems_complete:
            self.count_repair("R12")
            self._queue[-1].status = "incomplete"  # some services call a truncated call `completed`
        while (item := self._active or self._next(has_ended=True)) is not None:
            may_close = self._is_followed(item) and (item.seems_complete or not item.is_for_client)
            if item.status not in FINAL_STATUSES and not may_close:
                item.flush()
                self._write(item)
                return "length" if reason == "stop" else reason
            self._close(item)
        return reason

    def _take(self) -> list[Delta]:
        out, self._out = self._out, []
        return join_text(out) if len(out) > 1 else out


def _complete_texts(kind: ItemKind, body: Fields) -> Iterator[tuple[TextPlace, Fields]]:
    """Yield the texts in a whole item, each as a part."""
    if kind in PARTED_KINDS:
        for name in dict.fromkeys(text.parts for text in TEXTS.values() if text.kind == kind):
            parts = body.get(name)
            for index, part in enumerate([parts] if isinstance(parts, str) else elements(parts)):
                subject = PLAIN[kind, name] if isinstance(part, str) else PARTS.get(as_text(members(part).get("type")))
                if subject is not None and TEXTS[subject].kind == kind:
                    yield (subject, index), {TEXTS[subject].field: part} if isinstance(part, str) else members(part)
    elif kind == "shell_call":
        for index, command in enumerate(elements(members(body.get("action")).get("commands"))):
            yield ("shell_call_command", index), {"command": command}
    elif kind in OWN_TEXTS:
        holder = body
        for name in ITEMS[kind].text_path[:-1]:
            holder = members(holder.get(name))
        yield (OWN_TEXTS[kind], 0), holder


def _received_places(places: Sequence[TextPlace], received: Sequence[TextPlace]) -> Mapping[TextPlace, TextPlace]:
    """Map the places of the texts in a whole item to those of their deltas.

    Some services count parts otherwise in events than in the item. If an event has an index that the item lacks, the texts of
    its subject correspond in their order.
    """
    of_subject = {subject: [place for place in received if place[0] == subject] for subject, _ in received}
    shifted = [subject for subject, places_of_subject in of_subject.items() if not {*places_of_subject} <= {*places}]
    return {
        place: received_place
        for subject in shifted
        for place, received_place in zip([place for place in places if place[0] == subject], of_subject[subject], strict=False)
    }


def _is_repeated(body: Fields, items: Sequence[_UpstreamItem]) -> bool:
    """Return whether other items have all texts of an item; a service may rename an item in its last event."""
    wholes = [as_arguments(part.get(TEXTS[place[0]].field)) for place, part in _complete_texts(str(body["type"]), body)]
    streamed = ["".join(chunks) for item in items for chunks in item.texts.values()]
    return any(wholes) and all(any(whole in text for text in streamed) for whole in wholes)


def _error_text(item: Fields) -> str:
    """Return why a tool failed: its error, or the output of its code."""
    error = members(item.get("error"))
    parts = map(members, (*elements(error.get("content")), *elements(item.get("outputs"))))
    texts = [as_text(part.get("text")) or as_text(part.get("logs")) for part in parts]
    return as_text(item.get("error")) or as_text(error.get("message")) or "\n".join(texts)


def _has_all_characters(text: str, part: str) -> bool:
    """Return whether a text has all characters of another one, in order."""
    characters = iter(text)
    return all(character in characters for character in part)


def _is_same_json(text: str, other: str) -> bool:
    return is_json(text) and is_json(other) and orjson.loads(text) == orjson.loads(other)


def _without_invalid_fields(value: object, type_: object, name: str = "") -> Any:  # noqa: ANN401 - JSON of the type
    """Return a value without unknown fields and illegal nulls; None if the rest does not fit the type.

    With a name, only that field is examined.
    """
    try:
        result: Any = as_json(msgspec.convert(value, type_))
    except msgspec.ValidationError:
        return None
    for mismatch in [*mismatches(result, type_, direction="stream")]:
        *way, last = mismatch.path
        if name in ("", *mismatch.path[:1]):
            holder = result
            for step in way:
                holder = holder[step]
            holder.pop(last, None)
    return result


@cache
def _example(kind: ItemKind) -> Fields:
    """Return a valid item."""
    return members(as_json(open_item(kind, example(kind))))


def _legal_fields(kind: ItemKind, item: Fields) -> Iterator[tuple[str, object]]:
    """Yield the valid fields of an item."""
    whole = _without_invalid_fields({**_example(kind), **item}, ITEMS[kind])
    for name, value in item.items():
        legal = members(whole or _without_invalid_fields({**_example(kind), name: value}, ITEMS[kind], name))
        if name in legal and name != "type":
            yield name, legal[name]
