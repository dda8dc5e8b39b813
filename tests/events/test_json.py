"""Any text can be written: JSON that never fails."""

import json
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.events.json import as_json, clean, dumps, loads
from interlock.events.parts import OutputText

TEXT = st.text(st.characters())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def cleaned(value):
    match value:
        case str():
            return clean(value)
        case list():
            return [cleaned(entry) for entry in value]
        case dict():
            return {clean(name): cleaned(entry) for name, entry in value.items()}
        case _:
            return value


@pytest.mark.parametrize(
    ("text", "written"), [("abc", "abc"), ("é", "é"), ("a\ud800é\udfff", "a\ufffdé\ufffd"), ("\U0001f600", "\U0001f600")]
)
def test_lone_surrogates_are_replaced_one_by_one(text, written):
    assert clean(text) == written


@given(TEXT)
def test_clean_text_can_be_encoded(text):
    assert len(clean(text).encode().decode()) == len(text)


@given(VALUES)
def test_every_written_value_can_be_read(value):
    data = dumps(value)
    assert json.loads(data) == cleaned(value)
    assert b"\n" not in data


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (float("nan"), b"null"),
        ([float("inf"), "\ud800"], '[null,"\ufffd"]'.encode()),
        (2**70, b"1180591620717411303424"),
        ({"a": MappingProxyType({"b": (1, 2.5)})}, b'{"a":{"b":[1,2.5]}}'),
        ({"\ud800": None, "t": True}, '{"\ufffd":null,"t":true}'.encode()),
    ],
)
def test_values_that_json_cannot_hold_are_written_legally(value, data):
    assert dumps(value) == data


def test_an_object_that_is_not_json_raises():
    with pytest.raises(TypeError, match=r"^object cannot be written as JSON$"):
        dumps({"a": object()})


@given(VALUES)
def test_a_value_as_json_is_what_is_written(value):
    assert as_json(value) == cleaned(value)


def test_a_struct_is_written_by_its_type():
    assert as_json(OutputText(text="a\ud800")) == {"type": "output_text", "text": "a\ufffd", "annotations": [], "logprobs": []}


def test_nesting_of_any_depth_is_written():
    deep = loads("[" * 400 + "]" * 400)
    assert as_json(deep) == deep
