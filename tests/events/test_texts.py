"""The table of texts agrees with the classes of events and items."""

import pytest
from msgspec.structs import fields

from interlock.events.items import ITEMS, TEXTS
from interlock.events.stream import EVENTS, own_fields, wire_name


def test_every_event_with_a_delta_of_text_is_in_the_table():
    deltas = {name for name, event in EVENTS.items() for field in fields(event) if field.name == "delta" and field.type is str}
    assert deltas == {f"response.{subject}.delta" for subject in TEXTS}


@pytest.mark.parametrize("subject", TEXTS)
def test_a_row_names_fields_of_its_events_and_of_its_item(subject):
    text = TEXTS[subject]
    done, delta, item = EVENTS[f"response.{subject}.done"], EVENTS[f"response.{subject}.delta"], ITEMS[text.kind]
    assert own_fields(done)[0] == text.field
    assert {name for name in delta.__struct_fields__ if name.endswith("_index")} - {"output_index"} == {text.index} - {""}
    if text.part:
        (of_list,) = (field.type for field in fields(item) if field.name == text.parts)
        assert text.part in {wire_name(part) for part in parts_in(of_list)}
    elif not text.index:
        assert item.text_path[-1] == text.field


def parts_in(hint):
    """Give the classes of parts in the type of a list."""
    if hasattr(hint, "__struct_config__"):
        return [hint]
    return [part for arm in getattr(hint, "__args__", ()) for part in parts_in(arm)]
