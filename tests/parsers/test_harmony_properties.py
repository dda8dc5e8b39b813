"""Every sequence of ids, in every partition: the properties of `recovery.properties`, over three kinds of sequences."""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recovery.notation import words
from recovery.properties import (
    CONTROLS,
    WELL_FORMED_HEADERS,
    conversation_ids,
    is_read_as_openai_harmony_reads_it,
    is_the_same_in_every_partition,
    keeps_all_text,
    makes_a_legal_stream,
)

pytestmark = pytest.mark.long

REASONS = st.sampled_from(["stop", "length"])
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5)

CONTROL = st.sampled_from(sorted(CONTROLS.values()))
TEXT = st.integers(0, 199_997)
ODD = st.sampled_from([-1, 2**40, 300_000, 201_088, 200_013, 199_998, 127, 128])
WORD = st.sampled_from(
    ["assistant", "final", "analysis", "commentary", " to=functions.f", "to=", " json", "code", "{}", "Hello", " a", "\n", "é😀"]
)
RAW = st.lists(st.one_of(CONTROL, CONTROL, TEXT, ODD), max_size=40)
MIXED = st.lists(st.one_of(CONTROL.map(lambda token: [token]), WORD.map(words)), max_size=20).map(
    lambda parts: list(chain(*parts))
)

CONTENT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
HEADERS = st.sampled_from(WELL_FORMED_HEADERS)
MESSAGE = st.tuples(HEADERS, CONTENT, st.sampled_from(["<|end|>", "<|call|>", "<|return|>"]))
CONVERSATION = st.lists(MESSAGE, min_size=1, max_size=4)


@st.composite
def mutated(draw: st.DrawFn) -> list[int]:
    """A well-formed turn of which tokens were dropped, doubled, replaced or swapped."""
    ids = conversation_ids(draw(CONVERSATION))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(ids) - 1, 0)))
        match draw(st.sampled_from(["drop", "double", "replace", "swap", "cut"])):
            case "drop":
                del ids[at : at + 1]
            case "double":
                ids[at:at] = ids[at : at + 1]
            case "replace":
                ids[at : at + 1] = [draw(st.one_of(CONTROL, TEXT, ODD))]
            case "swap":
                ids[at : at + 2] = reversed(ids[at : at + 2])
            case _:
                del ids[at:]
    return ids


SEQUENCES = st.one_of(RAW, MIXED, mutated())


@settings(max_examples=400, deadline=None)
@given(SEQUENCES, REASONS)
def test_no_text_is_lost_and_no_control_token_is_text(ids, reason):
    keeps_all_text(ids, reason)


@settings(max_examples=300, deadline=None)
@given(SEQUENCES, REASONS)
def test_any_sequence_gives_a_legal_stream(ids, reason):
    makes_a_legal_stream(ids, reason)


@settings(max_examples=400, deadline=None)
@given(SEQUENCES, SIZES, REASONS)
def test_any_partition_gives_the_same_items(ids, sizes, reason):
    is_the_same_in_every_partition(ids, sizes, reason)


@settings(max_examples=200, deadline=None)
@given(CONVERSATION)
def test_well_formed_turns_are_read_as_openai_harmony_reads_them(messages):
    is_read_as_openai_harmony_reads_it(conversation_ids(messages))
