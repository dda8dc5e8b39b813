"""Commands of `interlock`, run in this process: a server in a thread until its block ends, or any other command to its end."""

import io
import logging
import os
import re
import sys
import threading
from contextlib import contextmanager
from unittest import mock

import click
from attrs import define, field

from interlock.serving.cli.commands import app
from interlock.serving.http import server

SECONDS = 120
"""How long a server may take to start, and to end."""

UVICORN = ("uvicorn", "uvicorn.access", "uvicorn.error", "uvicorn.asgi")


@define
class ServeCommand:
    """A running command: its URL without `/v1`, and, after its end, its standard error."""

    url: str
    lines: list[str] = field(factory=list)


class Output(io.StringIO):
    """The standard error of a command; `first` is set when it has a line that begins with `Serving`."""

    def __init__(self):
        super().__init__()
        self.first = threading.Event()

    def write(self, text):
        written = super().write(text)
        if "Serving " in self.getvalue():
            self.first.set()
        return written


@contextmanager
def bare_logs():
    """Remove the handlers and levels of the logs, as in a new process, and restore them."""
    root, own, others = logging.getLogger(), logging.getLogger("interlock"), (logging.getLogger(name) for name in UVICORN)
    kept = root.handlers[:], root.level, own.level
    root.handlers[:] = []
    for each in others:  # which uvicorn changes for the whole process
        each.handlers[:], each.level, each.propagate = [], logging.NOTSET, True
    try:
        yield
    finally:
        root.handlers[:], root.level, own.level = kept
        root.manager._clear_cache()  # as `setLevel` does


@contextmanager
def serve_command(*options, **variables):
    """Run `interlock serve` on a free port until the block ends, with these variables and no others of Interlock's."""
    servers, output, failed = [], Output(), []

    class Recorded(server.Server):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            servers.append(self)

    def run():
        try:
            app(["serve", "--port", "0", *map(str, options)], standalone_mode=False)
        except (click.ClickException, SystemExit) as error:
            failed.append(error)
        finally:
            output.first.set()

    environment = {**{name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}, **variables}
    thread = threading.Thread(target=run)
    with (
        bare_logs(),
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "stderr", output),
        mock.patch.object(server, "Server", Recorded),
    ):
        thread.start()
        try:
            assert output.first.wait(SECONDS)
            found = re.search(r"http://[\d.]+:\d+", output.getvalue())
            assert found, (output.getvalue(), failed)
            command = ServeCommand(found[0])
            yield command
        finally:
            for each in servers:
                each.stop()
            thread.join(SECONDS)
        command.lines = output.getvalue().splitlines()
