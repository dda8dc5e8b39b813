"""The format `vllm`: from the deltas of any of vLLM's own parsers to ours.

vLLM's parsers (`Parser.parse_delta`) give what a model said as a `DeltaMessage`: a piece of reasoning, a piece of content, pieces
of tool calls, each with an index, several of these at once. Here they are taken by their shape, as objects or as mappings,
so that this module works without vLLM.

Such a delta may name several things, and a stream writes one item at a time (rule R8). So what is said stands in line, in
the order in which it began, and the head of the line is written. A text is whole when something else begins. A call is
whole when something else has begun and its arguments are a whole JSON value, or at the end of the turn: thus the pieces of
interleaved calls come together, and calls that follow one another stream without delay.

The hot path is a further piece of what stands in line alone and is passed on as it comes (`_alone`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final, Literal, TypeAlias, cast

import orjson
from attrs import define, evolve, field

from interlock.events.json import dumps
from interlock.fsm.deltas import Delta, EndTurn, FinishReason, Usage
from interlock.parsers.alignment import Aligned, Alignment
from interlock.parsers.chunk import Chunk
from interlock.parsers.routing import ANSWER, PREAMBLE, REASONING, Route, Routing
from interlock.parsers.harmony_vocabulary import Entry
from interlock.parsers.item_writers import Streamed, Withheld, Writer, joined, writer_for, written

Key: TypeAlias = Literal["reasoning", "content"] | int
"""What is said: reasoning, content, or the tool call of an index."""

Count: TypeAlias = Callable[[Sequence[int]], int]
"""Counts the reasoning tokens of a whole turn; vLLM's parsers have it as `count_reasoning_tokens`."""

_FIELDS: Final = attrgetter("reasoning", "content", "tool_calls")


@define(eq=False)
class _Item:
    """One thing that the model says: it stands in line, and is written when it is at the head and its name is known.

    Args:
        key: What it is.
        writer: How it is written, once that is known.
        call_id: The id that the parser gave a call.
        pieces: Its text that was not written yet.
        arguments: All of a call's arguments.
    """

    key: Key
    writer: Writer | None = None
    call_id: str = ""
    pieces: list[Aligned] = field(factory=list[Aligned])
    arguments: list[str] = field(factory=list[str])

    def belongs(self, index: int, call_id: str) -> bool:
        """Return whether a piece of a call is a piece of this one: of the same index, and of no other id."""
        return self.key == index and (not call_id or not self.call_id or call_id == self.call_id)

    @property
    def whole(self) -> bool:
        """Whether it is over, now that something else has begun."""
        if isinstance(self.key, str):
            return True
        if self.writer is None or not (self.arguments and self.arguments[-1].rstrip().endswith("}")):
            return False
        return _is_json("".join(self.arguments))

    @property
    def is_abandoned(self) -> bool:
        """Whether it is a call that the model left, if it says nothing more: its arguments begin as an object and are none.

        A search whose arguments make no sense is rejected when it is closed.
        """
        text = "".join(self.arguments)
        route = None if self.writer is None else self.writer.route
        half = text.lstrip().startswith("{") and not _is_json(text)
        return half and route is not None and route.is_call and route.payload != "browser"


@define(eq=False)
class VllmParser:
    """Parses the deltas of vLLM's parsers; see `Parser`.

    White space that begins a text waits for the rest of that text, and is dropped if something else comes instead: what
    templates put between reasoning and a tool call is no message.

    Args:
        routing: Where the names of the request go; an unknown name is a function.
        include_reasoning: Whether reasoning is given, or only counted.
        count: Counts the reasoning tokens of a turn. Without it they are those of the chunks that gave reasoning, shared by
            length with what else a chunk gave.
    """

    _routing: Routing
    _include_reasoning: bool = True
    _count: Count | None = None
    _line: deque[_Item] = field(factory=deque["_Item"])
    _pen: _Item | None = None
    _alone: _Item | None = None
    """What is written, if nothing else stands in line, no token waits for its text, and its text is passed on as it comes."""
    _blank: tuple[Key, str] = ("content", "")
    _last_index: int = -1
    _alignment: Alignment = field(factory=Alignment)
    _out: list[Delta] = field(factory=list[Delta])
    _token_ids: list[int] = field(factory=list[int])
    _tokens: int = 0
    _reasoning: float = 0

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of a `DeltaMessage`.

        Args:
            chunk: Its `delta`, or None while vLLM's parser holds text back; its `token_ids` are counted.
        """
        token_ids = chunk.token_ids
        self._tokens += len(token_ids)
        if self._count is not None:
            self._token_ids += token_ids
        alone = self._alone
        if alone is not None and not chunk.logprobs:
            text = _continued(alone, chunk.delta)
            if text:
                if alone.key == "reasoning":
                    self._reasoning += len(token_ids)
                return [text]
        return self._parse(chunk)

    def _parse(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of a `DeltaMessage` of any shape."""
        for entry in chunk.logprobs or ():
            self._alignment.add(entry)
        fields = _fields(chunk.delta)
        reasoning, content, calls = _text(fields[0]), _text(fields[1]), _list(fields[2])
        if reasoning:
            other_length = len(content) + sum(len(_arguments(call)) for call in calls)
            self._reasoning += len(chunk.token_ids) * len(reasoning) / (len(reasoning) + other_length)
            self._say("reasoning", reasoning)
        if content:
            self._say("content", content)
        for call in calls:
            self._call(call)
        return self._take()

    def end(self, reason: FinishReason, usage: Usage) -> list[Delta]:
        """End the turn: write the calls that waited for those before them, and return the last deltas.

        Args:
            reason: Why it ended. After `stop` the last item is whole, unless it is a call with half of its arguments: that is a
                `cut`. After anything else the driver cuts the item.
            usage: What the engine counted; its own count of reasoning tokens is kept, if it has one.
        """
        self._add_rest()
        while len(self._line) > 1:
            self._close_head()
        for item in self._line:
            writer = self._begin(item)
            if reason == "stop" and item.is_abandoned:
                reason = "cut"
            self._out += writer.close() if reason == "stop" else writer.leave()
        count = round(self._reasoning) if self._count is None else self._count(self._token_ids)
        counted = evolve(
            usage,
            output_tokens=usage.output_tokens or self._tokens,
            reasoning_tokens=usage.reasoning_tokens or count,
        )
        deltas = [*self._take(), EndTurn(reason, counted)]
        self._line, self._pen, self._alone, self._blank = deque(), None, None, ("content", "")
        self._last_index, self._alignment = -1, Alignment()
        self._token_ids, self._tokens, self._reasoning = [], 0, 0
        return deltas

    def _say(self, key: Literal["reasoning", "content"], text: str) -> None:
        """Parse a piece of reasoning or content."""
        last = self._line[-1] if self._line else None
        if last is None or last.key != key:
            text = self._blank[1] + text if self._blank[0] == key else text
            if text.isspace():
                self._blank = (key, text)
                return
            last = self._stand(_Item(key, self._text_writer(key)))
        self._blank = (key, "")
        self._add(last, *self._alignment.find(text))

    def _call(self, call: object) -> None:
        """Parse a piece of a tool call; empty pieces are passed over."""
        function = _get(call, "function")
        name, call_id, arguments = _text(_get(function, "name")), _text(_get(call, "id")), _arguments(call)
        index = _get(call, "index")
        self._last_index = index if isinstance(index, int) else max(self._last_index + bool(name), 0)
        item = next((item for item in self._line if item.belongs(self._last_index, call_id)), None)
        if item is None:
            if not (name or call_id or arguments.strip()):
                return
            item = self._stand(_Item(self._last_index))
        self._blank = ("content", "")
        item.call_id = item.call_id or call_id
        if name and item.writer is None:
            item.writer = self._call_writer(self._routing.function(name), item.call_id)
        item.arguments.append(arguments)
        self._add(item, arguments, [])

    def _stand(self, item: _Item) -> _Item:
        """Have something stand in line; the text before it is whole now."""
        self._add_rest()
        self._line.append(item)
        return item

    def _add_rest(self) -> None:
        """Write the text that waits for the rest of its token."""
        text, entries = self._alignment.rest()
        if text:
            self._add(self._line[-1], text, entries)

    def _add(self, item: _Item, text: str, entries: Sequence[Entry]) -> None:
        """Write a text, or hold it until its turn comes; then see who is next in line."""
        if item is self._pen and item.writer is not None:
            self._out += written(item.writer, text, entries)
            if len(self._line) == 1:
                return
        else:
            item.pieces.append((text, entries))
        head = self._line[0]
        while head.writer is not None:
            self._begin(head)
            if len(self._line) == 1 or not head.whole:
                break
            self._close_head()
            head = self._line[0]

    def _begin(self, item: _Item) -> Writer:
        """Begin to write what is at the head of the line; a call that never got a name is a message."""
        writer = item.writer = item.writer or writer_for(PREAMBLE)
        if item is not self._pen:
            self._pen = item
            self._out += writer.open()
            for text, entries in item.pieces:
                self._out += written(writer, text, entries)
            item.pieces.clear()
        return writer

    def _close_head(self) -> None:
        self._out += self._begin(self._line[0]).close()
        self._line.popleft()

    def _text_writer(self, key: Literal["reasoning", "content"]) -> Writer:
        if key == "content":
            return writer_for(ANSWER)
        return writer_for(REASONING) if self._include_reasoning else Withheld(REASONING)

    def _call_writer(self, route: Route, call_id: str) -> Writer:
        """Return a call's writer; only calls that the client answers have a `call_id`."""
        return writer_for(route, {"call_id": call_id} if call_id and route.is_answered else {})

    def _take(self) -> list[Delta]:
        """Return what was written, and see whether more of it can be passed on at once."""
        pen = self._pen if len(self._line) == 1 and self._alignment.idle else None
        self._alone = pen if pen is not None and isinstance(pen.writer, Streamed) else None
        out, self._out = self._out, []
        return joined(out) if len(out) > 1 else out


def _continued(item: _Item, delta: object) -> str:
    """Return the text of a delta that is a further piece of one thing and nothing else; "" of any other delta.

    Args:
        item: What has begun.
        delta: As vLLM gives it; other shapes are for the long way.
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


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def _fields(delta: object) -> tuple[object, object, object]:
    """Return the reasoning, the content and the tool calls of a delta; older ones say `reasoning_content`."""
    try:
        return _FIELDS(delta)  # what vLLM gives, in one go
    except AttributeError:
        reasoning = _get(delta, "reasoning") or _get(delta, "reasoning_content")
        return reasoning, _get(delta, "content"), _get(delta, "tool_calls")


def _get(value: object, name: str) -> object:
    """Return a field of an object or mapping, None if it has none; vLLM gives objects, so those come first."""
    try:
        return getattr(value, name)
    except AttributeError:
        return cast("Mapping[str, object]", value).get(name) if isinstance(value, Mapping) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _list(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else ()


def _arguments(call: object) -> str:
    """Return a piece of arguments; some parsers give them as an object, at once."""
    value = _get(_get(call, "function"), "arguments")
    if isinstance(value, str):
        return value
    return dumps(cast("Mapping[str, object]", value)).decode() if isinstance(value, Mapping) else ""
