"""Applies the changes that a page shows to a copy of the package, and runs a test with the copy."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import interlock

ROOT = Path(__file__).parents[2]


def changes(page):
    """Yield each `diff` block of a page, with the file whose name is the heading above it."""
    path = ""
    for heading, diff in re.findall(r"^### ([^\n]+)$|^```diff\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL):
        path = heading.replace("\\", "") or path
        if diff:
            yield path, diff.splitlines()


def changed_package(page, folder, below=""):
    """Copy the package into a folder, and apply the changes of a page to the copy; its headings name files below a package."""
    package = folder / "interlock"
    shutil.copytree(Path(interlock.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for path, diff in changes(page):
        _apply(package / below / path, diff)


def _apply(file, diff):
    """Apply a block: the lines that it shows of a file, new or not, stand there exactly once."""
    old = [line[1:] for line in diff if not line.startswith("+")]
    new = [line[1:] for line in diff if not line.startswith("-")]
    lines = file.read_text("utf-8").splitlines() if old else []
    places = [place for place in range(len(lines)) if lines[place : place + len(old)] == old] if old else [0]
    assert len(places) == 1, f"{file} has this {len(places)} times: {old}"
    assert old or not file.exists()
    lines[places[0] : places[0] + len(old)] = new
    file.write_text("\n".join([*lines, ""]), "utf-8")


def run_tests(file, folder):
    """Run a file of tests where the package of a folder is imported."""
    run = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", "-n", "0", "-p", "no:cacheprovider", "--no-cov", file],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
