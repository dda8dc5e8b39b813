"""`assert_legal` lists everything that is wrong with a stream."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from corpus_streams.broken import BROKEN, BROKEN_FRAMES
from corpus_streams.frames import framed
from corpus_streams.legal import LEGAL
from each import each

from interlock.serving.cli.commands import app
from interlock.testing import assert_legal

CORPUS = Path(__file__).parents[1] / "corpus"


@each("name", LEGAL)
def test_a_legal_stream_passes_as_events_and_as_bytes(name):
    assert_legal(LEGAL[name], strict=True)
    assert_legal(iter(LEGAL[name]), strict=True)
    assert_legal(framed(LEGAL[name]), strict=True)


def test_deviations_fail_only_a_strict_assertion():
    openai = framed(LEGAL["message"]).removesuffix(b"data: [DONE]\n\n")
    assert_legal(openai)
    with pytest.raises(AssertionError, match=r"R3 at event 11, the end: the stream has no end marker \[DONE\]$"):
        assert_legal(openai, strict=True)


@each("path", sorted(CORPUS.glob("*/*.sse")), ids=lambda path: path.stem)
def test_a_stream_is_judged_as_the_command_judges_it(path):
    for strict in (False, True):
        try:
            assert_legal(path.read_bytes(), strict=strict)
            status = 0
        except AssertionError:
            status = 1
        command = ["check", str(path), *(["--strict"] if strict else [])]
        assert CliRunner().invoke(app, command).exit_code == status


@each("name", BROKEN)
def test_a_broken_stream_fails_by_its_rule(name):
    with pytest.raises(AssertionError, match=rf"^the stream is not legal:\n(.*\n)*  {name.split('-')[0]} at event"):
        assert_legal(BROKEN[name], strict=True)


@each("name", BROKEN_FRAMES)
def test_wrongly_framed_bytes_fail(name):
    with pytest.raises(AssertionError, match=name.split("-")[0]):
        assert_legal(BROKEN_FRAMES[name], strict=True)


def test_the_message_has_the_place_the_fault_and_the_legal_events():
    with pytest.raises(AssertionError) as raised:
        assert_legal(BROKEN["R11-never-searched"])
    assert str(raised.value) == (
        "the stream is not legal:\n"
        "  R11 at event 4, response.web_search_call.completed of ws_0 (in_progress or ready): "
        "reports the end of a tool that did not run; "
        "expected: response.output_item.done, response.web_search_call.searching"
    )


def test_an_empty_stream_is_not_legal():
    with pytest.raises(AssertionError, match="R3 at event 0, the end"):
        assert_legal([])
