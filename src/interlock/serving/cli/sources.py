"""The input of commands (files, folders, standard input and URLs), and the errors that end a command."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from http import HTTPStatus
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypedDict, cast

import click
from attrs import frozen

from interlock.events.json import clean, is_object, loads
from interlock.serving.cli.exchange import ExchangeError, exchange

if TYPE_CHECKING:
    from interlock.serving.engines.recordings import Recording
    from interlock.serving.engines.script import ScriptRule

UNUSABLE: Final = 2
"""The exit status for unusable input, the same as for an invalid option."""
STREAM_SUFFIXES: Final = frozenset({".sse", ".jsonl", ".ndjson", ".txt", ".log"})
DEFAULT_TIMEOUT: Final = 300.0

_CHUNK_BYTES: Final = 2**16
_QUOTED_BYTES: Final = 200
_GZIP: Final = b"\x1f\x8b"
"""The first bytes of a file that is compressed with gzip."""
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
"""What tells zlib to read gzip."""


class UrlOptions(TypedDict):
    """The values of the options that describe the request for a URL."""

    body: Path | None
    header: tuple[str, ...]
    api_key: str | None
    timeout: float


class SourceError(Exception):
    """A stream cannot be read; the message is the reason."""


@frozen
class OpenStream:
    """An open stream; for a URL, also the `Content-Type` of the response, and the body of a POST request."""

    chunks: Iterator[bytes]
    content_type: str | None = None
    request: bytes | None = None


@frozen
class UrlRequest:
    """The request for a URL: POST with the JSON of the file `body`, or GET without one."""

    body: Path | None = None
    headers: Mapping[str, str] = {}
    timeout: float = DEFAULT_TIMEOUT

    @classmethod
    def from_options(cls, options: UrlOptions) -> UrlRequest:
        """Return the request that the options of `check` and `view` describe.

        Raises:
            click.BadParameter: A header has no colon.
        """
        fields = {"Authorization": f"Bearer {options['api_key']}"} if options["api_key"] else {}
        for header in options["header"]:
            name, colon, value = header.partition(":")
            if not colon:
                raise click.BadParameter(f"{header!r} has no colon; write NAME:VALUE", param_hint="--header")
            fields[name.strip()] = value.strip()
        return cls(options["body"], fields, options["timeout"])

    def content(self) -> bytes | None:
        """Return the body to POST, with `stream` set to true, or None for GET.

        Raises:
            SourceError: The file cannot be read, or is not a JSON object.
        """
        if self.body is None:
            return None
        try:
            request: object = loads(self.body.read_bytes())
        except OSError as error:
            raise SourceError(f"{self.body}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{self.body}: not JSON: {error}") from error
        if not is_object(request):
            raise SourceError(f"{self.body}: not a JSON object")
        return json.dumps({**request, "stream": True}).encode()


def fail(message: str) -> NoReturn:
    """Print a message to standard error and end the command."""
    click.echo(clean(f"interlock: {message}"), err=True)
    sys.exit(UNUSABLE)


def bind(binder: Callable[[str, int], socket.socket], host: str, port: int) -> socket.socket:
    """Bind a port with `listen` of `interlock.serving.http.server` or another function, or end the command with a message."""
    try:
        return binder(host, port)
    except OSError as error:
        reason = f"{error.strerror}".partition(" (while attempting")[0]
        advice = "; choose another port with --port" if error.errno == errno.EADDRINUSE else ""
        fail(f"{host}:{port}: {reason}{advice}")


def is_url(source: str) -> bool:
    """Return whether a source is a URL."""
    return source.startswith(("http://", "https://"))


def recording_in(beginning: bytes, source: OpenStream) -> Recording | None:
    """Return the recording that begins like this, reading the rest of its source; None if it is a stream.

    Raises:
        RecordingError: The recording is malformed.
    """
    from interlock.serving.engines.recordings import read

    return read((beginning + b"".join(source.chunks)).splitlines()) if b'"interlock_recording"' in beginning[:512] else None


def display_name(source: str) -> str:
    """Return the name of a source in messages."""
    return "standard input" if source == "-" else source


def line_name(source: str, line: int) -> str:
    """Return the name of a line in messages."""
    return f"standard input, line {line}" if source == "-" else f"{source}:{line}"


def read_recording(file: Path) -> Recording:
    """Read a recording, or end the command with a message that names the file, and the line of a fault; `-` is standard input."""
    from interlock.serving.engines.recordings import RecordingError, read

    try:
        with open_source(str(file)) as source:
            return read(b"".join(source.chunks).splitlines())
    except RecordingError as error:
        fail(f"{line_name(str(file), error.line)}: {error.message}")
    except SourceError as error:
        fail(str(error))


def read_rules(file: Path) -> Sequence[ScriptRule]:
    """Read a script or a recording, or end the command with a message that names the file; `-` is standard input."""
    from interlock.serving.engines import recordings, script

    try:
        return script.read_rules(file, sys.stdin.buffer.read() if str(file) == "-" else None)
    except recordings.RecordingError as error:
        fail(f"{line_name(str(file), error.line)}: {error.message}")
    except script.ScriptError as error:
        fail(f"{display_name(str(file))}: {error}")
    except OSError as error:
        fail(f"{file}: {error.strerror}")


def expand_folders(sources: Iterable[str]) -> Iterator[str]:
    """Yield the sources, replacing each folder by the sorted stream files below it, if it has any."""
    for source in sources:
        folder = Path(source)
        if source != "-" and not is_url(source) and os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises errors; opening reports them
            files = [path for path in sorted(folder.rglob("*")) if _suffix(path) in STREAM_SUFFIXES and path.is_file()]
            yield from map(str, files or [folder])
        else:
            yield source


def _suffix(path: Path) -> str:
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


@contextmanager
def open_source(name: str, request: UrlRequest | None = None) -> Generator[OpenStream]:
    """Open a path, `-` for standard input, or a URL; afterwards, close all but standard input. A file may be compressed.

    Raises:
        SourceError: The source cannot be opened or read, the server refuses the request, or reading takes too long.
    """
    if is_url(name):
        with _fetch(name, request or UrlRequest()) as source:
            yield source
        return
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            yield OpenStream(_file_chunks(cast("BufferedReader", file)))
    except OSError as error:
        raise SourceError(f"{display_name(name)}: {error.strerror or error}") from error


def _file_chunks(file: BufferedReader) -> Iterator[bytes]:
    """Yield the chunks of a file, which may be compressed with gzip."""
    chunk = file.read1(_CHUNK_BYTES)
    if not chunk.startswith(_GZIP):
        while chunk:
            yield chunk
            chunk = file.read1(_CHUNK_BYTES)
        return
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        while chunk:
            yield unpacker.decompress(chunk)
            chunk = unpacker.unused_data or file.read1(_CHUNK_BYTES)
            if unpacker.eof and chunk:  # another member follows, as in files that were joined
                unpacker = zlib.decompressobj(_GZIP_WINDOW)
    except zlib.error as error:
        raise OSError(f"damaged gzip: {error}") from error
    if not unpacker.eof:
        raise OSError("damaged gzip: it is truncated")


@contextmanager
def _fetch(url: str, request: UrlRequest) -> Generator[OpenStream]:
    body = request.content()
    fields = {"Accept": "text/event-stream", **({"Content-Type": "application/json"} if body else {}), **request.headers}
    try:
        with exchange("POST" if body else "GET", url, fields, body, request.timeout) as answer:
            if answer.status != HTTPStatus.OK:
                text = answer.read(_QUOTED_BYTES)[:_QUOTED_BYTES].decode(errors="replace").strip()
                if answer.status == HTTPStatus.METHOD_NOT_ALLOWED and body is None:
                    text = "the server does not accept GET here; add --body FILE to POST the request in a file"
                raise SourceError(f"{url}: {answer.status} {answer.reason}: {text}")
            yield OpenStream(answer.chunks, answer.content_type, body)
    except ExchangeError as error:
        raise SourceError(f"{url}: {error}") from error
