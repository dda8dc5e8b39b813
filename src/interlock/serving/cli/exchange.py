"""Sends one HTTP request, and reads the answer within a time limit."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

from interlock.events.json import as_text, elements, members, parse

_CHUNK_BYTES: Final = 2**16


class ExchangeError(Exception):
    """There is no whole answer; the message is the reason."""


class SlowAnswerError(ExchangeError):
    """The answer does not end within the time limit."""


@frozen
class ServerAnswer:
    """The head of an answer, and the chunks of its body, which end early if the connection breaks."""

    status: int
    reason: str
    content_type: str
    chunks: Iterator[bytes]

    def read(self, most: int | None = None) -> bytes:
        """Return the body, or its first bytes, at least `most` of them if there are as many."""
        body = b""
        for chunk in self.chunks:
            body += chunk
            if most is not None and len(body) >= most:
                break
        return body


def printable(text: str, most: int = 200) -> str:
    """Return the beginning of a text on one line, with escapes for what a terminal would not show."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text[:most])


@contextmanager
def exchange(method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float) -> Generator[ServerAnswer]:
    """Send a request, and return its answer; `timeout` is in seconds, for all of it.

    Raises:
        SlowAnswerError: The answer does not end in time.
        ExchangeError: There is no answer.
    """
    try:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.netloc, timeout=timeout)
    except (ValueError, http.client.InvalidURL) as error:
        raise ExchangeError(str(error)) from error
    timed_out = threading.Event()
    sockets: list[socket.socket] = []

    def disconnect() -> None:
        """Disconnect from a slow server, because a socket's own timeout restarts with each byte."""
        timed_out.set()
        for each in filter(None, (connection.sock, *sockets)):
            with suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)  # below TLS, whose state the reading thread uses

    timer = threading.Timer(timeout, disconnect)
    timer.daemon = True
    timer.start()
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        with closing(connection):
            try:
                connection.connect()
                sockets.append(connection.sock)  # the connection drops it when the response takes over
                connection.request(method, target, body, dict(headers))
                response = connection.getresponse()
            except (http.client.HTTPException, ValueError) as error:
                raise OSError(str(error)) from error
            content_type = response.getheader("Content-Type", "")
            yield ServerAnswer(response.status, response.reason, content_type, _chunks(response, timed_out))
    except OSError as error:
        if timed_out.is_set() or isinstance(error, TimeoutError):
            raise SlowAnswerError(f"not read within {timeout:g} seconds") from error
        raise ExchangeError(printable(error.strerror or str(error))) from error
    finally:
        timer.cancel()


def list_models(url: str, headers: Mapping[str, str], timeout: float) -> Mapping[str, int | None]:
    """Return the context window of each model that a server lists, or None for an unknown one; see `exchange` for errors."""
    with exchange("GET", f"{url}/v1/models", headers, None, timeout) as answer:
        listed = map(members, elements(members(parse(answer.read())).get("data")))
    windows = {as_text(model.get("id")): model.get("max_model_len") for model in listed}
    return {name: window if isinstance(window, int) else None for name, window in windows.items()}


def _chunks(response: http.client.HTTPResponse, timed_out: threading.Event) -> Iterator[bytes]:
    """Yield the chunks until the stream ends or breaks; the checker reports an incomplete stream."""
    try:
        while chunk := response.read1(_CHUNK_BYTES):
            yield chunk
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException):
        pass
    if timed_out.is_set():
        raise TimeoutError
