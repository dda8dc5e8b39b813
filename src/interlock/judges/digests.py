"""Reads, quotes and hashes untrusted JSON values, and compares deltas with the full text (R9 and R15 of docs/evidence/rules.md).

A digest stands for a value that is compared later, because the value may be long. For the same reason, a text folds its chunks
into a hash; it stores a full text only once an event has it.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeGuard

import orjson
from attrs import define, field

from interlock.events.json import as_text, elements, is_array, is_object, members
from interlock.events.parts import Logprob
from interlock.events.shapes import WORDS, counted, mismatches

Digest: TypeAlias = bytes

_JSON_TYPES: Final[Mapping[type, str]] = {**WORDS, int: "a number", list: "an array"}
_MAX_QUOTED = 200
"""The most characters of a value that a message quotes."""
_MAX_CHUNKS: Final = 4096
"""The number of chunks to store before folding them into a hash."""


def quote(value: object) -> str:
    """Quote a string, or write another value as JSON; truncate a long string, and name the JSON type of any other long value."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _MAX_QUOTED else f"{value[:_MAX_QUOTED]!r}…"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError):  # nested deeply, or a number with thousands of digits
        return json_type(value)
    return text if len(text) <= _MAX_QUOTED else json_type(value)


def json_type(value: object) -> str:
    """Name the JSON type of a value, with its article."""
    return _JSON_TYPES.get(type(value), "an object")


def value_at(value: Mapping[str, object], path: Iterable[str]) -> object:
    """Return the value at a path of field names, or None."""
    inner: object = value
    for step in path:
        inner = members(inner).get(step)
    return inner


def digest(value: object) -> Digest:
    """Hash a JSON value, ignoring the order of its fields."""
    try:
        data = _canonical(value)
    except RecursionError:
        data = b""  # too deep to compare: all such values count as equal
    return hashlib.blake2b(data, digest_size=16).digest()


def _canonical(value: object) -> bytes:
    try:
        data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        return orjson.dumps(_numbers(value), option=orjson.OPT_SORT_KEYS) if b".0" in data else data
    except orjson.JSONEncodeError:
        # orjson refuses large integers, surrogates, mappings that are not dicts, and deep nesting.
        return json.dumps(_numbers(value), sort_keys=True, separators=(",", ":")).encode()


def _numbers(value: object) -> object:
    """Write 1.0 as 1, which is the same number in JSON."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if is_object(value):
        return {name: _numbers(inner) for name, inner in value.items()}
    return [_numbers(inner) for inner in value] if is_array(value) else value


def digests(value: Mapping[str, object]) -> Mapping[str, Digest]:
    """Hash each field of an object."""
    return {name: digest(inner) for name, inner in value.items()}


def loose_digests(value: Mapping[str, object]) -> Mapping[str, Digest]:
    """Hash each field of an object, ignoring at any depth the fields that are null, `logprobs` or `encrypted_content`."""
    try:
        return digests(members(_loose(value)))
    except RecursionError:
        return digests(value)


def _loose(value: object) -> object:
    if is_object(value):
        return {name: _loose(inner) for name, inner in value.items() if inner is not None and name not in _IGNORED_FIELDS}
    return [_loose(inner) for inner in value] if is_array(value) else value


_IGNORED_FIELDS = frozenset({"logprobs", "encrypted_content"})
"""The fields that `loose_digests` ignores: several events have them, but a client reads them in only one."""


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@define(eq=False)
class TextDigest:
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
        self._folded.update(_encode(text))
        self._length += len(text)
        self.chunks.clear()

    def compare(self, whole: str) -> str | None:
        """Return how the full text in an event, a part or an item differs, as a predicate; None if the last one was the same."""
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
        if self._length and hashlib.blake2b(_encode(whole[: self._length])).digest() != self._folded.digest():
            return f"differs from the {counted(length, 'character')} of the deltas, among the first {self._length}"
        rest_of_whole = whole[self._length :]
        if rest_of_whole == rest:
            return None
        same = next((at for at, (one, other) in enumerate(zip(rest_of_whole, rest, strict=False)) if one != other), None)
        if same is None:
            return f"has {counted(len(whole), 'character')} where the deltas have {length}"
        return f"differs from the deltas at character {self._length + same}"


@define(eq=False)
class LogprobsDigest:
    """The log probabilities of a text that arrives in deltas."""

    count: int = field(default=0, init=False)
    _hash: hashlib.blake2b = field(factory=hashlib.blake2b, init=False, repr=False)
    _tokens: TextDigest = field(factory=TextDigest, init=False)
    """The tokens as strings; a string cannot hold a part of a character."""
    _decoded_tokens: TextDigest = field(factory=TextDigest, init=False)
    """The tokens as decoded bytes."""
    _decoder: codecs.IncrementalDecoder = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, entries: Sequence[object]) -> None:
        """Add the well-formed entries of a delta."""
        for entry in map(members, entries):
            token = as_text(entry.get("token"))
            self.count += 1
            self._hash.update(_entry_digest(entry))
            self._tokens.add(token)
            token_bytes = bytes(filter(_is_byte, elements(entry.get("bytes"))))
            self._decoded_tokens.add(self._decoder.decode(token_bytes or _encode(token)))

    def equal(self, entries: Sequence[object]) -> bool:
        """Return whether other entries have the same tokens with the same log probabilities."""
        other = hashlib.blake2b()
        for entry in map(members, entries):
            other.update(_entry_digest(entry))
        return other.digest() == self._hash.digest()

    def rebuild(self, text: str) -> bool:
        """Return whether the tokens make up the text. Call this once, after the last delta."""
        self._decoded_tokens.add(self._decoder.decode(b"", final=True))
        return not self.count or not self._tokens.compare(text) or not self._decoded_tokens.compare(text)


def _entry_digest(entry: object) -> bytes:
    fields = members(entry)
    return digest([fields.get("token"), fields.get("logprob")])


def are_malformed(entries: object) -> bool:
    """Return whether a value is not a list of log probabilities; nulls and unknown fields are accepted."""
    kinds = (mismatch.kind for mismatch in mismatches(entries, list[Logprob], direction="stream"))
    return not all(kind in {"unknown", "null"} for kind in kinds) or not all(
        _is_byte(one) for entry in elements(entries) for one in elements(members(entry).get("bytes"))
    )


def _is_byte(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and value in range(256)
