"""The bundle of the pages, and the other pages in a browser: live streams, the last streams of a server, hostile streams."""

import base64
import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.requests.api_keys import Keys
from interlock.serving.settings import Settings
from interlock.serving.view.web import RecentStreams, ViewerMiddleware

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["viewer.js", "viewer.css"])
def test_a_fresh_build_equals_the_committed_bundle(tmp_path, name) -> None:
    subprocess.run(["node", "build.mjs", tmp_path], cwd=ROOT / "viewer", check=True)  # noqa: S603, S607 - make puts it on PATH
    bundle = ROOT / "src" / "interlock" / "serving" / "view" / "page" / name
    assert (tmp_path / name).read_bytes() == bundle.read_bytes(), "run `make viewer`"


CORPUS = ROOT / "tests" / "corpus"
AXE = (ROOT / "viewer" / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
ASK = {"model": "interlock-embedded", "input": "Tell me what an interlocking is, and why it is called so", "stream": True}

expect.set_options(timeout=20_000)


def violations(page):
    page.evaluate(AXE)
    report = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in report["violations"]]


@pytest.fixture
def view():
    """Run `interlock view` with some arguments, and return the address that it prints."""
    processes = []

    def view(*arguments):
        command = [sys.executable, "-m", "interlock", "view", "--no-open", *map(str, arguments)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603 - our own command
        processes.append(process)
        line = process.stderr.readline()
        return re.findall(r"http://127\.0\.0\.1:\d+/[^ ]+/(?= )", line)[-1]

    yield view
    for process in processes:
        process.terminate()
        process.wait(30)
        process.stderr.close()


@pytest.fixture
def server():
    """Serve a stream in two halves, and record the requests."""
    requests, release = [], threading.Event()
    data = (CORPUS / "legal" / "message.sse").read_bytes()
    half = data.index(b"event: response.output_text.done")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(data[:half])
            self.wfile.flush()
            release.wait(60)
            self.wfile.write(data[half:])

        def log_message(self, *_):
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{serving.server_port}/v1/responses", requests, release
    release.set()
    serving.shutdown()
    thread.join()
    serving.server_close()


def test_the_stream_of_a_url_is_requested_once_and_shown_live(open_page, view, server, tmp_path) -> None:
    url, requests, release = server
    body = tmp_path / "request.json"
    body.write_text(json.dumps({"model": "m", "input": "it's"}))
    address = view(url, "--body", body)
    page = open_page(address, permissions=["clipboard-read", "clipboard-write"])
    expect(page.locator(".pill")).to_have_text("streaming …")
    expect(page.locator(".where")).to_contain_text("of 7")
    second = open_page(address)
    expect(second.locator(".where")).to_contain_text("of 7")
    release.set()
    for one in (page, second):
        expect(one.locator(".pill")).to_have_text("legal")
        expect(one.locator(".where")).to_contain_text("of 11")
    page.reload()
    expect(page.locator(".where")).to_contain_text("of 11")
    assert [json.loads(one) for one in requests] == [{"model": "m", "input": "it's", "stream": True}]
    page.keyboard.press("u")
    expect(page.locator(".notice")).to_have_text("Copied the request.")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(f"curl -sN -X POST '{url}' -H \"Authorization: Bearer $OPENAI_API_KEY\"")
    assert "it'\\''s" in copied


def test_a_server_lists_its_streams_and_shows_one_live(open_page) -> None:
    app = build(Settings(api_key=["secret"]), EmbeddedEngine(rate=8))
    app.add_middleware(ViewerMiddleware, recent=RecentStreams(Keys.of(["secret"])))
    with ServerThread(app) as url:
        key = {"Authorization": f"Bearer {base64.b64encode(b'x').decode()}"}
        assert httpx.get(f"{url}/interlock/", headers=key).status_code == 401
        page = open_page(f"{url}/interlock/", http_credentials={"username": "operator", "password": "secret"})
        expect(page.locator(".empty")).to_contain_text("No stream yet")
        asking = threading.Thread(
            target=lambda: httpx.post(f"{url}/v1/responses", json=ASK, headers={"Authorization": "Bearer secret"}, timeout=120)
        )
        asking.start()
        expect(page.locator("td .pill")).to_have_text("streaming …")
        assert violations(page) == []
        page.locator("td a").click()
        expect(page.locator(".pill")).to_have_text("streaming …")
        first = page.locator(".where").inner_text()
        expect(page.locator(".where")).not_to_have_text(first)
        asking.join()
        expect(page.locator(".pill")).to_have_text("legal")
        page.get_by_label("Speed").select_option(label="4 \N{MULTIPLICATION SIGN} recorded speed")
        page.get_by_role("button", name="Play").click()
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        expect(page.get_by_role("button", name="Play")).to_be_visible(timeout=60_000)


def sse(*bodies):
    return b"".join(f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode() for body in bodies)


SCRIPT = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


def test_scripts_in_a_stream_are_shown_and_never_run(open_page, write_page) -> None:
    evil = sse(
        {"type": SCRIPT, "sequence_number": 0, SCRIPT: SCRIPT},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": SCRIPT, "id": SCRIPT, "name": SCRIPT}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": SCRIPT, "delta": SCRIPT},
        {"type": "x", "__proto__": {"polluted": 1}, "output_index": -5, "content_index": 1e9, "constructor": "x"},
    )
    page = open_page(write_page("-", stdin=evil + b"event: \xff\xfe\ndata: \xc3\x28 broken\n\n", name="evil.html"))
    for tab in ("Event", "now", "Text", "Findings"):
        page.get_by_role("tab", name=tab).first.click()
        page.keyboard.press("Home")
        for _ in range(6):
            page.keyboard.press("ArrowRight")
            assert page.evaluate("[window.hacked, ({}).polluted]") == [None, None]
    assert SCRIPT in page.locator(".events").inner_text()
    page.get_by_role("tab", name="Event").click()
    page.keyboard.press("End")
    assert "\N{REPLACEMENT CHARACTER}( broken" in page.locator("#panel").inner_text()


def test_a_delta_of_five_megabytes_is_truncated_on_the_page(open_page, write_page) -> None:
    data = (CORPUS / "legal" / "message.sse").read_bytes().replace(b'"delta": "Hello"', b'"delta": "' + b"x" * 5_000_000 + b'"')
    page = open_page(write_page("-", stdin=data, name="long.html"))
    page.get_by_role("tab", name="Event").click()
    page.keyboard.press("Home")  # it opens at the first finding
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    assert page.locator(".where").inner_text().startswith("event 8")
    for tab in ("Item now", "Text"):
        page.get_by_role("tab", name=tab).click()
        page.keyboard.press("ArrowLeft")
        assert len(page.locator("#panel").inner_text()) < 100_000
    assert page.locator(".more").count() > 0


def deltas(number):
    head, tail = (CORPUS / "legal" / "message.sse").read_bytes().split(b"event: response.output_text.delta", 1)
    ending = b"event: response.output_text.done" + tail.split(b"event: response.output_text.done", 1)[1]
    body = (
        b'event: response.output_text.delta\ndata: {"type": "response.output_text.delta", "item_id": "msg_0", "output_index": 0, '
        b'"content_index": 0, "delta": "%s ", "logprobs": [], "sequence_number": %d}\n\n'
    )
    return head + b"".join(body % (b"w%d" % (at % 997), at + 4) for at in range(number)) + ending


def test_fifty_thousand_events_can_be_folded_stepped_through_and_searched(open_page, write_page) -> None:
    page = open_page(write_page("-", stdin=deltas(50_000), name="many.html"))
    expect(page.locator(".where")).to_contain_text("of 50,0")
    assert page.locator(".row").count() < 80
    page.keyboard.press("End")
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("/")
    page.keyboard.type("w996 ")
    expect(page.locator(".summary")).to_contain_text("rows")
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("e")
    expect(page.locator(".row.current .number")).to_have_text("4")
    assert page.locator(".row").count() < 80


def test_the_sample_page_in_the_docs_opens_from_the_disk(open_page) -> None:
    page = open_page((ROOT / "docs" / "guides" / "viewer" / "out.html").as_uri())
    expect(page.locator(".where")).to_contain_text("event 0 of 34")
    expect(page.locator(".pill")).to_have_text("legal")
