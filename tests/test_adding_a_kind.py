"""docs/adding-a-kind.md is complete and true: its changes, applied to a copy of the package, make the kind that it adds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import interlock

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "adding-a-kind.md").read_text("utf-8")


def changes():
    """Yield each `diff` block of the page, with the file whose name is the heading above it."""
    path = ""
    for heading, diff in re.findall(r"^### ([^\n]+)$|^```diff\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL):
        path = heading.replace("\\", "") or path
        if diff:
            yield path, diff.splitlines()


def apply(file, diff):
    """Apply a block: the lines that it shows of a file, new or not, stand there exactly once."""
    old = [line[1:] for line in diff if not line.startswith("+")]
    new = [line[1:] for line in diff if not line.startswith("-")]
    lines = file.read_text("utf-8").splitlines() if old else []
    places = [place for place in range(len(lines)) if lines[place : place + len(old)] == old] if old else [0]
    assert len(places) == 1, f"{file} has this {len(places)} times: {old}"
    assert old or not file.exists()
    lines[places[0] : places[0] + len(old)] = new
    file.write_text("\n".join([*lines, ""]), "utf-8")


def test_a_kind_is_added_in_five_files():
    assert len({path for path, _ in changes()}) == 5


def test_the_changes_of_the_page_add_the_kind(tmp_path):
    package = tmp_path / "interlock"
    shutil.copytree(Path(interlock.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for path, diff in changes():
        apply(package / path, diff)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-cov", "tests/memory_call.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_names_in_the_rest_are_in_the_files_that_it_links():
    for step in re.split(r"^\d\. ", PAGE.partition("## The rest")[2], flags=re.MULTILINE):
        files = [(ROOT / "docs" / target).read_text("utf-8") for target in re.findall(r"\]\(([^)]+\.py)\)", step)]
        missing = [name for name in re.findall(r"`(_?[A-Z][A-Z_]+)`", step) if not any(name in text for text in files)]
        assert missing == []
