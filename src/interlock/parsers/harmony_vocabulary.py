"""The vocabulary of harmony: the meaning of a token id, and characters that span several tokens.

`openai_harmony` provides the vocabulary and is imported on first use, so that the other formats work without it.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Protocol

from attrs import define, evolve, field, frozen

from interlock.parsers.chunk import Entry
from interlock.parsers.harmony_framing import HarmonyTrigger

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


class Encoding(Protocol):
    """The methods of `openai_harmony.HarmonyEncoding` that the vocabulary uses."""

    def decode(self, tokens: Sequence[int], errors: str = ...) -> str:
        """Return the text of tokens; raises `HarmonyError` for an unknown id, `OverflowError` outside of 32 bits."""
        ...

    def is_special_token(self, token: int) -> bool:
        """Return whether a token is a control token; raises `OverflowError` outside of 32 bits."""
        ...


@define(eq=False)
class Vocabulary:
    """The meaning of each token id, cached as ids arrive; `whole` has the tokens of complete characters: nearly all tokens."""

    encoding: Encoding
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
        except (OverflowError, RuntimeError):  # `HarmonyError` is a `RuntimeError`
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
        load: Callable[[str], Encoding] = import_module("openai_harmony").load_harmony_encoding
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the format 'harmony' needs its vocabulary: pip install oss-harmony", name=error.name
        ) from error
    return Vocabulary(load("HarmonyGptOss"))


@frozen
class TokenText:
    """Text of complete characters, the log probabilities of its tokens if requested, and the number of these tokens."""

    text: str = ""
    entries: Sequence[Entry] = ()
    tokens: int = 1

    def cut(self, start: int = 0, end: int | None = None) -> TokenText:
        """Return the characters from `start` to `end`; the first log probability, if any, then belongs to all of them."""
        text = self.text[start:end]
        part = {"token": text, "bytes": list(text.encode()), "top_logprobs": []}
        return evolve(self, text=text, entries=[{**entry, **part} for entry in self.entries[:1]])


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
    _entries: list[Entry] | tuple[()] = ()

    @property
    def pending(self) -> bool:
        """Whether text waits for `take`, complete or not."""
        return self._tokens > 0

    def feed(self, data: bytes, entry: Entry | None) -> bool:
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
