"""Running a client in a process of its own."""

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE = 300


def run(command, cwd, **variables):
    """Return the client's process when it has ended."""
    return subprocess.run(  # noqa: S603 - commands of the tests
        command,
        cwd=cwd,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
