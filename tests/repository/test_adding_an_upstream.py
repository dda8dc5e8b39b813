"""docs/adding-an-upstream.md is complete and true: its changes, applied to a copy of the package, pass its tests."""

import re

import pytest
from page_changes import ROOT, changed_package, run_tests

from interlock.serving.engines.upstream.apis import UPSTREAM_APIS

PAGE = (ROOT / "docs" / "adding-an-upstream.md").read_text("utf-8")


@pytest.mark.long
def test_the_changes_of_the_page_add_the_api(tmp_path):
    changed_package(PAGE, tmp_path, "serving/engines/upstream")
    tests = tmp_path / "test_text_upstream.py"
    (test,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    tests.write_text(test, "utf-8")
    run_tests(tests, tmp_path)


def test_the_page_of_the_gateway_has_every_api():
    page = (ROOT / "docs" / "gateway.md").read_text("utf-8")
    table = page.partition("| `--upstream-api` | the upstream |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, flags=re.MULTILINE) == [*UPSTREAM_APIS]
