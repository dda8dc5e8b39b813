"""An event is made by firing an edge, and in no other way: attempts to make one beside it."""

import ast
import copy
import importlib
import inspect
import pickle
import pkgutil
import re
import typing
from pathlib import Path

import attrs
import pytest

import interlock.events
import interlock.fsm
from interlock.events import spec
from interlock.events.sse import Event, EventWriter, SseWriter
from interlock.fsm.deltas import Finish
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.emissions import done
from interlock.fsm.ids import SequentialIds
from interlock.fsm.lifecycle import stream_of
from interlock.serving.runs.turns import Unwritten

ROOT = Path(__file__).parents[2]
SETTINGS = {"model": "m", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


def an_event():
    driver = ResponseDriver(SETTINGS, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 7)
    return driver.feed([Finish()])[0]


ATTEMPTS = {
    "its class": lambda: Event("response.created", 0, {}),
    "no arguments": Event,
    "evolving one": lambda: attrs.evolve(an_event(), sequence_number=9),
    "setting a field": lambda: setattr(an_event(), "sequence_number", 9),
    "an emission": lambda: done(an_event()),
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_it_cannot_be_made_by(attempt):
    with pytest.raises((TypeError, AttributeError, attrs.exceptions.FrozenInstanceError)):
        ATTEMPTS[attempt]()


def test_a_copy_is_the_same_event_and_no_other():
    event = an_event()
    assert copy.copy(event) == event
    assert copy.deepcopy(event) == event
    assert pickle.loads(pickle.dumps(event)) == event  # noqa: S301 - our own bytes


def public(package):
    """Give every public function, and every public method of a public class, of a package's modules."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if name.startswith("_") or getattr(value, "__module__", None) != module.name:
                continue
            if inspect.isfunction(value):
                yield f"{module.name}.{name}", value
            elif inspect.isclass(value):
                yield from (
                    (f"{module.name}.{name}.{method}", function)
                    for method, function in vars(value).items()
                    if inspect.isfunction(function) and not method.startswith("_")
                )


def makes_events(function):
    """Whether a function returns an event that it was not given."""
    try:
        hints = typing.get_type_hints(function)
    except NameError:  # a name that is imported for type checkers alone
        hints = function.__annotations__
    event = "interlock.events.sse.Event"
    returned, *taken = (repr(hint).replace("typing.", "") for hint in (hints.pop("return", None), *hints.values()))
    return event in returned.replace("EventSpec", "") and not any(event in hint for hint in taken)


def test_no_public_name_makes_an_event():
    makers = {
        name for package in (interlock.events, interlock.fsm) for name, function in public(package) if makes_events(function)
    }
    assert makers == set()


@pytest.mark.parametrize("writer", [EventWriter(), SseWriter(), Unwritten()])
def test_a_writer_writes_nothing_but_an_event_that_was_made(writer):
    for method in (writer.write, writer.repeat):
        assert next(iter(inspect.signature(method, eval_str=True).parameters.values())).annotation is Event
    with pytest.raises(AttributeError):
        SseWriter().write({"type": "response.created", "sequence_number": 0})


def calls(path):
    """Give the name of each method that is called in a file, with the function in which it is."""
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    yield function.name, ast.unparse(node.func)


def test_events_are_made_where_an_edge_fires_and_by_a_writer_of_what_was_made():
    making = {
        (path.relative_to(ROOT).as_posix(), function, called)
        for folder in ("fsm", "events", "parsers", "serving", "testing")
        for path in (ROOT / folder).rglob("*.py")
        for function, called in calls(path)
        if called.endswith("._made")
    }
    assert making == {("fsm/emitter.py", "_event", "Event._made"), ("events/sse.py", "repeat", "Event._made")}


def test_those_who_serve_hand_a_writer_to_the_driver_and_call_none():
    written = re.compile(r"(Sse|Event)Writer\(.*\)\.|_event\(|_frame\(")
    for folder in ("parsers", "serving"):
        for path in (ROOT / folder).rglob("*.py"):
            assert [called for _, called in calls(path) if written.search(called)] == []
            assert "interlock.events.sse._" not in path.read_text()


def test_what_is_stamped_is_an_edge_that_comes_back_to_its_state():
    for lifecycle in ResponseDriver(
        SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 7
    )._lifecycles.items.values():
        for state in lifecycle.states.values():
            emission = stream_of(state)
            if emission is not None:
                assert state.rows["append"] == (state, (emission,))


def test_a_specification_is_no_event():
    assert not isinstance(spec.CREATED, Event)
    assert not callable(spec.CREATED)
