"""Rechunking a recording changes only its chunks."""

import json

import pytest

from interlock.parsers.chunk import Chunk
from interlock.serving.engines.recordings import Recording, read, rechunk


def recording(*lines: object, form: str = "text") -> Recording:
    return read(json.dumps(line) for line in ({"interlock_recording": 1, "format": form}, *lines))


def chunks(cut: Recording) -> list[list[Chunk]]:
    return [[output.chunk for output in turn.outputs] for turn in cut.turns]


def logprob(token: str) -> dict[str, object]:
    return {"token": token, "bytes": [*token.encode()], "logprob": -1.0, "top_logprobs": []}


def test_tokens_are_merged_and_cut_within_their_turn() -> None:
    whole = recording(
        {"token_ids": [1, 2], "finish_reason": None},
        {"token_ids": [3], "finish_reason": "stop"},
        {"tool_result": {"output": "x"}},
        {"token_ids": [4]},
        form="harmony",
    )
    cut = rechunk(whole, 2)
    assert chunks(cut) == [[Chunk(token_ids=(1, 2)), Chunk(token_ids=(3,))], [Chunk(token_ids=(4,))]]
    assert [turn.results for turn in cut.turns] == [turn.results for turn in whole.turns]
    assert chunks(rechunk(whole, 1000)) == [[Chunk(token_ids=(1, 2, 3))], [Chunk(token_ids=(4,))]]


def test_the_last_chunk_has_the_finish_reason_and_all_have_the_usage() -> None:
    whole = recording(
        {"text": "ab", "usage": {"input_tokens": 9, "cached_tokens": 8}},
        {"text": "c", "finish_reason": "length", "usage": {"cache_write_tokens": 1}},
    )
    (turn,) = rechunk(whole, 1).turns
    assert [output.finish_reason for output in turn.outputs] == [None, None, "length"]
    counts = [(output.input_tokens, output.cached_tokens, output.cache_write_tokens) for output in turn.outputs]
    assert counts == [(9, 8, 1)] * 3


def test_a_turn_without_any_token_keeps_its_end() -> None:
    (turn,) = rechunk(recording({"finish_reason": "error"}), 7).turns
    assert [(output.chunk, output.finish_reason) for output in turn.outputs] == [(Chunk(), "error")]


def test_text_is_divided_by_character_beside_its_tokens() -> None:
    whole = recording({"token_ids": [1], "text": "aü"}, {"token_ids": [2], "text": "b"})
    assert chunks(rechunk(whole, 2)) == [[Chunk(token_ids=(1, 2), text="aü"), Chunk(text="b")]]


def test_text_is_divided_by_token_if_the_log_probabilities_spell_it() -> None:
    whole = recording({"token_ids": [1, 2, 3], "text": "Hello you", "logprobs": [*map(logprob, ["Hel", "lo", " you"])]})
    assert chunks(rechunk(whole, 2)) == [
        [
            Chunk((1, 2), "Hello", (logprob("Hel"), logprob("lo"))),
            Chunk((3,), " you", (logprob(" you"),)),
        ]
    ]


def test_text_is_divided_by_character_if_the_log_probabilities_do_not_spell_it() -> None:
    whole = recording({"text": "abc", "logprobs": [logprob("\ufffd"), {"bytes": None}]})
    assert chunks(rechunk(whole, 2)) == [
        [Chunk(text="ab", logprobs=(logprob("\ufffd"), {"bytes": None})), Chunk(text="c", logprobs=())],
    ]


def test_chunks_with_and_without_log_probabilities_are_not_merged() -> None:
    whole = recording({"text": "a", "logprobs": [logprob("a")]}, {"text": "b"})
    assert chunks(rechunk(whole, 9)) == chunks(whole)


def test_deltas_are_divided_and_never_merged() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "abc"}}
    whole = recording(
        {"token_ids": [1, 2], "delta": {"reasoning": "xyz", "content": None}},
        {"token_ids": [3], "delta": {"content": "12"}},
        {"delta": {"content": "3"}},
        {"delta": {"tool_calls": [call]}},
        {"delta": {"tool_calls": [{"index": 1}]}},
        form="vllm",
    )
    assert chunks(rechunk(whole, 2)) == [
        [
            Chunk(token_ids=(1, 2), delta={"reasoning": "xy"}),
            Chunk(delta={"reasoning": "z"}),
            Chunk(token_ids=(3,), delta={"content": "12"}),
            Chunk(delta={"content": "3"}),
            Chunk(delta={"tool_calls": [{**call, "function": {"name": "f", "arguments": "ab"}}]}),
            Chunk(delta={"tool_calls": [{"index": 0, "function": {"arguments": "c"}}]}),
            Chunk(delta={"tool_calls": [{"index": 1, "function": {"arguments": ""}}]}),
        ]
    ]


def test_a_delta_without_one_string_stays_whole() -> None:
    calls = [{"index": 0, "function": {"arguments": "abc"}}, {"index": 1, "function": {"arguments": "def"}}]
    whole = recording(
        {"token_ids": [1], "delta": {"reasoning": "abc", "content": "def"}},
        {"token_ids": [2], "delta": {"tool_calls": calls}},
        {"token_ids": [3], "delta": {}},
        form="vllm",
    )
    assert chunks(rechunk(whole, 1)) == chunks(whole)


def test_a_delta_with_log_probabilities_stays_whole() -> None:
    whole = recording({"delta": {"content": "abc"}, "logprobs": [logprob("abc")]}, form="vllm")
    assert chunks(rechunk(whole, 1)) == chunks(whole)


def test_a_chunk_holds_at_least_one_token() -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        rechunk(recording(), 0)
