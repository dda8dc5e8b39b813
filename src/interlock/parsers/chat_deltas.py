"""The format `chat`: turns the deltas of Chat Completions, and of vLLM's parsers, into Interlock's.

A delta may have reasoning, content, a refusal and fragments of several tool calls, each with an index. This module reads its
fields from objects or mappings, so it works without vLLM and the `openai` package.

Items are written one at a time (rule R10), so they queue in the order in which they began, and only the head is written. A text
is complete when another item begins. A call is complete when another item starts and its arguments are a JSON object, or when
the turn ends. So fragments of interleaved calls are collected, and consecutive calls stream without delay.

The fast path handles more text of the only item in the queue, if that text passes through unchanged (`_sole`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Final, Literal, TypeAlias

from attrs import define, evolve, field
from msgspec import convert

from interlock.events.chat import OLD_CALL
from interlock.events.json import as_json, as_text, dumps, elements, is_array, is_object, members
from interlock.events.parts import AnyAnnotation
from interlock.fsm.deltas import Annotate, Close, Delta, EndTurn, Refusal, TokenLogprob, Usage
from interlock.fsm.lifecycle import NO_FIELDS
from interlock.parsers.chunk import Chunk, ChunkError, ReasoningCounter, Recoveries
from interlock.parsers.item_writers import (
    Alignment,
    ItemWriter,
    NullItemWriter,
    StreamWriter,
    TokenizedText,
    join_text,
    text_deltas,
    writer_for,
)
from interlock.parsers.routing import (
    ANSWER,
    PREAMBLE,
    REASONING,
    EndReason,
    Routing,
    as_arguments,
    breaks_off,
    finish_reason_of,
    is_json,
)

TextKey: TypeAlias = Literal["reasoning", "content", "refusal"]
CallKey: TypeAlias = TextKey | int
"""The key of an item: the kind of its text, or the index of a tool call."""

_FIELDS: Final = attrgetter("reasoning", "content", "tool_calls")
REASONING_DETAILS: Final = "reasoning_details"
"""The field with the parts of reasoning, among them encrypted ones."""
_REASONING: Final = ("reasoning", "reasoning_content", REASONING_DETAILS)
"""The fields in which servers send reasoning; the first that has text counts, because some servers fill several."""
_DETAIL_TEXTS: Final = ("text", "summary", "data")
"""The fields of a reasoning detail that come in chunks."""
_REQUIRED_DETAIL_FIELDS: Final = ("data", "signature")
"""The fields of a reasoning detail of which its service requires one when it receives the detail again."""
_REASONING_PARTS: Final[Mapping[str, Sequence[str]]] = {"thinking": ("thinking",), "reasoning": ("summary", "text")}
"""The content parts that are reasoning, by type, with the fields that may have their text."""
REPLACEMENT: Final = "\ufffd"
"""Replaces half a character without the other half."""
_ANNOTATION_DEFAULTS: Final[Mapping[str, object]] = {"title": "", "start_index": 0, "end_index": 0}
"""The fields of annotations that some services omit."""
_DELTA_FIELDS: Final = ("content", "role", *_REASONING, "refusal", "tool_calls", OLD_CALL, "annotations")
"""The fields of a delta; it has at least one of them, unless it is empty."""


class _RefusalWriter(ItemWriter):
    """Writes a message with a refusal."""

    def write(self, text: str) -> list[Delta]:
        return [Refusal(text)]

    def close(self) -> list[Delta]:
        return [Close()]


@define(eq=False)
class _QueuedItem:
    """A queued item with its unwritten text; it starts when it is the head of the queue and its writer is known."""

    key: CallKey
    writer: ItemWriter | None = None
    name: str = ""
    """The name of a call, of which more may follow while it has no writer."""
    call_id: str = ""
    chunks: list[TokenizedText] = field(factory=list[TokenizedText])
    arguments: list[str] = field(factory=list[str])
    annotations: list[Delta] = field(factory=list[Delta])
    """The annotations of a text that has not started."""
    end_fields: Mapping[str, object] = NO_FIELDS
    """The fields that are known when the item ends."""
    half: str = ""
    """The first half of a pair of surrogates that ends the text so far; the other half may come with the next text."""
    repeats_name: bool = False
    """Whether the name has come again after the complete arguments; arguments after it are those of another call."""

    def has_id(self, call_id: str, name: str) -> bool:
        """Return whether this is the call with an id, whose later fragments may have another index."""
        return bool(call_id) and call_id == self.call_id and name in ("", self.name)

    def matches(self, name: str, call_id: str, arguments: str) -> bool:
        """Return whether a fragment of this index belongs to this call: it has no different id or name.

        Some servers number every call 0 and send no ids, so complete arguments followed by the name and arguments are two calls.
        """
        begins = name
        if call_id and self.call_id:
            if call_id != self.call_id:
                return False
        elif name and self.writer is not None and name != self.name:
            return False
        elif self.repeats_name:
            begins = self.name
        return not (begins and arguments.strip() and self.is_complete)

    @property
    def is_complete(self) -> bool:
        """Whether the item is complete, given that another has started."""
        if isinstance(self.key, str):
            return True
        last = next((text for text in reversed(self.arguments) if text.strip()), "")
        if self.writer is None or not last.rstrip().endswith("}"):
            return False
        return is_json("".join(self.arguments))

    @property
    def is_truncated(self) -> bool:
        """Whether this is a call whose arguments break off, except a browser call, which rejects them itself."""
        text = "".join(self.arguments)
        route = None if self.writer is None else self.writer.route
        is_partial = text.lstrip().startswith("{") and breaks_off(text)
        return is_partial and route is not None and route.is_call and route.payload != "browser"


@define(eq=False)
class ChatParser:
    """Parses the deltas of Chat Completions and of vLLM's parsers; see `Parser`.

    White space at the beginning of a text waits for more text, and is dropped if another item begins first, because the white
    space of chat templates between reasoning and a tool call is not a message.

    Args:
        routing: Routes the calls; an unknown name is a function.
        include_reasoning: Whether to return reasoning; otherwise it is only counted.
        count: Counts the reasoning tokens of a turn. The default divides the tokens of each chunk in proportion to text length.
    """

    _routing: Routing
    _include_reasoning: bool = True
    _count: ReasoningCounter | None = None
    _queue: deque[_QueuedItem] = field(factory=deque["_QueuedItem"], init=False)
    _current: _QueuedItem | None = field(default=None, init=False)
    _sole: _QueuedItem | None = field(default=None, init=False)
    """The only item in the queue, if no token waits for its text and the item's text passes through unchanged."""
    _blank: list[str] = field(factory=list[str], init=False)
    """White space that waits for more text."""
    _blank_key: TextKey = field(default="content", init=False)
    _details: dict[tuple[int, str], dict[str, object]] = field(factory=dict[tuple[int, str], dict[str, object]], init=False)
    """The reasoning details that are in no item yet, by index and type; their texts are lists of chunks."""
    _last_index: int = field(default=-1, init=False)
    _alignment: Alignment = field(factory=Alignment, init=False)
    _out: list[Delta] = field(factory=list[Delta], init=False)
    _token_ids: list[int] = field(factory=list[int], init=False)
    _tokens: int = field(default=0, init=False)
    _reasoning: float = field(default=0, init=False)
    recoveries: Recoveries = field(factory=Recoveries, init=False)

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of a chunk's `delta`, which is None while vLLM's parser holds text back.

        Raises:
            TypeError: The chunk has text alone.
            ValueError: The chunk's `delta` has none of the known fields.
        """
        token_ids = chunk.token_ids
        self._tokens += len(token_ids)
        if self._count is not None:
            self._token_ids += token_ids
        sole = self._sole
        if sole is not None and not chunk.logprobs:
            text = _continuation(sole, chunk.delta)
            if text:
                if sole.key == "reasoning":
                    self._reasoning += len(token_ids)
                return [text]
        return self._parse(chunk)

    def _parse(self, chunk: Chunk) -> list[Delta]:
        if chunk.delta is None and (isinstance(chunk.token_ids, str) or (chunk.text and not chunk.token_ids)):
            raise ChunkError(chunk, "delta")
        for entry in chunk.logprobs or ():
            self._alignment.add(entry)
        get = _getter(chunk.delta)
        texts, calls = _fields(chunk.delta, get)
        reasoning, content, refusal = texts
        if reasoning:
            other_length = len(content) + sum(len(_arguments(call)) for call in calls)
            self._reasoning += len(chunk.token_ids) * len(reasoning) / (len(reasoning) + other_length)
            self._add_text("reasoning", reasoning)
        if details := get(REASONING_DETAILS):
            self._add_details(elements(details))
        if content:
            self._add_text("content", content)
        if refusal:
            self._add_text("refusal", refusal)
        if annotations := get("annotations"):
            for annotation in map(members, elements(annotations)):
                self._annotate(annotation)
        for call in calls:
            self._add_call(call)
        return self._take()

    def end(self, reason: EndReason, usage: Usage) -> list[Delta]:
        """End the turn, and write the queued items.

        If the last one is a truncated call, `stop` becomes `cut`. If it is not an incomplete call, `cut` becomes `stop`. If
        another item follows a truncated call, `cut` becomes `error`, because only the last item can be incomplete (rule R12);
        with `stop`, the model has written the call as it is.
        """
        reason = finish_reason_of(reason)
        self._flush_alignment()
        while len(self._queue) > 1:
            if self._queue[0].is_truncated and reason in ("stop", "cut"):
                reason = "error" if reason == "cut" else reason
                self.recoveries["chat", "cut_call"] += 1
            self._close_head()
        for item in self._queue:
            writer = self._finish(item)
            if reason == "stop" and item.is_truncated:
                reason = "cut"
                self.recoveries["chat", "cut_call"] += 1
            elif reason == "cut" and item.is_complete:
                reason = "stop"
            self._out += self._close(item, writer) if reason == "stop" else writer.leave()
        reasoning_tokens = round(self._reasoning) if self._count is None else self._count(self._token_ids)
        total = evolve(
            usage,
            output_tokens=usage.output_tokens or self._tokens,
            reasoning_tokens=usage.reasoning_tokens or reasoning_tokens,
        )
        deltas = [*self._take(), EndTurn(reason, total)]
        self._queue, self._current, self._sole, self._blank, self._details = deque(), None, None, [], {}
        self._last_index, self._alignment = -1, Alignment()
        self._token_ids, self._tokens, self._reasoning = [], 0, 0
        return deltas

    def _add_text(self, key: TextKey, text: str) -> None:
        last = self._queue[-1] if self._queue else None
        if last is None or last.key != key:
            if key != self._blank_key:
                self._blank, self._blank_key = [], key
            if text.isspace():
                self._blank.append(text)
                return
            text = "".join([*self._blank, text])
            last = self._enqueue(_QueuedItem(key, self._text_writer(key)))
        self._blank, self._blank_key = [], key
        text, last.half = join_halves(last.half, text)
        text, entries = (text, ()) if key == "refusal" else self._alignment.find(text)
        self._write(last, text, entries)

    def _annotate(self, annotation: Mapping[str, object]) -> None:
        """Annotate the text that is being written; ignore an annotation of any other text, or of a type that the API lacks."""
        last = self._queue[-1] if self._queue else None
        if last is not None and last.key == "content":
            self._flush_alignment()
            kind = as_text(annotation.get("type"))
            with suppress(ValueError):
                legal = convert({**_ANNOTATION_DEFAULTS, **annotation, **members(annotation.get(kind))}, AnyAnnotation)
                annotate = Annotate(members(as_json(legal)))
                (self._out if last is self._current else last.annotations).append(annotate)

    def _add_details(self, details: Sequence[object]) -> None:
        """Keep the details of reasoning, which may come in chunks with the same index.

        Once one of them is encrypted or signed, an item gets all of them, because the service wants them back.
        """
        for position, detail in enumerate(map(members, details)):
            index = detail.get("index")
            known = self._details.setdefault((index if isinstance(index, int) else position, as_text(detail.get("type"))), {})
            for name, value in ((name, value) for name, value in detail.items() if value is not None):
                is_text = name in _DETAIL_TEXTS and isinstance(value, str)
                known[name] = [*elements(known.get(name)), value] if is_text else value
        if any(detail.get(name) for detail in map(members, details) for name in _REQUIRED_DETAIL_FIELDS):
            last = self._queue[-1] if self._queue else None
            if last is None or last.key != "reasoning":
                last = self._enqueue(_QueuedItem("reasoning", self._text_writer("reasoning")))
                self._write(last, "", ())
            last.end_fields = {"encrypted_content": dumps([*map(_whole_detail, self._details.values())]).decode()}

    def _add_call(self, call: object) -> None:
        """Parse a fragment of a tool call; an empty one begins no call."""
        function = _get(call, "function")
        name, call_id, arguments = as_text(_get(function, "name")), as_text(_get(call, "id")), _arguments(call)
        self._last_index = self._index(call, name, call_id)
        calls = [item for item in reversed(self._queue) if item.key == self._last_index or item.has_id(call_id, name)]
        item = next((item for item in calls if item.matches(name, call_id, arguments)), None)
        if item is not None and isinstance(item.key, int):
            self._last_index = item.key
        if item is None:
            if not (name or call_id or arguments.strip()):
                return
            name = name or next((item.name for item in calls if item.repeats_name), "")
            item = self._enqueue(_QueuedItem(self._last_index))
        self._blank = []
        arguments, item.half = join_halves(item.half, arguments)
        item.call_id = item.call_id or call_id
        if item.writer is None and name != item.name:
            item.name += name
        elif name and item.is_complete:
            item.repeats_name = True
        item.arguments.append(arguments)
        if arguments.strip() or not self._routing.may_continue(item.name):
            self._set_writer(item)
        self._write(item, arguments, [])

    def _index(self, call: object, name: str, call_id: str) -> int:
        """Return the index of a fragment. Without one, a name begins a call, unless it continues the last name or id."""
        index = _get(call, "index")
        if isinstance(index, int):
            return index
        last = self._queue[-1] if self._queue else None
        if last is not None and last.key == self._last_index:
            is_named = last.writer is None and last.name
            if is_named or (call_id and call_id == last.call_id):
                return self._last_index
        return max(self._last_index + bool(name), 0)

    def _set_writer(self, item: _QueuedItem) -> None:
        """Choose the writer of a call whose name is complete."""
        if item.writer is None and item.name:
            item.writer = writer_for(self._routing.function(item.name), item.call_id)

    def _enqueue(self, item: _QueuedItem) -> _QueuedItem:
        """Enqueue an item, which completes the previous text or the previous call's name."""
        self._flush_alignment()
        if self._queue:
            self._set_writer(self._queue[-1])
        self._queue.append(item)
        return item

    def _flush_alignment(self) -> None:
        """Write the text that waits for the rest of a token."""
        text, entries = self._alignment.flush()
        if text:
            self._write(self._queue[-1], text, entries)

    def _write(self, item: _QueuedItem, text: str, entries: Sequence[TokenLogprob]) -> None:
        """Write a text, or keep it until its item is the head; then write all items that are ready."""
        if item is self._current and item.writer is not None:
            self._out += text_deltas(item.writer, text, entries)
            if len(self._queue) == 1:
                return
        else:
            item.chunks.append((text, entries))
        head = self._queue[0]
        while head.writer is not None:
            self._start(head)
            if len(self._queue) == 1 or not head.is_complete:
                break
            self._close_head()
            head = self._queue[0]

    def _start(self, item: _QueuedItem) -> ItemWriter:
        """Start the head of the queue, if it has not started; a call without a name becomes a message."""
        self._set_writer(item)
        if item.writer is None:
            self.recoveries["chat", "nameless_call"] += 1
        writer = item.writer = item.writer or writer_for(PREAMBLE)
        if item is not self._current:
            self._current = item
            self._out += writer.open()
            for text, entries in item.chunks:
                self._out += text_deltas(writer, text, entries)
            item.chunks.clear()
            self._out += item.annotations
        return writer

    def _close_head(self) -> None:
        head = self._queue[0]
        self._out += self._close(head, self._finish(head))
        self._queue.popleft()

    def _close(self, item: _QueuedItem, writer: ItemWriter) -> list[Delta]:
        deltas = writer.close()
        if item.end_fields and deltas:
            deltas[-1], self._details = Close(item.end_fields), {}
        return deltas

    def _finish(self, item: _QueuedItem) -> ItemWriter:
        """Start an item, and replace half a character at its end."""
        writer = self._start(item)
        if item.half:
            self._out += writer.write(REPLACEMENT)
        return writer

    def _text_writer(self, key: TextKey) -> ItemWriter:
        if key == "content":
            return writer_for(ANSWER)
        if key == "refusal":
            return _RefusalWriter(ANSWER)
        return writer_for(REASONING) if self._include_reasoning else NullItemWriter(REASONING)

    def _take(self) -> list[Delta]:
        """Return the new deltas, and note whether the next text can pass through."""
        current = self._current if len(self._queue) == 1 and self._alignment.idle else None
        passes = current is not None and isinstance(current.writer, StreamWriter) and not (current.repeats_name or current.half)
        self._sole = current if passes else None
        out, self._out = self._out, []
        return join_text(out) if len(out) > 1 else out


def _whole_detail(detail: Mapping[str, object]) -> Mapping[str, object]:
    """Return a detail with its texts joined."""
    texts = {name: "".join(map(str, elements(detail[name]))) for name in _DETAIL_TEXTS if name in detail}
    return {**detail, **texts}


def _continuation(item: _QueuedItem, delta: object) -> str:
    """Return the text of a delta that only continues the item; "" for any other delta and for a mapping.

    An object with these three fields is taken for a delta of vLLM's parsers, which has no others with text.
    """
    try:
        reasoning, content, calls = _FIELDS(delta)
        if not calls:
            if item.key == "content":
                return content if not reasoning and content.__class__ is str else ""
            return reasoning if item.key == "reasoning" and not content and reasoning.__class__ is str else ""
        (call,) = calls
        function = call.function
        if reasoning or content or call.index != item.key or call.id or function.name or function.arguments.__class__ is not str:
            return ""
    except (AttributeError, TypeError, ValueError):
        return ""
    item.arguments.append(function.arguments)
    return function.arguments


def join_halves(half: str, text: str) -> tuple[str, str]:
    """Return more of a text after half a character, and the half a character at its end, which is not yet returned.

    The halves are surrogates, as in JSON. Any other one without its other half becomes U+FFFD.
    """
    text = half + text
    half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    text = text.removesuffix(half)
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), half


def reasoning_of(delta: object) -> str:
    """Return the reasoning in the fields of a delta; its content may have more, in parts."""
    get = _getter(delta)
    for name in _REASONING:
        value = get(name)
        if value and (text := _join(value, ("text", "summary"))):
            return text
    return ""


def _fields(delta: object, get: Callable[[str], object]) -> tuple[tuple[str, str, str], Sequence[object]]:
    """Return the texts of a delta (reasoning, content, refusal), and its fragments of calls."""
    reasoning = reasoning_of(delta)
    content, refusal, function = get("content"), get("refusal"), get(OLD_CALL)
    fragments = elements(get("tool_calls"))
    if function is not None:
        fragments = [*fragments, {"index": 0, "function": function}]
    if is_list := is_array(content):
        thinking, content = _parts(content)
        reasoning += thinking
    texts = (reasoning, as_text(content), as_text(refusal))
    if not (fragments or is_list or any(texts)):
        _require_delta(delta)
    return texts, fragments


def _getter(delta: object) -> Callable[[str], object]:
    """Return a function that returns a field of an object or mapping, or None if it is missing."""
    return delta.get if is_object(delta) else partial(_get, delta)


def _parts(content: Sequence[object]) -> tuple[str, str]:
    """Return the reasoning and the text in a list of content parts."""
    reasoning: list[str] = []
    texts: list[str] = []
    for part in content:
        names = _REASONING_PARTS.get(as_text(_get(part, "type")))
        if names is None:
            texts.append(as_text(_get(part, "text")))
        else:
            reasoning.append(_join([part], names))
    return "".join(reasoning), "".join(texts)


def _join(value: object, names: Sequence[str]) -> str:
    """Return a text, or the joined texts of parts, each in the first of the named fields that has any."""
    if isinstance(value, str):
        return value
    parts = elements(value)
    return "".join(next(filter(None, (_join(_get(part, name), ("text",)) for name in names)), "") for part in parts)


def _require_delta(delta: object) -> None:
    """Raise `ValueError` for a value that is not a delta, such as a whole chunk of Chat Completions."""
    if delta is None or delta == {} or any(_has(delta, name) for name in _DELTA_FIELDS):
        return
    raise ValueError(f"a chunk of the format 'chat' needs a delta with one of {', '.join(_DELTA_FIELDS)}, not {delta!r:.100}")


def _has(value: object, name: str) -> bool:
    return name in value if is_object(value) else hasattr(value, name)


def _get(value: object, name: str) -> object:
    """Return a field of an object or mapping, or None; vLLM's deltas are objects, so try attributes first."""
    try:
        return getattr(value, name)
    except AttributeError:
        return members(value).get(name)


def _arguments(call: object) -> str:
    return as_arguments(_get(_get(call, "function"), "arguments"))
