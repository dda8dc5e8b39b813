"""The document of the viewer, and its lines."""

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path

from click.testing import CliRunner

from interlock.events.stream import EVENTS
from interlock.judges import DEVIATIONS, DIALECT_RULES, RULES
from interlock.judges.stream_items import AUTOMATA
from interlock.serving.cli.commands import app
from interlock.serving.view import page
from interlock.serving.view.page import dialect_writes, writes

ROOT = Path(__file__).parents[3]


def view(*arguments, stdin=None):
    return CliRunner().invoke(app, ["view", *map(str, arguments)], input=stdin, catch_exceptions=False)


def lines(html):
    packed = re.search(r'<script type="application/gzip" id="lines">([^<]*)</script>', html)[1]
    return [json.loads(line) for line in gzip.decompress(base64.b64decode(packed)).splitlines()]


def test_the_head_has_a_picture_of_every_machine_and_every_rule() -> None:
    (_, head) = page.head("stream", {"name": "x"})
    assert {*AUTOMATA, "response", "messages", "chat"} <= set(head["machines"])
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
    assert lines(html) == [["head", {}], ["e", "</script><script>alert(1)</script>"]]


def test_the_same_stream_gives_the_same_page(tmp_path) -> None:
    recording = ROOT / "examples" / "recordings" / "answer.jsonl"
    for name in ("one.html", "other.html"):
        assert view(recording, "--html", tmp_path / name).exit_code == 0
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "other.html").read_bytes()
    trace_lines = lines((tmp_path / "one.html").read_text("utf-8"))
    assert trace_lines[0][1]["stream"] == {"name": "answer.jsonl"}
    assert trace_lines[-1][0] == "end"


def test_a_pipe_can_be_viewed(tmp_path) -> None:
    data = (ROOT / "tests" / "corpus" / "legal" / "message.sse").read_bytes()
    assert view("-", "--html", tmp_path / "out.html", stdin=data).exit_code == 0
    trace_lines = lines((tmp_path / "out.html").read_text("utf-8"))
    assert trace_lines[0][1]["stream"] == {"name": "standard input"}
    assert trace_lines[-1] == ["end", {"status": "completed", "legal": True, "readable": True, "rules": {}}]


def test_an_invalid_source_is_refused() -> None:
    result = view("/nowhere/x.sse")
    assert (result.exit_code, result.stderr.strip()) == (2, "interlock: /nowhere/x.sse: No such file or directory")


def test_a_recording_that_cannot_be_read_is_named_with_its_line(tmp_path) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text('{"interlock_recording": 1, "format": "harmony"}\n{"token_ids": "x"}\n')
    result = view(file, "--html", tmp_path / "out.html")
    assert result.exit_code == 2
    assert "broken.jsonl:2: Expected `array | null`, got `str` - at `$.token_ids`" in result.stderr
