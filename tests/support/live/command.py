"""The command `interlock serve` in a process of its own."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

from attrs import define, field


@define
class ServeCommand:
    """A running command: its URL without `/v1`, and after its end what it wrote to standard error."""

    url: str
    lines: list[str] = field(factory=list)


@contextmanager
def serve_command(*options, **variables):
    """Run `interlock serve` on a free port until the block ends."""
    arguments = [sys.executable, "-m", "interlock", "serve", "--port", "0", *map(str, options)]
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}, **variables}
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=environment) as process:  # noqa: S603 - our own
        first = [process.stderr.readline()]
        while "Serving " not in first[-1]:  # at the level `info`, uvicorn writes lines before
            first.append(process.stderr.readline())
            assert first[-1], first
        command = ServeCommand(re.search(r"http://[\d.]+:\d+", first[-1])[0])
        try:
            yield command
        finally:
            process.send_signal(signal.SIGINT)
            command.lines = "".join([*first, process.stderr.read()]).splitlines()
