"""Emissions, which make the events of a lifecycle's edges."""

from each import each

from interlock.events.stream import EVENTS, Keepalive, ResponseEvent
from interlock.fsm import emissions
from interlock.fsm.lifecycle import Emission
from interlock.fsm.lifecycles import LIFECYCLES, RESPONSE

BOUND = {name: value for name, value in vars(emissions).items() if isinstance(value, Emission)}
EMITTED = {
    emission.name for lifecycle in (RESPONSE, *LIFECYCLES.values()) for edge in lifecycle.edges for emission in edge.effects
}


@each("name", BOUND)
def test_every_emission_is_part_of_some_lifecycle(name):
    assert BOUND[name].name in EMITTED


def test_every_event_type_is_emitted_by_some_lifecycle():
    never = {name for name in EVENTS if name not in EMITTED}
    assert never == {"error"}


def test_an_edge_is_labelled_by_wire_names():
    assert [emission.name for emission in LIFECYCLES["message"].edges[2].effects] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
    ]


def test_the_response_emits_events_of_its_own_scope_alone():
    events = {emission.event for edge in RESPONSE.edges for emission in edge.effects}
    assert {event for event in events if not issubclass(event, ResponseEvent)} == {Keepalive}
