"""Writes the open item of a turn: reasoning, a message, or a call with its arguments."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field

from interlock.events.json import is_object
from interlock.fsm.deltas import Delta
from interlock.parsers.alignment import Alignment
from interlock.parsers.chunk import ReasoningCounter
from interlock.parsers.families.literal_reader import LiteralReader
from interlock.parsers.families.parameter_values import ANY, STRING, Schemas, Types, convert, escape_json, quote_json
from interlock.parsers.item_writers import (
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
    def from_request(cls, body: Mapping[str, object]) -> ParserSettings:
        """Return the settings for a request body. Without tools, or with `tool_choice` `none`, calls are text."""
        return cls(
            Routing.from_request(body),
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
    _name: str
    _schemas: Schemas
    _keyed: bool
    _lenient: bool
    literal: LiteralReader | None = None
    _has_content: bool = False
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
            self._has_content = self._has_content or bool(text)
            return self.writer.write(text)
        if self._value is None:
            return self.writer.write(escape_json(text))
        self._value.append(text)
        return []

    def decode(self, text: str) -> list[Delta]:
        """Write what the text of a JSON string stands for."""
        self._has_content = True
        text = self._escape + text
        decoded, end = decode_string(text)
        self._escape = text[end:]
        return self.writer.write(decoded)

    def enter(self, key: str, string_mark: str | None) -> list[Delta]:
        """Begin the value of a key; `string_mark` is `true` or `string` for a string, None if the markup has no types."""
        types = self._schemas.types(self._name, key)
        if string_mark is not None:
            self._types = STRING if string_mark in {"true", "string"} else ANY
        else:
            self._types = types or (ANY if self._lenient else STRING)
        self._value = None if self._types == STRING else []
        opening = f"{',' if self._has_content else '{'}{quote_json(key)}:"
        self._has_content = True
        return self.writer.write(opening + ('"' if self._value is None else ""))

    def set(self) -> list[Delta]:
        """End the value."""
        if self._value is None:
            return self.writer.write('"')
        json_text = convert("".join(self._value), self._types)
        self._value = None
        return self.writer.write(json_text)

    def break_off(self) -> None:
        """Write what follows unchanged, without a brace at the end, so that the arguments are no JSON."""
        self._keyed, self._has_content = False, True

    def declares(self, key: str) -> bool:
        """Return whether the tool has a parameter of this name, or declares none at all."""
        return self._schemas.schema(self._name).declares(key)

    def stray(self, text: str) -> None:
        """Keep text outside of values for a message after the call."""
        self._stray_text.append(text)

    def end(self) -> tuple[list[Delta], str]:
        """Complete the arguments and close the call; return the deltas and the stray text."""
        missing = "}" if self._keyed and self._has_content else "" if self._has_content else "{}"
        if self.literal is not None:
            missing = self.literal.end()
            self._stray_text += self.literal.stray
        return [*self.writer.write(missing), *self.writer.close()], "".join(self._stray_text)

    def leave(self) -> list[Delta]:
        """Write the rest of a truncated call, including stray text: no item may follow (rule R12)."""
        literal = [] if self.literal is None else [self.literal.spill(), *self.literal.stray]
        rest = "".join([*literal, *(self._value or []), self._escape, *self._stray_text])
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
        self._call = OpenCall(writer, name, self._settings.schemas, keyed, lenient, literal)
