"""Carries out the effects of the framing: holds text back, releases it, or writes it to the open item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from attrs import define, field

from interlock.parsers.families.active_item import ActiveItem, Settings
from interlock.parsers.families.alphabet import Effect, Trigger
from interlock.parsers.families.envelope import NameMatch
from interlock.parsers.families.family import Family
from interlock.parsers.families.literal_reader import LiteralReader
from interlock.parsers.families.special_tokens import SpecialTokens, TokenCounter


@define(eq=False)
class Nesting:
    """Counts the open brackets of a call's JSON.

    Args:
        whole: The trigger of the bracket or quote that completes the JSON.
        around: The triggers of closing brackets after it.
        depth: How many brackets are open.
    """

    whole: Trigger
    _around: Mapping[str, Trigger] = field(factory=dict[str, Trigger])
    depth: int = 0

    @classmethod
    def of(cls, family: Family) -> Nesting:
        """Create the nesting for a call of a family."""
        around = {text: role for role in (Trigger.SHUT, Trigger.SEALED) for text in family.markers.get(role, ())}
        is_ended = family.markers.keys().isdisjoint({Trigger.UNCALL, Trigger.SEALED})
        return cls(Trigger.ENDED if is_ended else Trigger.WHOLE, around)

    def bracket(self, bracket: str) -> Trigger:
        """Return the trigger of a bracket."""
        if bracket in "{[":
            return Trigger.NEST
        if self.depth:
            return Trigger.UNNEST if self.depth > 1 else self.whole
        return self._around.get(bracket, Trigger.TEXT)

    def quote(self, *, ends: bool) -> Trigger:
        """Return the trigger of a quote, which `ends` a string or begins one; a top-level string is a complete value."""
        return self.whole if ends and not self.depth else Trigger.QUOTE

    def passes(self, parts: list[str], *, quoted: bool) -> bool:
        """Count the brackets of a text that is split at quotes; if one may complete the JSON, return False and count none.

        `quoted` tells whether the text begins inside a string.
        """
        shape = "".join(parts[quoted::2])
        closing = shape.count("}") + shape.count("]")
        if closing >= self.depth:
            return False
        self.depth += shape.count("{") + shape.count("[") - closing
        return True


@define(eq=False)
class Effects:
    """Carries out the effects of one turn.

    Attributes:
        pending: The text that is held back because it may be framing.
        header: The name or key so far.
        name_match: The complete name.
        replay: Released text that is read again.
    """

    _family: Family
    _settings: Settings
    _literal_stops: frozenset[str] = frozenset()
    """The markers that end a literal."""
    item: ActiveItem = field(init=False)
    counter: TokenCounter = field(init=False)
    specials: SpecialTokens = field(init=False)
    nesting: Nesting = field(init=False)
    pending: str = ""
    header: str = ""
    name_match: NameMatch = field(factory=NameMatch)
    replay: str = ""
    _marker_length: int = 0
    """The length of the pending text's first marker."""
    _blank: str = ""
    """The last line of the white space between markers."""

    def __attrs_post_init__(self) -> None:
        """Start with nothing open."""
        self.item = ActiveItem(self._settings)
        self.counter = TokenCounter(self._settings.count)
        self.specials = SpecialTokens(self._settings.special)
        self.nesting = Nesting.of(self._family)

    def _hold(self, text: str) -> None:
        """Add to the pending text, and remember how long its first marker is."""
        if not self.pending:
            self._marker_length = len(text)
        self.pending += text

    def _write(self, text: str) -> None:
        self.item.write(text)

    def _note(self, text: str) -> None:
        self._hold(text)
        self.header += text

    def _forget(self, _text: str) -> None:
        self.pending, self.header, self._blank = "", "", ""

    def _spill(self, _text: str) -> None:
        self._refute(self.item.write_message)

    def _rethink(self, _text: str) -> None:
        self.counter.begin_reasoning()
        self._refute(self.item.write_reasoning)

    def _again(self, _text: str) -> None:
        """Do nothing: the parser reads the text again."""

    def _rest(self, text: str) -> None:
        self._blank = (self._blank + text).rpartition("\n")[2]

    def _reason(self, text: str) -> None:
        self.counter.begin_reasoning()
        self.item.write_reasoning(self._with_blank(text))

    def _speak(self, text: str) -> None:
        self.item.write_message(self._with_blank(text))

    def _close(self, _text: str) -> None:
        self.counter.end_reasoning()
        self.item.close()

    def _leave(self, _text: str) -> None:
        self.counter.end_reasoning()
        self.item.leave()

    def _commit(self, _text: str) -> None:
        self._call(keyed=False)

    def _enlist(self, _text: str) -> None:
        self._call(keyed=True)

    def _express(self, _text: str) -> None:
        """Open the call whose name was read, and begin its literal."""
        name = self.name_match
        literal = LiteralReader(self._family.dialect, self._literal_stops, self._settings.schemas.schema(name.name))
        self._call(keyed=False, literal=literal)
        self.item.write(literal.read(name.arguments, 0, final=True)[0])

    def _argue(self, _text: str) -> None:
        self.item.write(self.name_match.arguments)

    def _deepen(self, _text: str) -> None:
        self.nesting.depth += 1

    def _rise(self, _text: str) -> None:
        self.nesting.depth -= 1

    def _admit(self, _text: str) -> None:
        self.item.write(self.pending)
        self.pending = ""

    def _enter(self, _text: str) -> None:
        key, string_mark = self._family.read_key(self.header) or ("", None)
        self.item.out += self.item.call.enter(key, string_mark)

    def _set(self, _text: str) -> None:
        self.item.out += self.item.call.set()

    def _add(self, text: str) -> None:
        self.item.out += self.item.call.add(text)

    def _stray(self, text: str) -> None:
        self.item.call.stray(self._with_blank(text))

    def _keep(self, text: str) -> None:
        self.item.call.stray(text)

    def _spoil(self, _text: str) -> None:
        self.item.call.stray(self._with_blank(self.pending))
        self.pending, self.header = "", ""

    def _end(self, _text: str) -> None:
        self.item.end_call()

    def _quit(self, _text: str) -> None:
        self.item.quit_call()

    def _refute(self, write: Callable[[str], None]) -> None:
        """Write the marker as text, because it began no call, and read the rest again."""
        pending, length = self.pending, self._marker_length
        self.pending, self.header = "", ""
        self.specials.restore()
        write(self._with_blank(pending[:length]))
        self.replay = pending[length:]

    def _call(self, *, keyed: bool, literal: LiteralReader | None = None) -> None:
        """Open the call whose name was read."""
        self.specials.commit()
        self.counter.end_reasoning()
        self.pending, self.header, self._blank, self.nesting.depth = "", "", "", 0
        syntax = self._family.syntax
        lenient = syntax is not None and syntax.lenient
        self.item.commit(self.name_match.name, self.name_match.call_id, keyed=keyed, lenient=lenient, literal=literal)

    def _with_blank(self, text: str) -> str:
        """Return a text after the white space that the effect `rest` held back."""
        text, self._blank = self._blank + text, ""
        return text

    CARRY_OUT: ClassVar[Mapping[Effect, Callable[..., None]]] = {
        Effect.WRITE: _write,
        Effect.ADD: _add,
        Effect.HOLD: _hold,
        Effect.NOTE: _note,
        Effect.FORGET: _forget,
        Effect.SPILL: _spill,
        Effect.RETHINK: _rethink,
        Effect.AGAIN: _again,
        Effect.REST: _rest,
        Effect.REASON: _reason,
        Effect.SPEAK: _speak,
        Effect.CLOSE: _close,
        Effect.LEAVE: _leave,
        Effect.COMMIT: _commit,
        Effect.ENLIST: _enlist,
        Effect.EXPRESS: _express,
        Effect.ARGUE: _argue,
        Effect.DEEPEN: _deepen,
        Effect.RISE: _rise,
        Effect.ADMIT: _admit,
        Effect.ENTER: _enter,
        Effect.SET: _set,
        Effect.STRAY: _stray,
        Effect.KEEP: _keep,
        Effect.SPOIL: _spoil,
        Effect.END: _end,
        Effect.QUIT: _quit,
    }
    """What carries out each effect of an edge, given the text that fired it."""
