"""The vocabulary of harmony: what a token id stands for, and characters that are spread over several tokens.

It knows ids, bytes and the names of the control tokens; it knows nothing of messages. `openai_harmony` holds the
vocabulary and is imported when the first vocabulary is asked for, so that the other formats do without it.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Protocol, TypeAlias

from attrs import define, evolve, field, frozen

from interlock.parsers.harmony_framing import Trigger

Entry: TypeAlias = Mapping[str, object]
"""The log probability of one token, in the API's shape."""

_CONTROLS = {
    "<|start|>": Trigger.START,
    "<|channel|>": Trigger.CHANNEL,
    "<|constrain|>": Trigger.CONSTRAIN,
    "<|message|>": Trigger.MESSAGE,
    "<|end|>": Trigger.END,
    "<|call|>": Trigger.CALL,
    "<|return|>": Trigger.RETURN,
    "<|endoftext|>": Trigger.RETURN,  # a stop token of the models that write harmony, and as final as `<|return|>`
}


class Encoding(Protocol):
    """What is used of `openai_harmony.HarmonyEncoding`."""

    def decode(self, tokens: Sequence[int], errors: str = ...) -> str:
        """Return the text of tokens; raises `HarmonyError` for an id without one, `OverflowError` outside of 32 bits."""
        ...

    def is_special_token(self, token: int) -> bool:
        """Return whether a token is a control token; raises `OverflowError` outside of 32 bits."""
        ...


@define(eq=False)
class Vocabulary:
    """What each token id stands for, filled as ids come by.

    Args:
        encoding: Where unknown ids are looked up.
        whole: The tokens whose text is whole by itself: nearly all. The parser's hot path reads this mapping alone.
    """

    encoding: Encoding
    whole: dict[int, str] = field(factory=dict[int, str])
    _learned: dict[int, bytes | Trigger] = field(factory=dict[int, bytes | Trigger])

    def read(self, token: int) -> str | bytes | Trigger:
        """Return the meaning of a token: its text, the bytes of one with parts of characters, or what it triggers.

        Args:
            token: Any number; one that no vocabulary has is a stray control token, and is not remembered.
        """
        meaning = self.whole.get(token) or self._learned.get(token)
        return meaning if meaning is not None else self._learn(token)

    def _learn(self, token: int) -> str | bytes | Trigger:
        try:
            special = self.encoding.is_special_token(token)
            raw = self.encoding.decode([token], errors="surrogateescape")
        except (OverflowError, RuntimeError):  # `HarmonyError` is a `RuntimeError`
            return Trigger.STRAY
        if special:
            return self._learned.setdefault(token, _CONTROLS.get(raw, Trigger.STRAY))
        data = raw.encode(errors="surrogateescape")
        try:
            return self.whole.setdefault(token, data.decode())
        except UnicodeDecodeError:
            return self._learned.setdefault(token, data)


@cache
def vocabulary() -> Vocabulary:
    """Return the vocabulary of gpt-oss, one for the process; the first call takes a fifth of a second.

    Raises:
        ModuleNotFoundError: `openai_harmony` is not installed (the extra `harmony`).
    """
    load: Callable[[str], Encoding] = import_module("openai_harmony").load_harmony_encoding
    return Vocabulary(load("HarmonyGptOss"))


@frozen
class Piece:
    """Text that ends with a whole character, and the tokens that it came from.

    Args:
        text: The text.
        entries: The log probabilities of its tokens, if they were asked for.
        tokens: How many tokens it came from.
    """

    text: str = ""
    entries: Sequence[Entry] = ()
    tokens: int = 1

    def after(self, start: int) -> Piece:
        """Drop the first characters; if a log probability was given, the first one then stands for what is left."""
        text = self.text[start:]
        part = {"token": text, "bytes": list(text.encode()), "top_logprobs": []}
        return evolve(self, text=text, entries=[{**entry, **part} for entry in self.entries[:1]])


@define(eq=False)
class Characters:
    """Puts characters together that tokens divide, and keeps the log probabilities of those tokens with them.

    What is no UTF-8 becomes U+FFFD, as in `bytes.decode(errors="replace")` of the whole. Text is held until it ends with
    a whole character, so that text and tokens always correspond.
    """

    _text: str = ""
    _rest: bytes = b""
    """The beginning of a character, after the text."""
    _tokens: int = 0
    _entries: list[Entry] | tuple[()] = ()

    @property
    def pending(self) -> bool:
        """Whether something is held."""
        return self._tokens > 0

    def feed(self, data: bytes, entry: Entry | None) -> bool:
        """Feed the bytes of a token, and return whether the text is whole now, so that `take` should be called.

        Args:
            data: At least one byte.
            entry: The token's log probability, if it was asked for.
        """
        data = self._rest + data
        text, decoded = utf_8_decode(data, "replace")
        self._text, self._rest = self._text + text, data[decoded:]
        self._tokens += 1
        if entry is not None:
            self._entries = self._entries or []
            self._entries.append(entry)
        return not self._rest

    def take(self) -> Piece:
        """Return what is held; a character that is not whole becomes U+FFFD."""
        piece = Piece(self._text + self._rest.decode(errors="replace"), self._entries, self._tokens)
        self._text, self._rest, self._tokens, self._entries = "", b"", 0, ()
        return piece
