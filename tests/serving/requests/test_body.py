"""The bytes of a body: how many values they hold is known before they are read."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from interlock.serving.requests.body import Census

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
    body, census = orjson.dumps(value), Census()
    for start in range(0, len(body), size):
        census.count(body[start : start + size])
    # The bracket that opens an empty array or object counts as the value that is not in it.
    assert census.values == values_of(value) + empties_of(value)
