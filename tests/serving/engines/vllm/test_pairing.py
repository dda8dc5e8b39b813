"""Each token is paired with its own text, however the engine splits texts and tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.parsers.chunk import Chunk
from interlock.serving.engines.vllm.readers import Pairing

TEXTS = ("", "a", "b", "ab", "<", "é", "\n")
END = len(TEXTS)


def pairing():
    return Pairing(lambda token: "<|end|>" if token == END else TEXTS[token], {END})


def pairs(*outputs):
    """Return the pairs of the outputs of a turn; the last one ends it."""
    pairs_of_turn = pairing()
    *others, last = outputs
    chunks = [each for output in others for each in pairs_of_turn.pair(*output)]
    return chunks + list(pairs_of_turn.pair(*last, finished=True))


def alone(tokens):
    return [Chunk([token], TEXTS[token]) for token in tokens]


@pytest.mark.parametrize(
    "outputs",
    [
        [([1], "a"), ([2], "b"), ([3], "ab")],
        [([1, 2, 3], "abab")],
        [([1], ""), ([2], "a"), ([3], "b"), ([], "ab")],  # a stop sequence makes the text lag behind
        [([0, 1], "a"), ([2, 3], "ba"), ([], "b")],
    ],
)
def test_a_token_is_paired_with_its_own_text(outputs):
    tokens = [token for ids, _ in outputs for token in ids]
    assert pairs(*outputs) == alone(tokens)


def test_log_probabilities_go_with_their_tokens():
    first, second = {"token": "a"}, {"token": "b"}
    assert pairs(([1, 2], "a", [first, second]), ([], "b")) == [Chunk([1], "a", [first]), Chunk([2], "b", [second])]


def test_tokens_of_truncated_text_become_one_chunk():
    entries = [{"token": "ab"}, {"token": "b"}]
    assert pairs(([3, 2], "", entries), ([], "a")) == [Chunk([3, 2], "a", entries)]


def test_the_token_that_ends_a_round_has_no_text():
    assert pairs(([1, END], "a")) == [Chunk([1], "a"), Chunk([END], "")]
    assert pairs(([1, END, 2], "a<|end|>b")) == [Chunk([1], "a"), Chunk([END], ""), Chunk([2], "b")]


def test_text_that_its_tokens_do_not_spell_stays_with_them():
    assert pairs(([1, 2], "x"), ([3], "ab")) == [Chunk([1, 2], "x"), Chunk([3], "ab")]


@given(st.lists(st.integers(0, END - 1)), st.data())
def test_no_text_and_no_token_is_lost_and_the_pairs_are_those_of_single_tokens(tokens, data):
    whole = "".join(TEXTS[token] for token in tokens)
    cut = data.draw(st.integers(0, len(whole)))
    outputs, read, length = [], 0, 0
    while read < len(tokens):
        size = data.draw(st.integers(1, len(tokens) - read))
        read += size
        text_length = len("".join(TEXTS[token] for token in tokens[:read]))
        upto = data.draw(st.integers(min(length, cut), min(text_length, cut)))
        outputs.append((tokens[read - size : read], whole[length:upto]))
        length = upto
    outputs.append(([], whole[length:cut]))
    paired = pairs(*outputs)
    assert "".join(each.text for each in paired) == whole[:cut]
    assert [token for each in paired for token in each.token_ids] == tokens
    assert paired[:-1] == alone(tokens)[: max(len(paired) - 1, 0)]
