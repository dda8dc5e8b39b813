"""The vocabulary has every event that the installed SDK knows, with its fields."""

import pytest

from interlock.events.conversion import EVENT_MODELS
from interlock.events.spec import EVENTS, TERMINAL, Place

BASIC = {"type", "sequence_number"}
BETWEEN_RELEASES = {
    # Required by openai 2.25, gone from later releases.
    "response.function_call_arguments.done": {"name"},
    # Without a field for them in some release.
    "response.image_generation_call.partial_image": {"background", "output_format", "quality", "size"},
    "response.reasoning_summary_part.done": {"status"},
}


def fields(name):
    return {*EVENTS[name].scope.value, *EVENTS[name].fields}


def test_every_event_of_the_package_has_a_specification():
    assert EVENT_MODELS.keys() - EVENTS.keys() == set()


@pytest.mark.parametrize("name", sorted(EVENT_MODELS.keys() & EVENTS.keys()))
def test_the_fields_are_those_of_the_package(name):
    known = EVENT_MODELS[name].model_fields.keys() - BASIC - {"agent", "obfuscation"}
    assert fields(name) ^ known <= BETWEEN_RELEASES.get(name, set())


@pytest.mark.parametrize("name", sorted(EVENT_MODELS.keys() & EVENTS.keys()))
def test_what_the_package_requires_is_not_optional(name):
    required = {field for field, info in EVENT_MODELS[name].model_fields.items() if info.is_required()}
    assert required & EVENTS[name].optional == set()


def test_the_terminal_events_are_those_after_which_nothing_comes():
    assert {"response.completed", "response.incomplete", "response.failed"} == TERMINAL
    assert {name for name, spec in EVENTS.items() if spec.after is Place.AFTER} == {*TERMINAL, "response.output_item.done"}


def test_names_are_keys():
    assert all(spec.name == name for name, spec in EVENTS.items())
