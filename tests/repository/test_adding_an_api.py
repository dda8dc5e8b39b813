"""docs/adding-an-api.md is complete and true: its changes, applied to a copy of the package, pass its tests."""

import re

import pytest
from page_changes import ROOT, changed_package, changes, run_tests

PAGE = (ROOT / "docs" / "adding-an-api.md").read_text("utf-8")


def test_an_api_is_added_in_six_files():
    assert len({path for path, _ in changes(PAGE)}) == 6


@pytest.mark.long
def test_the_changes_of_the_page_add_the_api(tmp_path):
    changed_package(PAGE, tmp_path)
    tests = tmp_path / "test_completions.py"
    (test,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    tests.write_text(test, "utf-8")
    run_tests(tests, tmp_path)


def test_the_names_in_the_rest_are_in_the_files_that_it_links():
    for step in re.split(r"^\d\. ", PAGE.partition("## The rest")[2], flags=re.MULTILINE):
        files = [(ROOT / "docs" / target).read_text("utf-8") for target in re.findall(r"\]\(([^)]+\.py)\)", step)]
        missing = [name for name in re.findall(r"`(_?[A-Z][A-Za-z_]+)`", step) if not any(name in text for text in files)]
        assert missing == []
