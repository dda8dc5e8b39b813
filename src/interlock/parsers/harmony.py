"""The format `harmony`: turns token ids into deltas.

`harmony_framing` declares which tokens may follow one another, `harmony_header` the words of a header, `harmony_vocabulary` the
meaning of an id; the parser combines them. No sequence of ids, however it is chunked or ends, raises or loses text (rules R16
to R18). docs/evidence/conformance/recovery.md shows what malformed output becomes.

The hot path, a token of text in a content, is one lookup in `_plain`. While an item streams, `_plain` is the vocabulary's mapping
of tokens with complete characters; at any other time it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from types import MappingProxyType
from typing import assert_never

from attrs import define, evolve, field

from interlock.fsm.deltas import Delta, EndTurn, Usage
from interlock.fsm.table import State
from interlock.parsers.chunk import Chunk, Entry, Recoveries, wrong_chunk
from interlock.parsers.harmony_framing import HARMONY, HarmonyEffect, HarmonyTrigger
from interlock.parsers.harmony_header import Header
from interlock.parsers.harmony_vocabulary import Characters, TokenText, Vocabulary, vocabulary
from interlock.parsers.item_writers import ItemWriter, StreamWriter, join_text, text_deltas, writer_for
from interlock.parsers.routing import ANSWER, PREAMBLE, REASONING, EndReason, Route, Routing, finish_reason_of
from interlock.parsers.stop_strings import StopFilter, stops_in

_CHANNELS: Mapping[str | None, Route] = {"analysis": REASONING, "commentary": PREAMBLE, "final": ANSWER}
_OPENING = frozenset({HarmonyTrigger.START, HarmonyTrigger.CHANNEL, HarmonyTrigger.CONSTRAIN, HarmonyTrigger.MESSAGE})
"""The control tokens that no content should have."""
_NO_TOKENS: Mapping[int, str] = MappingProxyType({})


@define(eq=False)
class HarmonyParser:
    """Parses the tokens of a model that writes harmony; see `Parser`.

    Reasoning tokens are the tokens of text in a reasoning item; headers and control tokens do not count. A text ends before the
    stop string that ends its turn.
    """

    _routing: Routing
    _vocabulary: Vocabulary = field(factory=vocabulary)
    _stops: StopFilter | None = field(default=None, alias="stops")
    """Holds back text that may be a stop string; None without stop strings."""
    _state: State[HarmonyTrigger, HarmonyEffect] = HARMONY.states[HARMONY.initial]
    _plain: Mapping[int, str] = _NO_TOKENS
    _header: Header = field(factory=Header)
    _characters: Characters = field(factory=Characters)
    _writer: ItemWriter = field(factory=lambda: writer_for(ANSWER))
    _out: list[Delta] = field(factory=list[Delta])
    _tokens: int = 0
    _content_start: int = 0
    _reasoning_tokens: int = 0
    recoveries: Recoveries = field(factory=Recoveries, init=False)

    @classmethod
    def from_request(cls, request: Mapping[str, object], routing: Routing | None = None) -> HarmonyParser:
        """Return a parser for one response to a request, with a routing in place of the request's own."""
        stops = stops_in(request)
        return cls(routing or Routing.from_request(request), stops=StopFilter(stops) if stops else None)

    def __repr__(self) -> str:
        """Return the state of the framing."""
        return f"<HarmonyParser in {self._state.name!r}>"

    @property
    def framing(self) -> str:
        """The name of the state of the framing."""
        return self._state.name

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of a chunk's `token_ids`; its `text` is ignored.

        Raises:
            TypeError: A turn begins with text alone.
        """
        tokens = chunk.token_ids
        if self._stops is not None and tokens:
            self._write(self._stops.go_on())
        if chunk.logprobs is not None:
            return self._feed_scored(tokens, chunk.logprobs)
        if len(tokens) == 1:
            text = self._plain.get(tokens[0])
            if text is not None:
                self._tokens += 1
                return [text]
        if chunk.text and not tokens and not self._tokens:
            raise wrong_chunk(chunk, "token_ids")
        return self._feed_many(tokens)

    def _feed_scored(self, tokens: Sequence[int], logprobs: Sequence[Entry]) -> list[Delta]:
        for token, entry in zip(tokens, chain(logprobs, repeat(None)), strict=False):
            self._step(token, entry)
        return self._take()

    def _feed_many(self, tokens: Sequence[int]) -> list[Delta]:
        """Parse several tokens; a comprehension inside `feed` would slow it down."""
        texts = [text for token in tokens if (text := self._plain.get(token)) is not None]
        if texts and len(texts) == len(tokens):
            self._tokens += len(texts)
            return ["".join(texts)]
        if isinstance(tokens, str):
            raise wrong_chunk(Chunk(tokens), "token_ids")
        for token in tokens:
            self._step(token, None)
        return self._take()

    def end(self, reason: EndReason, usage: Usage) -> list[Delta]:
        """End the turn in any state; after `stop`, a call without its end token ends the turn as `cut`."""
        reason = finish_reason_of(reason)
        is_stop = reason == "stop"
        self._flush(HarmonyTrigger.FINISH if is_stop else HarmonyTrigger.CUT)
        in_call = HarmonyTrigger.TEXT in self._state.rows and self._writer.route.is_call
        if self._stops is not None:
            self._write(self._stops.cut() if is_stop else self._stops.flush())
        effects = self._fire(HarmonyTrigger.FINISH if is_stop and not in_call else HarmonyTrigger.CUT, TokenText(tokens=0))
        if is_stop and HarmonyEffect.LEAVE in effects and self._writer.route.is_call:
            reason = "cut"
            self.recoveries["harmony", "cut_call"] += 1
        total = evolve(usage, output_tokens=usage.output_tokens or self._tokens, reasoning_tokens=self._reasoning_tokens)
        self._plain = _NO_TOKENS
        self._tokens = self._reasoning_tokens = 0
        return [*self._take(), EndTurn(reason, total)]

    def _step(self, token: int, entry: Entry | None) -> None:
        """Parse a token off the hot path; a token of text is counted before its effects, a control token after them."""
        meaning = self._vocabulary.read(token)
        if isinstance(meaning, HarmonyTrigger):
            if meaning is HarmonyTrigger.STRAY or (HarmonyTrigger.TEXT in self._state.rows and meaning in _OPENING):
                self.recoveries["harmony", "misplaced_token"] += 1
            self._flush(meaning)
            self._fire(meaning, TokenText(tokens=0))
            self._tokens += 1
        else:
            self._tokens += 1
            if isinstance(meaning, str) and not self._characters.pending:
                self._feed_text(TokenText(meaning, [] if entry is None else [entry]))
            elif self._characters.feed(meaning.encode() if isinstance(meaning, str) else meaning, entry):
                self._feed_text(self._characters.take())
        is_plain = isinstance(self._writer, StreamWriter) and not self._characters.pending and self._stops is None
        streams = HarmonyTrigger.TEXT in self._state.rows and is_plain
        self._plain = self._vocabulary.whole if streams else _NO_TOKENS

    def _flush(self, trigger: HarmonyTrigger) -> None:
        """Parse the pending text before a control token or the end of the turn, and break off a header that it makes invalid."""
        if self._characters.pending:
            self._feed_text(self._characters.take())
        if (
            HarmonyTrigger.PROSE in self._state.rows
            and trigger is not HarmonyTrigger.STRAY
            and not self._header.can_end_with(trigger)
        ):
            self._fire(HarmonyTrigger.PROSE, TokenText(tokens=0))

    def _feed_text(self, chunk: TokenText) -> None:
        """Parse text of the content, or of a header while it can be one."""
        if HarmonyTrigger.TEXT in self._state.rows:
            self._fire(HarmonyTrigger.TEXT, chunk)
        else:
            self._fire(HarmonyTrigger.WORD if self._header.accepts(chunk.text) else HarmonyTrigger.PROSE, chunk)

    def _fire(self, trigger: HarmonyTrigger, chunk: TokenText) -> Sequence[HarmonyEffect]:
        self._state, effects = self._state.rows[trigger]
        for effect in effects:
            self._apply(effect, trigger, chunk)
        return effects

    def _apply(self, effect: HarmonyEffect, trigger: HarmonyTrigger, chunk: TokenText) -> None:  # noqa: C901 - one case for each effect
        match effect:
            case HarmonyEffect.NOTE:
                self._header.add(chunk)
            case HarmonyEffect.SECTION:
                self._header.begin_section(trigger)
            case HarmonyEffect.SEAL:
                self._header.seal()
            case HarmonyEffect.BREAK:
                self.recoveries["harmony", "broken_header"] += 1
                self._header.break_off()
            case HarmonyEffect.OPEN:
                self._open()
            case HarmonyEffect.SPILL:
                self._spill()
            case HarmonyEffect.APPEND:
                self._append(chunk)
            case HarmonyEffect.SKIP:
                self._content_start += 1
            case HarmonyEffect.CLOSE:
                self._finish_item(self._writer.close)
            case HarmonyEffect.LEAVE:
                self._finish_item(self._writer.leave)
            case HarmonyEffect.DROP:
                self._header = Header()
            case _:
                assert_never(effect)

    def _open(self) -> None:
        self._writer = writer_for(self._route())
        self._content_start = self._tokens
        self._out += self._writer.open()

    def _route(self) -> Route:
        header = self._header
        if header.recipient is not None and (route := self._routing.recipient(header.recipient)) is not None:
            return route
        return _CHANNELS.get(header.channel, PREAMBLE if header.is_foreign else ANSWER)

    def _spill(self) -> None:
        """Write the words after the header to the item."""
        for chunk in self._header.spill():
            self._content_start -= chunk.tokens
            self._append(chunk)

    def _append(self, chunk: TokenText) -> None:
        self._write([chunk] if self._stops is None else self._stops.feed(chunk))

    def _write(self, chunks: Sequence[TokenText]) -> None:
        for chunk in chunks:
            self._out += text_deltas(self._writer, chunk.text, chunk.entries)

    def _finish_item(self, end: Callable[[], list[Delta]]) -> None:
        """End the item, count its reasoning tokens, and forget its header."""
        if self._stops is not None:
            self._write(self._stops.flush())
        self._out += end()
        if self._writer.route is REASONING:
            self._reasoning_tokens += self._tokens - self._content_start
        self._header = Header()

    def _take(self) -> list[Delta]:
        """Return the deltas of this chunk, with consecutive texts joined."""
        out, self._out = self._out, []
        return join_text(out) if len(out) > 1 else out
