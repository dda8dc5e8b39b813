"""An assertion on a stream says all that is wrong with it."""

import pytest
from corpus.broken import BROKEN, BROKEN_FRAMES
from corpus.frames import framed
from corpus.legal import LEGAL

from interlock.testing import assert_legal


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_stream_passes_as_events_and_as_bytes(name):
    assert_legal(LEGAL[name])
    assert_legal(iter(LEGAL[name]))
    assert_legal(framed(LEGAL[name]))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stream_fails_by_its_rule(name):
    with pytest.raises(AssertionError, match=rf"^the stream is not legal:\n(.*\n)*  {name.split('-')[0]} at event"):
        assert_legal(BROKEN[name])


@pytest.mark.parametrize("name", BROKEN_FRAMES)
def test_bytes_that_are_framed_wrongly_fail(name):
    with pytest.raises(AssertionError, match=name.split("-")[0]):
        assert_legal(BROKEN_FRAMES[name])


def test_the_message_says_where_what_and_what_was_legal():
    with pytest.raises(AssertionError) as raised:
        assert_legal(BROKEN["R11-never-searched"])
    assert str(raised.value) == (
        "the stream is not legal:\n"
        "  R11 at event 4, response.web_search_call.completed of ws_0 (in_progress or ready): "
        "says that a tool came to its end that did not run; "
        "expected: response.output_item.done, response.web_search_call.searching"
    )


def test_no_stream_at_all_is_not_legal():
    with pytest.raises(AssertionError, match="R3 at event 0, the end"):
        assert_legal([])
