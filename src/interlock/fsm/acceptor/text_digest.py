"""Compares the deltas and log probabilities of a text with the full text, in constant memory (R9 and R15 of docs/rules.md)."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Sequence
from typing import Final, cast

from attrs import define, field

from interlock.events.parts import Logprob
from interlock.events.shapes import mismatches
from interlock.fsm.acceptor.json_digest import as_list, as_object, digest

_MAX_CHUNKS: Final = 4096
"""The number of chunks to store before folding them into a hash."""


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@define(eq=False)
class Text:
    """A text that arrives in chunks.

    Args:
        complete: Whether every chunk was received; if not, the first full text is accepted as it is.
    """

    complete: bool = True
    chunks: list[str] = field(factory=list[str], init=False)
    """The chunks that are not folded into the hash yet."""
    _folded: hashlib.blake2b = field(factory=hashlib.blake2b, init=False, repr=False)
    _length: int = field(default=0, init=False)
    """The number of characters in the hash."""
    _last_whole: str | None = field(default=None, init=False)
    """The full text of the last comparison."""
    at_once: bool = field(default=False, init=False)
    """Whether the full text arrived without a delta."""

    def add(self, chunk: str) -> None:
        """Add a chunk."""
        self.chunks.append(chunk)
        if len(self.chunks) >= _MAX_CHUNKS:
            self._fold()

    def _fold(self) -> None:
        text = "".join(self.chunks)
        self._folded.update(_encoded(text))
        self._length += len(text)
        self.chunks.clear()

    def compare(self, whole: str) -> str | None:
        """Compare the chunks with the full text in an event, a part or an item.

        Returns:
            The difference as the predicate of a sentence; None if there is none, or if the last call had the same text.
        """
        if not self.complete:
            self.complete, self.chunks = True, [whole]
            self._folded, self._length = hashlib.blake2b(), 0
        if not self.chunks and not self._length and whole and self._last_whole is None:
            self.at_once, self.chunks = True, [whole]
        difference = None if whole == self._last_whole else self._difference(whole)
        self._last_whole = whole
        return difference

    def _difference(self, whole: str) -> str | None:
        rest = "".join(self.chunks)
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
    """The log probabilities of a text that arrives in deltas."""

    count: int = field(default=0, init=False)
    _hash: hashlib.blake2b = field(factory=hashlib.blake2b, init=False, repr=False)
    _tokens: Text = field(factory=Text, init=False)
    """The tokens as strings; a string cannot hold a part of a character."""
    _decoded_tokens: Text = field(factory=Text, init=False)
    """The tokens as decoded bytes."""
    _decoder: codecs.IncrementalDecoder = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Create the decoder."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, entries: Sequence[object]) -> None:
        """Add the well-formed entries of a delta."""
        for entry in map(as_object, entries):
            token = cast("str", entry["token"])
            self.count += 1
            self._hash.update(_entry_digest(entry))
            self._tokens.add(token)
            token_bytes = cast("list[int] | None", entry.get("bytes"))
            self._decoded_tokens.add(self._decoder.decode(bytes(token_bytes) if token_bytes else _encoded(token)))

    def equal(self, entries: Sequence[object]) -> bool:
        """Return whether other entries have the same tokens with the same log probabilities."""
        other = hashlib.blake2b()
        for entry in map(as_object, entries):
            other.update(_entry_digest(entry))
        return other.digest() == self._hash.digest()

    def rebuild(self, text: str) -> bool:
        """Return whether the tokens make up the text. Call this once, after the last delta."""
        self._decoded_tokens.add(self._decoder.decode(b"", final=True))
        return not self.count or not self._tokens.compare(text) or not self._decoded_tokens.compare(text)


def _entry_digest(entry: object) -> bytes:
    fields = as_object(entry)
    return digest([fields.get("token"), fields.get("logprob")])


def are_malformed(entries: object) -> bool:
    """Return whether a value is not a list of log probabilities; nulls and unknown fields are accepted."""
    kinds = (mismatch.kind for mismatch in mismatches(entries, list[Logprob], direction="stream"))
    return not all(kind in {"unknown", "null"} for kind in kinds) or not all(map(_has_valid_bytes, as_list(entries)))


def _has_valid_bytes(entry: object) -> bool:
    return all(cast("int", one) in range(256) for one in as_list(as_object(entry).get("bytes")))
