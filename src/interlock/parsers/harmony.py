"""The format `harmony`: turns token ids into deltas.

A table declares which tokens may follow one another: a turn is messages, each a header and a content. Each state has a row for
each trigger possible there, so no sequence of ids, however it is chunked or ends, raises or loses text (rules R16 to R18).
docs/evidence/conformance/recovery.md shows what malformed output becomes.

Three triggers stand for a token of text: `text` in a content; outside of a content, `word` if the token may belong to a header,
and `prose` if it shows that the header ends without `<|message|>`.

`openai_harmony` provides the vocabulary and is imported on first use, so that the other formats work without it.

The hot path, a token of text in a content, is one lookup in `_plain`. While an item streams, `_plain` is the vocabulary's mapping
of tokens with complete characters; at any other time it is empty.
"""

from __future__ import annotations

import re
from codecs import utf_8_decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib import import_module
from itertools import chain, repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, assert_never

from attrs import define, evolve, field, frozen

from interlock.fsm.deltas import Delta, EndTurn, TokenLogprob, Usage
from interlock.fsm.table import Edge, State, Table
from interlock.parsers.chunk import Chunk, ChunkError, Recoveries
from interlock.parsers.item_writers import ItemWriter, StreamWriter, join_text, text_deltas, writer_for
from interlock.parsers.routing import ANSWER, PREAMBLE, REASONING, EndReason, Route, Routing, finish_reason_of
from interlock.parsers.stop_strings import stops_in

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding  # pyright: ignore[reportMissingTypeStubs] - its types are inline, without a py.typed


class HarmonyTrigger(StrEnum):
    """The input of the framing: a token by its meaning, or the end of the turn."""

    START = "start"
    CHANNEL = "channel"
    CONSTRAIN = "constrain"
    MESSAGE = "message"
    END = "end"
    CALL = "call"
    RETURN = "return"
    STRAY = "stray"
    """A control token without a meaning here: a reserved one, or an unknown id."""
    TEXT = "text"
    """A token of text in a content."""
    WORD = "word"
    """A token of text after which the header may still be well-formed."""
    PROSE = "prose"
    """A token of text, or its absence, that shows that the header has ended."""
    FINISH = "finish"
    """The turn ends because the model stopped."""
    CUT = "cut"
    """The turn ends for any other reason: the budget, a filter, an abort, an error, or inside the content of a call."""


class HarmonyEffect(StrEnum):
    """The action of an edge."""

    NOTE = "note"
    """Add the text to the header."""
    SECTION = "section"
    """Begin the section of the header that the token names."""
    SEAL = "seal"
    """Read the header as complete: `<|message|>` ended it."""
    BREAK = "break"
    """Read the header as broken off."""
    OPEN = "open"
    """Open the item that the header describes."""
    SPILL = "spill"
    """Write the words after the header to the item."""
    APPEND = "append"
    """Write the text to the item."""
    SKIP = "skip"
    """Skip a control token, which is no part of the content."""
    CLOSE = "close"
    """Close the item."""
    LEAVE = "leave"
    """Leave the item open; the driver ends it as incomplete."""
    DROP = "drop"
    """Drop the header, which the end of the turn truncated."""


_OUTSIDE: Final = tuple(trigger for trigger in HarmonyTrigger if trigger is not HarmonyTrigger.TEXT)
_INSIDE: Final = tuple(trigger for trigger in HarmonyTrigger if trigger not in {HarmonyTrigger.WORD, HarmonyTrigger.PROSE})

_T, _E = HarmonyTrigger, HarmonyEffect

_EMPTY, _WORDS, _READ, _ITEM = "no header", "words of a header", "a complete header", "an item"
_CONTRACTS: Final[Mapping[HarmonyEffect, tuple[Collection[str], str]]] = {
    _E.NOTE: ((_EMPTY, _WORDS), _WORDS),
    _E.SECTION: ((_EMPTY, _WORDS), _WORDS),
    _E.SEAL: ((_EMPTY, _WORDS), _READ),
    _E.BREAK: ((_EMPTY, _WORDS), _READ),
    _E.OPEN: ((_READ,), _ITEM),
    _E.SPILL: ((_ITEM,), _ITEM),
    _E.APPEND: ((_ITEM,), _ITEM),
    _E.SKIP: ((_ITEM,), _ITEM),
    _E.CLOSE: ((_ITEM,), _EMPTY),
    _E.LEAVE: ((_ITEM,), _EMPTY),
    _E.DROP: ((_WORDS,), _EMPTY),
}
"""The conditions that an effect allows before it, and the condition after it."""


class HarmonyFraming(Table[HarmonyTrigger, HarmonyEffect]):
    """A table that checks that each effect has the header or open item that it needs.

    Raises:
        DeclarationError: An edge has an effect where it finds something else, or a state is entered with several things.
    """

    def __attrs_post_init__(self) -> None:
        """Compile the edges, and follow the header and the item through them."""
        super().__attrs_post_init__()
        for name, contents in self.conditions(_EMPTY, self._follow).items():
            if len(contents) > 1:
                raise self.refusal(f"state {name!r} is entered with {' and with '.join(contents)}")

    def _follow(self, state: State[HarmonyTrigger, HarmonyEffect], before: str) -> Iterator[tuple[str, str]]:
        for trigger, (dest, effects) in state.rows.items():
            after = before
            for effect in effects:
                required, result = _CONTRACTS[effect]
                if after not in required:
                    raise self.refusal(f"{trigger!s} in state {state.name!r} has the effect {effect.value!r} with {after}")
                after = result
            yield dest.name, after


HARMONY: Final = HarmonyFraming(
    name="harmony",
    initial="expect_start",
    total={"expect_start": _OUTSIDE, "header": _OUTSIDE, "content": _INSIDE},
    regions={"outside": ["expect_start", "header"]},
    edges=(
        # Outside of a content. A turn also starts in `expect_start`: its prompt ended with `<|start|>assistant`, which models
        # may repeat. However a header ends, its words so far decide where the text goes.
        Edge("outside", _T.CHANNEL, "header", (_E.SECTION,)),
        Edge("outside", _T.CONSTRAIN, "header", (_E.SECTION,)),
        Edge("outside", _T.WORD, "header", (_E.NOTE,)),
        Edge("outside", _T.MESSAGE, "content", (_E.SEAL, _E.OPEN, _E.SKIP)),
        Edge("outside", _T.PROSE, "content", (_E.NOTE, _E.BREAK, _E.OPEN, _E.SPILL)),
        Edge("outside", _T.STRAY, "outside"),
        Edge("expect_start", _T.START, "header", (_E.SECTION,)),
        Edge("expect_start", _T.END, "expect_start"),
        Edge("expect_start", _T.CALL, "expect_start"),
        Edge("expect_start", _T.RETURN, "expect_start"),
        Edge("expect_start", _T.FINISH, "expect_start"),
        Edge("expect_start", _T.CUT, "expect_start"),
        Edge("header", _T.START, "header", (_E.BREAK, _E.OPEN, _E.CLOSE, _E.SECTION)),
        Edge("header", _T.END, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        Edge("header", _T.CALL, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        Edge("header", _T.RETURN, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        Edge("header", _T.FINISH, "expect_start", (_E.BREAK, _E.OPEN, _E.LEAVE)),
        Edge("header", _T.CUT, "expect_start", (_E.DROP,)),
        # Inside a content. `<|start|>` and `<|channel|>` end it, as `<|end|>` does.
        Edge("content", _T.TEXT, "content", (_E.APPEND,)),
        Edge("content", _T.END, "expect_start", (_E.CLOSE,)),
        Edge("content", _T.CALL, "expect_start", (_E.CLOSE,)),
        Edge("content", _T.RETURN, "expect_start", (_E.CLOSE,)),
        Edge("content", _T.START, "header", (_E.CLOSE, _E.SECTION)),
        Edge("content", _T.CHANNEL, "header", (_E.CLOSE, _E.SECTION)),
        Edge("content", _T.CONSTRAIN, "content", (_E.SKIP,)),
        Edge("content", _T.MESSAGE, "content", (_E.SKIP,)),
        Edge("content", _T.STRAY, "content", (_E.SKIP,)),
        Edge("content", _T.FINISH, "expect_start", (_E.CLOSE,)),
        Edge("content", _T.CUT, "expect_start", (_E.LEAVE,)),
    ),
)


_CONTROLS = {
    "<|start|>": HarmonyTrigger.START,
    "<|channel|>": HarmonyTrigger.CHANNEL,
    "<|constrain|>": HarmonyTrigger.CONSTRAIN,
    "<|message|>": HarmonyTrigger.MESSAGE,
    "<|end|>": HarmonyTrigger.END,
    "<|call|>": HarmonyTrigger.CALL,
    "<|return|>": HarmonyTrigger.RETURN,
    "<|endoftext|>": HarmonyTrigger.RETURN,  # a stop token of the models that write harmony, and as final as `<|return|>`
}


@define(eq=False)
class Vocabulary:
    """The meaning of each token id, cached as ids arrive; `whole` has the tokens of complete characters: nearly all tokens."""

    encoding: HarmonyEncoding
    whole: dict[int, str] = field(factory=dict[int, str])
    _cache: dict[int, bytes | HarmonyTrigger] = field(factory=dict[int, bytes | HarmonyTrigger])

    def read(self, token: int) -> str | bytes | HarmonyTrigger:
        """Return a token's text, its bytes if they split characters, or its trigger; an unknown id is a stray token."""
        meaning = self.whole.get(token) or self._cache.get(token)
        return meaning if meaning is not None else self._look_up(token)

    def _look_up(self, token: int) -> str | bytes | HarmonyTrigger:
        try:
            special = self.encoding.is_special_token(token)
            raw = self.encoding.decode([token], errors="surrogateescape")
        except (OverflowError, RuntimeError):  # an id outside of 32 bits, or an unknown one, by a `HarmonyError`
            return HarmonyTrigger.STRAY
        if special:
            return self._cache.setdefault(token, _CONTROLS.get(raw, HarmonyTrigger.STRAY))
        data = raw.encode(errors="surrogateescape")
        try:
            return self.whole.setdefault(token, data.decode())
        except UnicodeDecodeError:
            return self._cache.setdefault(token, data)


@cache
def vocabulary() -> Vocabulary:
    """Return the vocabulary of gpt-oss, one for the process; the first call takes a fifth of a second.

    Raises:
        ModuleNotFoundError: `openai_harmony` is not installed (the extra `harmony`).
    """
    try:
        load: Callable[[str], HarmonyEncoding] = import_module("openai_harmony").load_harmony_encoding
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the format 'harmony' needs its vocabulary: pip install oss-harmony", name=error.name
        ) from error
    return Vocabulary(load("HarmonyGptOss"))


@frozen
class TokenText:
    """Text of complete characters, the log probabilities of its tokens if requested, and the number of these tokens."""

    text: str = ""
    entries: Sequence[TokenLogprob] = ()
    tokens: int = 1

    def cut(self, start: int = 0, end: int | None = None) -> TokenText:
        """Return the characters from `start` to `end`; the first log probability, if any, then belongs to all of them."""
        text = self.text[start:end]
        entries: list[TokenLogprob] = [
            {**entry, "token": text, "bytes": [*text.encode()], "top_logprobs": []} for entry in self.entries[:1]
        ]
        return evolve(self, text=text, entries=entries)


@define(eq=False)
class Characters:
    """Joins characters that span several tokens, together with the tokens' log probabilities.

    Invalid UTF-8 becomes U+FFFD, as in `bytes.decode(errors="replace")`. Text waits until it ends with a complete character,
    so text and tokens always correspond.
    """

    _text: str = ""
    _rest: bytes = b""
    """The beginning of a character, after the text."""
    _tokens: int = 0
    _entries: list[TokenLogprob] | tuple[()] = ()

    @property
    def pending(self) -> bool:
        """Whether text waits for `take`, complete or not."""
        return self._tokens > 0

    def feed(self, data: bytes, entry: TokenLogprob | None) -> bool:
        """Add the bytes of a token, at least one; return whether the text is complete, ready for `take`."""
        data = self._rest + data
        text, length = utf_8_decode(data, "replace")
        self._text, self._rest = self._text + text, data[length:]
        self._tokens += 1
        if entry is not None:
            self._entries = self._entries or []
            self._entries.append(entry)
        return not self._rest

    def take(self) -> TokenText:
        """Return the pending text; an incomplete character becomes U+FFFD."""
        result = TokenText(self._text + self._rest.decode(errors="replace"), self._entries, self._tokens)
        self._text, self._rest, self._tokens, self._entries = "", b"", 0, ()
        return result


MAX_SECTION = 256
"""The maximum length of a section, in characters; it bounds how much text without a header waits."""

_MARKERS = {HarmonyTrigger.CHANNEL, HarmonyTrigger.CONSTRAIN, HarmonyTrigger.MESSAGE}

_ROLES = ("assistant", "user", "system", "developer", "tool")
_CHANNEL_NAMES = ("analysis", "commentary", "final")
_TYPES = ("json", "code", "text")
_KNOWN = (*_ROLES, *_CHANNEL_NAMES, *_TYPES, "to=")

_WORD = re.compile(
    rf"""\s*(?:
        to=\s? (?P<recipient> [^\s{{}}\[\]()<>"'=]* )
      | (?P<channel> {"|".join(_CHANNEL_NAMES)} )
      | (?P<role> assistant | (?:{"|".join(_ROLES[1:])})\b )
      | (?P<type> (?:{"|".join(_TYPES)})\b )
      | (?P<other> [\w./:+-]+ )
    )""",
    re.VERBOSE,
)


@define(eq=False)
class Header:
    """A partial header, complete or broken off: its author, known channel and recipient, each None until it is named.

    A header is a sequence of sections, each of which starts with a marker; the section before the first marker follows the
    `<|start|>assistant` at the end of the prompt:

        section    begins with       and may contain
        text       nothing           only known words: role, channel, `to=` recipient, content type
        start      `<|start|>`       a role (any word), recipient, content type
        channel    `<|channel|>`     a channel (any word), recipient, content type
        constrain  `<|constrain|>`   a content type (any word), recipient

    Known words may be glued together (`finalfinal`, `commentaryto=functions.f`). Of repeated words, the last counts.

    A header without `<|message|>` is broken off, and only its unambiguous words count: the known words after its marker, but a
    content type only after a recipient or `<|constrain|>`, and a text section only if it has a recipient. The rest is text,
    except for one character of white space before it.
    """

    role: str | None = None
    channel: str | None = None
    recipient: str | None = None
    _opener: HarmonyTrigger | None = None
    """The marker that begins the section, or None for a section of text."""
    _chunks: tuple[TokenText, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Whether the header names a role other than `assistant`."""
        return self.role not in {None, "assistant"}

    def add(self, chunk: TokenText) -> None:
        """Add text to the current section."""
        self._chunks = (*self._chunks, chunk)

    def begin_section(self, marker: HarmonyTrigger) -> None:
        """End the current section and begin the next."""
        self.seal()
        self._opener = marker

    def accepts(self, text: str) -> bool:
        """Return whether the section can still be valid after this text."""
        section = self._section + text
        if len(section) > MAX_SECTION:
            return False
        words, end = _words(section)
        if words and words[-1]["other"] and any(keyword.startswith(words[-1]["other"]) for keyword in _KNOWN):
            words = words[:-1]  # it may yet become a known word
        return self._allows(words) and not section[end:].strip()

    def can_end_with(self, trigger: HarmonyTrigger) -> bool:
        """Return whether the section or header is valid before this control token or end of the turn."""
        section = self._section
        if trigger in _MARKERS:
            words, end = _words(section)
            return self._allows(words) and not section[end:].strip()
        _, end = self._unambiguous(section)
        rest = section[end:].strip()
        fragment = (
            trigger is HarmonyTrigger.CUT and self._opener is not None and any(keyword.startswith(rest) for keyword in _KNOWN)
        )
        return not rest or fragment

    def seal(self) -> None:
        """Read the section as complete: all its words are header."""
        self._record(_words(self._section)[0])
        self._chunks = ()

    def break_off(self) -> None:
        """Read the section as broken off; `spill` then returns the words after the header."""
        section = self._section
        words, end = self._unambiguous(section)
        self._record(words)
        if words and section[end : end + 1].isspace():
            end += 1
        self._chunks = _drop_start(self._chunks, end)

    def spill(self) -> tuple[TokenText, ...]:
        """Return the words after the header, token by token."""
        chunks, self._chunks = self._chunks, ()
        return chunks

    @property
    def _section(self) -> str:
        return "".join(chunk.text for chunk in self._chunks)

    def _allows(self, words: list[re.Match[str]]) -> bool:
        """Return whether these words are a valid section: at most one is unknown, and none in a text section."""
        return sum(word["other"] is not None for word in words) <= (self._opener is not None)

    def _unambiguous(self, section: str) -> tuple[list[re.Match[str]], int]:
        """Return the words that are header even without `<|message|>`, and where they end."""
        words: list[re.Match[str]] = []
        has_recipient = self.recipient is not None
        for word in _words(section)[0]:
            has_recipient = has_recipient or word["recipient"] is not None
            if word["other"] or (word["type"] and not has_recipient and self._opener is not HarmonyTrigger.CONSTRAIN):
                break
            words.append(word)
        if self._opener is None and not has_recipient:
            words = []
        return words, words[-1].end() if words else 0

    def _record(self, words: list[re.Match[str]]) -> None:
        for word in words:
            self.role = word["role"] or (word["other"] if self._opener is HarmonyTrigger.START else None) or self.role
            self.channel = word["channel"] or self.channel
            self.recipient = word["recipient"] or self.recipient


def _words(section: str) -> tuple[list[re.Match[str]], int]:
    """Return the words at the beginning of a section, and where they end."""
    words: list[re.Match[str]] = []
    end = 0
    while word := _WORD.match(section, end):
        words.append(word)
        end = word.end()
    return words, end


def _drop_start(chunks: Iterable[TokenText], start: int) -> tuple[TokenText, ...]:
    """Drop the first characters; a token that loses a part keeps the rest."""
    rest: list[TokenText] = []
    for chunk in chunks:
        if start <= 0:
            rest.append(chunk)
        elif start < len(chunk.text):
            rest.append(chunk.cut(start))
        start -= len(chunk.text)
    return tuple(rest)


@define(eq=False)
class StopFilter:
    """Holds back the text of an item from where a stop string may begin: an engine truncates only its text, and its tokens go on.

    Whether a complete stop string ended the turn shows only at the next output: if there is one, the engine has not stopped, such
    as before its minimum of tokens.
    """

    _stops: Sequence[str]
    _waiting: list[TokenText] = field(factory=list[TokenText], init=False)

    def feed(self, chunk: TokenText) -> list[TokenText]:
        """Return the text that no stop string includes, in chunks."""
        self._waiting.append(chunk)
        return self._take(self._start())

    def go_on(self) -> list[TokenText]:
        """Return the text that waits with a complete stop string, because the engine has not stopped there."""
        text = self._text
        return self.flush() if any(stop in text for stop in self._stops) else []

    def flush(self) -> list[TokenText]:
        """Return all text that waits."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def cut(self) -> list[TokenText]:
        """Return the text that waits, up to a complete stop string: the turn has ended."""
        text = self._text
        start = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=len(text))
        before = self._take(start)
        rest = start - sum(len(chunk.text) for chunk in before)
        before += [chunk.cut(end=rest) for chunk in self._waiting[:1] if rest]
        self._waiting = []
        return before

    @property
    def _text(self) -> str:
        return "".join(chunk.text for chunk in self._waiting)

    def _start(self) -> int:
        """Return where a stop string begins, or may begin."""
        text = self._text
        longest = max(map(len, self._stops))
        starts = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        tails = range(max(len(text) - longest + 1, 0), len(text))
        starts += [at for at in tails if any(stop.startswith(text[at:]) for stop in self._stops)][:1]
        return min(starts, default=len(text))

    def _take(self, end: int) -> list[TokenText]:
        """Return the chunks that end before a position."""
        chunks: list[TokenText] = []
        while self._waiting and (end := end - len(self._waiting[0].text)) >= 0:
            chunks.append(self._waiting.pop(0))
        return chunks


_CHANNELS: Mapping[str | None, Route] = {"analysis": REASONING, "commentary": PREAMBLE, "final": ANSWER}
_OPENING = frozenset({HarmonyTrigger.START, HarmonyTrigger.CHANNEL, HarmonyTrigger.CONSTRAIN, HarmonyTrigger.MESSAGE})
"""The control tokens that no content should have."""
_NO_TOKENS: Mapping[int, str] = MappingProxyType({})


@define(eq=False)
class HarmonyParser:
    """Parses the tokens of a model that writes harmony; see `Parser`.

    Reasoning tokens are the tokens of text in a reasoning item; headers and control tokens do not count. A text ends before the
    stop string that ends its turn.

    Args:
        routing: Routes the messages and calls.
        stops: Holds back text that may be a stop string; None without stop strings.
    """

    _routing: Routing
    _vocabulary: Vocabulary = field(factory=vocabulary, init=False)
    _stops: StopFilter | None = field(default=None, alias="stops")
    _state: State[HarmonyTrigger, HarmonyEffect] = field(default=HARMONY.states[HARMONY.initial], init=False)
    _plain: Mapping[int, str] = field(default=_NO_TOKENS, init=False)
    _header: Header = field(factory=Header, init=False)
    _characters: Characters = field(factory=Characters, init=False)
    _writer: ItemWriter = field(factory=lambda: writer_for(ANSWER), init=False)
    _out: list[Delta] = field(factory=list[Delta], init=False)
    _tokens: int = field(default=0, init=False)
    _content_start: int = field(default=0, init=False)
    _reasoning_tokens: int = field(default=0, init=False)
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
            raise ChunkError(chunk, "token_ids")
        return self._feed_many(tokens)

    def _feed_scored(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob]) -> list[Delta]:
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
            raise ChunkError(Chunk(tokens), "token_ids")
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

    def _step(self, token: int, entry: TokenLogprob | None) -> None:
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
