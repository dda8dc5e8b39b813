"""Carries out the effects of the framing: holds text back, releases it, or writes it to the open item."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from typing import ClassVar, Final

from attrs import define, evolve, field

from interlock.events.json import is_object
from interlock.fsm.deltas import Delta, Usage
from interlock.parsers.chunk import ReasoningCounter
from interlock.parsers.families.family import Family, NameMatch
from interlock.parsers.families.framing import Effect, Trigger
from interlock.parsers.families.literals import DICTIONARY, LiteralReader, Notation
from interlock.parsers.families.parameter_values import (
    ANY,
    STRING,
    Schema,
    Schemas,
    Types,
    convert,
    escape_json,
    quote_json,
    truncate,
)
from interlock.parsers.item_writers import (
    Alignment,
    ItemWriter,
    NullItemWriter,
    StreamWriter,
    decode_string,
    join_text,
    text_deltas,
    writer_for,
)
from interlock.parsers.routing import ANSWER, REASONING, Routing


@define
class ParserSettings:
    """How a response is parsed, beyond its family.

    Args:
        routing: Routes the calls to item kinds.
        schemas: The parameters of the request's tools.
        calls: Whether calls are parsed; otherwise their markers are text.
        parallel: Whether a turn may have several calls; otherwise all after the first are dropped.
        include_reasoning: Whether reasoning is returned, or only counted.
        forced: Whether the model must call a tool.
        special: The markers that are special tokens of the model, by their ids. Where chunks have ids, such a marker counts only
            as that token: the same text spelled out is text, unless a call is forced.
        count: Counts the reasoning tokens of a turn; the default estimates them from the length of the text.
    """

    routing: Routing = field(factory=Routing)
    schemas: Schemas = field(factory=Schemas)
    calls: bool = True
    parallel: bool = True
    include_reasoning: bool = True
    forced: bool = False
    special: Mapping[int, str] = field(factory=dict[int, str])
    count: ReasoningCounter | None = None

    @classmethod
    def from_request(cls, body: Mapping[str, object], routing: Routing | None = None) -> ParserSettings:
        """Return the settings for a request body, with a routing in place of the request's own.

        Without tools, or with `tool_choice` `none`, calls are text.
        """
        return cls(
            routing or Routing.from_request(body),
            Schemas.from_request(body),
            calls=bool(body.get("tools")) and body.get("tool_choice") != "none",
            parallel=body.get("parallel_tool_calls") is not False,
            include_reasoning=body.get("include_reasoning") is not False,
            forced=_forces(body.get("tool_choice")),
        )


def _forces(choice: object) -> bool:
    """Return whether a `tool_choice` requires a call or names a tool."""
    if is_object(choice):
        choice = choice.get("mode") if choice.get("type") == "allowed_tools" else "required"
    return choice == "required"


@define(eq=False)
class OpenCall:
    """Writes the arguments of one open call as JSON.

    The model writes JSON, a literal or, if `keyed`, keys and values. If `lenient`, an untyped value that is JSON stays JSON.
    """

    writer: ItemWriter
    _schema: Schema
    _keyed: bool
    _lenient: bool
    literal: LiteralReader | None = None
    _missing: str = "{}"
    """What completes the arguments if no more is written."""
    _types: Types = STRING
    _value: list[str] | None = None
    """The text of a value that is converted when it is complete; None for a value that streams."""
    _stray_text: list[str] = field(factory=list[str])
    _escape: str = ""
    """The incomplete escape at the end of a string that is decoded."""

    @property
    def streams(self) -> bool:
        """Whether text passes through; a value of a type other than string waits until it is complete."""
        return self._value is None

    def write(self, text: str) -> list[Delta]:
        """Write JSON or, in a keyed call, text of the value."""
        if not self._keyed:
            self._missing = "" if text else self._missing
            return self.writer.write(text)
        if self._value is None:
            return self.writer.write(escape_json(text))
        self._value.append(text)
        return []

    def decode(self, text: str) -> list[Delta]:
        """Write the decoded text of a JSON string."""
        self._missing = ""
        text = self._escape + text
        decoded, end = decode_string(text)
        self._escape = text[end:]
        return self.writer.write(decoded)

    def enter(self, key: str, string_mark: str | None) -> list[Delta]:
        """Begin the value of a key; `string_mark` is `true` or `string` for a string, None if the markup has no types."""
        types = self._schema.member(key).types
        if string_mark is not None:
            self._types = STRING if string_mark in {"true", "string"} else ANY
        else:
            self._types = types or (ANY if self._lenient else STRING)
        self._value = None if self._types == STRING else []
        opening = f"{'{' if self._missing == '{}' else ','}{quote_json(key)}:"
        self._missing = "}"
        return self.writer.write(opening + ('"' if self._value is None else ""))

    def set(self) -> list[Delta]:
        """End the value."""
        if self._value is None:
            return self.writer.write('"')
        json_text = convert("".join(self._value), self._types)
        self._value = None
        return self.writer.write(json_text)

    def break_off(self) -> None:
        """Write the following text unchanged; after it, no brace closes the object that the keys opened."""
        self._keyed = False

    def declares(self, key: str) -> bool:
        """Return whether the tool has a parameter of this name, or declares none at all."""
        return self._schema.declares(key)

    def stray(self, text: str) -> None:
        """Keep text outside of values for a message after the call."""
        self._stray_text.append(text)

    def end(self) -> tuple[list[Delta], str]:
        """Complete the arguments and close the call; return the deltas and the stray text."""
        missing = self._missing
        if self.literal is not None:
            missing = self.literal.end()
            self._stray_text += self.literal.stray
        return [*self.writer.write(missing), *self.writer.close()], "".join(self._stray_text)

    def leave(self) -> list[Delta]:
        """Write the rest of a truncated call, including stray text: no item may follow (rule R12)."""
        literal = [] if self.literal is None else [self.literal.cut(), *self.literal.stray]
        value = [] if self._value is None else [truncate("".join(self._value), self._types)]
        rest = "".join([*literal, *value, *self._stray_text])
        return [*self.writer.write(rest), *self.writer.leave()]


@define(eq=False)
class ActiveItem:
    """Writes one item after another; `out` has the deltas since the last `take`."""

    _settings: ParserSettings
    alignment: Alignment = field(factory=Alignment)
    out: list[Delta] = field(factory=list[Delta])
    _writer: ItemWriter | None = None
    _call: OpenCall | None = None
    _has_called: bool = False
    """Whether the turn has had a call."""

    @property
    def streams(self) -> bool:
        """Whether text passes through."""
        return isinstance(self._writer, StreamWriter) and (self._call is None or self._call.streams)

    @property
    def in_call(self) -> bool:
        """Whether a call is open."""
        return self._call is not None

    @property
    def call(self) -> OpenCall:
        """The open call; raises AttributeError if there is none, which the framing rules out."""
        if self._call is None:
            raise AttributeError("no call is open")
        return self._call

    def take(self) -> list[Delta]:
        """Return and clear `out`, with consecutive texts joined."""
        out, self.out = self.out, []
        return join_text(out) if len(out) > 1 else out

    def write_reasoning(self, text: str) -> None:
        """Write reasoning, in a new item if none is open."""
        if self._writer is None:
            self._open(StreamWriter(REASONING) if self._settings.include_reasoning else NullItemWriter(REASONING))
        self.write(text)

    def write_message(self, text: str) -> None:
        """Write message text, in a new item if none is open."""
        if self._writer is None:
            self._open(StreamWriter(ANSWER))
        self.write(text)

    def _open(self, writer: ItemWriter) -> None:
        self._writer = writer
        self.out += writer.open()

    def write(self, text: str) -> None:
        """Write to the open item."""
        if self._call is not None:
            self.out += self._call.write(text)
        elif self._writer is not None:
            self.out += text_deltas(self._writer, *self.alignment.find(text))

    def close(self) -> None:
        """Close the open item, if any: complete the arguments of a call, and write a message of its stray text."""
        if self._call is not None:
            deltas, stray_text = self._call.end()
            self.out += deltas
            self._writer = self._call = None
            if stray_text.strip():
                self.write_message(stray_text)
        if self._writer is not None:
            self.out += [*text_deltas(self._writer, *self.alignment.flush()), *self._writer.close()]
            self._writer = None

    def leave(self) -> None:
        """Leave the open item, if any, for the driver to end as truncated."""
        if self._call is not None:
            self.out += self._call.leave()
        elif self._writer is not None:
            self.out += [*text_deltas(self._writer, *self.alignment.flush()), *self._writer.leave()]
        self._writer = self._call = None

    def open_call(
        self, name: str, call_id: str, *, keyed: bool = False, lenient: bool = False, literal: LiteralReader | None = None
    ) -> None:
        """Close the open item and open a call; see `OpenCall`. The `call_id` is empty if the model writes none."""
        self.close()
        route = self._settings.routing.function(name)
        if self._has_called and not self._settings.parallel:
            writer: ItemWriter = NullItemWriter(route)
        else:
            writer = writer_for(route, call_id)
        self._has_called = True
        self._open(writer)
        self._call = OpenCall(writer, self._settings.schemas.of(route), keyed, lenient and route.payload == "text", literal)


_NO_NAME: Final = NameMatch()
_TRAILING_COMMA: Final = re.compile(r",\s*[}\]]")


@define(eq=False)
class SpecialTokens:
    """The special tokens of a turn; `texts` maps the ids of special tokens to the markers that they stand for."""

    texts: Mapping[int, str]
    _unread: defaultdict[str, int] = field(factory=lambda: defaultdict(int))
    """The special tokens whose text has not been read yet."""
    _pending: list[str] = field(factory=list[str])
    """The special tokens in the pending text, which may be read again."""

    def add(self, ids: Sequence[int]) -> None:
        """Add the tokens of a chunk."""
        for token in ids:
            if token in self.texts:
                self._unread[self.texts[token]] += 1

    def confirm(self, marker: str) -> bool:
        """Return whether a marker came as its special token, or has none; it may begin with a line break."""
        special = self._special_in(marker)
        return special is None or self._unread[special] > 0

    def read(self, marker: str, *, pending: bool) -> None:
        """Record that a marker was read; a `pending` one may be read again."""
        special = self._special_in(marker) if self.texts else None
        if special is not None and self._unread[special]:
            self._unread[special] -= 1
            if pending:
                self._pending.append(special)

    def restore(self, *, first: bool) -> None:
        """Mark the pending tokens as unread, the `first` one only if it is read again too."""
        for special in self._pending[not first :]:
            self._unread[special] += 1
        self._pending.clear()

    def commit(self) -> None:
        """Forget the pending tokens, which will not be read again."""
        self._pending.clear()

    def _special_in(self, marker: str) -> str | None:
        for text in self.texts.values():
            if marker.endswith(text):
                return text
        return None


@define(eq=False)
class TokenCounter:
    """Counts the tokens of a turn; without `count`, estimates the reasoning tokens from where markers are in a chunk's text."""

    _count: ReasoningCounter | None
    tokens: int = 0
    _ids: list[int] = field(factory=list[int])
    _chunk_size: int = 0
    """How many tokens the current chunk has."""
    place: tuple[int, int] = (0, 0)
    """Where the parser is in the text of the current chunk, and the length of this text."""
    _reasoning_start: float | None = None
    """The token at which reasoning began."""
    _reasoning: float = 0.0

    def add(self, ids: Sequence[int]) -> None:
        """Count the tokens of a chunk."""
        self._chunk_size = len(ids)
        self.tokens += self._chunk_size
        if self._count is not None:
            self._ids.extend(ids)

    @property
    def _position(self) -> float:
        """How many tokens precede the current place, assuming that the tokens of a chunk are equally long."""
        at, length = self.place
        return self.tokens - self._chunk_size * (1 - at / length if length else 0)

    def begin_reasoning(self) -> None:
        """Begin reasoning at the current place."""
        if self._reasoning_start is None:
            self._reasoning_start = self._position

    def end_reasoning(self) -> None:
        """End reasoning at the current place, if any is open."""
        if self._reasoning_start is not None:
            self._reasoning += self._position - self._reasoning_start
            self._reasoning_start = None

    def usage(self, engine: Usage) -> Usage:
        """Return the engine's usage, with this counter's values where it has none."""
        count = round(self._reasoning) if self._count is None else self._count(self._ids)
        return evolve(
            engine,
            output_tokens=engine.output_tokens or self.tokens,
            reasoning_tokens=engine.reasoning_tokens or count,
        )


@define(eq=False)
class Nesting:
    """Counts the open brackets of a call's JSON.

    Args:
        shut: The closing brackets after the JSON that end an envelope.
        depth: How many brackets are open; complete JSON leaves one, for an envelope that goes on.
    """

    _shut: Container[str] = ()
    depth: int = 0

    def bracket(self, bracket: str) -> Trigger:
        """Count a bracket, and return its trigger."""
        if bracket in "{[":
            self.depth += 1
        elif self.depth > 1:
            self.depth -= 1
        elif self.depth:
            return Trigger.WHOLE
        elif bracket in self._shut:
            return Trigger.SHUT
        return Trigger.TEXT

    def quote(self, *, ends: bool) -> Trigger:
        """Return the trigger of a quote, which `ends` a string or begins one; a top-level string is a complete value."""
        return Trigger.WHOLE if ends and not self.depth else Trigger.QUOTE

    def passes(self, parts: list[str], *, quoted: bool) -> bool:
        """Count the brackets of a text that is split at quotes.

        Return False and count none if one may complete the JSON, or follows a comma.

        `quoted` tells whether the text begins inside a string.
        """
        shape = '"'.join(parts[quoted::2])
        closing = shape.count("}") + shape.count("]")
        if closing >= self.depth or (closing and _TRAILING_COMMA.search(shape)):
            return False
        self.depth += shape.count("{") + shape.count("[") - closing
        return True


@define(eq=False)
class Effects:
    """Carries out the effects of one turn.

    Attributes:
        pending: The text that waits because it may be framing.
        header: The name or key so far.
        name_match: The complete name.
        key: The complete key, and the type of its value in the markup.
        released: The waiting marker that turned out to be text.
        replay: The waiting text after it, which is read again.
    """

    _family: Family
    _settings: ParserSettings
    _literal_stops: frozenset[str] = frozenset()
    """The markers that end a literal."""
    item: ActiveItem = field(init=False)
    counter: TokenCounter = field(init=False)
    specials: SpecialTokens = field(init=False)
    nesting: Nesting = field(init=False)
    pending: str = ""
    header: str = ""
    name_match: NameMatch = _NO_NAME
    key: tuple[str, str | None] = "", None
    released: str = ""
    replay: str = ""
    _marker_length: int = 0
    """The length of the pending text's first marker."""
    _space: str = ""
    """The last line of the white space between markers."""

    def __attrs_post_init__(self) -> None:
        """Start with nothing open."""
        self.item = ActiveItem(self._settings)
        self.counter = TokenCounter(self._settings.count)
        self.specials = SpecialTokens(self._settings.special)
        self.nesting = Nesting(self._family.markers.get(Trigger.SHUT, ()))

    def _hold(self, text: str) -> None:
        """Add to the pending text, and remember how long its first marker is."""
        if not self.pending:
            self._marker_length = len(text)
        self.pending += text

    def _again(self, _text: str) -> None:
        """Release the waiting text; the parser reads it again."""
        self.released, self.replay = self.pending[: self._marker_length], self.pending[self._marker_length :]
        self.specials.restore(first=not self.released)
        self.pending, self.header = "", ""

    def _recall(self, _text: str) -> None:
        self._marker_length = 0

    def _drop(self, _text: str) -> None:
        self.specials.commit()
        self.pending, self.header, self._space = "", "", ""

    def _keep_space(self, text: str) -> None:
        self._space = (self._space + text).rpartition("\n")[2]

    def _reason(self, text: str) -> None:
        self.counter.begin_reasoning()
        self.item.write_reasoning(self._after_space(text))

    def _speak(self, text: str) -> None:
        self.item.write_message(self._after_space(text))

    def _open(self, text: str) -> None:
        """Open the call whose name this marker ends, with the arguments that came before the name."""
        name, family = self.name_match, self._family
        self.counter.end_reasoning()
        self._drop("")
        self.nesting.depth = 0
        if family.style == "literal":
            literal = self._literal(family.notation)
            self.item.open_call(name.name, name.call_id, literal=literal)
            self.item.write(literal.read(name.arguments, 0, final=True)[0])
        else:
            lenient = family.syntax is not None and family.syntax.lenient
            keyed = family.style == "keys" and text not in family.markers.get(Trigger.JSON, ())
            self.item.open_call(name.name, name.call_id, keyed=keyed, lenient=lenient)
            self.item.write(name.arguments)

    def _literal(self, notation: Notation) -> LiteralReader:
        settings = self._settings
        return LiteralReader(notation, self._literal_stops, settings.schemas.of(settings.routing.function(self.name_match.name)))

    def _convert(self, _text: str) -> None:
        self.item.call.literal = self._literal(DICTIONARY)

    def _write(self, text: str) -> None:
        self.item.write(text)

    def _escape(self, text: str) -> None:
        self.item.write(escape_json(text))

    def _decode(self, text: str) -> None:
        self.item.out += self.item.call.decode(text.removeprefix('"'))  # the quote that begins the string

    def _enter(self, _text: str) -> None:
        self.item.out += self.item.call.enter(*self.key)
        self._drop("")

    def _set(self, _text: str) -> None:
        """End the value; the pending text follows it, so none of it is text of the value."""
        self.item.out += self.item.call.set()
        self._marker_length = 0

    def _break(self, _text: str) -> None:
        self.item.call.break_off()

    def _stray(self, text: str) -> None:
        self.item.call.stray(self._after_space(text))

    def _close(self, _text: str) -> None:
        self.counter.end_reasoning()
        self.specials.commit()
        self.pending, self.header = "", ""
        if not self.item.in_call:  # the white space in a call may precede text that looked like another call
            self._space = ""
        self.item.close()

    def _leave(self, _text: str) -> None:
        self.counter.end_reasoning()
        self.item.leave()

    def _after_space(self, text: str) -> str:
        """Return a text after the white space that the effect `space` kept."""
        if self._space:
            text, self._space = self._space + text, ""
        return text

    CARRY_OUT: ClassVar[Mapping[Effect, Callable[..., None]]] = {
        Effect.HOLD: _hold,
        Effect.AGAIN: _again,
        Effect.RECALL: _recall,
        Effect.DROP: _drop,
        Effect.SPACE: _keep_space,
        Effect.REASON: _reason,
        Effect.SPEAK: _speak,
        Effect.OPEN: _open,
        Effect.WRITE: _write,
        Effect.ESCAPE: _escape,
        Effect.DECODE: _decode,
        Effect.CONVERT: _convert,
        Effect.ENTER: _enter,
        Effect.SET: _set,
        Effect.BREAK: _break,
        Effect.STRAY: _stray,
        Effect.CLOSE: _close,
        Effect.LEAVE: _leave,
    }
    """The method for each effect of an edge, which takes the text that fired the edge."""
