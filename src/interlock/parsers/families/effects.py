"""Carries out the effects of the framing: holds text back, releases it, or writes it to the open item."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from typing import ClassVar, Final

from attrs import define, evolve, field

from interlock.fsm.deltas import Usage
from interlock.parsers.chunk import ReasoningCounter
from interlock.parsers.families.active_item import ActiveItem, ParserSettings
from interlock.parsers.families.envelope import NameMatch
from interlock.parsers.families.family import Family
from interlock.parsers.families.framing import Effect, Trigger
from interlock.parsers.families.literal_reader import LiteralReader
from interlock.parsers.families.literals import DICTIONARY, Notation
from interlock.parsers.families.parameter_values import escape_json

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
            literal = self._literal(family.dialect)
            self.item.open_call(name.name, name.call_id, literal=literal)
            self.item.write(literal.read(name.arguments, 0, final=True)[0])
        else:
            lenient = family.syntax is not None and family.syntax.lenient
            keyed = family.style == "keys" and text not in family.markers.get(Trigger.JSON, ())
            self.item.open_call(name.name, name.call_id, keyed=keyed, lenient=lenient)
            self.item.write(name.arguments)

    def _literal(self, notation: Notation) -> LiteralReader:
        return LiteralReader(notation, self._literal_stops, self._settings.schemas.schema(self.name_match.name))

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
    """What carries out each effect of an edge, given the text that fired it."""
