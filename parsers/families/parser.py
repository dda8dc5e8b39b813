"""The format `tagged`: from text with the markers of a family to deltas.

What may come in which order is declared in `interlock.parsers.families.framing`; this module finds the markers and does what
the edges ask for. It is total: no text, in no partition and with no end, raises or is lost (rule R20).

A piece of text costs what it is long, whatever came before. The hot path is text that holds no marker and no beginning of
one, where text only streams: one search of a regular expression. At most a marker that is not whole yet is held back, and
behind one that may begin a call what came since, up to 4096 characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, assert_never

from attrs import define, field

from interlock.fsm.deltas import Delta, EndTurn, FinishReason, Usage
from interlock.fsm.table import State
from interlock.parsers.chunk import Chunk
from interlock.parsers.families.active import ActiveItem, Settings
from interlock.parsers.families.envelope import Named, after_name, read_name
from interlock.parsers.families.family import Family, Start
from interlock.parsers.families.framing import FRAMING, Effect, Trigger
from interlock.parsers.families.lexicon import Lexicon, Search, lexica
from interlock.parsers.families.tokens import Specials, TokenCount
from interlock.parsers.families.values import escaped

__all__ = ["FamilyParser"]

_NAMING: Final = frozenset({"name", "bare name", "thought name", "aside name"})
_PASSING: Final = frozenset({"reasoning", "content", "aside", "value", "json", "quoted", "torn", "loose"})
"""The states in which text streams."""

_LONGEST_NAME: Final = 256
_KEY: Final = re.compile(rf"[^<>\n]{{0,{_LONGEST_NAME}}}")


@define(eq=False)
class FamilyParser:
    """Parses the text of a model of one family; see `Parser`.

    Args:
        family: How the model writes.
        settings: How it is read.
        starts: The state in which turns start unless `begin` says otherwise: `thinking` or `between`; by default, what the family
            does.
    """

    _family: Family
    _settings: Settings = field(factory=Settings)
    _starts: Start | None = None
    _item: ActiveItem = field(init=False)
    _lexica: Mapping[str, Lexicon] = field(init=False)
    _state: State[Trigger, Effect] = field(init=False)
    _search: Search | None = None
    """What would stop text from being passed on; None where text does not stream."""
    _escapes: bool = False
    """Whether text is passed on as the inside of a JSON string."""
    _structure: Search | None = None
    """What in JSON is read letter by letter; None outside of it."""
    _text: str = ""
    _at: int = 0
    _held: str = ""
    """The part of a marker that the text ends in."""
    _raw: str = ""
    """What is held since a marker that may begin a call or a key."""
    _lead: int = 0
    """How much of that the marker is."""
    _header: str = ""
    """The name or key as far as it was read."""
    _named: Named = field(factory=Named)
    _rest: str = ""
    """White space after a line break, between markers."""
    _depth: int = 0
    """How many brackets of JSON are open."""
    _specials: Specials = field(init=False)
    _count: TokenCount = field(init=False)
    _arriving: int = 0
    """How many tokens the chunk has that is being read."""

    def __attrs_post_init__(self) -> None:
        """Start the first turn."""
        self.begin(self._starts)

    def begin(self, starts: Start | None) -> None:
        """Start a turn.

        Args:
            starts: `thinking` if the prompt ends inside of reasoning, `between` if it does not; None if that is not known.
        """
        self._state = FRAMING.states[starts or self._family.starts]
        self._lexica = lexica(self._family, calls=self._settings.calls)
        self._held, self._rest, self._search, self._structure = "", "", None, None
        self._item = ActiveItem(self._settings)
        self._specials = Specials(self._settings.special)
        self._count = TokenCount(self._settings.count)

    @property
    def held(self) -> str:
        """What was read and is held back, because it may be framing."""
        return self._raw + self._held

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of a piece of text.

        Args:
            chunk: Its `text`; its `token_ids` are counted, and confirm special tokens; its `logprobs`.
        """
        text, ids = chunk.text, chunk.token_ids
        self._count.add(ids)
        special = self._specials.texts
        if chunk.logprobs is None and text and (not special or special.keys().isdisjoint(ids)):
            if self._search is not None and self._search(text) is None:
                return [escaped(text) if self._escapes else text]
            if self._structure is not None and self._passes_json(text):
                return [text]
        self._arriving = len(ids)
        self._specials.arrive(ids)
        for entry in chunk.logprobs or ():
            self._item.alignment.add(entry)
        if text:
            self._scan(self._held + text, final=False)
        return self._item.take()

    def end(self, reason: FinishReason, usage: Usage) -> list[Delta]:
        """End the turn, wherever it is.

        Args:
            reason: Why it ended. After `stop` the last item is whole; after anything else the driver cuts it.
            usage: What the engine counted; its own count of reasoning tokens is kept, if it has one.
        """
        self._arriving = 0
        self._scan(self._held, final=True)
        while self._fire(Trigger.FINISH if reason == "stop" else Trigger.CUT, ""):
            self._scan(self._text[self._at :], final=True)
        deltas = [*self._item.take(), EndTurn(reason, self._count.usage(usage))]
        self.begin(self._starts)
        return deltas

    def _scan(self, text: str, *, final: bool) -> None:
        """Read text as far as it can be decided what it is; at the end of a turn, all of it."""
        self._text, self._at = text, 0
        while self._at < len(self._text) and self._step(final=final):
            pass
        self._held = self._text[self._at :]
        name = self._state.name
        self._escapes = name == "value"
        passes = name in _PASSING and not self._held and self._item.streams
        self._search = (self._lexica[name].search or _find_nothing) if passes else None
        self._structure = self._lexica[name].structure if passes else None

    def _passes_json(self, text: str) -> bool:
        """Return whether a piece of JSON can be passed on at once, because nothing in it ends the arguments.

        Then the quotes and brackets in it are counted together, and the state is the same as if they were read one by one.
        """
        if self._structure is None or self._structure(text) is not None:
            return False
        parts = text.split('"')
        shape = "".join(parts[self._state.name == "quoted" :: 2])
        closing = shape.count("}") + shape.count("]")
        if closing >= self._depth:
            return False
        self._depth += shape.count("{") + shape.count("[") - closing
        if not len(parts) % 2:
            self._state, _ = self._state.rows[Trigger.QUOTE]
            self._search = self._lexica[self._state.name].search
        return True

    def _step(self, *, final: bool) -> bool:
        """Read one marker, or the text before it; returns whether there is more to do."""
        if self._state.name in _NAMING and self._family.style == "envelope":
            self._read_envelope()
            return True
        lexicon = self._lexica[self._state.name]
        marker, start = self._find(lexicon, final=final)
        if start > self._at:
            self._read_run(self._text[self._at : start])
            return True
        if marker is None:
            return False
        shape = lexicon.roles[marker]
        trigger = self._bracket(marker) if shape is None else self._role(shape)
        if not self._fire(trigger, marker):
            self._at += len(marker)
            self._specials.read(marker, held=bool(self._raw))
        return True

    def _find(self, lexicon: Lexicon, *, final: bool) -> tuple[str | None, int]:
        """Find the next marker: its text, None for one that is not whole yet, and where it begins, or where the text ends."""
        text, at = self._text, self._at
        while lexicon.search is not None and (found := lexicon.search(text, at)) is not None:
            marker, start = found.group(), found.start()
            undecided = found.end() == len(text) and not final
            if marker[0] == "\\":
                if undecided and len(marker) == 1:
                    return None, start
                at = found.end()
            elif undecided and (marker in lexicon.longer or marker not in lexicon.roles):
                return None, start
            elif marker in lexicon.roles and (not self._count.tokens or self._specials.confirm(marker)):
                return marker, start
            else:
                at = start + 1
        return None, len(text)

    def _read_run(self, text: str) -> None:
        """Read text up to a marker."""
        name = self._state.name
        if name in _NAMING or name == "key":
            header = self._header + text
            grows = _KEY.fullmatch(header) is not None if name == "key" else self._family.grows(header)
            self._consume(Trigger.WORD if grows and len(header) <= _LONGEST_NAME else Trigger.TEXT, text)
        elif name == "member":
            self._read_member(text)
        else:
            rows = self._state.rows
            blank = "" if rows[Trigger.BLANK] == rows[Trigger.TEXT] else text[: len(text) - len(text.lstrip())]
            self._consume(Trigger.BLANK if blank else Trigger.TEXT, blank or text)

    def _read_envelope(self) -> None:
        """Read text that may be the beginning of an envelope."""
        text = self._text[self._at :]
        named = read_name(self._header + text)
        if named is None:
            self._consume(Trigger.TEXT, text)
        elif not named.name:
            self._consume(Trigger.WORD, text)
        else:
            self._named = named
            end = named.end - len(self._header)
            self._consume(Trigger.SETTLED if named.arguments else Trigger.MEMBER, text[:end])

    def _read_member(self, text: str) -> None:
        """Read what stands between a name and the arguments in an envelope."""
        end = after_name(self._raw + text)
        if end is None:
            self._consume(Trigger.TEXT, text)
        elif end < 0:
            self._consume(Trigger.WORD, text)
        else:
            self._consume(Trigger.JSON, text[: end - len(self._raw)])

    def _role(self, role: Trigger) -> Trigger:
        """Return what a marker triggers here: its role, unless what came before it decides otherwise."""
        name = self._state.name
        if name in _NAMING:
            whole = self._family.read_name(self._header)
            if whole is None:
                return Trigger.TEXT
            self._named = whole
            declared = whole.name in self._settings.routing.declared
            return Trigger.STRANGE if role is Trigger.KEYS and not declared else role
        if name == "key":
            return Trigger.TEXT if self._family.read_key(self._header) is None else role
        return self._whole if role is Trigger.QUOTE and name != "json" and not self._depth else role

    @property
    def _whole(self) -> Trigger:
        """What the end of a whole JSON value triggers."""
        return Trigger.WHOLE if Trigger.UNCALL in self._family.markers else Trigger.ENDED

    def _bracket(self, bracket: str) -> Trigger:
        """Count a bracket of JSON, and return what it triggers."""
        if bracket in "{[":
            self._depth += 1
            return Trigger.TEXT
        if self._depth:
            self._depth -= 1
            return Trigger.TEXT if self._depth else self._whole
        return Trigger.SHUT if bracket in self._family.markers.get(Trigger.SHUT, ()) else Trigger.TEXT

    def _consume(self, trigger: Trigger, text: str) -> None:
        """Fire a trigger, and go on after its text unless it is to be read again."""
        if not self._fire(trigger, text):
            self._at += len(text)

    def _fire(self, trigger: Trigger, text: str) -> bool:
        """Fire an edge, and return whether the same input is to be read again."""
        self._state, effects = self._state.rows[trigger]
        for effect in effects:
            self._take_effect(effect, text)
        return Effect.AGAIN in effects

    def _take_effect(self, effect: Effect, text: str) -> None:  # noqa: C901, PLR0912, PLR0915 - one case for each effect
        item = self._item
        match effect:
            case Effect.WRITE:
                item.write(text)
            case Effect.ADD:
                item.out += item.call.add(text)
            case Effect.HOLD:
                self._hold(text)
            case Effect.NOTE:
                self._hold(text)
                self._header += text
            case Effect.FORGET:
                self._raw, self._header, self._rest = "", "", ""
            case Effect.SPILL:
                self._refute(item.speak)
            case Effect.RETHINK:
                self._count.begin_reasoning(self._place)
                self._refute(item.reason)
            case Effect.AGAIN:
                pass
            case Effect.REST:
                self._rest = (self._rest + text).rpartition("\n")[2]
            case Effect.REASON:
                self._count.begin_reasoning(self._place)
                item.reason(self._rested(text))
            case Effect.SPEAK:
                item.speak(self._rested(text))
            case Effect.CLOSE:
                self._count.end_reasoning(self._place)
                item.close()
            case Effect.LEAVE:
                self._count.end_reasoning(self._place)
                item.leave()
            case Effect.COMMIT:
                self._commit()
            case Effect.ARGUE:
                item.write(self._named.arguments)
            case Effect.ADMIT:
                item.write(self._raw)
                self._raw = ""
            case Effect.ENTER:
                item.out += item.call.enter(*(self._family.read_key(self._header) or ("", None)))
            case Effect.SET:
                item.out += item.call.set()
            case Effect.STRAY:
                item.call.stray(self._rested(text))
            case Effect.KEEP:
                item.call.stray(text)
            case Effect.SPOIL:
                item.call.stray(self._rested(self._raw))
                self._raw, self._header = "", ""
            case Effect.END:
                item.end_call()
            case Effect.QUIT:
                item.quit_call()
            case _:
                assert_never(effect)

    def _hold(self, text: str) -> None:
        """Hold what may be framing; the first piece of it is a marker."""
        if not self._raw:
            self._lead = len(text)
        self._raw += text

    def _refute(self, write: Callable[[str], None]) -> None:
        """Write the marker that began no call as text, and read again what follows it."""
        raw, lead = self._raw, self._lead
        self._raw, self._header = "", ""
        self._specials.give_back()
        write(self._rested(raw[:lead]))
        self._text, self._at = raw[lead:] + self._text[self._at :], 0

    def _commit(self) -> None:
        """Open the call whose name was read."""
        if not self._settings.parallel:
            self._lexica = lexica(self._family, calls=False)
        self._specials.settle()
        self._count.end_reasoning(self._place)
        self._raw, self._header, self._rest, self._depth = "", "", "", 0
        syntax = self._family.syntax
        keyed, lenient = self._family.style == "keys", syntax is not None and syntax.lenient
        self._item.commit(self._named.name, self._named.call_id, keyed=keyed, lenient=lenient)

    @property
    def _place(self) -> float:
        """How many tokens came before what is being read, if all of a chunk's are as long."""
        tokens = self._count.tokens
        return tokens - self._arriving * (1 - self._at / len(self._text)) if self._text else tokens

    def _rested(self, text: str) -> str:
        """Return text with the white space before it, as far as that is not blank lines after a marker."""
        text, self._rest = self._rest + text, ""
        return text


def _find_nothing(_text: str, _start: int = 0) -> None:
    """Find no marker."""
