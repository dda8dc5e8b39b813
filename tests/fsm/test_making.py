"""An event is made where an edge fires, and nowhere else."""

import ast
from functools import cache
from pathlib import Path

import pytest

from interlock.events.sse import EventWriter, SseWriter
from interlock.events.stream import EVENTS
from interlock.fsm.deltas import Finish
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.emissions import done
from interlock.fsm.ids import SequentialIds
from interlock.fsm.lifecycle import stream_of
from interlock.fsm.lifecycles import LIFECYCLES

ROOT = Path(__file__).parents[2] / "src" / "interlock"
CLASSES = {event.__name__ for event in EVENTS.values()}
MAKERS = {"fsm/emissions.py", "fsm/lifecycles/response.py"}


@cache
def calls(path):
    """Give the function of each call in a file, as it is written."""
    return [ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def modules(*folders):
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def test_events_are_made_by_the_emissions_of_edges_alone():
    makers = {
        path.relative_to(ROOT).as_posix() for path in modules("") if {call.rpartition(".")[2] for call in calls(path)} & CLASSES
    }
    assert makers == MAKERS


def test_emissions_are_run_by_the_driver_and_by_what_takes_a_stream_up():
    runners = {path.relative_to(ROOT).as_posix() for path in modules("fsm", "serving") if "emission.make" in calls(path)}
    assert runners == {"fsm/driver.py", "fsm/rebuilding.py"}


def test_servers_hand_a_writer_to_the_driver_and_call_none():
    for path in modules("parsers", "serving"):
        assert [call for call in calls(path) if call.endswith("Writer().write")] == []


def test_an_emission_cannot_be_called():
    with pytest.raises(TypeError, match="not callable"):
        done(None)


def test_a_streaming_state_stays_on_append():
    for lifecycle in LIFECYCLES.values():
        for state in lifecycle.states.values():
            emission = stream_of(state)
            if emission is not None:
                assert state.rows["append"] == (state, (emission,))


def test_a_returned_event_does_not_change_later():
    driver = ResponseDriver({"model": "m"}, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 7)
    frames = ResponseDriver({"model": "m"}, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 7)
    deltas = ["Hel", "lo", " world", Finish()]
    events = [event for delta in deltas for event in driver.feed([delta])]
    assert [SseWriter().write(event) for event in events] == frames.feed(deltas)
