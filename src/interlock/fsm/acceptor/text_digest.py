"""Texts that come in pieces and are compared with their wholes, in memory that does not grow with them.

It knows the equality of rule R9 and that of the log probabilities (R15), and no event.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Sequence
from typing import Final, cast

from attrs import define, field

from interlock.events.parts import Logprob
from interlock.events.shapes import faults
from interlock.fsm.acceptor.json_digest import a_list, an_object, digest

_KEPT: Final = 4096
"""How many pieces are kept as they are before they are folded into a hash."""


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@define(eq=False)
class Text:
    """A text in pieces.

    Args:
        known: Whether every piece was seen; of a text whose beginning is not known, anything may be the whole.
    """

    known: bool = True
    pieces: list[str] = field(factory=list[str], init=False)
    """The pieces that were not folded yet."""
    _folded: hashlib.blake2b = field(factory=hashlib.blake2b, init=False, repr=False)
    _length: int = field(default=0, init=False)
    """The length of what was folded, in characters."""
    _last_whole: str | None = field(default=None, init=False)
    """The last whole that was said to be another."""
    at_once: bool = field(default=False, init=False)
    """Whether the whole was said without a single delta."""

    def add(self, piece: str) -> None:
        """Add a piece."""
        self.pieces.append(piece)
        if len(self.pieces) >= _KEPT:
            self._fold()

    def _fold(self) -> None:
        text = "".join(self.pieces)
        self._folded.update(_encoded(text))
        self._length += len(text)
        self.pieces.clear()

    def settle(self, whole: str) -> str | None:
        """Compare with what is said to be the whole; the next to say the same says nothing new.

        Args:
            whole: What an event, a part or an item says that the text is.

        Returns:
            How it differs, for a sentence that begins with what says so; None if it does not.
        """
        if not self.known:
            self.known, self.pieces = True, [whole]
            self._folded, self._length = hashlib.blake2b(), 0
        if not self.pieces and not self._length and whole and self._last_whole is None:
            self.at_once, self.pieces = True, [whole]
        wrong = None if whole == self._last_whole else self._difference(whole)
        self._last_whole = whole
        return wrong

    def _difference(self, whole: str) -> str | None:
        rest = "".join(self.pieces)
        length = self._length + len(rest)
        if self._length and hashlib.blake2b(_encoded(whole[: self._length])).digest() != self._folded.digest():
            return f"differs from the {length} characters of the deltas, among the first {self._length}"
        rest_of_whole = whole[self._length :]
        if rest_of_whole == rest:
            return None
        same = next((at for at, (one, other) in enumerate(zip(rest_of_whole, rest, strict=False)) if one != other), None)
        if same is None:
            return f"has {len(whole)} characters where the deltas have {length}"
        return f"differs from the deltas at character {self._length + same}"


@define(eq=False)
class Logprobs:
    """The log probabilities of a text's tokens, delta by delta."""

    count: int = field(default=0, init=False)
    _hash: hashlib.blake2b = field(factory=hashlib.blake2b, init=False, repr=False)
    _tokens: Text = field(factory=Text, init=False)
    """The tokens as they are written; a token that is a piece of a character cannot be."""
    _spelled: Text = field(factory=Text, init=False)
    """The tokens as their bytes spell them."""
    _decoder: codecs.IncrementalDecoder = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Start before the first byte."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, entries: Sequence[object]) -> None:
        """Add the entries of a delta.

        Args:
            entries: Sound ones (`unsound`).
        """
        for entry in map(an_object, entries):
            token = cast("str", entry["token"])
            self.count += 1
            self._hash.update(_line(entry))
            self._tokens.add(token)
            spelled = cast("list[int] | None", entry.get("bytes"))
            self._spelled.add(self._decoder.decode(bytes(spelled) if spelled else _encoded(token)))

    def are(self, entries: Sequence[object]) -> bool:
        """Return whether other entries say the same: the same tokens with the same log probabilities."""
        other = hashlib.blake2b()
        for entry in map(an_object, entries):
            other.update(_line(entry))
        return other.digest() == self._hash.digest()

    def rebuild(self, text: str) -> bool:
        """Return whether the tokens make up a text; asked once, when no more will come."""
        self._spelled.add(self._decoder.decode(b"", final=True))
        return not self.count or not self._tokens.settle(text) or not self._spelled.settle(text)


def _line(entry: object) -> bytes:
    known = an_object(entry)
    return digest([known.get("token"), known.get("logprob")])


def unsound(entries: object) -> bool:
    """Return whether a value is not a list of log probabilities, each with its token; what is null or more is borne."""
    wrong = (fault.kind for fault in faults(entries, list[Logprob], direction="stream"))
    return not all(kind in {"unknown", "null"} for kind in wrong) or not all(map(_is_spelled, a_list(entries)))


def _is_spelled(entry: object) -> bool:
    return all(cast("int", one) in range(256) for one in a_list(an_object(entry).get("bytes")))
