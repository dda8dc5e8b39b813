"""The command `interlock check`: files, pipes and URLs, for terminals and for programs."""

import gzip
import json
import socketserver
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from for_each import for_each
from jsonschema import Draft202012Validator

from interlock.events.sse import DONE_FRAME
from interlock.judges import DEVIATIONS, DIALECT_RULES, RULES, Finding
from interlock.serving.build import build
from interlock.serving.cli.commands import app
from interlock.serving.cli.options import UrlRequest, open_source
from interlock.serving.cli.view import StreamSource
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.serving.view.trace import Trace

CORPUS = Path(__file__).parents[2] / "corpus"
LEGAL = CORPUS / "legal" / "message.sse"
STREAM = LEGAL.read_bytes()


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, ["check", *map(str, arguments)], input=stdin, catch_exceptions=False)


def test_a_legal_stream_is_reported_as_legal_with_status_0() -> None:
    result = run(LEGAL)
    assert (result.exit_code, result.stdout) == (0, f"legal: {LEGAL}: 11 events, 1 item, completed\n")


@for_each("path", [pytest.param(path, id=path.stem) for path in sorted((CORPUS / "broken").glob("*.sse"))])
def test_a_broken_stream_is_reported_with_its_rule_and_status_1(path) -> None:
    result = run(path, "--json", "--strict")
    assert (result.exit_code, word(result)) == (1, "illegal")
    assert path.name.split("-")[0] in rules(result)


def sources(result):
    """Return the results of the sources in the JSON output."""
    return json.loads(result.stdout)["sources"]


def rules(result):
    return {finding["rule"] for finding in sources(result)[0]["findings"]}


def test_a_finding_has_its_place_the_received_event_and_the_expected_ones() -> None:
    path = CORPUS / "broken" / "R11-never-searched.sse"
    assert json.loads(run(path, "--json").stdout) == {
        "version": 1,
        "verdict": "illegal",
        "streams": {"illegal": 1, "unreadable": 0, "legal": 0},
        "rules": {"R11": {"error": 1, "deviation": 0, "not_judged": 0, "streams": 1}},
        "sources": [
            {
                "source": str(path),
                "verdict": "illegal",
                "responses": 1,
                "events": 7,
                "items": ["web_search_call"],
                "status": "completed",
                "counts": {"error": 1, "deviation": 0, "not_judged": 0},
                "findings": [
                    {
                        "rule": "R11",
                        "severity": "error",
                        "event": 4,
                        "sequence_number": 4,
                        "item": "ws_0",
                        "kind": "web_search_call",
                        "state": "in_progress or ready",
                        "received": "response.web_search_call.completed",
                        "expected": ["response.output_item.done", "response.web_search_call.searching"],
                        "message": "reports the end of a tool that did not run",
                        "deviation": "",
                        "line": 13,
                        "times": 1,
                    }
                ],
            }
        ],
    }


def test_text_lists_errors_before_deviations_in_80_columns() -> None:
    frames = (CORPUS / "broken" / "R9-delta-lost.sse").read_bytes().removesuffix(b"data: [DONE]\n\n")
    assert run("-", stdin=frames).stdout.splitlines() == [
        "illegal: standard input: 1 error, 1 deviation in 10 events, 1 item, completed",
        "",
        "Errors: wrong content",
        "  R9   output_text.done: text differs from the deltas at character 5",
        "       line 19, event 6, message msg_0 (output_text)",
        "",
        "Deviations: well known (--strict: errors)",
        "  R3   the stream has no end marker [DONE] [no-done-marker]",
        "       at the end",
    ]


@for_each("path", [pytest.param(path, id=path.stem) for path in sorted((CORPUS / "broken").glob("*.sse"))])
def test_no_line_is_longer_than_80_columns_unless_it_is_one_word(path) -> None:
    lines = run(path, "--strict").stdout.splitlines()[1:]
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []


@pytest.mark.parametrize(("name", "finding"), [("R3-no-done-marker", "no-done-marker"), ("R14-unknown-item", "unknown-item")])
def test_strict_fails_on_deviations_and_on_events_that_are_not_judged(name, finding) -> None:
    path = CORPUS / "broken" / f"{name}.sse"
    assert (run(path).exit_code, run(path, "--strict").exit_code) == (0, 1)
    assert run(path, "--strict", "--ignore", finding).exit_code == 0
    assert [word(run(path, "--json", *more)) for more in ([], ["--strict"])] == ["legal", "illegal"]


def word(result):
    return json.loads(result.stdout)["verdict"]


def test_the_last_response_is_compared_with_a_whole_answer(tmp_path) -> None:
    whole = tmp_path / "whole.json"
    last = json.loads(STREAM.partition(b"event: response.completed\ndata: ")[2].partition(b"\n")[0])["response"]
    whole.write_text(json.dumps(last))
    assert run(LEGAL, "--whole", whole, "--strict").exit_code == 0
    whole.write_text(json.dumps({**last, "output": []}))
    result = run(LEGAL, "--whole", whole)
    assert (result.exit_code, result.stdout.splitlines()) == (
        1,
        [
            f"illegal: {LEGAL}: 1 error in 11 events, 1 item, completed",
            "",
            "Errors: wrong content",
            '  R19  `output` is `["message"]`, but `[]` in the whole answer',
            "       at the end",
        ],
    )
    assert run(LEGAL, "--whole", whole, "--ignore", "R19").exit_code == 0


@pytest.mark.parametrize(
    ("sources", "answer", "message"),
    [
        ([LEGAL, LEGAL], "{}", "it is compared with one stream, not 2"),
        ([LEGAL], "[]", "whole.json is not a JSON object"),
        ([LEGAL], None, "whole.json: No such file or directory"),
        ([LEGAL, "--api", "chat"], "{}", "--whole compares only streams of the Responses API"),
    ],
)
def test_a_whole_answer_that_cannot_be_compared_is_an_error(sources, answer, message, tmp_path) -> None:
    if answer is not None:
        (tmp_path / "whole.json").write_text(answer)
    result = run(*sources, "--whole", tmp_path / "whole.json")
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_a_rule_or_a_deviation_can_be_ignored() -> None:
    path = CORPUS / "broken" / "R3-no-done-marker.sse"
    assert run(path, "--strict", "--ignore", "r2, no-done-marker").exit_code == 0
    assert run(CORPUS / "broken" / "R9-delta-lost.sse", "--ignore", "R9").exit_code == 0
    result = run(path, "--ignore", "R99")
    assert (result.exit_code, "no rule or deviation is named 'R99'; choose one of R1, R2, " in result.stderr) == (2, True)


def test_the_same_finding_is_listed_once_and_counted() -> None:
    crlf = CORPUS / "broken" / "R5-crlf.sse"
    assert [finding["times"] for finding in sources(run(crlf, "--json"))[0]["findings"]] == [12]
    assert "12 times" in run(crlf).stdout


def test_several_streams_and_folders_are_judged_in_one_run(tmp_path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.sse").write_bytes(STREAM)
    (tmp_path / "b.jsonl").write_bytes(STREAM)
    (tmp_path / "c.png").write_bytes(STREAM)
    result = run(LEGAL, tmp_path, CORPUS / "broken" / "R9-delta-lost.sse")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[:3] == [
        f"legal: {LEGAL}: 11 events, 1 item, completed",
        f"legal: {tmp_path / 'b.jsonl'}: 11 events, 1 item, completed",
        f"legal: {tmp_path / 'more' / 'a.sse'}: 11 events, 1 item, completed",
    ]
    assert result.stdout.splitlines()[-3:] == ["  R9   1 error in 1 of 4 streams", "", "4 streams: 3 legal, 1 illegal"]


def test_compressed_files_are_judged_like_others(tmp_path) -> None:
    (tmp_path / "a.sse.gz").write_bytes(gzip.compress(STREAM))
    (tmp_path / "b.gz").write_bytes(gzip.compress(STREAM))
    assert run(tmp_path).stdout == f"legal: {tmp_path / 'a.sse.gz'}: 11 events, 1 item, completed\n"
    parts = gzip.compress(STREAM[:99]) + gzip.compress(STREAM[99:])
    assert run("-", stdin=parts).stdout == "legal: standard input: 11 events, 1 item, completed\n"
    damaged = tmp_path / "a.sse.gz"
    damaged.write_bytes(gzip.compress(STREAM)[:-9])
    result = run(damaged)
    assert (result.exit_code, result.stderr.startswith(f"interlock: {damaged}: damaged gzip: ")) == (2, True)


@for_each("path", [pytest.param(path, id=path.stem) for path in sorted((CORPUS / "broken").glob("*.sse"))])
def test_check_and_the_viewer_count_the_same_findings(path) -> None:
    trace = Trace()
    lines = [*trace.feed(path.read_bytes()), *trace.end()]
    viewed = Counter(line[2]["severity"] for line in lines if line[0] == "f")
    assert sources(run(path, "--json"))[0]["counts"] == {kind: viewed[kind] for kind in ("error", "deviation", "not_judged")}


def test_a_folder_without_streams_is_unreadable(tmp_path) -> None:
    result = run(LEGAL, tmp_path)
    assert (result.exit_code, result.stderr) == (2, f"interlock: {tmp_path}: Is a directory\n")
    assert result.stdout.splitlines()[-1] == "2 streams: 1 legal, 1 unreadable"


def test_bare_lines_of_json_are_judged_without_their_framing(tmp_path) -> None:
    bodies = [line.removeprefix(b"data: ") for line in STREAM.splitlines() if line.startswith(b"data: {")]
    path = tmp_path / "stream.jsonl"
    path.write_bytes(b"\n\n".join(bodies))
    (source,) = sources(run(path, "--json"))
    assert (source["verdict"], source["events"], [finding["deviation"] for finding in source["findings"]]) == (
        "legal",
        11,
        ["bare-lines"],
    )
    path.write_bytes(b"\n".join([*bodies[:4], b"{", *bodies[4:]]))
    finding = sources(run(path, "--json"))[0]["findings"][0]
    assert (finding["line"], finding["message"]) == (5, "the data is not a JSON object: '{'")


@pytest.mark.parametrize("form", ["text", "json", "github"])
@pytest.mark.parametrize("body", [r'{"type": "\ud800"}', '{"type": {}}', '{"type": "response.created", "response": {"id": []}}'])
def test_a_value_that_cannot_be_encoded_or_hashed_is_judged_and_written(form, body) -> None:
    result = run("-", "--format", form, stdin=f"data: {body}\n\n")
    assert (result.exit_code, "R14" in result.output) == (1, True)


def test_annotations_for_github_name_file_line_and_rule() -> None:
    result = run(CORPUS / "broken" / "R5-crlf.sse", CORPUS / "broken" / "R9-delta-lost.sse", "/no/such", "--format", "github")
    crlf, text, missing = result.stdout.splitlines()
    assert crlf.startswith("::warning file=")
    assert crlf.endswith("R5-crlf.sse,line=1,title=R5::created: a line ends with a carriage return [framing], 12 times")
    assert text.endswith("line=19,title=R9::output_text.done: text differs from the deltas at character 5")
    assert missing == "::error file=/no/such::No such file or directory"


@for_each("name", [*RULES, *DIALECT_RULES, *DEVIATIONS])
def test_every_rule_and_deviation_is_explained(name) -> None:
    result = run("--explain", name)
    assert (result.exit_code, result.stdout.split()[0] in {name, f"{name}:"}) == (0, True)


def test_an_unknown_rule_is_not_explained() -> None:
    assert run("--explain", "R99").exit_code == 2


def test_a_source_is_required_and_a_body_requires_a_url(tmp_path) -> None:
    assert run().exit_code == 2
    result = run(LEGAL, "--body", tmp_path)
    assert (result.exit_code, "is not one" in result.stderr) == (2, True)


def test_the_json_output_matches_its_schema() -> None:
    schema = json.loads((CORPUS.parents[1] / "docs" / "guides" / "check.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    files = sorted(CORPUS.glob("*/*.sse"))
    report = json.loads(run(*files, "/no/such", "--json").stdout)
    assert (len(report["sources"]), list(Draft202012Validator(schema).iter_errors(report))) == (len(files) + 1, [])
    fields = schema["$defs"]["finding"]["properties"].keys()
    assert fields == {"severity", "times", *(field.name for field in attrs.fields(Finding))}


def test_output_is_coloured_on_a_terminal() -> None:
    result = CliRunner().invoke(app, ["check", str(LEGAL)], color=True)
    assert "\x1b[" in result.stdout


def test_an_empty_file_is_unreadable(tmp_path) -> None:
    (tmp_path / "a.sse").touch()
    result = run(tmp_path / "a.sse", "--json")
    assert (result.exit_code, [each["error"] for each in sources(result)]) == (2, ["it is empty"])


NO_STREAM = "this is not a stream: it has no event of Responses, Messages or Chat Completions"


@pytest.mark.parametrize(
    "data",
    [
        json.dumps({"name": "viewer", "type": "module", "scripts": {"build": "node"}}, indent=2).encode(),
        json.dumps({"packages": ["a" * 80] * 1000}, indent=2).encode(),
        b'{"name": "a"}\n{"name": "b"}\n',
        b"data: hello\n\n",
        b"# A page\n\nA party\n\n",
        b"[build-system]\nrequires = []\n",
    ],
)
def test_a_file_without_events_of_an_api_is_not_a_stream(data) -> None:
    result = run("-", stdin=data)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"interlock: standard input: {NO_STREAM}\n")


@pytest.mark.parametrize("options", [(), ("--api", "responses"), ("--api", "chat")])
def test_events_without_lines_of_data_are_not_a_stream(options) -> None:
    result = run("-", *options, stdin=STREAM.replace(b"data: ", b""))
    message = f"{NO_STREAM}, and no line begins with `data:`"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"interlock: standard input: {message}\n")


@pytest.mark.parametrize("options", [(), ("--api", "responses")])
@pytest.mark.parametrize("name", [b"event: ", b": "])
def test_a_stream_without_empty_lines_is_judged(name, options) -> None:
    data = STREAM.replace(b"event: ", name).replace(b"\n\n", b"\n")
    (source,) = sources(run("-", "--json", *options, stdin=data))
    assert [(each["rule"], each["message"], each["line"]) for each in source["findings"]] == [
        ("R5", "no empty line separates 12 events", 1),
        ("R3", "the stream ends without a terminal event", None),
        ("R3", "the stream has no end marker [DONE]", None),
    ]


def test_a_long_name_of_an_event_is_shortened() -> None:
    result = run("-", stdin=STREAM.replace(b"\n", b""))
    name = STREAM.replace(b"\n", b"").decode().removeprefix("event: response.")[:80]
    assert (result.exit_code, f"R5 {name}…: the stream ends inside an event" in " ".join(result.stdout.split())) == (1, True)


@pytest.mark.parametrize(
    "data",
    [
        b"data: [DONE]\n\n",
        b'event: response.created\ndata: {"a": 1}\n\n',
        b'event: message_stop\ndata: {"a\n\n',
        b'event: response.created\ndata: {"type": ',
    ],
)
def test_a_stream_is_judged_if_any_event_or_its_end_shows_that_it_is_one(data) -> None:
    assert run("-", stdin=data).exit_code == 1


def test_a_stream_of_the_given_api_has_an_event() -> None:
    codes = [run("-", "--api", "responses", stdin=data).exit_code for data in (b"data: hello\n\n", b"hello\n")]
    assert codes == [1, 2]


def test_the_json_output_says_that_a_source_is_unreadable() -> None:
    result = run("-", "--json", stdin=b"\x00\xff")
    assert (result.exit_code, sources(result)) == (
        2,
        [{"source": "standard input", "verdict": "unreadable", "error": NO_STREAM}],
    )


def test_from_sets_the_first_number_of_a_resumed_stream() -> None:
    tail = STREAM[STREAM.index(b"event: response.output_text.delta") :]
    assert run("-", "--from", 4, stdin=tail).exit_code == 0
    assert rules(run("-", "--from", 3, "--json", stdin=tail)) == {"R2"}
    result = run("-", stdin=tail)
    assert (result.exit_code, "(--from 4) [resumed]" in " ".join(result.stdout.split())) == (0, True)


def test_permissive_allows_two_open_items_to_alternate() -> None:
    path = CORPUS / "broken" / "R10-two-items-at-once.sse"
    assert (run(path).exit_code, run(path, "--permissive").exit_code) == (1, 0)


CHUNK = {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk"}
CHOICES = [{"delta": {"role": "assistant", "content": "Hi"}, "finish_reason": None}, {"delta": {}, "finish_reason": "stop"}]
CHAT = b"".join(b"data: %b\n\n" % json.dumps({**CHUNK, "choices": [{"index": 0, **each}]}).encode() for each in CHOICES)


class Answer(BaseHTTPRequestHandler):
    """Answers by path, and stores the requests."""

    requests: list = []  # noqa: RUF012 - the tests' own

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.requests.append((json.loads(body), dict(self.headers)))
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        status, media, data = {
            "/refused": (401, "application/json", b'{"error": {"message": "no key"}}'),
            "/plain": (200, "application/json", STREAM),
            "/broken": (200, "text/event-stream", STREAM[:-400]),
            "/chat": (200, "text/event-stream", CHAT + DONE_FRAME),
        }.get(self.path, (200, "text/event-stream; charset=utf-8", STREAM))
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(STREAM if self.path == "/broken" else data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_body_is_posted_with_stream_set_to_true(url, tmp_path) -> None:
    body = tmp_path / "request.json"
    body.write_text('{"model": "m", "input": "hi"}')
    result = run(f"{url}/v1/responses", "--body", body, "--api-key", "k", "--header", "X-Test: yes")
    request, headers = Answer.requests.pop()
    assert (result.exit_code, request) == (0, {"model": "m", "input": "hi", "stream": True})
    assert (headers["Authorization"], headers["X-Test"], headers["Accept"]) == ("Bearer k", "yes", "text/event-stream")


@pytest.mark.parametrize(("asked", "broken"), [(True, {"C5"}), (False, set())])
def test_the_request_of_a_chat_stream_is_known(url, tmp_path, asked, broken) -> None:
    body = tmp_path / "request.json"
    body.write_text(json.dumps({"model": "m", "messages": [], "stream_options": {"include_usage": asked}}))
    assert rules(run(f"{url}/chat", "--body", body, "--json")) == broken
    source = UrlRequest(body)
    with open_source(f"{url}/chat", source) as opened:
        (*_, end) = [line for batch in StreamSource.read(f"{url}/chat", opened).batches("openai") for line in batch]
    assert {*end[1]["rules"]} == broken


def test_a_url_without_a_body_is_fetched_with_get(url) -> None:
    assert run(f"{url}/v1/responses/resp_1?stream=true").exit_code == 0


def test_the_content_type_is_judged(url) -> None:
    (source,) = sources(run(f"{url}/plain", "--json"))
    assert [finding["message"] for finding in source["findings"]] == [
        "the content type is 'application/json' instead of text/event-stream"
    ]


def test_a_broken_connection_is_a_stream_without_an_end(url) -> None:
    result = run(f"{url}/broken", "--json")
    assert (result.exit_code, "R3" in rules(result)) == (1, True)


def test_the_refusal_of_a_server_is_quoted(url) -> None:
    result = run(f"{url}/refused")
    assert (result.exit_code, result.stderr) == (
        2,
        f'interlock: {url}/refused: 401 Unauthorized: {{"error": {{"message": "no key"}}}}\n',
    )


def test_a_405_for_get_suggests_a_body() -> None:
    with ServerThread(build(Settings(), EmbeddedEngine())) as url:
        result = run(f"{url}/v1/responses")
    error = "405 Method Not Allowed: the server does not accept GET here; add --body FILE to POST the request in a file"
    assert (result.exit_code, result.stderr) == (2, f"interlock: {url}/v1/responses: {error}\n")


def test_a_404_for_a_url_without_a_path_suggests_one() -> None:
    with ServerThread(build(Settings(), EmbeddedEngine())) as url:
        result = run(url)
    assert (result.exit_code, result.stderr.endswith(f"; add the path, such as {url}/v1/responses\n")) == (2, True)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("http://127.0.0.1:1/v1/responses", "interlock: http://127.0.0.1:1/v1/responses: Connection refused"),
        ("http://127.0.0.1:port/", "interlock: http://127.0.0.1:port/: "),
        ("/no/such/file", "interlock: /no/such/file: No such file or directory"),
    ],
)
def test_an_unreachable_source_is_named(source, message) -> None:
    result = run(source)
    assert (result.exit_code, result.stderr.startswith(message)) == (2, True)


@pytest.mark.parametrize(("text", "wrong"), [(None, "No such file"), ("{", "not JSON"), ("[]", "not a JSON object")])
def test_the_error_for_an_invalid_request_file_names_the_file(text, wrong, tmp_path) -> None:
    body = tmp_path / "request.json"
    if text is not None:
        body.write_text(text)
    result = run("http://127.0.0.1:1/", "--body", body)
    assert (result.exit_code, f"request.json: {wrong}" in result.stderr) == (2, True)


def test_a_header_without_a_colon_is_refused() -> None:
    result = run(LEGAL, "--header", "nonsense")
    assert (result.exit_code, "'nonsense' has no colon; write NAME:VALUE" in result.stderr) == (2, True)


def test_a_recording_is_judged_by_the_stream_that_replay_writes(tmp_path) -> None:
    recording = CORPUS / "recordings" / "text.jsonl"
    replayed = run("-", stdin=CliRunner().invoke(app, ["replay", str(recording)]).stdout_bytes)
    assert (run(recording).stdout, replayed.exit_code) == (replayed.stdout.replace("standard input", str(recording)), 0)
    packed, malformed = tmp_path / "r.jsonl.gz", tmp_path / "r.jsonl"
    packed.write_bytes(gzip.compress(recording.read_bytes()))
    assert run(packed).stdout == run(recording).stdout.replace(str(recording), str(packed))
    malformed.write_text('{"interlock_recording": 9}')
    message = "line 1: not version 1 of the format, the only known one"
    result = run(malformed)
    assert (result.exit_code, result.stderr) == (2, f"interlock: {malformed}: {message}\n")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"id": "c", "object": "chat.completion"}, 'this is a whole answer, not a stream: add "stream": true to the request'),
        ({"type": "message", "id": "m"}, 'this is a whole answer, not a stream: add "stream": true to the request'),
        ({"error": {"message": "No"}}, 'this is an error of the server, not a stream: {"error": {"message": "No"}}'),
        ([{"id": "c", "choices": []}], "this is a JSON array, not a stream: write one event per line"),
        ({"type": "error", "error": {}}, 'this is an error of the server, not a stream: {"type": "error", "error": {}}'),
    ],
)
def test_answers_and_errors_of_other_apis_are_not_streams(body, message) -> None:
    for mark in (b"", b"\xef\xbb\xbf"):
        result = run("-", stdin=mark + json.dumps(body).encode())
        assert (result.exit_code, result.stderr) == (2, f"interlock: standard input: {message}\n")


def test_a_stream_of_messages_is_judged_by_its_own_rules() -> None:
    stream = b'event: message_start\ndata: {"type": "message_start"}\n\n'
    result = run("-", stdin=stream)
    assert result.exit_code == 1
    assert "M1   message_start: the message does not begin empty, with an id and a model" in result.stdout
    assert run("--explain", "m8").stdout.startswith("M8 reason\n")


@pytest.mark.parametrize("indent", [None, 2])
def test_a_response_is_not_a_stream(indent) -> None:
    body = json.dumps({"id": "resp_1", "object": "response", "output": [{"type": "message"}]}, indent=indent)
    result = run("-", stdin=body.encode())
    message = 'interlock: standard input: this is a whole answer, not a stream: add "stream": true to the request\n'
    assert (result.exit_code, result.stderr) == (2, message)


# A command ends with a message if it reads from a slow server, or from a source that is not a stream


ROOT = Path(__file__).parents[3]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def run_command(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False, **options)


@contextmanager
def serving(answer):
    """Run a server that calls `answer` with each connection, and yield its URL and an event for the first connection."""
    connected, over = threading.Event(), threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            connected.set()
            with suppress(OSError):  # the command has disconnected
                answer(self.request, over)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", connected
        over.set()
        server.shutdown()


def silent(_connection, over):
    over.wait()


def silent_after_its_head(connection, over):
    connection.sendall(HEAD + LEGAL.read_bytes()[:400])
    over.wait()


def dripping(connection, over):
    """Send bytes often, without an end."""
    connection.sendall(HEAD)
    while not over.wait(0.02):
        connection.sendall(b":\n")


def dripping_head(connection, over):
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while not over.wait(0.02):
        connection.sendall(b"x")


@pytest.mark.parametrize("answer", [silent, silent_after_its_head, dripping, dripping_head], ids=lambda answer: answer.__name__)
def test_reading_a_url_ends_at_the_timeout(answer) -> None:
    with serving(answer) as (url, _):
        began = time.monotonic()
        result = run_command("check", url, "--timeout", "0.3")
        took = time.monotonic() - began
    assert (result.exit_code, result.stderr) == (2, f"interlock: {url}: not read within 0.3 seconds\n")
    assert took < 30


def test_a_url_that_is_read_in_time_is_judged() -> None:
    def whole(connection, _over):
        connection.sendall(HEAD + LEGAL.read_bytes())

    with serving(whole) as (url, _):
        result = run_command("check", url, "--timeout", "30", "--json")
    assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (0, "legal")


@pytest.mark.parametrize(
    "source",
    ["http://[", "https://[::1", "http://127.0.0.1:port/", "http://127.0.0.1:99999/", "http://a\u2100b/", "http://\ud800/"],
)
def test_an_invalid_url_is_refused(source) -> None:
    result = run_command("check", source)
    assert result.exit_code == 2
    assert result.stderr.startswith("interlock: http")


def test_a_name_that_is_too_long_is_refused() -> None:
    result = run_command("check", "a" * 5000)
    assert (result.exit_code, result.stderr) == (2, f"interlock: {'a' * 5000}: File name too long\n")


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_constant_that_json_lacks_is_not_an_event(constant, tmp_path) -> None:
    path = tmp_path / "stream.sse"
    path.write_text(LEGAL.read_text().replace('"total_tokens": 18', f'"total_tokens": {constant}', 1))
    assert constant in path.read_text()
    result = run_command("check", path, "--json")
    findings = json.loads(result.stdout)["sources"][0]["findings"]
    assert (result.exit_code, findings[0]["rule"]) == (1, "R5")


def test_a_recording_with_a_constant_that_json_lacks_is_refused(tmp_path) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text('{"interlock_recording": NaN}\n')
    result = run_command("replay", path)
    assert (result.exit_code, result.stderr) == (2, f"interlock: {path}:1: not JSON: NaN is not valid JSON\n")
