"""The command `interlock view`: a stream on a page in the browser, or on a page in a file."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from interlock.events.dialects import DialectName
from interlock.serving.cli.check import BodyFile, Timeout, request_headers
from interlock.serving.cli.inputs import PATIENCE, fail


def view(  # noqa: PLR0913 - a command has an argument for each of its options
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|-|URL",
            help="A stream or a recording: a file, - for standard input, or a URL. Two are shown side by side.",
        ),
    ] = None,
    *,
    coverage: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Show how often the streams of this folder fire each edge.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the page to this file, in one piece.")] = None,
    body: BodyFile = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME:VALUE", help="A header of the request; may be given again.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(metavar="KEY", help="The key to send to the server.")] = None,
    timeout: Timeout = PATIENCE,
    dialect: Annotated[DialectName, typer.Option(help="The dialect of the streams.")] = "openai",
    redact: Annotated[bool, typer.Option("--redact", help="Hide what is said; kinds, names and lengths stay.")] = False,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="The port of the page, on this machine; 0 for any that is free.")
    ] = 0,
) -> None:
    """Walk through a stream on a page in the browser.

    The page shows its items in time, its events, its machines, and what is wrong.
    """
    from interlock.serving.cli.sources import SourceError, opened
    from interlock.serving.cli.viewing import Found, covered, lines_of, page_of, show, write
    from interlock.serving.recordings.recording import RecordingError

    names = sources or []
    if coverage is not None and not names:
        files, lines = covered(coverage, dialect, linked=html is None)
        title = f"coverage of {coverage.name or coverage.resolve().name}"
        if html is None:
            show(title, lines, port, browser=browser, others=[partial(page_of, file, dialect, redact=redact) for file in files])
        else:
            write(html, title, lines)
        return
    if not 0 < len(names) <= SIDES or coverage is not None:
        fail(f"{len(names)} streams: one is shown alone, two side by side, and with --coverage a folder")
    headers = request_headers(header or [], api_key)
    with ExitStack() as stack:
        found: list[Found] = []
        for name in names:
            try:
                found.append(Found.of(name, stack.enter_context(opened(name, body=body, headers=headers, timeout=timeout))))
            except SourceError as error:
                fail(f"{error}")
            except RecordingError as error:
                fail(f"{name}:{error.line}: {error.message}")
        title = " and ".join(one.title for one in found)
        lines = lines_of(found, dialect, redact=redact)
        if html is None:
            show(title, lines, port, browser=browser)
        else:
            write(html, title, lines)


SIDES = 2
"""How many streams can be shown side by side."""
