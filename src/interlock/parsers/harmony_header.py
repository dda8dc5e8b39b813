"""Reads harmony's headers, whether complete or broken off.

A header is a sequence of sections, each of which starts with a marker; the section before the first marker follows the
`<|start|>assistant` at the end of the prompt:

    section    begins with       and may contain
    text       nothing           only known words: role, channel, `to=` recipient, content type
    start      `<|start|>`       a role (any word), recipient, content type
    channel    `<|channel|>`     a channel (any word), recipient, content type
    constrain  `<|constrain|>`   a content type (any word), recipient

Known words may be glued together (`finalfinal`, `commentaryto=functions.f`). Of repeated words, the last counts.

A header without `<|message|>` is broken off, and only its unambiguous words count: the known words after its marker, but a
content type only after a recipient or `<|constrain|>`, and a text section only if it has a recipient. The rest is text, except
for one character of white space before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, TypeAlias

from attrs import define

from interlock.parsers.harmony_framing import HarmonyTrigger
from interlock.parsers.harmony_vocabulary import TokenText

Opener: TypeAlias = Literal["text", "start", "channel", "constrain"]
"""The marker that begins a section, or `text` for none."""

MAX_SECTION = 256
"""The maximum length of a section, in characters; it bounds how much text without a header waits."""

_OPENERS: dict[HarmonyTrigger, Opener] = {
    HarmonyTrigger.START: "start",
    HarmonyTrigger.CHANNEL: "channel",
    HarmonyTrigger.CONSTRAIN: "constrain",
}
_MARKERS = {HarmonyTrigger.CHANNEL, HarmonyTrigger.CONSTRAIN, HarmonyTrigger.MESSAGE}

_ROLES = ("assistant", "user", "system", "developer", "tool")
_CHANNELS = ("analysis", "commentary", "final")
_TYPES = ("json", "code", "text")
_KNOWN = (*_ROLES, *_CHANNELS, *_TYPES, "to=")

_WORD = re.compile(
    rf"""\s*(?:
        to=\s? (?P<recipient> [^\s{{}}\[\]()<>"'=]* )
      | (?P<channel> {"|".join(_CHANNELS)} )
      | (?P<role> assistant | (?:{"|".join(_ROLES[1:])})\b )
      | (?P<type> (?:{"|".join(_TYPES)})\b )
      | (?P<other> [\w./:+-]+ )
    )""",
    re.VERBOSE,
)


@define(eq=False)
class Header:
    """A partial header: its author, known channel and recipient, each None until it is named."""

    role: str | None = None
    channel: str | None = None
    recipient: str | None = None
    _opener: Opener = "text"
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
        self._opener = _OPENERS[marker]

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
            trigger is HarmonyTrigger.CUT and self._opener != "text" and any(keyword.startswith(rest) for keyword in _KNOWN)
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
        return sum(word["other"] is not None for word in words) <= (self._opener != "text")

    def _unambiguous(self, section: str) -> tuple[list[re.Match[str]], int]:
        """Return the words that are header even without `<|message|>`, and where they end."""
        words: list[re.Match[str]] = []
        has_recipient = self.recipient is not None
        for word in _words(section)[0]:
            has_recipient = has_recipient or word["recipient"] is not None
            if word["other"] or (word["type"] and not has_recipient and self._opener != "constrain"):
                break
            words.append(word)
        if self._opener == "text" and not has_recipient:
            words = []
        return words, words[-1].end() if words else 0

    def _record(self, words: list[re.Match[str]]) -> None:
        for word in words:
            self.role = word["role"] or (word["other"] if self._opener == "start" else None) or self.role
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
