"""Bodies of requests about conversations: what may be in one, and what is refused by the name of its parameter."""

from __future__ import annotations

import pytest

from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.create import read_conversation, read_conversation_items, read_metadata

USER = {"role": "user", "content": "hi"}
TYPED = {**USER, "type": "message"}


def test_a_conversation_begins_with_nothing_or_with_items():
    assert read_conversation({}) == read_conversation({"items": None, "metadata": None}) == ((), {})
    assert read_conversation({"items": [USER], "metadata": {"topic": "trains"}}) == ((TYPED,), {"topic": "trains"})


def test_items_are_added_as_they_are_and_metadata_is_set_as_a_whole():
    assert read_conversation_items({"items": [USER] * 20}) == (TYPED,) * 20
    assert read_metadata({"metadata": {"topic": "trains"}}) == {"topic": "trains"}
    assert read_metadata({"metadata": None}) == {}


@pytest.mark.parametrize(
    ("read", "body", "param", "code"),
    [
        (read_conversation, {"items": [USER] * 21}, "items", "array_above_max_length"),
        (read_conversation, {"items": [{"type": "riddle"}]}, "items[0].type", "invalid_value"),
        (read_conversation, {"metadata": {"k": 1}}, "metadata.k", "invalid_type"),
        (read_conversation_items, {}, "items", "missing_required_parameter"),
        (read_conversation_items, {"items": "hi"}, "items", "invalid_type"),
        (read_conversation_items, {"items": [USER] * 21}, "items", "array_above_max_length"),
        (read_conversation_items, {"items": [USER, {"role": "user"}]}, "items[1].content", "missing_required_parameter"),
        (read_metadata, {}, "metadata", "missing_required_parameter"),
        (read_metadata, {"metadata": {str(n): "v" for n in range(17)}}, "metadata", "object_above_max_properties"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(read, body, param, code):
    with pytest.raises(ApiError) as caught:
        read(body)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)
