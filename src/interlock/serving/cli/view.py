"""The command `interlock view`, which shows a stream on a page: served on this machine, or written to a file."""

from __future__ import annotations

import time
import webbrowser
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click
from attrs import frozen

from interlock.events.dialects import DIALECTS, DialectName
from interlock.serving.cli.options import (
    FILE,
    OpenStream,
    SourceError,
    UrlOptions,
    UrlRequest,
    bind,
    dialect_option,
    display_name,
    examples,
    fail,
    is_url,
    line_name,
    open_source,
    recording_in,
    url_options,
)

if TYPE_CHECKING:
    from interlock.serving.engines.recordings import Recording
    from interlock.serving.view.web import Batches


@click.command(
    epilog=examples(
        "interlock view examples/recordings/web-search.jsonl",
        "interlock view stream.sse --html out.html",
        "interlock view http://127.0.0.1:8000/v1/responses --body request.json",
    )
)
@click.argument("source", metavar="FILE|-|URL")
@click.option("--html", type=FILE, metavar="FILE", help="Write the page to this file, instead of serving it.")
@url_options
@dialect_option("The dialect of the stream.")
@click.option("--open/--no-open", "browser", default=True, help="Open the page in the browser.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="The port of the page; 0 for any free one."
)
def view(
    source: str,
    *,
    html: Path | None,
    dialect: DialectName,
    browser: bool,
    port: int,
    **url: Unpack[UrlOptions],
) -> None:
    """Step through a stream on a page in the browser.

    Give a stream or a recording: a file, - for standard input, or a URL. The page shows the items over time, the events, the
    state machines and the errors.
    """
    request = UrlRequest.from_options(url)
    with ExitStack() as stack:
        stream = _open(stack, source, request)
        _show(stream.title, stream.batches(dialect), html, port, browser=browser)


@frozen
class StreamSource:
    """A stream: its first chunk, empty if not read yet, and the source of the rest; or a complete `recording`."""

    name: str
    source: OpenStream
    beginning: bytes = b""
    recording: Recording | None = None

    @classmethod
    def read(cls, name: str, source: OpenStream) -> StreamSource:
        """Read the beginning of a file or pipe, and the rest if it is a recording; a URL stays unread."""
        if is_url(name):
            return cls(name, source)
        beginning = next(source.chunks, b"")
        return cls(name, source, beginning, recording_in(beginning, source))

    @property
    def title(self) -> str:
        """The name of the stream on the page."""
        return display_name(self.name) if self.name == "-" or is_url(self.name) else Path(self.name).name

    def describe(self) -> Mapping[str, object]:
        """Return the name, and the request of a URL."""
        if not is_url(self.name):
            return {"name": self.title}
        body = self.source.request
        request = {"method": "GET" if body is None else "POST", "url": self.name, "body": body and body.decode()}
        return {"name": self.title, "request": request}

    def batches(self, dialect: DialectName) -> Batches:
        """Yield batches of the page's lines as the stream arrives."""
        from interlock.serving.view.page import head
        from interlock.serving.view.recordings import recording_lines
        from interlock.serving.view.trace import Trace

        yield [head("stream", self.describe())]
        if self.recording is not None:
            yield from recording_lines(self.recording, Trace(dialect), DIALECTS[dialect])
            return
        trace = Trace(dialect, self.source.body)
        start = time.monotonic() if self.name == "-" or is_url(self.name) else None
        yield [*trace.feed(self.beginning, None if start is None else 0)]
        for chunk in self.source.chunks:
            yield [*trace.feed(chunk, None if start is None else (time.monotonic() - start) * 1000)]
        yield [*trace.end()]


def _open(stack: ExitStack, name: str, request: UrlRequest) -> StreamSource:
    """Open a source until the stack closes it, or end the command with a message."""
    from interlock.serving.engines.recordings import RecordingError

    try:
        return StreamSource.read(name, stack.enter_context(open_source(name, request)))
    except SourceError as error:
        fail(str(error))
    except RecordingError as error:
        fail(f"{line_name(name, error.line)}: {error.message}")


def _show(title: str, batches: Batches, html: Path | None, port: int, *, browser: bool) -> None:
    """Write a page to a file, or serve it until Ctrl-C."""
    if html is not None:
        from interlock.serving.view.page import standalone

        document = standalone(title, (line for batch in batches for line in batch)).encode()
        try:
            html.write_bytes(document)
        except OSError as error:
            fail(f"{html}: {error.strerror}")
        click.echo(f"{html}: {len(document) // 1000} kB written", err=True)
        return
    from interlock.serving.http import server
    from interlock.serving.view.web import site

    path, app = site(title, batches)
    listening = bind(server.listen, "127.0.0.1", port)
    address = f"{server.url_of(listening)}{path}"

    def ready() -> None:
        click.echo(f"{title}: {address} (press Ctrl-C to stop)", err=True)
        if browser:
            webbrowser.open(address)

    server.serve(app, listening, on_ready=ready)
