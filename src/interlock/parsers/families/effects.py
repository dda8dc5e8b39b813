"""What the edges of the framing ask for, carried out: text is held, given back, or written to the active item.

It knows what is held, which item is open and how deep its JSON is. It knows neither states nor where in a text a marker stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from attrs import define, field

from interlock.parsers.families.active_item import ActiveItem, Settings
from interlock.parsers.families.alphabet import Effect, Trigger
from interlock.parsers.families.envelope import Named
from interlock.parsers.families.family import Family
from interlock.parsers.families.special_tokens import Specials, TokenCount

__all__ = ["Effects"]


@define(eq=False)
class Nesting:
    """Counts the brackets of the arguments of a call.

    Args:
        whole: What the end of a whole value triggers.
        shutting: The brackets that close around the arguments.
        depth: How many brackets are open.
    """

    _whole: Trigger
    _shutting: tuple[str, ...] = ()
    depth: int = 0

    @classmethod
    def of(cls, family: Family) -> Nesting:
        """Return that of a call of a family."""
        whole = Trigger.WHOLE if Trigger.UNCALL in family.markers else Trigger.ENDED
        return cls(whole, family.markers.get(Trigger.SHUT, ()))

    def bracket(self, bracket: str) -> Trigger:
        """Return what a bracket triggers."""
        if bracket in "{[":
            return Trigger.NEST
        if self.depth:
            return Trigger.UNNEST if self.depth > 1 else self._whole
        return Trigger.SHUT if bracket in self._shutting else Trigger.TEXT

    def quote(self, *, ends: bool) -> Trigger:
        """Return what a quote triggers.

        Args:
            ends: Whether it ends a string; one that no bracket is around is a whole value.
        """
        return self._whole if ends and not self.depth else Trigger.QUOTE

    def passes(self, parts: list[str], *, quoted: bool) -> bool:
        """Count the brackets of a text at once, if none of them is the last to close; returns whether that is so.

        Args:
            parts: What stands between its quotes.
            quoted: Whether it begins inside of a string.
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

    Args:
        family: How the model writes.
        settings: How it is read.

    Attributes:
        item: What is written.
        count: Its tokens.
        specials: Its special tokens.
        nesting: The brackets that are open.
        raw: What is held since a marker that may begin a call or a key.
        header: The name or key as far as it was read.
        named: The name, when it is whole.
        again: What was held and is to be read again.
    """

    _family: Family
    _settings: Settings
    item: ActiveItem = field(init=False)
    count: TokenCount = field(init=False)
    specials: Specials = field(init=False)
    nesting: Nesting = field(init=False)
    raw: str = ""
    header: str = ""
    named: Named = field(factory=Named)
    again: str = ""
    _lead: int = 0
    """How much of what is held the marker is."""
    _rest: str = ""
    """White space after a line break, between markers."""

    def __attrs_post_init__(self) -> None:
        """Start with nothing open."""
        self.item = ActiveItem(self._settings)
        self.count = TokenCount(self._settings.count)
        self.specials = Specials(self._settings.special)
        self.nesting = Nesting.of(self._family)

    def carry_out(self, effect: Effect, text: str) -> None:  # noqa: C901, PLR0912, PLR0915 - one case for each effect
        """Do what an edge asks for.

        Args:
            effect: One of its effects.
            text: What made it fire.
        """
        item = self.item
        match effect:
            case Effect.WRITE:
                item.write(text)
            case Effect.ADD:
                item.out += item.call.add(text)
            case Effect.HOLD:
                self._hold(text)
            case Effect.NOTE:
                self._hold(text)
                self.header += text
            case Effect.FORGET:
                self.raw, self.header, self._rest = "", "", ""
            case Effect.SPILL:
                self._refute(item.speak)
            case Effect.RETHINK:
                self.count.begin_reasoning()
                self._refute(item.reason)
            case Effect.AGAIN:
                pass
            case Effect.REST:
                self._rest = (self._rest + text).rpartition("\n")[2]
            case Effect.REASON:
                self.count.begin_reasoning()
                item.reason(self._rested(text))
            case Effect.SPEAK:
                item.speak(self._rested(text))
            case Effect.CLOSE:
                self.count.end_reasoning()
                item.close()
            case Effect.LEAVE:
                self.count.end_reasoning()
                item.leave()
            case Effect.COMMIT:
                self._commit(keyed=False)
            case Effect.ENLIST:
                self._commit(keyed=True)
            case Effect.ARGUE:
                item.write(self.named.arguments)
            case Effect.DEEPEN:
                self.nesting.depth += 1
            case Effect.RISE:
                self.nesting.depth -= 1
            case Effect.ADMIT:
                item.write(self.raw)
                self.raw = ""
            case Effect.ENTER:
                item.out += item.call.enter(*(self._family.read_key(self.header) or ("", None)))
            case Effect.SET:
                item.out += item.call.set()
            case Effect.STRAY:
                item.call.stray(self._rested(text))
            case Effect.KEEP:
                item.call.stray(text)
            case Effect.SPOIL:
                item.call.stray(self._rested(self.raw))
                self.raw, self.header = "", ""
            case Effect.END:
                item.end_call()
            case Effect.QUIT:
                item.quit_call()
            case _:
                assert_never(effect)

    def _hold(self, text: str) -> None:
        """Hold what may be framing; the first piece of it is a marker."""
        if not self.raw:
            self._lead = len(text)
        self.raw += text

    def _refute(self, write: Callable[[str], None]) -> None:
        """Write the marker that began no call as text, and have what follows it read again."""
        raw, lead = self.raw, self._lead
        self.raw, self.header = "", ""
        self.specials.give_back()
        write(self._rested(raw[:lead]))
        self.again = raw[lead:]

    def _commit(self, *, keyed: bool) -> None:
        """Open the call whose name was read."""
        self.specials.settle()
        self.count.end_reasoning()
        self.raw, self.header, self._rest, self.nesting.depth = "", "", "", 0
        syntax = self._family.syntax
        lenient = syntax is not None and syntax.lenient
        self.item.commit(self.named.name, self.named.call_id, keyed=keyed, lenient=lenient)

    def _rested(self, text: str) -> str:
        """Return text with the white space before it, as far as that is not blank lines after a marker."""
        text, self._rest = self._rest + text, ""
        return text
