"""How fast the page of `interlock view` is in a browser: first view, step and search, on long streams.

python benchmarks/viewer.py: writes a table. It needs what `make test-viewer` installs.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]

DELTA = (
    b'event: response.output_text.delta\ndata: {"type": "response.output_text.delta", "item_id": "msg_0", "output_index": 0, '
    b'"content_index": 0, "delta": "w%d ", "logprobs": [], "sequence_number": %d}\n\n'
)

# The time from a key to the second frame after it, when the change has been painted.
STEP = """key => new Promise(done => {
    const began = performance.now();
    document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
})"""

SEARCH = """text => new Promise(done => {
    const field = document.getElementById('search'), began = performance.now();
    field.value = text;
    field.dispatchEvent(new Event('input', {bubbles: true}));
    const look = () => {
        const found = document.querySelector('.found');
        if (found && !found.textContent.startsWith('searching')) done(performance.now() - began);
        else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
})"""


def stream(number: int) -> bytes:
    """Return a legal stream of one message.

    Args:
        number: How many deltas it has.
    """
    head, tail = (ROOT / "examples" / "streams" / "message.sse").read_bytes().split(b"event: response.output_text.delta", 1)
    ending = b"event: response.output_text.done" + tail.split(b"event: response.output_text.done", 1)[1]
    return head + b"".join(DELTA % (at % 997, at + 4) for at in range(number)) + ending


@contextmanager
def shown(file: Path) -> Iterator[str]:
    """Run `interlock view`, and yield the address of its page."""
    command = [sys.executable, "-m", "interlock", "view", "--no-open", file]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own command
        line = process.stderr.readline() if process.stderr else ""
        try:
            yield line.rpartition(" (")[0].rpartition(" ")[2]
        finally:
            process.terminate()


def first_view(browser: Browser, address: str) -> tuple[Page, float, float]:
    """Open a page; return it with the seconds until its first rows are seen, and until all has been read."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.locator(".row").first.wait_for(timeout=120_000)
    seen = time.perf_counter() - began
    page.locator(".pill:not(.live)").first.wait_for(timeout=300_000)
    return page, seen, time.perf_counter() - began


def measure(browser: Browser, number: int) -> None:
    """Measure one length, and print its row."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "stream.sse")
        file.write_bytes(stream(number))
        began = time.perf_counter()
        with shown(file) as address:
            ready = time.perf_counter() - began
            page, seen, read = first_view(browser, address)
            steps = [float(page.evaluate(STEP, "ArrowRight")) for _ in range(60)]
            page.evaluate(STEP, "End")
            searches = [float(page.evaluate(SEARCH, text)) for text in ("w996 ", "w12 ", "nowhere")]
            page.close()
        size = file.stat().st_size / 1e6
        median, worst = statistics.median(steps), max(steps)
        print(
            f"| {number:,} | {size:.1f} MB | {ready:.2f} s | {seen:.2f} s | {read:.2f} s "
            f"| {median:.0f} ms, at most {worst:.0f} ms | {max(searches):.0f} ms |",
            flush=True,
        )


def main() -> None:
    """Measure and print a table."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    print("| events | stream | the command is ready | first view | all read | a step | a search |\n|---|---|---|---|---|---|---|")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for number in (1_000, 50_000, 200_000, 1_000_000):
            measure(browser, number)
        browser.close()


if __name__ == "__main__":
    main()
