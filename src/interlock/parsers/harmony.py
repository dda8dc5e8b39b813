"""The format `harmony`: from token ids to deltas.

What may come in which order is declared in `interlock.parsers.harmony_framing`, what a header says in `interlock.parsers.harmony_header`,
what an id stands for in `interlock.parsers.harmony_vocabulary`; this module runs the first over the other two. It is total: no
sequence of ids, in no partition and with no end, raises or loses text (rules R16 to R18). What becomes of malformed output
is written down case by case in docs/recovery.md.

The hot path is a token of text inside of a content: one look into a dict. `_plain` holds the tokens whose text can be
passed on as it is, which are the vocabulary's whole ones while an item streams, and none at any other time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from types import MappingProxyType
from typing import assert_never

from attrs import define, evolve, field

from interlock.fsm.deltas import Delta, EndTurn, FinishReason, Usage
from interlock.fsm.table import State
from interlock.parsers.chunk import Chunk
from interlock.parsers.harmony_framing import HARMONY, Effect, Trigger
from interlock.parsers.harmony_header import Header
from interlock.parsers.routing import ANSWER, PREAMBLE, REASONING, Route, Routing
from interlock.parsers.harmony_vocabulary import Characters, Entry, Piece, Vocabulary, vocabulary
from interlock.parsers.item_writers import Streamed, Writer, joined, writer_for, written

_CHANNELS: Mapping[str | None, Route] = {"analysis": REASONING, "commentary": PREAMBLE, "final": ANSWER}
_NOTHING: Mapping[int, str] = MappingProxyType({})


@define(eq=False)
class HarmonyParser:
    """Parses the tokens of a model that writes harmony; see `Parser`.

    Of the tokens, those count as reasoning whose text is in a reasoning item: the tokens of text in a content of the
    analysis channel without a recipient. Headers and control tokens do not count.

    Args:
        routing: Where the recipients of the request go.
    """

    _routing: Routing
    _vocabulary: Vocabulary = field(factory=vocabulary)
    _state: State[Trigger, Effect] = HARMONY.states[HARMONY.initial]
    _plain: Mapping[int, str] = _NOTHING
    _header: Header = field(factory=Header)
    _characters: Characters = field(factory=Characters)
    _writer: Writer = field(factory=lambda: writer_for(ANSWER))
    _out: list[Delta] = field(factory=list[Delta])
    _tokens: int = 0
    _content_start: int = 0
    _reasoning: int = 0

    @property
    def framing(self) -> str:
        """The name of the state of the framing."""
        return self._state.name

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of a chunk of tokens.

        Args:
            chunk: Its `token_ids`, any numbers, and its `logprobs`; the text of a chunk is not looked at.
        """
        tokens = chunk.token_ids
        if chunk.logprobs is not None:
            return self._scored(tokens, chunk.logprobs)
        if len(tokens) == 1:
            text = self._plain.get(tokens[0])
            if text is not None:
                self._tokens += 1
                return [text]
        return self._several(tokens)

    def _scored(self, tokens: Sequence[int], logprobs: Sequence[Entry]) -> list[Delta]:
        for token, entry in zip(tokens, chain(logprobs, repeat(None)), strict=False):
            self._step(token, entry)
        return self._take()

    def _several(self, tokens: Sequence[int]) -> list[Delta]:
        """Parse tokens of any kind; apart from `feed`, whose variables a comprehension would make slow."""
        texts = [text for token in tokens if (text := self._plain.get(token)) is not None]
        if texts and len(texts) == len(tokens):
            self._tokens += len(texts)
            return ["".join(texts)]
        for token in tokens:
            self._step(token, None)
        return self._take()

    def end(self, reason: FinishReason, usage: Usage) -> list[Delta]:
        """End the turn, wherever it is.

        Args:
            reason: Why it ended. After `stop` the last item is whole, unless it is a call that no token ended: that is a `cut`.
                After anything else the driver cuts the item.
            usage: What the engine counted.
        """
        stopped = reason == "stop"
        self._settle(Trigger.FINISH if stopped else Trigger.CUT)
        in_call = Trigger.TEXT in self._state.rows and self._writer.route.is_call
        effects = self._fire(Trigger.FINISH if stopped and not in_call else Trigger.CUT, Piece(tokens=0))
        if stopped and Effect.LEAVE in effects and self._writer.route.is_call:
            reason = "cut"
        counted = evolve(usage, output_tokens=usage.output_tokens or self._tokens, reasoning_tokens=self._reasoning)
        self._plain = _NOTHING
        self._tokens = self._reasoning = 0
        return [*self._take(), EndTurn(reason, counted)]

    def _step(self, token: int, entry: Entry | None) -> None:
        """Parse a token that cannot simply be passed on; text is counted before its effects, a control token after them."""
        meaning = self._vocabulary.read(token)
        if isinstance(meaning, Trigger):
            self._control(meaning)
            self._tokens += 1
        else:
            self._tokens += 1
            if isinstance(meaning, str) and not self._characters.pending:
                self._words(Piece(meaning, [] if entry is None else [entry]))
            elif self._characters.feed(meaning.encode() if isinstance(meaning, str) else meaning, entry):
                self._words(self._characters.take())
        streams = Trigger.TEXT in self._state.rows and isinstance(self._writer, Streamed) and not self._characters.pending
        self._plain = self._vocabulary.whole if streams else _NOTHING

    def _control(self, trigger: Trigger) -> None:
        """Parse a control token."""
        self._settle(trigger)
        self._fire(trigger, Piece(tokens=0))

    def _settle(self, trigger: Trigger) -> None:
        """Parse the text that waits for what comes next, now that a control token or the end of the turn does."""
        if self._characters.pending:
            self._words(self._characters.take())
        if Trigger.PROSE in self._state.rows and trigger is not Trigger.STRAY and not self._header.ends_with(trigger):
            self._fire(Trigger.PROSE, Piece(tokens=0))

    def _words(self, piece: Piece) -> None:
        """Parse text: of the content, or of a header as long as it can be one."""
        if Trigger.TEXT in self._state.rows:
            self._fire(Trigger.TEXT, piece)
        else:
            self._fire(Trigger.WORD if self._header.takes(piece.text) else Trigger.PROSE, piece)

    def _fire(self, trigger: Trigger, piece: Piece) -> Sequence[Effect]:
        self._state, effects = self._state.rows[trigger]
        for effect in effects:
            self._take_effect(effect, trigger, piece)
        return effects

    def _take_effect(self, effect: Effect, trigger: Trigger, piece: Piece) -> None:  # noqa: C901 - one case for each effect
        match effect:
            case Effect.NOTE:
                self._header.note(piece)
            case Effect.SECTION:
                self._header.begin_section(trigger)
            case Effect.SEAL:
                self._header.seal()
            case Effect.BREAK:
                self._header.break_off()
            case Effect.OPEN:
                self._open()
            case Effect.SPILL:
                self._spill()
            case Effect.APPEND:
                self._out += written(self._writer, piece.text, piece.entries)
            case Effect.SKIP:
                self._content_start += 1
            case Effect.CLOSE:
                self._leave(self._writer.close())
            case Effect.LEAVE:
                self._leave(self._writer.leave())
            case Effect.DROP:
                self._header = Header()
            case _:
                assert_never(effect)

    def _open(self) -> None:
        """Open the item that the header asks for."""
        self._writer = writer_for(self._route())
        self._content_start = self._tokens
        self._out += self._writer.open()

    def _route(self) -> Route:
        header = self._header
        if header.recipient is not None and (route := self._routing.recipient(header.recipient)) is not None:
            return route
        return _CHANNELS.get(header.channel, PREAMBLE if header.foreign else ANSWER)

    def _spill(self) -> None:
        """Write the words of what turned out to be no header to the item."""
        for piece in self._header.spill():
            self._content_start -= piece.tokens
            self._out += written(self._writer, piece.text, piece.entries)

    def _leave(self, ending: list[Delta]) -> None:
        """End the item and count its tokens."""
        self._out += ending
        if self._writer.route is REASONING:
            self._reasoning += self._tokens - self._content_start
        self._header = Header()

    def _take(self) -> list[Delta]:
        """Return the deltas of this chunk, pieces of text joined."""
        out, self._out = self._out, []
        return joined(out) if len(out) > 1 else out
