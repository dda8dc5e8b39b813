"""The bytes of a body: how many values they hold is known before they are read."""

import asyncio
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.body import JsonBudget, read_object
from interlock.serving.requests.runtime import Yielder

TEXTS = st.text(alphabet='a"\\,[{]:é', max_size=6)
JSON = st.recursive(
    TEXTS | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def values_of(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values_of, inner))


def empties_of(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else (not inner) + sum(map(empties_of, inner))


@given(JSON, st.integers(1, 9))
def test_the_values_of_a_body_are_counted_however_it_is_cut(value, size) -> None:
    body, budget = orjson.dumps(value), JsonBudget()
    for start in range(0, len(body), size):
        budget.count(body[start : start + size])
    # The bracket that opens an empty array or object counts as the value that is not in it.
    assert budget.values == values_of(value) + empties_of(value)


class Turns(Yielder):
    """Counts the turns that others are given."""

    count = 0

    async def checkpoint(self):
        self.count += 1


ESCAPES = [r"\ud800", r"\udc00", r"\uD83D\uDe00", r"\\ud800", r"\\\ud800", r"\n", r"\"", r"\u00e9", "é", "x", "€"]


def read(body):
    return asyncio.run(read_object(body, Yielder()))


def as_python_reads_it(body):
    text = json.loads(body.decode())["a"]
    return {"a": text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")}


@given(st.lists(st.sampled_from(ESCAPES)), st.integers(0, 40))
def test_lone_surrogates_are_mended_wherever_a_piece_ends(texts, before):
    text = "x" * (2**14 - before) + "".join(texts) + r"\ud800"
    body = b'{"a":"' + text.encode() + b'"}'
    assert read(body) == as_python_reads_it(body)


def test_names_are_mended_too():
    assert read(rb'{"\ud800": [{"\udc00b": null}]}') == {"\ufffd": [{"\ufffdb": None}]}


@pytest.mark.parametrize("escape", [rb"\ud800", rb"\udc00", rb"\ud83d\ude00", rb"\n", "é".encode()])
def test_others_have_their_turns_while_surrogates_are_mended(escape):
    turns, repeated = Turns(), 2**18
    body = asyncio.run(read_object(b'{"a":"' + escape * repeated + rb'\ud800"}', turns))
    assert body == as_python_reads_it(b'{"a":"' + escape * repeated + rb'\ud800"}')
    assert turns.count > len(escape) * repeated // (12 * 2**14)


@pytest.mark.parametrize("body", [rb'{"a":"\ud8zz"}', rb'{"a":"\ud8"}', b'{"a":"\\', rb'{"a":"\x\ud800"}', rb'{"a":"\ud800\u"}'])
def test_what_is_no_escape_is_not_mended(body):
    with pytest.raises(ApiError, match=r"could not be read as JSON: .* \(line 1, column \d+\)"):
        read(body)


def test_a_large_body_is_not_mended():
    with pytest.raises(ApiError, match="may have at most 4194304 bytes"):
        read(b'{"a":"' + rb"\ud800" * 2**20 + b'"}')


def test_a_byte_order_mark_is_passed_over():
    assert read(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
