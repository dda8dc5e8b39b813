"""The format `tagged`: turns text with the markers of a family into deltas.

`interlock.parsers.families.framing` declares the order of markers; the parser finds them, fires the edges and carries out their
effects. However text is chunked or ends, the parser neither raises nor loses any (rule R20).

The cost of a chunk does not grow with the text before it. On the hot path, one search with a regular expression finds neither a
marker nor the beginning of one, and the text passes through. The parser holds back only an incomplete marker, or up to 4096
characters after a marker that may begin a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args

from attrs import define, evolve, field

from interlock.fsm.deltas import Delta, EndTurn, FinishReason, Usage
from interlock.fsm.table import State
from interlock.parsers.chunk import Chunk, ChunkError, ListReader, Recoveries
from interlock.parsers.families.effects import Effects, ParserSettings, TokenCounter
from interlock.parsers.families.family import MAX_LENGTH, Family, NameMatch, TurnStart, after_name, read_envelope
from interlock.parsers.families.framing import FRAMING, Effect, Framing, Trigger
from interlock.parsers.families.literals import LiteralReader, Stop
from interlock.parsers.families.parameter_values import escape_json
from interlock.parsers.families.patterns import SearchFunction, beginning_matcher
from interlock.parsers.families.state_markers import MarkerRole, Reading, StateMarkers, markers_by_state
from interlock.parsers.routing import EndReason, finish_reason_of

_LONGEST_NAME: Final = 256
_STARTS: Final[tuple[TurnStart, ...]] = get_args(TurnStart)
# Python 3.11 looks up the members of an enum slowly.
_AGAIN = Effect.AGAIN
_DECLARED, _OBJECT, _UNCALL, _WORD = Trigger.DECLARED, Trigger.OBJECT, Trigger.UNCALL, Trigger.WORD
_BLANK, _OTHER = Trigger.BLANK, Trigger.TEXT
_TEXT, _NAME, _ENVELOPE, _MEMBER = Reading.TEXT, Reading.NAME, Reading.ENVELOPE, Reading.MEMBER
_LITERAL, _HELD = Reading.LITERAL, Reading.HELD
_RECOVERIES: Final = frozenset(FRAMING.regions["recoveries"])
"""The states whose entry counts as a recovery, under their names."""
_BETWEEN_KEYS: Final = FRAMING.regions["between_keys"]
_CHANNELS: Final = FRAMING.regions["channels"]


@define(eq=False, repr=False)
class FamilyParser(ListReader):
    """Parses the text of a model of one family; see `Parser`.

    Args:
        family: How the model writes.
        settings: How its text is parsed.
        starts: The state in which turns start, `thinking` or `between`; None for the family's default.
        framing: The table of states and edges.
    """

    _family: Family
    _settings: ParserSettings = field(factory=ParserSettings)
    _starts: TurnStart | None = None
    _framing: Framing = FRAMING
    _by_state: Mapping[str, StateMarkers] = field(init=False)
    _state: State[Trigger, Effect] = field(init=False)
    _markers: StateMarkers = field(init=False)
    """The markers of the state."""
    _effects: Effects = field(init=False)
    _counter: TokenCounter = field(init=False)
    _stops: SearchFunction | None = field(default=None, init=False)
    """The search for text that may not pass through unchanged; None where no text passes."""
    _implicit_end: Trigger | None = field(init=False)
    """The trigger that also ends a call; see `Family.implicit_end`."""
    _ends: SearchFunction | None = field(default=None, init=False)
    """The search for text that may not pass through inside a JSON string; None elsewhere."""
    _structure: SearchFunction | None = field(default=None, init=False)
    """The search for the characters of JSON that need the slow path; None outside of JSON."""
    _literal: LiteralReader | None = field(default=None, init=False)
    """The reader of the current literal; None elsewhere."""
    _text: str = field(default="", init=False)
    _at: int = field(default=0, init=False)
    _partial: str = field(default="", init=False)
    """The incomplete marker at the end of the text."""
    recoveries: Recoveries = field(factory=Recoveries, init=False)

    def __attrs_post_init__(self) -> None:
        """Start the first turn."""
        if self._starts not in (None, *_STARTS):
            raise ValueError(f"unknown start {self._starts!r}: choose one of {', '.join(_STARTS)}")
        self._by_state = markers_by_state(self._family, self._framing, calls=self._settings.calls)
        self._implicit_end = self._family.implicit_end
        self.begin(self._starts)

    def __repr__(self) -> str:
        """Return the state, without the tables."""
        return f"<FamilyParser in {self._state.name!r}>"

    def begin(self, starts: TurnStart | None) -> None:
        """Start a turn in `thinking` or `between`; None means the family's default."""
        self._enter(self._framing.states[starts or self._family.starts])
        self._partial, self._stops, self._ends, self._structure, self._literal = "", None, None, None, None
        self._effects = Effects(self._family, self._settings, self._by_state["literal"].literal_stops)
        self._counter = self._effects.counter

    def read_lists(self, items: Iterable[Mapping[str, object]]) -> None:
        """Take the schemas of MCP tools from the `mcp_list_tools` items of a conversation; see `ListReader`."""
        self._settings.schemas = self._settings.schemas.with_lists(items)

    @property
    def pending(self) -> str:
        """The text that waits because it may be framing."""
        return self._effects.pending + self._partial

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of a chunk's text; count its `token_ids`, which also confirm markers that are special tokens."""
        text, ids = chunk.text, chunk.token_ids
        self._counter.add(ids)
        special = self._settings.special
        if chunk.logprobs is None and text and (not special or special.keys().isdisjoint(ids)):
            if self._stops is not None and self._stops(text) is None:
                return [text]
            if self._ends is not None and self._ends(text) is None:
                return [escape_json(text)]
            passes = self._structure is not None and self._structure(text) is None
            if passes and (passed := self._pass_json(self._partial + text)) is not None:
                return passed
            if self._literal is not None:
                return self._continue_literal(self._literal, self._partial + text)
        effects = self._effects
        if special:
            effects.specials.add(ids)
        for entry in chunk.logprobs or ():
            effects.item.alignment.add(entry)
        if text:
            self._scan(self._partial + text, final=False)
        elif isinstance(chunk.delta, Mapping) or (text is None and ids):  # vLLM's engine has its own output as `delta`
            raise ChunkError(chunk, "text")
        return effects.item.take()

    def end(self, reason: EndReason, usage: Usage) -> list[Delta]:
        """End the turn in any state; after `stop`, an incomplete call ends the turn as `cut`."""
        reason = finish_reason_of(reason)
        effects = self._effects
        self._counter.add(())
        self._scan_rest(self._partial)
        steps = self._end_turn(reason)
        while _AGAIN in steps:
            self._scan_rest(self._text[self._at :])
            steps = self._end_turn(reason)
        ended = reason
        if reason == "stop" and Effect.LEAVE in steps:
            ended = "cut"
            self._count_recovery("cut_call")
        deltas = [*effects.item.take(), EndTurn(ended, self._counter.usage(usage))]
        self.begin(self._starts)
        return deltas

    def _end_turn(self, reason: FinishReason) -> Sequence[Effect]:
        """Fire the end of the turn, after the end of a call that the model may omit; return the effects."""
        if reason == "stop" and self._family.omits_ends and self._state.name in _BETWEEN_KEYS:
            self._fire(_UNCALL, "")
        trigger = Trigger.FINISH if reason == "stop" else Trigger.CUT
        _, steps = self._state.rows[trigger]
        self._fire(trigger, "")
        return steps

    def _scan_rest(self, text: str) -> None:
        """Read the rest of a turn. The beginning of a marker at its end, perhaps after a whole one that begins it, is no text."""
        self._scan(text, final=False)
        rest = self._partial
        if rest and (roles := self._possible_roles(rest)):
            marker = self._markers.longest(rest)
            if self._markers.marker(marker) is not None:
                self._scan(marker, final=True)
                rest = rest[len(marker) :]
            if rest and self._markers.partial:
                # In a family that omits the ends of calls, a key that has begun keeps its call open.
                self._consume(Trigger.KEY if Trigger.KEY in roles else Trigger.PARTIAL, rest)
                return
        self._scan(rest, final=True)

    def _possible_roles(self, text: str) -> set[MarkerRole]:
        """Return the roles of the family's markers that a text begins or is."""
        return {
            role
            for marker, role in self._markers.roles.items()
            if role in self._family.markers and beginning_matcher(marker)(text) and self._counts(marker, marker)
        }

    def _counts(self, text: str, marker: str) -> bool:
        """Return whether the text of a marker counts: as its special token, or spelled out where that is allowed."""
        return (
            not self._counter.tokens
            or (self._settings.forced and marker not in self._markers.only_as_token)
            or self._effects.specials.confirm(text)
        )

    def _scan(self, text: str, at: int = 0, *, final: bool) -> None:
        """Read text up to an incomplete marker, or at the end of a turn all of it, and prepare for the next chunk."""
        self._text, self._at = text, at
        while self._at < len(self._text) and self._read_marker_or_text(final=final):
            pass
        self._partial = self._text[self._at :]
        markers = self._markers
        if markers.passes and not self._partial and self._effects.item.streams:
            self._stops, self._structure = markers.text_end, markers.structure
            self._ends = markers.search if markers.in_value else None
        else:
            self._stops = self._ends = self._structure = None
        self._literal = self._effects.item.call.literal if markers.reading is _LITERAL else None

    def _continue_literal(self, literal: LiteralReader, text: str) -> list[Delta]:
        """Read more of a literal, as `_scan` does."""
        item = self._effects.item
        json_text, at, stop = literal.read(text, 0, final=False)
        if not stop:
            self._partial = text[at:]
            passes = literal.passes
            self._stops = None if passes is None or self._partial or not item.streams else passes
            return item.call.writer.write(json_text)
        item.write(json_text)
        self._text, self._at = text, at
        self._end_literal(stop, final=False)
        self._scan(self._text, self._at, final=False)
        return item.take()

    def _pass_json(self, text: str) -> list[Delta] | None:
        """Return JSON that passes through, because nothing in it ends the arguments; None if it may not.

        If so, count all its quotes and brackets at once; the result is the same as when each is read alone. A comma at its end
        waits, because JSON has none before a closing bracket.
        """
        parts = text.split('"')
        if not self._effects.nesting.passes(parts, quoted=self._markers.in_string):
            return None
        if not len(parts) % 2:
            self._enter(self._state.rows[Trigger.QUOTE][0])
        bare = "" if self._markers.in_string else text.rstrip()
        end = len(bare) - 1 if bare.endswith(",") else len(text)
        self._partial = text[end:]
        self._stops = None if self._partial else self._markers.text_end
        return [text[:end]] if end else []

    def _count_recovery(self, kind: str) -> None:
        self.recoveries[self._family.name, kind] += 1

    def _enter(self, state: State[Trigger, Effect]) -> None:
        self._state, self._markers = state, self._by_state[state.name]

    def _read_marker_or_text(self, *, final: bool) -> bool:
        """Read one marker, or the text before it; returns whether there is more to do."""
        markers = self._markers
        if markers.reading is _ENVELOPE:
            return self._read_envelope(final=final)
        if markers.reading is _LITERAL:
            return self._read_literal(final=final)
        marker, start, end = self._find(markers, final=final)
        if start > self._at:
            self._read_text(self._text[self._at : start])
            return True
        if marker is None:
            return False
        role, effects = self._role(markers, marker), self._effects
        text = self._text[start:end] if markers.roles[marker] else marker[-1]  # JSON has no comma before a closing bracket
        if role is _DECLARED:
            if self._fire(role, ""):
                return True
            role = markers.roles[marker] or role  # the new state would find the same marker
        elif role is _OBJECT or role is _WORD:
            effects.header += text
        if marker in markers.lookahead:
            self._fire(role, "")
        elif not self._fire(role, text):
            self._at = end
            effects.specials.read(text, pending=bool(effects.pending))
        return True

    def _find(self, markers: StateMarkers, *, final: bool) -> tuple[str | None, int, int]:
        """Return the next marker, and where it begins and ends; None for an incomplete one, or at the end of the text."""
        text, at = self._text, self._at
        while (match := markers.search(text, at)) is not None:
            marker, (start, end) = match.group(), match.span()
            undecided = end == len(text) and not final
            if final:
                marker = markers.longest(marker)
            known = marker if marker in markers.roles else markers.marker(marker)
            if marker[0] == "\\":
                if undecided and len(marker) == 1:
                    return None, start, start
                at = end
            elif undecided and (known is None or known in markers.ambiguous_prefixes):
                return None, start, start
            elif known is not None and (not self._settings.special or self._counts(marker, known)):
                return known, start, start + len(marker)
            else:
                at = start + 1
        return None, len(text), len(text)

    def _read_text(self, text: str) -> None:
        markers = self._markers
        if markers.reading is _TEXT:
            blank = text[: len(text) - len(text.lstrip())] if markers.blank else ""
            self._consume(_BLANK if blank else _OTHER, blank or text)
        elif markers.reading is _MEMBER:
            self._read_member(text)
        elif markers.reading is _HELD:
            blank = text[: len(text) - len(text.lstrip())] if markers.blank else ""
            waits = len(self._effects.pending) + len(text) <= MAX_LENGTH
            self._consume(Trigger.LONG if not waits else _BLANK if blank else _OTHER, blank or text)
        else:
            header = self._effects.header + text
            grows = self._family.may_be_name(header) if markers.reading is _NAME else self._family.may_be_key(header)
            if grows and len(header) <= _LONGEST_NAME:
                self._read_word(text)
            else:
                self._consume(Trigger.TEXT, text)

    def _read_word(self, text: str) -> None:
        """Read text of a name, key or envelope."""
        self._effects.header += text
        self._consume(_WORD, text)

    def _read_envelope(self, *, final: bool) -> bool:
        """Read text that may begin an envelope; returns whether there is more to do."""
        text, header = self._text[self._at :], self._effects.header
        match = read_envelope(header + text)
        if match is None:
            self._consume(Trigger.TEXT, text)
        elif not match.name:
            self._read_word(text)
        elif self._markers.bare:
            begins = self._begins_call(match, header + text, final=final)
            if begins is None:
                return False
            if begins:
                self._fire(_DECLARED, "")  # the new state reads the name again
            else:
                self._consume(Trigger.TEXT, text)
        else:
            self._effects.name_match = self._declared(match)
            self._consume(Trigger.MEMBER, text[: match.end - len(header)])
            if match.arguments:
                self._fire(Trigger.WHOLE, "")
        return True

    def _begins_call(self, match: NameMatch, text: str, *, final: bool) -> bool | None:
        """Return whether a bare envelope begins a call, which needs a declared tool and arguments; None if undecided."""
        if self._settings.routing.nearest(match.name) not in self._settings.routing.declared:
            return False
        if match.arguments:
            return True
        member = after_name(text[match.end :])
        if member is None or len(text) > MAX_LENGTH:
            return False
        return True if member >= 0 else False if final else None

    def _read_literal(self, *, final: bool) -> bool:
        """Read a literal, up to its end or a marker that ends it; returns whether there is more to do."""
        item = self._effects.item
        assert item.call.literal is not None  # noqa: S101 - only a call with a literal enters this state
        json_text, self._at, stop = item.call.literal.read(self._text, self._at, final=final)
        item.write(json_text)
        return self._end_literal(stop, final=final)

    def _end_literal(self, stop: Stop, *, final: bool) -> bool:
        """End the literal where its reader stopped, unless no marker is there; returns whether there is more to do."""
        marker, start, end = self._find(self._markers, final=final) if stop == "marker" else (None, self._at, self._at)
        if marker is not None and start == self._at:
            self._consume(self._markers.roles[marker] or Trigger.TEXT, self._text[start:end])
            return True
        if not stop or (stop == "marker" and start == self._at):
            return False
        self._consume(Trigger.WHOLE if stop == "ended" else Trigger.TEXT, "")
        return True

    def _read_member(self, text: str) -> None:
        """Read the text between a name and the arguments in an envelope."""
        pending = self._effects.pending
        end = after_name(pending + text)
        if end is None:
            self._consume(Trigger.TEXT, text)
        elif end < 0:
            self._consume(_WORD, text)
        else:
            self._consume(Trigger.JSON, text[: end - len(pending)])

    def _role(self, markers: StateMarkers, marker: str) -> Trigger:
        """Return the trigger of a marker: its role, unless the text before it decides otherwise."""
        role, effects = markers.roles[marker], self._effects
        if role is None:
            if len(marker) > 1:
                self._count_recovery("trailing_comma")
            return effects.nesting.bracket(marker[-1])
        if role is Trigger.QUOTE:
            return effects.nesting.quote(ends=markers.in_string)
        if markers.reading is Reading.KEY:
            return self._role_of_key(role, marker)
        if markers.reading is not _NAME:
            return role
        routing = self._settings.routing
        text = effects.header + marker if role is Trigger.LITERAL else effects.header
        name = self._family.read_name(text, routing.declared)
        if name is None:
            return Trigger.TEXT
        effects.name_match = name = self._declared(name)
        if markers.bare:
            role = Trigger.DECLARED if name.name in routing.declared else Trigger.TEXT
        return role

    def _declared(self, match: NameMatch) -> NameMatch:
        """Return a name as the request declares it."""
        name = self._settings.routing.nearest(match.name)
        return match if name == match.name else evolve(match, name=name)

    def _role_of_key(self, role: Trigger, marker: str) -> Trigger:
        """Return the trigger of a marker after a key; in a value, the tool must declare the key."""
        effects = self._effects
        header = effects.header
        key = self._family.read_key(header)
        if key is None or self._family.is_in_quotes(header):
            return _WORD if self._family.is_in_quotes(header) and "\n" not in marker else Trigger.TEXT
        effects.key = key
        if not self._markers.bare:
            return role
        is_declared = effects.item.call.declares(key[0])
        return Trigger.DECLARED if is_declared else Trigger.TEXT

    def _consume(self, trigger: Trigger, text: str) -> None:
        """Fire a trigger, and advance past its text unless it is read again."""
        if not self._fire(trigger, text):
            self._at += len(text)

    def _fire(self, trigger: Trigger, text: str) -> bool:
        """Fire an edge, and return whether the new state reads the input again."""
        state, steps = self._state.rows[trigger]
        if state is not self._state:
            if state.name in _RECOVERIES:
                self._count_recovery(state.name)
            self._enter(state)
            self._counter.place = self._at, len(self._text)
        effects = self._effects
        for effect in steps:
            effects.CARRY_OUT[effect](effects, text)
        if _AGAIN not in steps:
            if trigger is self._implicit_end:
                self._fire(_UNCALL, "")
            return False
        if effects.released:
            marker, effects.released = effects.released, ""
            if state.name in _CHANNELS:
                self._count_recovery("refuted_call")
            self._fire(_OTHER, marker)
        if effects.replay:
            self._text, self._at, effects.replay = effects.replay + self._text[self._at :], 0, ""
        return True
