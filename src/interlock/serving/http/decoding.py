"""The content coding of a body: what a client compressed is decompressed in slices, and never beyond a bound.

It knows gzip, deflate and zstd, how large a slice is and how much memory a decompressor may take. It knows neither requests nor
what a body says.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from attrs import define, field, frozen

from interlock.serving.requests.api_errors import ApiError, invalid

__all__ = ["ACCEPTED", "Decoder", "decoder_for"]

SLICE: Final = 2**17
"""Bytes that are decompressed at once: a fraction of a millisecond, after which others have their turn."""

WINDOW_LOG: Final = 23
"""A zstd decompressor holds as many bytes as a frame says; RFC 9659 allows 8 MiB for a content coding."""

MOST_MEMBERS: Final = 100
"""Members of gzip or frames of zstd that a body may be made of: each costs time, even if it holds nothing."""

ACCEPTED: Final = "gzip, deflate, zstd"
GZIP: Final = 16 + zlib.MAX_WBITS
DEFLATE: Final = zlib.MAX_WBITS


class Decompressor(Protocol):
    """What decompresses one member or frame."""

    @property
    def eof(self) -> bool:
        """Whether its end was read."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes without further bytes."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What follows the end."""
        ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return up to so many bytes of what was compressed."""
        ...


class Inflation(Protocol):
    """What zlib gives to decompress with; its own name for that is private."""

    @property
    def eof(self) -> bool:
        """Whether its end was read."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What follows the end."""
        ...

    @property
    def unconsumed_tail(self) -> bytes:
        """What it was given and has not looked at, because it may not return more at once."""
        ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Return up to so many bytes of what was compressed."""
        ...


@define(eq=False)
class Inflater:
    """Decompresses gzip or deflate.

    Args:
        wbits: The format, in zlib's words.
    """

    wbits: int
    needs_input: bool = field(default=True, init=False)
    """Whether nothing more comes without further bytes."""
    _inner: Inflation = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Begin."""
        self._inner = zlib.decompressobj(self.wbits)

    @property
    def eof(self) -> bool:
        """Whether its end was read."""
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        """What follows the end."""
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return up to so many bytes of what was compressed."""
        said = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self.needs_input = len(said) < max_length  # zlib may hold output back even if it has consumed all input
        return said


@frozen
class Coding:
    """A content coding.

    Args:
        name: Its name.
        begin: Creates the decompressor of a member or frame.
        fault: What that raises where the data are wrong.
    """

    name: str
    begin: Callable[[], Decompressor]
    fault: type[Exception]


@define(eq=False)
class Decoder:
    """Decompresses one body.

    Args:
        coding: Its coding.
    """

    _coding: Coding
    _member: Decompressor | None = field(default=None, init=False)
    """What decompresses the member that was begun last."""
    _count: int = field(default=0, init=False)
    """Members that were begun."""

    def parts(self, piece: bytes) -> Iterator[bytes]:
        """Yield what a piece of the body says, in slices.

        Args:
            piece: Any number of bytes.

        Raises:
            ApiError: 400; they are not in the coding.
        """
        for start in range(0, len(piece), SLICE):
            data = piece[start : start + SLICE]
            while data:
                member = self._current()
                yield from self._decompressed(member, data)
                data = member.unused_data

    def end(self) -> None:
        """End the body.

        Raises:
            ApiError: 400; its last member has no end.
        """
        if self._member is None or not self._member.eof:
            raise self._broken("it is cut short")

    def _current(self) -> Decompressor:
        """Return what decompresses the member that goes on, or else the next one."""
        if self._member is None or self._member.eof:
            self._count += 1
            if self._count > MOST_MEMBERS:
                raise self._broken(f"it has more than {MOST_MEMBERS} members")
            self._member = self._coding.begin()
        return self._member

    def _decompressed(self, member: Decompressor, data: bytes) -> Iterator[bytes]:
        try:
            yield member.decompress(data, SLICE)
            while not (member.eof or member.needs_input):
                yield member.decompress(b"", SLICE)
        except self._coding.fault as error:
            raise self._broken(str(error)) from None

    def _broken(self, why: str) -> ApiError:
        return invalid(None, f"The body of the request could not be decompressed as {self._coding.name}: {why}.", "invalid_body")


def decoder_for(content_encoding: str) -> Decoder | None:
    """Return what decompresses a body.

    Args:
        content_encoding: The header `Content-Encoding`; empty if there is none.

    Returns:
        None for a body that is not compressed.

    Raises:
        ApiError: 415; the coding is not known, or there are several, one around the other.
    """
    name = content_encoding.strip().lower()
    if name in {"", "identity"}:
        return None
    coding = _coding(name)
    if coding is None:
        message = f"Unsupported content encoding: '{content_encoding[:100]}'. A body may have one of: {ACCEPTED}."
        raise ApiError(415, message, code="unsupported_content_encoding")
    return Decoder(coding)


def _coding(name: str) -> Coding | None:
    match name:
        case "gzip" | "x-gzip":
            return Coding("gzip", lambda: Inflater(GZIP), zlib.error)
        case "deflate":
            return Coding("deflate", lambda: Inflater(DEFLATE), zlib.error)
        case "zstd":
            return _zstd()
        case _:
            return None


def _zstd() -> Coding | None:
    """Return the coding of this name; vLLM's environment may lack the package for it, and then there is none."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd  # noqa: PLC0415
        else:
            from backports import zstd  # pyright: ignore[reportMissingTypeStubs] - of the namespace alone  # noqa: PLC0415
    except ImportError:
        return None
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: WINDOW_LOG}
    return Coding("zstd", lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError)
