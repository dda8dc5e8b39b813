"""The unions of all events and items, which type checkers narrow by `type`. tests/typing has the results."""

from typing import get_args, get_type_hints

from interlock import AnyEvent
from interlock.events.items import CompactionTrigger, ConfigurationUpdate, InputMessage, Item, OutputItem
from interlock.events.parts import kinds_of
from interlock.events.stream import EVENTS, PROGRESS, ProgressEvent


def literals(event):
    (literal,) = get_args(get_type_hints(event)["type"])
    return get_args(literal)


def test_the_type_of_every_event_is_its_name_on_the_wire():
    assert {name: event.type for name, event in EVENTS.items()} == {name: name for name in EVENTS}
    assert {name: literals(event) for name, event in EVENTS.items() if not issubclass(event, ProgressEvent)} == {
        name: (name,) for name, event in EVENTS.items() if not issubclass(event, ProgressEvent)
    }
    assert literals(ProgressEvent) == tuple(event.type for event in PROGRESS.values())


def test_the_union_has_every_event():
    assert {*get_args(AnyEvent)} == {event for event in EVENTS.values() if not issubclass(event, ProgressEvent)} | {ProgressEvent}


def test_the_type_of_every_item_is_its_name_on_the_wire():
    for item in kinds_of(Item):
        assert literals(item) == (item.type,) == (item.__struct_config__.tag,)


def test_the_union_has_every_item_of_a_response():
    assert {*get_args(OutputItem)} == {*kinds_of(Item)} - {InputMessage, CompactionTrigger, ConfigurationUpdate}
