"""The pages docs/design/adding-*.md are complete: their changes, applied to a copy of the package, pass the tests of the page."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock.serving.engines.upstream.translator import UPSTREAM_APIS
from interlock.serving.settings import choices

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
    """Apply a block, whose old lines must be in the file exactly once."""
    old = [line[1:] for line in diff if not line.startswith("+")]
    new = [line[1:] for line in diff if not line.startswith("-")]
    lines = file.read_text("utf-8").splitlines() if old else []
    places = [place for place in range(len(lines)) if lines[place : place + len(old)] == old] if old else [0]
    assert len(places) == 1, f"{file.name} has these lines {len(places)} times, not once; correct the page: {old}"
    assert old or not file.exists()
    lines[places[0] : places[0] + len(old)] = new
    file.write_text("\n".join([*lines, ""]), "utf-8")


def run_tests(folder, *arguments):
    """Run tests with the package in a folder."""
    run = subprocess.run(  # noqa: S603 - our own
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-c",
            "pyproject.toml",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "--no-cov",
            *arguments,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


KIND = (ROOT / "docs" / "design" / "adding-a-kind.md").read_text("utf-8")


def test_a_kind_is_added_in_six_files(tmp_path):
    changed_package(KIND, tmp_path)
    assert len({path for path, _ in changes(KIND)}) == 6


@pytest.mark.long
def test_the_changes_of_the_page_add_the_kind(tmp_path):
    changed_package(KIND, tmp_path)
    run_tests(tmp_path, "tests/support/memory_call.py")


def test_the_page_of_kinds_names_only_constants_of_the_linked_files():
    for step in re.split(r"^\d\. ", KIND.partition("## The rest")[2], flags=re.MULTILINE):
        files = [(ROOT / "docs" / "design" / target).read_text("utf-8") for target in re.findall(r"\]\(([^)]+\.py)\)", step)]
        missing = [name for name in re.findall(r"`(_?[A-Z][A-Z_]+)`", step) if not any(name in text for text in files)]
        assert missing == []


# A rule


RULE = (ROOT / "docs" / "design" / "adding-a-rule.md").read_text("utf-8")


def test_the_changes_of_the_page_add_the_rule(tmp_path):
    changed_package(RULE, tmp_path)
    tests = tmp_path / "test_time.py"
    (test,) = re.findall(r"^```python\n(.*?)^```$", RULE, flags=re.MULTILINE | re.DOTALL)
    tests.write_text(test, "utf-8")
    run_tests(tmp_path, tests)


@pytest.mark.long
def test_both_judges_of_the_rule_agree_on_other_streams(tmp_path):
    changed_package(RULE, tmp_path)
    run_tests(tmp_path, "-m", "not long", "tests/verify/test_agreement.py", "tests/verify/test_oracle.py")


# An API in front, with the tests of its page


API = (ROOT / "docs" / "design" / "adding-an-api.md").read_text("utf-8")


def test_an_api_is_added_in_six_files(tmp_path):
    changed_package(API, tmp_path)
    assert len({path for path, _ in changes(API)}) == 6


@pytest.mark.long
def test_the_changes_of_the_page_add_the_api(tmp_path):
    changed_package(API, tmp_path)
    tests = tmp_path / "test_completions.py"
    (test,) = re.findall(r"^```python\n(.*?)^```$", API, flags=re.MULTILINE | re.DOTALL)
    tests.write_text(test, "utf-8")
    run_tests(tmp_path, tests)


def test_the_page_of_apis_names_only_constants_of_the_linked_files():
    for step in re.split(r"^\d\. ", API.partition("## The rest")[2], flags=re.MULTILINE):
        files = [(ROOT / "docs" / "design" / target).read_text("utf-8") for target in re.findall(r"\]\(([^)]+\.py)\)", step)]
        missing = [name for name in re.findall(r"`(_?[A-Z][A-Za-z_]+)`", step) if not any(name in text for text in files)]
        assert missing == []


# An API of upstreams


UPSTREAM = (ROOT / "docs" / "design" / "adding-an-upstream.md").read_text("utf-8")


def test_an_upstream_is_added_in_four_files(tmp_path):
    changed_package(UPSTREAM, tmp_path, "serving")
    assert len({path for path, _ in changes(UPSTREAM)}) == 4


@pytest.mark.long
def test_the_changes_of_the_page_add_the_upstream(tmp_path):
    changed_package(UPSTREAM, tmp_path, "serving")
    tests = tmp_path / "test_text_upstream.py"
    (test,) = re.findall(r"^```python\n(.*?)^```$", UPSTREAM, flags=re.MULTILINE | re.DOTALL)
    tests.write_text(test, "utf-8")
    run_tests(tmp_path, tests)


def test_the_page_of_the_gateway_has_every_api():
    page = (ROOT / "docs" / "guides" / "gateway.md").read_text("utf-8")
    table = page.partition("| `--upstream-api` | the upstream |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, flags=re.MULTILINE) == [*UPSTREAM_APIS] == [*choices("upstream_api")]
