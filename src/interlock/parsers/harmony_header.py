"""The header grammar of harmony: which words a header may have, and what it says when it is whole or broken off.

It knows words and markers, not token ids or items. A header is a row of sections, each begun by a marker; the section
before the first marker is what follows the `<|start|>assistant` at the end of a prompt:

    section    begins with       and may say
    text       nothing           known words alone: role, channel, `to=` recipient, content type
    start      `<|start|>`       a role (any word), recipient, content type
    channel    `<|channel|>`     a channel (any word), recipient, content type
    constrain  `<|constrain|>`   a content type (any word), recipient

Known words may be glued together (`finalfinal`, `commentaryto=functions.f`). What is said twice counts as said last.

A header that no `<|message|>` ends is broken off, and only what can be nothing else counts as header: the known words
that follow its marker, of the content types those that follow a recipient or `<|constrain|>`, and in a text section
nothing unless a recipient was given. The rest is text; of the white space between the two, one character is header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, TypeAlias

from attrs import define

from interlock.parsers.harmony_framing import Trigger
from interlock.parsers.harmony_vocabulary import Piece

Opener: TypeAlias = Literal["text", "start", "channel", "constrain"]
"""What begins a section."""

MAX_SECTION = 256
"""The longest section, in characters, that is waited for: it bounds how long text without a header is held."""

_OPENERS: dict[Trigger, Opener] = {Trigger.START: "start", Trigger.CHANNEL: "channel", Trigger.CONSTRAIN: "constrain"}
_MARKERS = {Trigger.CHANNEL, Trigger.CONSTRAIN, Trigger.MESSAGE}

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
    """A header as far as it was written.

    Args:
        role: Who speaks, if a role was given.
        channel: A known channel, if one was given.
        recipient: To whom, if it was said.
    """

    role: str | None = None
    channel: str | None = None
    recipient: str | None = None
    _opener: Opener = "text"
    _pieces: tuple[Piece, ...] = ()

    @property
    def foreign(self) -> bool:
        """Whether somebody else than the assistant is said to speak."""
        return self.role not in {None, "assistant"}

    def note(self, piece: Piece) -> None:
        """Add text to the section that is being written."""
        self._pieces = (*self._pieces, piece)

    def begin_section(self, marker: Trigger) -> None:
        """End the section that is being written and begin the next."""
        self.seal()
        self._opener = _OPENERS[marker]

    def takes(self, text: str) -> bool:
        """Return whether the section can still be a section after this text."""
        section = self._section + text
        if len(section) > MAX_SECTION:
            return False
        words, end = _words(section)
        if words and words[-1]["other"] and any(keyword.startswith(words[-1]["other"]) for keyword in _KNOWN):
            words = words[:-1]  # it may yet become a known word
        return self._allows(words) and not section[end:].strip()

    def ends_with(self, trigger: Trigger) -> bool:
        """Return whether the header can end here, or the section if it is a marker that comes; else text was cut short.

        Args:
            trigger: A control token, or the end of the turn.
        """
        section = self._section
        if trigger in _MARKERS:
            words, end = _words(section)
            return self._allows(words) and not section[end:].strip()
        _, end = self._certain(section)
        rest = section[end:].strip()
        fragment = trigger is Trigger.CUT and self._opener != "text" and any(keyword.startswith(rest) for keyword in _KNOWN)
        return not rest or fragment

    def seal(self) -> None:
        """Read the section as a whole one: all its words are header."""
        self._learn(_words(self._section)[0])
        self._pieces = ()

    def break_off(self) -> None:
        """Read the section as broken off: what is no header is left for `spill`."""
        section = self._section
        words, end = self._certain(section)
        self._learn(words)
        if words and section[end : end + 1].isspace():
            end += 1
        self._pieces = _after(self._pieces, end)

    def spill(self) -> tuple[Piece, ...]:
        """Return the words that turned out to be text, token by token."""
        pieces, self._pieces = self._pieces, ()
        return pieces

    @property
    def _section(self) -> str:
        return "".join(piece.text for piece in self._pieces)

    def _allows(self, words: list[re.Match[str]]) -> bool:
        """Return whether these words make a section: unknown ones are a role, a channel or a content type, one at most."""
        return sum(word["other"] is not None for word in words) <= (self._opener != "text")

    def _certain(self, section: str) -> tuple[list[re.Match[str]], int]:
        """Return the words that are header even if no `<|message|>` follows, and where they end."""
        certain: list[re.Match[str]] = []
        addressed = self.recipient is not None
        for word in _words(section)[0]:
            addressed = addressed or word["recipient"] is not None
            if word["other"] or (word["type"] and not addressed and self._opener != "constrain"):
                break
            certain.append(word)
        if self._opener == "text" and not addressed:
            certain = []
        return certain, certain[-1].end() if certain else 0

    def _learn(self, words: list[re.Match[str]]) -> None:
        for word in words:
            self.role = word["role"] or (word["other"] if self._opener == "start" else None) or self.role
            self.channel = word["channel"] or self.channel
            self.recipient = word["recipient"] or self.recipient


def _words(section: str) -> tuple[list[re.Match[str]], int]:
    """Return the words that a section begins with, and where they end."""
    words: list[re.Match[str]] = []
    end = 0
    while word := _WORD.match(section, end):
        words.append(word)
        end = word.end()
    return words, end


def _after(pieces: Iterable[Piece], start: int) -> tuple[Piece, ...]:
    """Drop the first characters of some pieces; a token of which a part is left stands for that part alone."""
    rest: list[Piece] = []
    for piece in pieces:
        if start <= 0:
            rest.append(piece)
        elif start < len(piece.text):
            rest.append(piece.after(start))
        start -= len(piece.text)
    return tuple(rest)
