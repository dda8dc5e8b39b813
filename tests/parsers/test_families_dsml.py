"""DeepSeek's markup as its models write it: each shape is read as the calls that it means, and no markup is text."""

import pytest
from families.dsml import shapes
from families.properties import READ_AS, cut
from recovery.notation import items, run

from interlock.parsers import Chunk, FamilyParser
from interlock.parsers.families import family

SHAPES = list(shapes())


def test_there_are_at_least_as_many_shapes_as_others_found_faults_in():
    assert len({shape.text for shape in SHAPES}) >= 455


@pytest.mark.parametrize("size", [1 << 20, pytest.param(5, marks=pytest.mark.long)])
@pytest.mark.parametrize(("tools", "reasoning"), [("deepseek_v4", "deepseek_v4"), ("deepseek_v32", "deepseek_r1")])
def test_every_shape_is_read_as_it_is_meant(tools, reasoning, size):
    for shape in SHAPES:
        reader = FamilyParser(family(tools, reasoning), READ_AS, "between")
        read = items(run(reader, [Chunk(text=text) for text in cut(shape.text, [size])]))
        calls = [(item.fields["name"], item.text) for item in read if item.kind == "function_call" and item.ending]
        assert shape.fits(calls, " ".join(item.text for item in read if item.kind != "function_call")), shape
