"""What the page says of the last runs: each question has an answer where its rows were measured, and none where they were not."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from speed.questions import QUESTIONS
from speed.targets import TARGETS

DOCS = Path(__file__).parents[2] / "docs"


def row(group, name, at=None, **figures):
    """A row as a bench writes it."""
    spread = {each: {"median": value, "low": value, "high": value} for each, value in figures.items()}
    faster = {"median": figures["vllm"] / figures["interlock"]} if "vllm" in figures else None
    return {"group": group, "name": name, "unit": "µs", "at": at, "faster": faster, "above_floor": None, "figures": spread}


ROWS = [
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
    row("items", "open, one delta, close", interlock=10, vllm=40),
    row("first event", "first token to its first event", interlock=20, vllm=50),
]


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_answered_by_a_picture_and_a_sentence(name) -> None:
    answer = QUESTIONS[name](ROWS)
    assert ET.fromstring(answer.picture).get("role") == "img"  # noqa: S314 - our own
    assert answer.shows
    assert re.fullmatch(r"[A-Z].*\.", answer.sentence)
    assert QUESTIONS[name]([]) is None


def test_what_the_sentences_count() -> None:
    sentences = {name: answer(ROWS).sentence for name, answer in QUESTIONS.items()}
    assert "One core carries 1,667 streams of 30 tokens a second, and 667 with vLLM's route." in sentences["vllm"]
    assert "One core carries 667 streams of 30 tokens a second." in sentences["alone"]
    assert "2 ms with 1 (p99 3 ms)" in sentences["first"]
    assert "171 MB with 2,000 open streams, and 180 MB two seconds after" in sentences["memory"]
    assert "at most 2 µs with Interlock's parsers, including the events, and up to 6 ms with vLLM's parsers" in sentences["file"]
    assert "7 ms with Interlock (p50 5 ms), 60 ms with vLLM's route (p50 6 ms)" in sentences["file"]
    assert "from 8 to 240 µs, 400 times as much as with Interlock." in sentences["reasoning"]
    assert "1.1 times as much in Messages and 1.2 times as much in Chat Completions as in" in sentences["dialects"]
    whole = "In the server, a token of text of gpt-oss, after 20,000 reasoning tokens, 8 streams, costs the whole process 30 µs"
    assert f"{whole}, and 90 µs with vLLM's route." in sentences["reasoning"]


def test_every_question_has_its_place_on_the_page() -> None:
    questions = re.findall("<!-- figures: (.+?) -->", (DOCS / "performance.md").read_text("utf-8"))
    assert {*questions} == {*QUESTIONS, "machine"}
    assert "<!-- figures: targets -->" in (DOCS / "performance" / "bounds.md").read_text("utf-8")


def test_the_targets_of_the_standalone_server_are_read_from_its_rows() -> None:
    reached = {target.name: target.reached(ROWS) for target in TARGETS if target.name.startswith("standalone")}
    assert reached == {
        "standalone server: memory at its start": 100,
        "standalone server: held for a client that does not read": 260,
    }
