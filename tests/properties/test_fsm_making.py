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


def gives_events(function):
    try:
        returned = typing.get_type_hints(function).get("return")
    except NameError:  # a name that is imported for type checkers alone
        returned = function.__annotations__.get("return")
    return "interlock.events.sse.Event" in repr(returned).replace("typing.", "") and "EventSpec" not in repr(returned)


def test_no_public_name_gives_an_event():
    givers = {
        name for package in (interlock.events, interlock.fsm) for name, function in public(package) if gives_events(function)
    }
    assert givers == set()


@pytest.mark.parametrize("writer", [EventWriter(), SseWriter(), Unwritten()])
def test_a_writer_has_nothing_public_that_writes(writer):
    assert [name for name in dir(writer) if callable(getattr(writer, name)) and not name.startswith("_")] == []


def calls(path):
    """Give the name of each method that is called in a file, with the function in which it is."""
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    yield function.name, ast.unparse(node.func)


def test_the_driver_alone_writes_events_and_only_where_an_edge_fires():
    writing = {
        (path.relative_to(ROOT).as_posix(), function, called)
        for folder in ("fsm", "events")
        for path in (ROOT / folder).rglob("*.py")
        for function, called in calls(path)
        if "writer" in called.lower() and called.rpartition(".")[2] in {"_write", "_stamp"}
    }
    assert writing == {
        ("fsm/driver.py", "_fire", "self._writer._write"),
        # The frame of an edge that has just fired, made ready for the same edge to fire again.
        ("fsm/driver.py", "_write", "self._writer._stamp"),
    }


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
