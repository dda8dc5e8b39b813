"""Where a command's input comes from: a file, a folder, standard input, or a server's answer; and how a command fails without it.

This module knows files and connections, and nothing of what the bytes say.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, cast
from urllib.parse import SplitResult, urlsplit

import typer
from attrs import frozen

from interlock.events.json import clean, loads

if TYPE_CHECKING:
    from interlock.serving.engines.recordings import Recording

UNUSABLE: Final = 2
"""The exit status when the input cannot be used, as for a wrong option."""
SUFFIXES: Final = frozenset({".sse", ".jsonl", ".ndjson", ".txt", ".log"})
"""The endings of the files of a folder that are taken for streams."""
URL_SECONDS: Final = 300.0
"""Seconds that a URL may take to be read, unless an option says otherwise."""

_CHUNK: Final = 2**16
"""The most bytes that are read at once."""
_QUOTED: Final = 200
"""How much of a server's refusal is repeated, in bytes."""

BodyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="POST the request in this file to the URL; without it, GET the URL.")
]
Headers = Annotated[
    list[str] | None, typer.Option(metavar="NAME:VALUE", help="Add a header to the request; can be repeated.", show_default=False)
]
ApiKey = Annotated[str | None, typer.Option(metavar="KEY", help="The key to send to the server.")]
Timeout = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="The longest time to read a URL, from the connection to the end.")
]


class SourceError(Exception):
    """Raised when a stream cannot be read; the message says why."""


@frozen
class Source:
    """A stream that is being read.

    Args:
        chunks: Its bytes, as they arrive.
        content_type: The media type that the server declares; None if there is no server.
        request: The body that was posted; None for a GET, and without a server.
    """

    chunks: Iterator[bytes]
    content_type: str | None = None
    request: bytes | None = None


@frozen
class UrlRequest:
    """How URLs are requested.

    Args:
        body: The file with the request to POST; None for GET.
        headers: Further headers.
        timeout: Seconds that reading a URL may take, from the connection to the last byte.
    """

    body: Path | None = None
    headers: Mapping[str, str] = {}
    timeout: float = URL_SECONDS

    @classmethod
    def from_options(cls, body: Path | None, headers: Iterable[str], api_key: str | None, timeout: float) -> UrlRequest:
        """Read the options that `check` and `view` share.

        Raises:
            typer.BadParameter: A header has no colon.
        """
        fields = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        for header in headers:
            name, colon, value = header.partition(":")
            if not colon:
                raise typer.BadParameter(f"{header!r} has no colon", param_hint="--header")
            fields[name.strip()] = value.strip()
        return cls(body, fields, timeout)

    def content(self) -> bytes | None:
        """Return the body to send: that of the file, made to ask for a stream.

        Raises:
            SourceError: The file cannot be read, or holds no JSON object.
        """
        if self.body is None:
            return None
        try:
            request: object = loads(self.body.read_bytes())
        except OSError as error:
            raise SourceError(f"{self.body}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{self.body}: not JSON: {error}") from error
        if not isinstance(request, dict):
            raise SourceError(f"{self.body}: not a JSON object")
        return json.dumps({**cast("dict[str, object]", request), "stream": True}).encode()


def fail(message: str) -> NoReturn:
    """Print a message to standard error and end the command with status 2.

    Raises:
        typer.Exit: Always.
    """
    typer.echo(clean(f"interlock: {message}"), err=True)
    raise typer.Exit(UNUSABLE)


def read_recording(file: Path) -> Recording:
    """Read a recording, or end the command with a message that names the file and the line; `-` stands for standard input.

    Raises:
        typer.Exit: It cannot be read.
    """
    from interlock.serving.engines.recordings import RecordingError, read

    piped = str(file) == "-"
    try:
        return read(sys.stdin.buffer if piped else file)
    except RecordingError as error:
        fail(f"{'standard input' if piped else file}:{error.line}: {error.message}")
    except OSError as error:
        fail(f"{file}: {error.strerror}")


def is_url(source: str) -> bool:
    """Return whether a source is a URL."""
    return source.startswith(("http://", "https://"))


def title_of(source: str) -> str:
    """Return what a source is called in messages."""
    return "standard input" if source == "-" else source


def expanded(sources: Iterable[str]) -> Iterator[str]:
    """Yield every source; in place of a folder its streams, those of its folders included, sorted by name."""
    for source in sources:
        if source != "-" and not is_url(source) and _is_folder(folder := Path(source)):
            files = [path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES and path.is_file()]
            yield from map(str, files or [folder])
        else:
            yield source


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # its name is too long, or a folder above it may not be entered: opening it says why
        return False


@contextmanager
def opened(name: str, request: UrlRequest | None = None) -> Generator[Source]:
    """Open a stream: a path, `-` for standard input, or a URL. It is closed afterwards.

    Raises:
        SourceError: It cannot be opened or read, the server refuses, or it takes too long.
    """
    if is_url(name):
        with _fetched(name, request or UrlRequest()) as source:
            yield source
        return
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            buffered = cast("BufferedReader", file)
            yield Source(iter(lambda: buffered.read1(_CHUNK), b""))
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror}") from error


@contextmanager
def _fetched(url: str, request: UrlRequest) -> Generator[Source]:
    body = request.content()
    try:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.netloc, timeout=request.timeout)
    except (ValueError, http.client.InvalidURL) as error:
        raise SourceError(f"{url}: {error}") from error
    with _limited(connection, request.timeout) as late:
        try:
            response = _answer(connection, parts, body, request.headers)
            yield Source(_chunks(response, late), response.getheader("Content-Type", ""), body)
        except OSError as error:
            took_too_long = late.is_set() or isinstance(error, TimeoutError)
            raise SourceError(f"{url}: {f'not read within {request.timeout:g} seconds' if took_too_long else error}") from error


@contextmanager
def _limited(connection: http.client.HTTPConnection, timeout: float) -> Generator[threading.Event]:
    """Break a connection off after some seconds, however slowly the server goes on; yield the event that is set then.

    A timeout of the socket only bounds each wait, and a server that sends a byte now and then is never silent.
    """
    late = threading.Event()
    sockets: list[socket.socket] = []
    connect = connection.connect

    def connect_and_remember() -> None:
        connect()
        sockets.append(connection.sock)  # the connection forgets it where the answer ends with it

    def break_off() -> None:
        late.set()
        for each in filter(None, (connection.sock, *sockets)):
            with suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)  # below TLS, whose state is the reader's

    setattr(connection, "connect", connect_and_remember)  # noqa: B010 - of this connection alone
    timer = threading.Timer(timeout, break_off)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        connection.close()


def _answer(
    connection: http.client.HTTPConnection, parts: SplitResult, body: bytes | None, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    """Send the request, and return the response.

    Raises:
        OSError: The server cannot be reached, does not answer, or does not speak HTTP.
        SourceError: It refuses.
    """
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = {"Accept": "text/event-stream", **({"Content-Type": "application/json"} if body else {}), **headers}
    try:
        connection.request("POST" if body else "GET", target, body, fields)
        response = connection.getresponse()
        if response.status != http.client.OK:
            text = response.read(_QUOTED).decode(errors="replace").strip()
            if response.status == http.client.METHOD_NOT_ALLOWED and body is None:
                text = "it takes no GET; add --body FILE to POST the request in a file"
            raise SourceError(f"{parts.geturl()}: {response.status} {response.reason}: {text}")
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(str(error)) from error
    return response


def _chunks(response: http.client.HTTPResponse, late: threading.Event) -> Iterator[bytes]:
    """Read until the stream ends or breaks: reporting what is missing then is left to the judge.

    Raises:
        TimeoutError: It was broken off, because it took too long.
    """
    try:
        while chunk := response.read1(_CHUNK):
            yield chunk
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException):
        pass
    if late.is_set():
        raise TimeoutError
