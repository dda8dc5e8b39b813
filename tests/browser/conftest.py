"""A real browser for each test: headless Chromium with Playwright, which `make test-viewer` installs."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from interlock.serving.cli.commands import app

ROOT = Path(__file__).parents[2]

if find_spec("playwright") is None or not (ROOT / "viewer" / "node_modules").exists():
    collect_ignore_glob = ["test_*.py"]  # `make test-viewer` installs both, and then runs all tests

FLAGS = [
    "--no-sandbox",  # containers have none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",
]


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - `make test-viewer` installs it

    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    assert path, "no Chromium on PATH (CHROMIUM=/path/to/chromium names one; on Debian: apt-get install chromium)"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser):
    """Open each address in a page of its own; errors and warnings on the console fail the test at its end."""
    contexts, complaints, requests = [], [], []

    def open_(address, *, dark=False, width=1280, height=800, touch=False, **options):
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            has_touch=touch,
            reduced_motion="reduce",
            **options,
        )
        contexts.append(context)
        context.set_default_timeout(20_000)  # the machine may be busy
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type in {"error", "warning"} else None)
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.locator("#app > *").first.wait_for()
        if address.startswith("file:"):  # a page draws while it reads its stream, so a busy machine shows parts of it
            page.locator(".pill", has_text="streaming …").wait_for(state="detached")
        page.requests = requests
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def write_page(tmp_path):
    """Write the page of a stream with `interlock view --html`, and return its address."""

    def write(*arguments, stdin=None, name="out.html"):
        file = tmp_path / name
        result = CliRunner().invoke(app, ["view", *map(str, arguments), "--html", str(file)], input=stdin, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return file.as_uri()

    return write
