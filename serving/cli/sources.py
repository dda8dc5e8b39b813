"""Open the stream that a command reads: a file, standard input, or a server's answer.

It knows files and connections, and nothing of what the bytes say.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from io import BufferedReader
from pathlib import Path
from typing import Final, cast
from urllib.parse import SplitResult, urlsplit

from attrs import frozen

from interlock.events.json import loads
from interlock.serving.cli.inputs import PATIENCE

PIECE: Final = 2**16
"""How many bytes are read at once."""
_QUOTED: Final = 200
"""How much of a server's refusal is repeated, in characters."""


class SourceError(Exception):
    """Raised when a stream cannot be read; the message says why."""


@frozen
class Source:
    """A stream that is being read.

    Args:
        pieces: Its bytes, as they come.
        content_type: Its media type; None where there is no server to say so.
        request: The body that was posted for it; None if none was.
    """

    pieces: Iterator[bytes]
    content_type: str | None = None
    request: bytes | None = None


@contextmanager
def opened(name: str, *, body: Path | None = None, headers: Mapping[str, str], timeout: float = PATIENCE) -> Generator[Source]:
    """Open a stream.

    Args:
        name: A path, `-` for standard input, or a URL.
        body: The file that holds the request to send with POST; without it, the URL is fetched with GET.
        headers: What else the request says in its head.
        timeout: How many seconds it may take to read a URL, from the connection to the last byte.

    Yields:
        The stream, which is closed afterwards.

    Raises:
        SourceError: It cannot be opened or read, the server refuses, or it takes too long.
    """
    if name.startswith(("http://", "https://")):
        with _asked(name, _request(body), headers, timeout) as source:
            yield source
        return
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            buffered = cast("BufferedReader", file)
            yield Source(iter(lambda: buffered.read1(PIECE), b""))
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror}") from error


def _request(body: Path | None) -> bytes | None:
    """Read a request from a file, and have it ask for a stream."""
    if body is None:
        return None
    try:
        request: object = loads(body.read_bytes())
    except OSError as error:
        raise SourceError(f"{body}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{body}: not JSON: {error}") from error
    if not isinstance(request, dict):
        raise SourceError(f"{body}: not a JSON object")
    return json.dumps({**cast("dict[str, object]", request), "stream": True}).encode()


@contextmanager
def _asked(url: str, request: bytes | None, headers: Mapping[str, str], timeout: float) -> Generator[Source]:
    try:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.netloc, timeout=timeout)
    except (ValueError, http.client.InvalidURL) as error:
        raise SourceError(f"{url}: {error}") from error
    with _limited(connection, timeout) as late:
        try:
            response = _answer(connection, parts, request, headers)
            yield Source(_read(response, late), response.getheader("Content-Type", ""), request)
        except OSError as error:
            took_too_long = late.is_set() or isinstance(error, TimeoutError)
            raise SourceError(f"{url}: {f'not read within {timeout:g} seconds' if took_too_long else error}") from error


@contextmanager
def _limited(connection: http.client.HTTPConnection, timeout: float) -> Generator[threading.Event]:
    """Break a connection off after some time, however slowly the server goes on; yields what is set then.

    A limit of the socket would only bound each wait, and a server that sends a byte now and then is never silent.
    """
    late = threading.Event()
    sockets: list[socket.socket] = []
    connect = connection.connect

    def connected() -> None:
        connect()
        sockets.append(connection.sock)  # the connection forgets it where the answer ends with it

    def break_off() -> None:
        late.set()
        for each in filter(None, (connection.sock, *sockets)):
            with suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)  # below TLS, whose state is the reader's

    setattr(connection, "connect", connected)  # noqa: B010 - of this connection alone
    timer = threading.Timer(timeout, break_off)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        connection.close()


def _answer(
    connection: http.client.HTTPConnection, parts: SplitResult, request: bytes | None, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    """Ask, and return the answer.

    Raises:
        OSError: The server cannot be reached, does not answer, or does not speak HTTP.
        SourceError: It refuses.
    """
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    sent = {"Accept": "text/event-stream", **({"Content-Type": "application/json"} if request else {}), **headers}
    try:
        connection.request("POST" if request else "GET", target, request, sent)
        response = connection.getresponse()
        if response.status != http.client.OK:
            said = response.read(_QUOTED).decode(errors="replace").strip()
            raise SourceError(f"{parts.geturl()}: {response.status} {response.reason}: {said}")
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(str(error)) from error
    return response


def _read(response: http.client.HTTPResponse, late: threading.Event) -> Iterator[bytes]:
    """Read until the stream ends or breaks: what is missing then is for the judge to say.

    Raises:
        TimeoutError: It was broken off, because it took too long.
    """
    try:
        while piece := response.read1(PIECE):
            yield piece
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException):
        pass
    if late.is_set():
        raise TimeoutError
