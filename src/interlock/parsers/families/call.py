"""A call that is open: its arguments are written as JSON, in whatever style a family writes them.

It knows one call and its schema, and nothing of markers.
"""

from __future__ import annotations

from attrs import define, field

from interlock.fsm.deltas import Delta
from interlock.parsers.families.parameter_values import STRING, Schemas, Types, converted, escaped, quoted
from interlock.parsers.item_writers import Writer

__all__ = ["Call"]

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
