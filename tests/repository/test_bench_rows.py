"""Every row of the bench runs once, at the smallest sizes; no test asserts a time."""

import json
import re
from argparse import ArgumentTypeError
from pathlib import Path
from xml.etree import ElementTree as ET

import bench_alone
import pytest
from runs import described, one_of, with_run
from server_cases import PAGE, RESULTS, page
from speed.questions import QUESTIONS
from speed.report import Result, short, table
from speed.rows import GROUPS, TINY, rows_of
from speed.targets import TARGETS
from speed.timing import INTERLOCK, Figure, take_turns

ROWS = rows_of(TINY)


def test_a_row_is_in_the_group_that_it_names():
    assert {row.group for row in ROWS} <= GROUPS.keys()
    assert [row.group for row in rows_of(TINY, ["deltas", "check"])] == [
        row.group for row in ROWS if row.group in {"deltas", "check"}
    ]


def test_an_unknown_name_on_a_command_line_is_refused_with_the_names():
    with pytest.raises(ArgumentTypeError, match=r"^'serving' is none of deltas, dialects$"):
        one_of(["deltas", "dialects"])("serving")
    assert one_of(["deltas", "dialects"])("deltas") == "deltas"


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS, ids=[f"{row.group}: {row.name}" for row in ROWS])
def test_a_row_gives_one_figure_for_each_contender_and_round(row):
    rounds = []
    samples = take_turns(row, lambda: rounds.append(None))
    assert {name: len(values) for name, values in samples.items()} == dict.fromkeys(row.rounds, row.repeats)
    assert len(rounds) == row.repeats * len(row.rounds)
    assert INTERLOCK in samples


def test_a_ratio_is_taken_round_by_round():
    row = ROWS[0]
    result = Result.of(row, {"interlock": [1.0, 2.0, 4.0], "vllm": [10.0, 40.0, 40.0], "floor": [1.0, 1.0, 1.0]})
    assert result.faster == Figure(10.0, 10.0, 15.0)
    assert result.above_floor == Figure(2.0, 1.5, 3.0)
    assert result.above_responses is None
    dialect = Result.of(row, {"interlock": [1.0, 3.0, 4.0], "responses": [1.0, 2.0, 2.0]})
    assert dialect.plain()["above_responses"] == {"median": 1.5, "low": 1.25, "high": 1.75}
    assert result.plain()["figures"]["interlock"] == {"median": 2.0, "low": 1.5, "high": 3.0}
    assert table([result]).row_count == 1


def test_rows_have_distinct_groups_and_names():
    assert len({(row.group, row.name) for row in ROWS}) == len(ROWS)


# The benchmark of the standalone server works: a short run measures every contender of the gateway. No times are asserted


@pytest.mark.long
def test_the_benchmark_of_a_gateway_measures_every_load_and_contender(monkeypatch, tmp_path):
    short = {"GATEWAY_WINDOWS": 1, "GATEWAY_PROBES": 2, "PAUSE": 0, "WINDOW": 0.2, "SETTLE": 0.1, "GATEWAY_RATES": {2: 50}}
    short |= {"SHAPES": dict.fromkeys(bench_alone.SHAPES, 1)}
    for name, value in short.items():
        monkeypatch.setattr(bench_alone, name, value)
    monkeypatch.setattr(bench_alone, "OUT", tmp_path / "alone.json")
    monkeypatch.setattr("sys.argv", ["bench_alone.py", "gateway"])
    bench_alone.main()
    rows = json.loads((tmp_path / "gateway.json").read_text())["rows"]
    shapes = [(api, kind) for api in ("responses", "chat") for kind in ("text", "calls")]
    loads = [f"2 streams of 50 {kind} deltas a second, {api} upstream" for api, kind in shapes]
    assert [row["name"] for row in rows if row["group"] == "gateway"] == loads
    assert all({"interlock", "floor"} <= row["figures"].keys() for row in rows)
    assert all(figure["median"] >= 0 for row in rows for figure in row["figures"].values())


# The answers on the page: each question has one if its rows were measured, and else none


DOCS = Path(__file__).parents[2] / "docs"


def row(group, name, at=None, **figures):
    """Return a row as a bench writes it."""
    spread = {each: {"median": value, "low": value, "high": value} for each, value in figures.items()}
    faster = {"median": figures["vllm"] / figures["interlock"]} if "vllm" in figures else None
    return {"group": group, "name": name, "unit": "µs", "at": at, "faster": faster, "above_floor": None, "figures": spread}


STREAMS = "500 streams of 20"
QUESTION_ROWS = [
    row("server", "text, 8 streams", 8, interlock=40, vllm=80, floor=30),
    row("server", "text, 256 streams", 256, interlock=20, vllm=50, floor=10),
    row("server", "text, outputs of 10 tokens, 64 streams", 64, interlock=1, vllm=2, floor=1),
    row("server", "text of gpt-oss, after 20,000 reasoning tokens, 8 streams", 8, interlock=30, vllm=90, floor=20),
    row("alone", "1 stream of 100 tokens a second", 1, interlock=400, floor=300),
    row("alone", "2,000 streams of 5 tokens a second", 2_000, interlock=50, floor=40),
    row("alone: first event", "1 stream of 100 tokens a second", 1, p50=2, p99=3),
    row("alone: memory", "1 stream of 100 tokens a second", 1, start=100, before=101, during=102, after=103, each=1),
    row("alone: memory", "2,000 streams of 5 tokens a second", 2_000, start=100, before=101, during=171, after=180, each=35),
    row("alone: unread", "50 streams", 50, process=200, system=60),
    row("memory", "after 100 tokens", 100, interlock=5, vllm=11),
    row("families", "qwen3_coder, after 0 characters", interlock=1, vllm=60),
    row("families", "qwen3_coder, after 20,000 characters", interlock=2, vllm=6_000),
    row("delays", "p50 of the gap between two tokens", interlock=5, vllm=6, floor=4),
    row("delays", "p99 of the gap between two tokens", interlock=7, vllm=60, floor=6),
    row("harmony", "after 0 reasoning tokens", 0, interlock=0.5, vllm=8),
    row("harmony", "after 60,000 reasoning tokens", 60_000, interlock=0.6, vllm=240),
    row("deltas", "text", interlock=0.3, vllm=6, floor=0.1),
    {**row("dialects", "Messages", interlock=0.33, responses=0.3, floor=0.1), "above_responses": {"median": 1.1}},
    {**row("dialects", "Chat Completions", interlock=0.36, responses=0.3, floor=0.1), "above_responses": {"median": 1.2}},
    *(
        {
            **row("gateway", f"{STREAMS} {kind} deltas a second, responses upstream", 500, interlock=20 * times, floor=20),
            "above_floor": {"median": times},
        }
        for kind, times in (("text", 3), ("calls", 5))
    ),
    *(
        row("gateway: first event", f"{STREAMS} {kind} deltas a second, {api} upstream", 500, interlock=wait, floor=2)
        for kind, api, wait in (
            ("text", "chat", 21),
            ("calls", "chat", 371),
            ("text", "responses", 16),
            ("calls", "responses", 300),
        )
    ),
    row("items", "open, one delta, close", interlock=10, vllm=40),
    row("first event", "first token to its first event", interlock=20, vllm=50),
]


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_answered_by_a_picture_and_a_sentence(name) -> None:
    answer = QUESTIONS[name](QUESTION_ROWS)
    assert ET.fromstring(answer.picture).get("role") == "img"  # noqa: S314 - our own
    assert answer.shows
    assert re.fullmatch(r"[A-Z].*\.", answer.sentence)
    assert QUESTIONS[name]([]) is None


def test_every_picture_says_that_its_axis_is_logarithmic() -> None:
    drawn = {name: answer(QUESTION_ROWS).picture for name, answer in QUESTIONS.items()}
    kept = {file.stem: file.read_text("utf-8") for file in (DOCS / "evidence" / "performance").glob("*.svg")}
    said = {name: re.findall(r">([^<]*logarithmic scale[^<]*)<", picture) for name, picture in drawn.items()}
    assert said == {
        "vllm": ["logarithmic scale", "streams (logarithmic scale)"],
        "alone": ["logarithmic scale", "streams (logarithmic scale)"],
        "first": ["logarithmic scale", "streams that are open (logarithmic scale)"],
        "gateway": ["logarithmic scale", "streams (logarithmic scale)"],
        **{name: ["logarithmic scale"] for name in ("file", "reasoning", "memory", "events", "dialects")},
    }
    assert {name: re.findall(r">([^<]*logarithmic scale[^<]*)<", picture) for name, picture in kept.items()} == said


def test_the_sentences_of_the_answers_have_the_figures_of_the_rows() -> None:
    sentences = {name: answer(QUESTION_ROWS).sentence for name, answer in QUESTIONS.items()}
    assert "One core would carry 1,667 streams of 30 tokens a second, and 667 with vLLM's route." in sentences["vllm"]
    assert "One core would carry 667 streams of 30 tokens a second." in sentences["alone"]
    assert "2 ms with 1 (p99 3 ms)" in sentences["first"]
    assert "A delta costs 3 to 5 times as much" in sentences["gateway"]
    chat = "21 ms with deltas of text (forwarder 2 ms), 371 ms with deltas of calls (forwarder 2 ms) from Chat Completions; 16 ms"
    assert chat in sentences["gateway"]
    assert "171 MB with 2,000 open streams, and 180 MB two seconds after" in sentences["memory"]
    assert "at most 2 µs with Interlock's parsers, including the events, and up to 6 ms with vLLM's parsers" in sentences["file"]
    assert "7 ms with Interlock (p50 5 ms), 60 ms with vLLM's route (p50 6 ms)" in sentences["file"]
    assert "from 8 to 240 µs, 400 times as much as with Interlock." in sentences["reasoning"]
    assert "1.1 times as much in Messages and 1.2 times as much in Chat Completions as in" in sentences["dialects"]
    whole = "In the server, a token of text of gpt-oss, after 20,000 reasoning tokens, 8 streams, costs the whole process 30 µs"
    assert f"{whole}, and 90 µs with vLLM's route." in sentences["reasoning"]


def test_every_question_has_its_place_on_the_page() -> None:
    questions = re.findall("<!-- figures: (.+?) -->", (DOCS / "evidence" / "performance.md").read_text("utf-8"))
    assert {*questions} == {*QUESTIONS}
    assert "<!-- figures: targets -->" in (DOCS / "evidence" / "performance" / "bounds.md").read_text("utf-8")


@pytest.mark.parametrize("page", ["figures", "stores"])
def test_every_table_of_figures_names_its_run(page) -> None:
    text = (DOCS / "evidence" / "performance" / f"{page}.md").read_text("utf-8")
    sections = re.findall("<!-- figures: .+? -->(.+?)<!-- end -->", text, re.DOTALL)
    run = re.compile(r"(Run of|Recorded on) \d{4}-\d\d-\d\d.*\b[0-9a-f]{8}\+?: `benchmarks/\w+\.py.*`; .+\.")
    assert [section for section in sections if not run.fullmatch(section.strip().splitlines()[-1])] == []


def test_the_figures_of_the_pages_are_those_of_the_tables() -> None:
    tables = (DOCS / "evidence" / "performance" / "figures.md").read_text("utf-8")
    numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", tables)]
    listed = {short(number / scale) for number in numbers for scale in (1, 1000)}
    page = (DOCS / "evidence" / "performance.md").read_text("utf-8")
    answers = " ".join(re.findall("<!-- figures: .+? -->(.+?)<!-- end -->", page, re.DOTALL))
    engine = (DOCS / "library" / "engine.md").read_text("utf-8").partition("## What it costs")[2].partition("\n## ")[0]
    figures = re.findall(r"(\d[\d,]*(?:\.\d+)?) (?:µs|ms|MB|times)", answers + engine)
    assert len(figures) > 20
    assert [figure for figure in figures if figure not in listed] == []


def test_a_row_keeps_its_run_when_others_are_measured_again() -> None:
    measured, again = with_run([{"name": "a"}]), with_run([{"name": "a", "run": {"date": "2026-11-23"}}])
    assert (measured[0]["name"], [*measured[0]["run"]]) == ("a", ["date", "commit", "command", "machine"])
    assert again == [{"name": "a", "run": {"date": "2026-11-23"}}]


def test_a_run_is_described_in_a_sentence() -> None:
    run = {
        "date": "2026-11-23",
        "commit": "bbe0da66",
        "command": "benchmarks/bench.py",
        "machine": {"processor": "x", "python": "3.11"},
    }
    assert described(run) == "Run of 2026-11-23, commit bbe0da66: `benchmarks/bench.py`; processor x, python 3.11."


def test_the_targets_of_the_standalone_server_are_read_from_its_rows() -> None:
    reached = {target.name: target.reached(QUESTION_ROWS) for target in TARGETS if target.name.startswith("standalone")}
    assert reached == {
        "standalone server: memory at its start": 100,
        "standalone server: held for a client that does not read": 260,
    }


# The page of servers shows its results


def test_the_page_of_servers_is_generated_from_its_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == "\n".join(page(json.loads(RESULTS.read_text(encoding="utf-8")))) + "\n"
