"""Take the pictures of docs/guides/viewer.md again. It needs what `make test-viewer` installs.

python docs/generators/viewer_pictures.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import httpx
from playwright.sync_api import Browser, sync_playwright

from interlock.dialects.messages import MessagesTransducer
from interlock.dialects.transducer import EntryWriter
from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.engines.recordings import read, replay_steps
from interlock.serving.http.server import ServerThread
from interlock.serving.requests.api_keys import Keys
from interlock.serving.settings import Settings
from interlock.serving.view.web import RecentStreams, ViewerMiddleware

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "guides" / "viewer"
SEARCH = ROOT / "examples" / "recordings" / "web-search.jsonl"
ASK = {"model": "interlock-embedded", "input": "Tell me what an interlocking is, and why it is called so", "stream": True}

DESK = (1280, 800)
PHONE = (390, 844)


def written(folder: Path, name: str, *arguments: object) -> str:
    """Write a page, and return its address."""
    file = folder / name
    command = [sys.executable, "-m", "interlock", "view", *map(str, arguments), "--html", str(file)]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command
    return file.as_uri()


def take(
    browser: Browser, address: str, name: str, *acts: str, size: tuple[int, int] = DESK, dark: bool = False, ended: bool = True
) -> None:
    """Take a picture of a page, after some keys (`ArrowRight`) and clicks (`click SELECTOR`)."""
    width, height = size
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
    page.goto(address)
    page.locator("#app main").wait_for()
    if ended:
        page.locator(".pill:not(.live)").first.wait_for()
    for act in acts:
        if act.startswith("click "):
            page.locator(act.removeprefix("click ")).first.click()
        else:
            page.keyboard.press(act)
    page.wait_for_timeout(400)
    page.screenshot(path=PICTURES / f"{name}.png")
    page.close()
    print(f"docs/guides/viewer/{name}.png")


def in_messages(folder: Path) -> Path:
    """Write the stream of a recording in Messages, and return its file."""
    steps = replay_steps(read(SEARCH), EntryWriter())
    file = folder / "messages.sse"
    file.write_bytes(MessagesTransducer().encode(entry for _, entries in steps for entry in entries))
    return file


def live(browser: Browser) -> None:
    """Take a picture of a stream that goes on, in the server that makes it."""
    app = build(Settings(), EmbeddedEngine(rate=4))
    app.add_middleware(ViewerMiddleware, recent=RecentStreams(Keys()))
    with ServerThread(app) as url:
        asking = threading.Thread(target=lambda: httpx.post(f"{url}/v1/responses", json=ASK, timeout=120))
        asking.start()
        threading.Event().wait(6)
        take(browser, f"{url}/interlock/0/", "live", "click .lane:nth-child(3)", "End", "click #tab-text", ended=False)
        asking.join()


def main() -> None:
    """Take all pictures, and write the sample page."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    sample = written(PICTURES, "out.html", SEARCH)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        broken = written(folder, "broken.html", ROOT / "examples" / "streams" / "R8-text-not-done.sse")
        take(browser, written(folder, "messages.html", in_messages(folder)), "messages", *["ArrowRight"] * 18, "click #tab-item")
        take(browser, sample, "stream", *["ArrowRight"] * 11, "click #tab-item")
        take(browser, sample, "framing", *["ArrowRight"] * 29, "click .views button", "click #tab-origin", dark=True)
        take(browser, broken, "finding", "n", dark=True)
        take(browser, broken, "phone", size=PHONE)
        live(browser)
        browser.close()


if __name__ == "__main__":
    main()
