"""The active item: the one that the framing is writing, be it reasoning, a message or a call.

It knows items and deltas, and nothing of markers or states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from attrs import define, field

from interlock.fsm.deltas import Delta
from interlock.parsers.alignment import Alignment
from interlock.parsers.families.special_tokens import Count
from interlock.parsers.families.parameter_values import STRING, Schemas, Types, converted, escaped, quoted
from interlock.parsers.routing import ANSWER, REASONING, Routing
from interlock.parsers.item_writers import Streamed, Withheld, Writer, joined, writer_for, written

__all__ = ["ActiveItem", "Call", "Settings"]


@define
class Settings:
    """How a response is read, beyond its family.

    Args:
        routing: Where the names of the request's tools go.
        schemas: What their parameters are.
        calls: Whether calls are read; else their markers are text.
        parallel: Whether a turn may have more than one call; else those after the first are read and not given.
        include_reasoning: Whether reasoning is given, or only counted.
        forced: Whether the model has to call something.
        special: The markers that the model's vocabulary has as special tokens, by their ids. Where chunks have ids, these
            markers count only as those tokens: the same text written letter by letter is text, unless a call is forced.
        count: Counts the reasoning tokens of a turn; without it, they are estimated from the length of the text.
    """

    routing: Routing = field(factory=Routing)
    schemas: Schemas = field(factory=Schemas)
    calls: bool = True
    parallel: bool = True
    include_reasoning: bool = True
    forced: bool = False
    special: Mapping[int, str] = field(factory=dict[int, str])
    count: Count | None = None

    @classmethod
    def from_request(cls, body: Mapping[str, object]) -> Settings:
        """Return what a request says of how its response is read.

        Args:
            body: The body of `POST /v1/responses`. Without tools, or with the `tool_choice` `none`, calls
                are text.
        """
        return cls(
            Routing.from_request(body),
            Schemas.from_request(body),
            calls=bool(body.get("tools")) and body.get("tool_choice") != "none",
            parallel=body.get("parallel_tool_calls") is not False,
            include_reasoning=body.get("include_reasoning") is not False,
            forced=_forces(body.get("tool_choice")),
        )


def _forces(choice: object) -> bool:
    """Return whether a `tool_choice` leaves the model no other choice than a call: it requires one, or names the tool."""
    if isinstance(choice, Mapping):
        named = cast("Mapping[str, object]", choice)
        choice = named.get("mode") if named.get("type") == "allowed_tools" else "required"
    return choice == "required"


_ANY: Types = frozenset({"any"})


@define(eq=False)
class Call:
    """The arguments of one call, which are whole JSON once it is closed.

    Args:
        writer: The item's.
        name: As the model wrote it.
        schemas: What the request says of the parameters of its tools.
        keyed: Whether the arguments are keys and values; else they are JSON already.
        lenient: Whether a value of which nothing is said is JSON if it can be.
    """

    writer: Writer
    _name: str
    _schemas: Schemas
    _keyed: bool
    _lenient: bool
    _has_content: bool = False
    """Whether anything was written."""
    _types: Types = STRING
    _value: list[str] | None = None
    """The text of a value that is converted when it is whole; None for one that streams."""
    _strays: list[str] = field(factory=list[str])

    @property
    def streams(self) -> bool:
        """Whether the value that was entered is a string, and so is written as it comes."""
        return self._value is None

    def write(self, text: str) -> list[Delta]:
        """Write a piece of JSON."""
        self._has_content = True
        return self.writer.write(text)

    def enter(self, key: str, marked: str | None) -> list[Delta]:
        """Begin the value of a key.

        Args:
            key: The parameter.
            marked: `true` if the markup says that the value is a string, `false` if it says that it is not, None if nothing.
        """
        types = self._schemas.types(self._name, key)
        if marked is not None:
            self._types = STRING if marked == "true" else _ANY
        else:
            self._types = types or (_ANY if self._lenient else STRING)
        self._value = None if self._types == STRING else []
        opening = f"{',' if self._has_content else '{'}{quoted(key)}:"
        return self.write(opening + ('"' if self._value is None else ""))

    def add(self, text: str) -> list[Delta]:
        """Add to the value."""
        if self._value is None:
            return self.writer.write(escaped(text))
        self._value.append(text)
        return []

    def set(self) -> list[Delta]:
        """End the value."""
        if self._value is None:
            return self.writer.write('"')
        json_text = converted("".join(self._value), self._types)
        self._value = None
        return self.writer.write(json_text)

    def stray(self, text: str) -> None:
        """Keep text that belongs to no value."""
        self._strays.append(text)

    def end(self) -> tuple[list[Delta], str]:
        """Complete the arguments and close the call; returns what strayed, too."""
        missing = "}" if self._keyed and self._has_content else "" if self._has_content else "{}"
        return [*self.writer.write(missing), *self.writer.close()], "".join(self._strays)

    def quit(self) -> list[Delta]:
        """Write what there is of a call that was cut, text that strayed included: a cut item is the last one (rule R12)."""
        rest = "".join([*(self._value or []), *self._strays])
        return [*self.writer.write(rest), *self.writer.leave()]


@define(eq=False)
class ActiveItem:
    """Writes one item after another.

    Args:
        settings: Where calls go, and what is shown.
        alignment: The tokens of the text, if their log probabilities were asked for.
        out: The deltas that were not taken yet.
    """

    _settings: Settings
    alignment: Alignment = field(factory=Alignment)
    out: list[Delta] = field(factory=list[Delta])
    _writer: Writer | None = None
    _call: Call | None = None
    _called: bool = False
    """Whether a call was given."""

    @property
    def streams(self) -> bool:
        """Whether text can be passed on as it comes."""
        return isinstance(self._writer, Streamed) and (self._call is None or self._call.streams)

    @property
    def call(self) -> Call:
        """The call that is open.

        Raises:
            AttributeError: None is, which the framing rules out.
        """
        if self._call is None:
            raise AttributeError("no call is open")
        return self._call

    def take(self) -> list[Delta]:
        """Return the deltas since the last time, pieces of text joined."""
        out, self.out = self.out, []
        return joined(out) if len(out) > 1 else out

    def reason(self, text: str) -> None:
        """Write reasoning, and open its item if none is open."""
        if self._writer is None:
            self._open(Streamed(REASONING) if self._settings.include_reasoning else Withheld(REASONING))
        self.write(text)

    def speak(self, text: str) -> None:
        """Write to a message, and open one if none is open."""
        if self._writer is None:
            self._open(Streamed(ANSWER))
        self.write(text)

    def _open(self, writer: Writer) -> None:
        self._writer = writer
        self.out += writer.open()

    def write(self, text: str) -> None:
        """Write to the item that is open, as it is."""
        if self._call is not None:
            self.out += self._call.write(text)
        elif self._writer is not None:
            self.out += written(self._writer, *self.alignment.find(text))

    def close(self) -> None:
        """Close the reasoning or message, if one is open."""
        if self._writer is not None:
            self.out += [*written(self._writer, *self.alignment.rest()), *self._writer.close()]
            self._writer = None

    def leave(self) -> None:
        """Leave it for the driver to cut."""
        if self._writer is not None:
            self.out += [*written(self._writer, *self.alignment.rest()), *self._writer.leave()]
            self._writer = None

    def commit(self, name: str, call_id: str, *, keyed: bool, lenient: bool) -> None:
        """Close what is open, and open a call.

        Args:
            name: As the model wrote it.
            call_id: Likewise; empty if the family writes none.
            keyed: Whether its arguments are keys and values.
            lenient: Whether a value of which nothing is said is JSON if it can be.
        """
        self.close()
        route = self._settings.routing.function(name)
        if self._called and not self._settings.parallel:
            writer: Writer = Withheld(route)
        else:
            writer = writer_for(route, {"call_id": call_id} if call_id and route.is_answered else {})
        self._called = True
        self._open(writer)
        self._call = Call(writer, name, self._settings.schemas, keyed, lenient)

    def end_call(self) -> None:
        """Complete and close the call; what strayed is a message after it."""
        deltas, strayed = self.call.end()
        self.out += deltas
        self._writer = self._call = None
        if strayed.strip():
            self.speak(strayed)
            self.close()

    def quit_call(self) -> None:
        """Leave the call for the driver to cut."""
        self.out += self.call.quit()
        self._writer = self._call = None
