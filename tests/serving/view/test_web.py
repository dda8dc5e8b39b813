"""The viewer over HTTP: the site of `interlock view`, and the middleware in a server."""

import base64
import gzip
import hashlib
import json
import re
import threading
import time
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from interlock.events.stream import EVENTS
from interlock.judges import DEVIATIONS, DIALECT_RULES, RULES
from interlock.judges.stream_items import AUTOMATA
from interlock.serving.build import build
from interlock.serving.cli import commands
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.requests.api_keys import Keys
from interlock.serving.settings import Settings
from interlock.serving.view import page, web
from interlock.serving.view.page import dialect_writes, writes
from interlock.serving.view.web import CapturedStream, RecentStreams, ViewerMiddleware, site

REQUEST = {"model": "interlock-embedded", "input": "Hello there", "stream": True}


def watched(api_key=(), *, rate=0, cors_origins=()):
    app = build(Settings(api_key=api_key, cors_origin=cors_origins), EmbeddedEngine(rate=rate))
    recent = RecentStreams(Keys.of([api_key] if isinstance(api_key, str) else api_key))
    app.add_middleware(ViewerMiddleware, recent=recent)
    return app, recent


def lines(answer):
    return [json.loads(line) for line in answer.text.splitlines()]


def test_an_application_shows_its_streams_if_its_settings_say_so() -> None:
    client = TestClient(
        build(Settings(view=True, api_key=["secret"]), EmbeddedEngine()), headers={"authorization": "Bearer secret"}
    )
    client.post("/v1/responses", json=REQUEST)
    _, (_, entries) = lines(client.get("/interlock/lines"))
    assert [entry["number"] for entry in entries] == [0]
    client.headers.clear()
    assert client.get("/interlock/lines").status_code == 401


def test_the_last_streams_are_listed_newest_first_and_shown() -> None:
    app, _ = watched()
    client = TestClient(app)
    streamed = [client.post("/v1/responses", json=REQUEST).text for _ in range(2)]
    client.post("/v1/responses", json={**REQUEST, "stream": False})
    assert "Streams · Interlock" in client.get("/interlock").text
    head, (_, entries) = lines(client.get("/interlock/lines"))
    assert (head[1]["mode"], [(one["number"], one["ended"], one["bytes"]) for one in entries]) == (
        "list",
        [(1, True, len(streamed[1].encode())), (0, True, len(streamed[0].encode()))],
    )
    trace_lines = lines(client.get("/interlock/1/lines"))
    assert trace_lines[0][1]["stream"] == {
        "name": entries[0]["id"],
        "request": {
            "method": "POST",
            "url": "http://testserver/v1/responses",
            "body": json.dumps(REQUEST, separators=(",", ":")),
        },
    }
    data = [line.removeprefix("data: ") for line in streamed[1].splitlines() if line.startswith("data: ")]
    assert [line[7] for line in trace_lines if line[0] == "e"] == data
    assert trace_lines[-1][1]["legal"]
    assert all(line[5] is not None for line in trace_lines if line[0] == "e")


@pytest.mark.parametrize(
    ("path", "start", "machine"), [("/v1/messages", "msg_", "messages"), ("/v1/chat/completions", "chatcmpl-", "chat")]
)
def test_streams_of_other_apis_are_shown(path, start, machine) -> None:
    app, _ = watched(["secret"])
    client = TestClient(app)
    client.headers["x-api-key"] = "secret"
    body = {"model": "interlock-embedded", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 50, "stream": True}
    assert client.post(path, json=body).status_code == 200
    client.headers["authorization"] = "Bearer secret"
    _, (_, (entry,)) = lines(client.get("/interlock/lines"))
    assert (entry["id"][: len(start)], entry["model"]) == (start, "interlock-embedded")
    trace_lines = lines(client.get("/interlock/0/lines"))
    assert {line[2]["machine"] for line in trace_lines if line[0] == "step"} == {machine}
    assert trace_lines[-1][1]["legal"] is True


@pytest.mark.parametrize(
    ("bodies", "tokens", "words"),
    [
        (
            [
                {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}},
                {"type": "response.output_text.delta", "delta": "Warm, "},
                {"type": "response.reasoning_text.delta", "delta": "Hm."},
                {"type": "response.output_text.delta", "delta": "and " * 99},
                {"type": "response.completed", "response": {"usage": {"input_tokens": 7, "output_tokens": 9}}},
            ],
            [7, 9],
            ("Warm, " + "and " * 99)[:80].strip(),
        ),
        (
            [
                {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}},
                {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Warm."}},
                {"type": "message_delta", "usage": {"output_tokens": 4}},
            ],
            [5, 4],
            "Warm.",
        ),
        (
            [
                {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "Warm."}}]},
                {"object": "chat.completion.chunk", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            ],
            [3, 2],
            "Warm.",
        ),
        (
            [{"type": "response.output_item.added", "output_index": 0, "item": {"type": "function_call", "name": "look"}}],
            [None, None],
            "look",
        ),
    ],
    ids=["Responses", "Messages", "Chat Completions", "a call alone"],
)
def test_an_ended_stream_is_listed_with_its_verdict_tokens_and_first_words(bodies, tokens, words) -> None:
    app, recent = watched()
    stream = CapturedStream("", "POST", "openai")
    recent.store(stream)
    for body in bodies:
        recent.add(stream, f"data: {json.dumps(body)}\n\n".encode())
    client = TestClient(app)
    running, ended = [lines(client.get("/interlock/lines"))[1][1][0] for stream.ended in (False, True)]
    assert ended.keys() - running.keys() == {"findings", "ending", "tokens", "words"}
    assert (ended["tokens"], ended["words"]) == (tokens, words)
    assert (ended["ending"]["legal"], ended["findings"]["error"] > 0) == (False, True)


def test_the_viewer_does_not_change_the_answer_to_the_client() -> None:
    plain = TestClient(build(Settings(), EmbeddedEngine()))
    app, _ = watched()
    for body in (REQUEST, {**REQUEST, "stream": False}, {"model": "nobody"}):
        one, other = plain.post("/v1/responses", json=body), TestClient(app).post("/v1/responses", json=body)
        assert (one.status_code, dict(one.headers).keys()) == (other.status_code, dict(other.headers).keys())
        assert len(one.text) == len(other.text)


def test_the_viewer_requires_the_key() -> None:
    app, _ = watched(["secret"])
    client = TestClient(app)
    client.post("/v1/responses", json=REQUEST, headers={"authorization": "Bearer secret"})
    for path in ("/interlock/", "/interlock", "/interlock/lines", "/interlock/0/", "/interlock/0/lines", "/interlock/x"):
        for refused in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic !"}, {"authorization": "Basic eDp5"}):
            answer = client.get(path, headers=refused)
            assert (answer.status_code, answer.headers["www-authenticate"][:5]) == (401, "Basic")
    basic = base64.b64encode(b"anyone:secret").decode()
    for header in ("Bearer secret", f"Basic {basic}"):
        assert client.get("/interlock/0/lines", headers={"authorization": header}).status_code == 200
    assert RecentStreams(None).tenant("") is None
    assert RecentStreams(Keys()).tenant("") == ""


def test_the_viewer_requires_a_passed_key_for_its_streams() -> None:
    recent = RecentStreams(Keys.of([], passed=True))
    basic = base64.b64encode(b"anyone:one").decode()
    own = "c6f5e8c596d8e304"
    assert [recent.tenant(header) for header in ("Bearer one", f"Basic {basic}", "Basic !", "")] == [own, own, None, None]


def test_pages_of_other_origins_cannot_read_the_viewer_even_if_the_server_allows_them() -> None:
    app, _ = watched(cors_origins=["*"])
    answer = TestClient(app).get("/interlock/lines", headers={"origin": "https://elsewhere.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_the_stored_streams_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(web, "STREAMS", 3)
    monkeypatch.setattr(web, "STREAM_BYTES", 2000)
    monkeypatch.setattr(web, "REQUEST_BYTES", 100)
    app, recent = watched()
    client = TestClient(app)
    for _ in range(5):
        client.post("/v1/responses", json={**REQUEST, "input": "x" * 200})
    assert list(recent.streams) == ["2", "3", "4"]
    assert all(one.truncated and one.size <= 2000 and one.request is None for one in recent.streams.values())
    assert client.get("/interlock/1/").status_code == 404
    monkeypatch.setattr(web, "TOTAL_BYTES", 2000)
    client.post("/v1/responses", json=REQUEST)
    assert sum(one.size for one in recent.streams.values()) <= 2000


@pytest.mark.parametrize(
    "path", ["/interlock/7/", "/interlock/7/lines", "/interlock/lines/x", "/interlock/../x", "/interlock/9" + "9" * 5000]
)
def test_an_unknown_path_is_404(path) -> None:
    app, _ = watched()
    assert TestClient(app).get(path).status_code == 404


def test_a_stream_is_shown_while_it_runs() -> None:
    app, recent = watched(rate=20)
    with ServerThread(app) as url, httpx.Client(timeout=60) as client:
        thread = threading.Thread(target=lambda: httpx.post(f"{url}/v1/responses", json=REQUEST, timeout=60))
        thread.start()
        while not recent.streams:
            time.sleep(0.01)
        received: list[tuple[bool, str]] = []
        with client.stream("GET", f"{url}/interlock/0/lines") as answer:
            received.extend((recent.streams["0"].ended, json.loads(line)[0]) for line in answer.iter_lines())
        thread.join()
    kinds = [kind for ended, kind in received if not ended]
    assert kinds.count("e") > 5
    assert received[-1] == (True, "end")


def test_each_of_several_keys_sees_its_own_streams() -> None:
    client = TestClient(watched(["one", "two"])[0])
    one, two = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
    client.post("/v1/responses", json=REQUEST, headers=one)
    entries = [[each["number"] for each in lines(client.get("/interlock/lines", headers=key))[1][1]] for key in (one, two)]
    assert entries == [[0], []]
    assert [client.get("/interlock/0/lines", headers=key).status_code for key in (one, two)] == [200, 404]


def test_the_site_serves_its_page_at_a_random_path() -> None:
    path, app = site("a & b", [[["head", {}]], [["e", 1]]])
    client = TestClient(app)
    assert [client.get(path).status_code for path in ("/", "/lines", "/x/lines", f"{path}0/")] == [404] * 4
    answer = client.get(path)
    assert "<title>a &amp; b · Interlock</title>" in answer.text
    assert "connect-src 'self'" in answer.text
    assert answer.headers["x-frame-options"] == "DENY"
    assert client.get(f"{path}lines").text == '["head",{}]\n["e",1]\n'
    assert site("x", [])[0] != path


# The document of the viewer, and its lines


ROOT = Path(__file__).parents[3]


def view(*arguments, stdin=None):
    return CliRunner().invoke(commands.app, ["view", *map(str, arguments)], input=stdin, catch_exceptions=False)


def lines_in(html):
    packed = re.search(r'<script type="application/gzip" id="lines">([^<]*)</script>', html)[1]
    return [json.loads(line) for line in gzip.decompress(base64.b64decode(packed)).splitlines()]


def test_the_head_has_a_diagram_of_every_machine_and_every_rule() -> None:
    (_, head) = page.head("stream", {"name": "x"})
    assert {*AUTOMATA, "response", "messages", "chat"} <= set(head["machines"]), "run `make docs`"
    assert head["rules"]["R10"][0] == RULES["R10"].name
    assert set(head["rules"]) == {*RULES, *DIALECT_RULES}
    assert set(head["deviations"]) == set(DEVIATIONS)
    assert set(head["writes"]) <= {*EVENTS, *dialect_writes()}


def test_the_fields_that_events_write_come_from_their_types() -> None:
    part = {"list": "content", "index": "content_index"}
    assert {name: writes()[name] for name in ("response.output_text.delta", "response.content_part.added")} == {
        "response.output_text.delta": [{"op": "append", "from": "delta", "to": "text", **part}],
        "response.content_part.added": [{"op": "put", "from": "part", **part}],
    }
    assert writes()["response.function_call_arguments.done"] == [{"op": "set", "from": "arguments", "to": "arguments"}]
    assert writes()["response.web_search_call.searching"] == [{"op": "status", "from": "", "to": "status", "value": "searching"}]
    assert writes()["response.output_item.done"] == [{"op": "all", "from": "item"}]
    assert writes()["response.output_text.annotation.added"] == [
        {"op": "push", "from": "annotation", "to": "annotations", **part}
    ]


def test_a_standalone_page_runs_only_its_own_script() -> None:
    html = page.standalone("</title><script>alert(1)</script>", [["head", {}], ["e", "</script><script>alert(1)</script>"]])
    assert "<script>alert(1)" not in html
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    program = re.search(r"<script>(.*)</script>\n</body>", html, re.DOTALL)[1]
    style = re.search(r"<style>(.*)</style>", html, re.DOTALL)[1]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (program, style)]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'; connect-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"(?:src|href)=[\"']?http", html)
    assert lines_in(html) == [["head", {}], ["e", "</script><script>alert(1)</script>"]]


def test_the_same_stream_gives_the_same_page(tmp_path) -> None:
    recording = ROOT / "examples" / "recordings" / "answer.jsonl"
    for name in ("one.html", "other.html"):
        assert view(recording, "--html", tmp_path / name).exit_code == 0
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "other.html").read_bytes()
    trace_lines = lines_in((tmp_path / "one.html").read_text("utf-8"))
    assert trace_lines[0][1]["stream"] == {"name": "answer.jsonl"}
    assert trace_lines[-1][0] == "end"


def test_a_pipe_can_be_viewed(tmp_path) -> None:
    data = (ROOT / "tests" / "corpus" / "legal" / "message.sse").read_bytes()
    assert view("-", "--html", tmp_path / "out.html", stdin=data).exit_code == 0
    trace_lines = lines_in((tmp_path / "out.html").read_text("utf-8"))
    assert trace_lines[0][1]["stream"] == {"name": "standard input"}
    assert trace_lines[-1] == ["end", {"status": "completed", "legal": True, "readable": True, "rules": {}}]


def test_an_invalid_source_is_refused() -> None:
    result = view("/nowhere/x.sse")
    assert (result.exit_code, result.stderr.strip()) == (2, "interlock: /nowhere/x.sse: No such file or directory")


def test_the_error_for_an_invalid_recording_names_its_line(tmp_path) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text('{"interlock_recording": 1, "format": "harmony"}\n{"token_ids": "x"}\n')
    result = view(file, "--html", tmp_path / "out.html")
    assert result.exit_code == 2
    assert "broken.jsonl:2: Expected `array | null`, got `str` - at `$.token_ids`" in result.stderr
