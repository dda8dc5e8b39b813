"""What commands share: their options, the input that they read (files, folders, standard input and URLs), and how they fail."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
import sys
import threading
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from http import HTTPStatus
from io import BufferedReader
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, TypedDict, cast
from urllib.parse import urlsplit

import click
from attrs import frozen
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from msgspec.inspect import FloatType, IntType

from interlock.events.dialects import DIALECTS
from interlock.events.json import as_text, clean, elements, is_object, loads, members, parse
from interlock.fsm.table import InterlockError
from interlock.serving.settings import DEFAULTS, Settings, choices, flag, kind_of, options, read_settings

if TYPE_CHECKING:
    from interlock.serving.engines.recordings import Recording
    from interlock.serving.engines.script import ScriptRule
    from interlock.serving.engines.upstream.upstream_client import Upstream


CommandFunction: TypeAlias = Callable[..., None]
Decorator: TypeAlias = Callable[[CommandFunction], CommandFunction]

FILE: Final = click.Path(path_type=Path)

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

UPSTREAM: Final = ("upstream", "upstream_api", "upstream_key", "upstream_timeout", "upstream_retries", "config")
"""The fields of `Settings` that describe the servers behind a gateway."""


class NumberType(click.FloatRange):
    """A number with a minimum, but not NaN, which click accepts because it compares as neither smaller nor greater."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fail if it is too small or not a number."""
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])  # `\b` keeps the line breaks


def dialect_option(text: str) -> Decorator:
    """Return the option for the dialect of a stream, with this help."""
    return click.option("--dialect", type=click.Choice([*DIALECTS]), default="openai", help=text)


class SettingOption(click.Option):
    """The option of a field of `Settings`. Its value stays a text, which `read_settings` converts as it does those of a file."""

    def __init__(self, names: Sequence[str]) -> None:
        """Create the option of the field that is named."""
        (name,) = names
        each, default, self.choices = options()[name], DEFAULTS[name], choices(name)
        super().__init__(
            [flag(name), name],
            is_flag=not (each.metavar or self.choices),
            default=default
            if each.repeats or not isinstance(default, tuple)
            else ",".join(map(str, cast("tuple[object, ...]", default))),
            multiple=each.repeats,
            metavar=each.metavar or (f"[{'|'.join(self.choices)}]" if self.choices else None),
            help=each.help,
        )
        self.type = self.type if self.is_flag else click.STRING  # click would take the type of the default

    def get_help_extra(self, ctx: click.Context) -> click.types.OptionHelpExtra:
        """Return what the help has in brackets: the default, and the limits of a number."""
        extra = super().get_help_extra(ctx)
        kind = kind_of(str(self.name))
        if isinstance(kind, (IntType, FloatType)) and kind.ge is not None:
            extra["range"] = f"x>={kind.ge:g}" if kind.le is None else f"{kind.ge:g}<=x<={kind.le:g}"
        return extra

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the choices that begin like this, or let the shell complete the name of a file."""
        del ctx
        if self.metavar == "FILE":
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(choice) for choice in self.choices if choice.startswith(incomplete)]


def options_of(*names: str) -> Decorator:
    """Return a decorator that adds the options of these fields of `Settings`, by default of all; `settings_of` reads them."""
    known = [name for name, each in options().items() if each.has_flag]
    return _all(*(click.option(name, cls=SettingOption) for name in names or known))


def settings_of() -> Settings:
    """Return the settings that the running command has options for, or end it with a message that names what is wrong."""
    context = click.get_current_context()
    names = [str(each.name) for each in context.command.params if isinstance(each, SettingOption)]
    given = {name: context.params[name] for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    with option_errors():
        return read_settings(given, names=names)


def gateway_upstreams(settings: Settings) -> list[Upstream]:
    """Return the servers behind a gateway, if there are any."""
    if settings.upstream is None and not settings.upstreams:
        return []
    from interlock.serving.engines.upstream.upstreams import upstreams_of

    with option_errors():
        return upstreams_of(settings)


def required_upstreams(settings: Settings) -> list[Upstream]:
    """Return the servers behind a gateway, or end the command with a message if there are none."""
    upstreams = gateway_upstreams(settings)
    if not upstreams:
        fail("name a server: --upstream URL, or --config FILE")
    return upstreams


def _all(*decorators: Decorator) -> Decorator:
    """Return a decorator that adds several options, in this order."""

    def add(command: CommandFunction) -> CommandFunction:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return add


url_options = _all(
    click.option("--body", type=FILE, metavar="FILE", help="POST the request in this JSON file to the URL, instead of GET."),
    click.option("--header", multiple=True, metavar="NAME:VALUE", help="Add a header to the request; can be repeated."),
    click.option("--api-key", metavar="KEY", help="The API key to send to the URL."),
    click.option(
        "--timeout",
        type=NumberType(min=0.1),
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="Stop reading a URL after this time, connecting included.",
    ),
)
"""The options that describe the request for a URL; `UrlRequest.from_options` takes their values."""


@contextmanager
def option_errors() -> Generator[None]:
    """End the command with a message if a setting or another input is invalid."""
    try:
        yield
    except (OSError, ValueError, InterlockError) as error:
        fail(str(error))


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

    @property
    def body(self) -> Mapping[str, object]:
        """The JSON object in the body of the request; empty without one."""
        return members(parse(self.request or b""))


@frozen
class UrlRequest:
    """The request for a URL: POST with the JSON of the file `body`, or GET without one."""

    body: Path | None = None
    headers: Mapping[str, str] = {}
    timeout: float = DEFAULT_TIMEOUT

    @classmethod
    def from_options(cls, values: UrlOptions) -> UrlRequest:
        """Return the request that the options of `check` and `view` describe; refuse a header without a colon."""
        fields = {"Authorization": f"Bearer {values['api_key']}"} if values["api_key"] else {}
        for header in values["header"]:
            name, colon, value = header.partition(":")
            if not colon:
                raise click.BadParameter(f"{header!r} has no colon; write NAME:VALUE", param_hint="--header")
            fields[name.strip()] = value.strip()
        return cls(values["body"], fields, values["timeout"])

    def content(self) -> bytes | None:
        """Return the body to POST, with `stream` set to true, or None for GET; raise a `SourceError` if it is no object."""
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
    """Return the recording that begins like this, or None for a stream; raise a `RecordingError` if it is malformed."""
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
                elif answer.status == HTTPStatus.NOT_FOUND and urlsplit(url).path in {"", "/"}:
                    text = f"{text}; add the path, such as {url.rstrip('/')}/v1/responses"
                raise SourceError(f"{url}: {answer.status} {answer.reason}: {text}")
            yield OpenStream(answer.chunks, answer.content_type, body)
    except ExchangeError as error:
        raise SourceError(f"{url}: {error}") from error


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
