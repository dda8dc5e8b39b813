"""Literals: arguments in the notations of Python, of Gemma and of elements, read as JSON."""

import json
import re
from itertools import chain

import orjson
import pytest
from each import each
from families.literals import ALIKE, CASES, STOP, mutations
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.parsers.families.literal_reader import LiteralReader
from interlock.parsers.families.literals import ELEMENTS, FUNCTION_GEMMA, GEMMA, LITERALS, PYTHON, LiteralPart
from interlock.parsers.families.parameter_values import Schema
from interlock.parsers.families.reference_encoders import WrittenItem, encode

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
KEYS = st.from_regex(r"[a-z]\w{0,3}", fullmatch=True)
SCALARS = TEXT | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
FAMILIES = {"pythonic": PYTHON, "gemma4": GEMMA, "functiongemma": FUNCTION_GEMMA, "minimax_m3": ELEMENTS}


def read(dialect, text, schema=None, size=1 << 20, stops=frozenset()):
    """What a literal gives as JSON, with what is left of the text and why."""
    reader = LiteralReader(dialect, frozenset(stops), Schema(schema or {}, schema or {}))
    out, rest, stop = "", "", ""
    for start in range(0, len(text), size):
        rest += text[start : start + size]
        written, at, stop = reader.read(rest, 0, final=start + size >= len(text))
        out, rest = out + written, rest[at:]
    return out + reader.end(), rest, stop


def values(keys):
    return st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
    )


def schema_of(value):
    """A schema that says what elements do not."""
    match value:
        case dict():
            return {"type": "object", "properties": {key: schema_of(each) for key, each in value.items()}}
        case list():
            return {"type": "array", "items": {"anyOf": [schema_of(each) for each in value]}}
        case None:
            return {"type": "null"}
        case _:
            return {"type": {bool: "boolean", int: "integer", float: "number", str: "string"}[type(value)]}


@each("case", CASES, ids=lambda case: case.text)
def test_case(case):
    assert case.holds()


@settings(deadline=None)
@given(st.dictionaries(KEYS, values(TEXT), max_size=3), st.integers(1, 9))
def test_what_python_writes_is_read(members, size):
    text = encode([WrittenItem("call", json.dumps(members), "")], "pythonic")[1:-1]
    out, rest, stop = read(PYTHON, text, size=size)
    assert (orjson.loads(out), rest, stop) == (members, "", "ended")


@settings(deadline=None)
@given(st.dictionaries(KEYS, values(KEYS), max_size=3), st.integers(1, 9), st.sampled_from(["gemma4", "functiongemma"]))
def test_what_gemma_writes_is_read(members, size, name):
    begin, _, written = encode([WrittenItem("call", json.dumps(members), "")], name).partition("{")
    assert begin.endswith("call:")
    text = "{" + written.rpartition("}")[0] + "}"
    out, rest, stop = read(FAMILIES[name], text, size=size)
    assert (orjson.loads(out), rest, stop) == (members, "", "ended")


SIMPLE = TEXT.filter(str.strip) | st.integers(-99, 99) | st.booleans()
NESTED = (
    SIMPLE
    | st.lists(st.dictionaries(KEYS, SIMPLE, min_size=1, max_size=2), min_size=1, max_size=1)
    | st.dictionaries(KEYS, SIMPLE | st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=3)
)


@settings(deadline=None)
@given(st.dictionaries(KEYS, NESTED, max_size=3), st.integers(1, 9))
def test_what_elements_say_is_read_with_the_types_of_the_schema(members, size):
    written = encode([WrittenItem("call", json.dumps(members), "")], "minimax_m3")
    text = written.partition('name=""')[2].partition(f"{ELEMENTS.namespace}</invoke>")[0]
    out, rest, stop = read(ELEMENTS, text, schema_of(members), size)
    assert (orjson.loads(out), rest, stop) == (members, "", "")


@pytest.mark.parametrize("dialect", FAMILIES.values(), ids=FAMILIES)
@settings(deadline=None)
@given(st.data(), st.integers(1, 5))
def test_any_text_is_read_in_any_chunks(dialect, data, size):
    parts = [*dialect.signs, *(f"{dialect.namespace}<{tag}>" for tag in ("a", "/a", "item", "/item") if dialect.namespace)]
    pieces = st.sampled_from(
        [*parts, STOP, "a", "r", " ", "\n", "\\", "\\n", "\\ud83d", "\\ude00", "\\x4", "\\N{DASH}", "1", "True"]
    )
    text = "".join(data.draw(st.lists(pieces, max_size=12)))
    opening = {"minimax_m3": ">", "pythonic": "("}.get(next(name for name, each in FAMILIES.items() if each is dialect), "{")
    whole, _, stop = read(dialect, opening + text, stops={STOP})
    assert stop in {"", "ended", "broken", "marker"}
    if stop == "":
        assert read(dialect, opening + text, size=size, stops={STOP}) == (whole, "", "")


def test_every_state_answers_every_part():
    assert all(state.rows.keys() == set(LiteralPart) for name, state in LITERALS.states.items() if name not in LITERALS.final)


@pytest.mark.long
def test_no_change_of_a_row_survives_but_those_that_nobody_could_see():
    survived = {str(each) for each in mutations() if each.fate() == "survived"}
    assert survived == {*chain.from_iterable(ALIKE.values())}


def test_no_expression_is_compiled_for_the_tags_of_a_text(monkeypatch):
    element = f"{ELEMENTS.namespace}<%s>x{ELEMENTS.namespace}</%s>"
    assert read(ELEMENTS, ">" + element % ("a", "a")) == ('{"a":"x"}', "", "")
    monkeypatch.setattr(re, "compile", None)
    assert read(ELEMENTS, ">" + element % ("b", "b")) == ('{"b":"x"}', "", "")


def test_a_string_passes_through_until_something_in_it_changes():
    reader = LiteralReader(PYTHON, frozenset({STOP}), Schema())
    assert reader.passes is None
    reader.read("(a='x", 0, final=False)
    assert [text for text in ("it", "it's", '"', "\\", "\n", "<") if reader.passes(text) is None] == ["it", "<"]
    reader.read("\n", 0, final=False)
    assert [text for text in ("it", "it's", '"', "\\", "\n", "<") if reader.passes(text) is None] == ["it"]
