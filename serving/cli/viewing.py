"""What `interlock view` shows: sources read and followed, as lines for the page, and the server of the page.

It knows files, connections and browsers. What the lines say is made in `interlock.serving.view`.
"""

from __future__ import annotations

import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import typer
from attrs import frozen

from interlock.events.dialects import DIALECTS, DialectName
from interlock.serving.cli.expanding import expanded
from interlock.serving.cli.inputs import fail
from interlock.serving.cli.sources import Source, SourceError, opened
from interlock.serving.recordings.recording import Recording, RecordingError, read
from interlock.serving.view.comparing import Side, pairs
from interlock.serving.view.coverage import Coverage
from interlock.serving.view.page import head, standalone
from interlock.serving.view.recorded import recorded
from interlock.serving.view.trace import Line, Steps, Trace

_BEGINNING = 512
"""Bytes of a source in which a recording says what it is."""


@frozen
class Found:
    """A source, and what it turned out to be.

    Args:
        name: As it was given.
        source: Its bytes, but for those that were read already.
        beginning: Those.
        recording: The recording that it is, if it is one.
    """

    name: str
    source: Source
    beginning: bytes
    recording: Recording | None

    @classmethod
    def of(cls, name: str, source: Source) -> Found:
        """Read the beginning of a source, and all of it if it is a recording.

        Raises:
            RecordingError: It is a recording that cannot be read.
        """
        if _is_url(name):
            return cls(name, source, b"", None)
        beginning = next(source.pieces, b"")
        if b'"interlock_recording"' not in beginning[:_BEGINNING]:
            return cls(name, source, beginning, None)
        return cls(name, source, b"", read((beginning + b"".join(source.pieces)).splitlines()))

    @property
    def title(self) -> str:
        """What it is called."""
        return "standard input" if self.name == "-" else self.name if _is_url(self.name) else Path(self.name).name

    def about(self, *, redact: bool) -> dict[str, object]:
        """Return the data that the page needs before the first event.

        Args:
            redact: Whether texts are hidden; the request is one.
        """
        if redact or not _is_url(self.name):
            return {"name": self.title}
        request = self.source.request
        said = {"method": "GET" if request is None else "POST", "url": self.name, "body": request and request.decode()}
        return {"name": self.title, "request": said}

    def lines(self, trace: Trace, dialect: DialectName) -> Iterator[Sequence[Line]]:
        """Yield its lines as they come."""
        if self.recording is not None:
            yield from recorded(self.recording, trace, DIALECTS[dialect])
            return
        timed = self.name == "-" or _is_url(self.name)
        yield [*trace.feed(self.beginning, 0 if timed else None)]
        began = time.monotonic()
        for piece in self.source.pieces:
            yield [*trace.feed(piece, (time.monotonic() - began) * 1000 if timed else None)]
        yield [*trace.end()]


def _is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def lines_of(found: Sequence[Found], dialect: DialectName, *, redact: bool) -> Iterator[Sequence[Line]]:
    """Yield the lines of a page, as they come.

    Args:
        found: One stream, or two to be shown beside one another.
        dialect: In which dialect they claim to be.
        redact: Whether texts are hidden.
    """
    steps = Steps()
    yield [head("stream" if len(found) == 1 else "compare", [one.about(redact=redact) for one in found], redact=redact)]
    sides = [Side() for _ in found]
    for number, (one, side) in enumerate(zip(found, sides, strict=True)):
        for batch in one.lines(Trace(number, steps, dialect, redact), dialect):
            if len(found) > 1:
                for line in batch:
                    side.see(line)
            yield batch
    if len(found) > 1:
        yield [pairs(*sides)]


def covered(folder: Path, dialect: DialectName, *, linked: bool) -> tuple[list[str], Iterator[Sequence[Line]]]:
    """Return the streams of a folder, and the lines of a page that says which edges they fire.

    Args:
        folder: Where they are; folders in it are searched too.
        dialect: In which dialect they claim to be.
        linked: Whether the page of each stream can be opened.
    """
    names = [name for name in expanded([str(folder)]) if Path(name).is_file()]
    if not names:
        fail(f"{folder}: no streams and no recordings in this folder")

    def lines() -> Iterator[Sequence[Line]]:
        yield [head("coverage", [])]
        steps, coverage = Steps(), Coverage()
        for name in names:
            with suppress(SourceError, RecordingError), opened(name, headers={}) as source:
                found = Found.of(name, source)
                called = str(Path(name).relative_to(folder))
                coverage.add(called, found.lines(Trace(0, steps, dialect), dialect))
        yield [coverage.line(linked=linked)]

    return names, lines()


def page_of(name: str, dialect: DialectName, *, redact: bool) -> Iterator[Sequence[Line]]:
    """Yield the lines of the page of one stream.

    Args:
        name: The file.
        dialect: In which dialect it claims to be.
        redact: Whether texts are hidden.
    """
    with opened(name, headers={}) as source:
        yield from lines_of([Found.of(name, source)], dialect, redact=redact)


def show(
    title: str,
    batches: Iterator[Sequence[Line]],
    port: int,
    *,
    browser: bool,
    others: Sequence[Callable[[], Iterator[Sequence[Line]]]] = (),
) -> None:
    """Serve a page to this machine until the command is interrupted.

    Args:
        title: What the page is called.
        batches: Its lines, which may block.
        port: Where to listen; 0 for any port that is free.
        browser: Whether to open the page in the browser.
        others: The lines of the pages that it links to, by number.
    """
    from interlock.serving.http import server
    from interlock.serving.runs.open_runs import OpenRuns
    from interlock.serving.view.feed import Feed
    from interlock.serving.view.site import Site

    feed = Feed()
    feed.begin(batches)

    def other(number: int) -> tuple[str, Feed] | None:
        if number >= len(others):
            return None
        opened_now = Feed()
        opened_now.begin(others[number]())
        return title, opened_now

    site = Site(title, feed, other)
    app = site.app()
    app.state.open_runs, app.state.open_sockets = OpenRuns(), OpenRuns()
    try:
        listening = server.listen("127.0.0.1", port)
    except OSError as error:
        fail(f"127.0.0.1:{port}: {error.strerror}")
    address = f"{server.url_of(listening)}{site.path}"

    def ready() -> None:
        typer.echo(f"{site.title}: {address} (Ctrl-C ends)", err=True)
        if browser:
            webbrowser.open(address)

    server.serve(app, listening, on_ready=ready)


def write(file: Path, title: str, batches: Iterator[Sequence[Line]]) -> None:
    """Write a page in one piece.

    Args:
        file: Where to.
        title: What the page is called.
        batches: Its lines.
    """
    page = standalone(title, (line for batch in batches for line in batch)).encode()
    try:
        file.write_bytes(page)
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    typer.echo(f"{file}: {len(page) // 1000} kB", err=True)
