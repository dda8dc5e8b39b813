"""A table runs as it is declared, and the error for an invalid one names the state."""

import ast
import doctest
from enum import StrEnum
from functools import cache
from pathlib import Path

import pytest
from attrs import evolve
from for_each import for_each

from interlock.events.items import ITEMS
from interlock.events.sse import EventWriter, SseWriter
from interlock.events.stream import EVENTS, ArgumentsDone, Completed, Created, Queued
from interlock.fsm import table
from interlock.fsm.deltas import Finish
from interlock.fsm.driver import ResponseDriver, SequentialIds
from interlock.fsm.emissions import _field_done, added, done, progress, text_delta, text_done, text_part_added
from interlock.fsm.lifecycle import Emission, Lifecycle, Subject, emission, stream_of
from interlock.fsm.lifecycles import DECLARED, LIFECYCLES, RESPONSE
from interlock.fsm.table import DeclarationError, Edge, IllegalTransition, Machine, Table
from interlock.serving.responses.turns_table import TURNS


class Push(StrEnum):
    ON = "on"
    OFF = "off"


LAMP = Table("lamp", "dark", [Edge("dark", Push.ON, "lit", ["shine"]), Edge("lit", Push.OFF, "dark")])
TASK = Table(
    "task",
    initial="queued",
    final={"ended", "lost"},
    edges=[
        Edge("queued", "start", "running", [1, 2]),
        Edge("queued", "lose", "lost"),
        Edge("running", "wait", "running", [3]),
        Edge("running", "end", "ended"),
    ],
)
GOOD = [Edge("a", "go", "b"), Edge("b", "end", "c")]
R = {"r": ["a", "b"]}


def test_a_table_holds_its_states_and_triggers_in_the_order_of_the_declaration():
    assert [*TASK.states] == ["queued", "running", "lost", "ended"]
    assert TASK.triggers == ("start", "lose", "wait", "end")


def test_a_state_has_its_rows_and_a_repr_with_its_triggers():
    states = TASK.states
    assert states["queued"].rows == {"start": (states["running"], (1, 2)), "lose": (states["lost"], ())}
    assert [repr(state) for state in states.values()] == [
        "<State queued: start, lose>",
        "<State running: wait, end>",
        "<State lost: final>",
        "<State ended: final>",
    ]


def test_a_state_has_the_shortest_path_to_each_trigger():
    assert {name: state.paths for name, state in TASK.states.items()} == {
        "queued": {"start": ("start",), "lose": ("lose",), "wait": ("start", "wait"), "end": ("start", "end")},
        "running": {"wait": ("wait",), "end": ("end",)},
        "lost": {},
        "ended": {},
    }


def test_a_machine_enters_the_next_state_and_returns_the_effects():
    machine = Machine.at_start(TASK)
    fired = [(machine.fire(trigger), machine.state.name) for trigger in ("start", "wait", "wait", "end")]
    assert fired == [((1, 2), "running"), ((3,), "running"), ((3,), "running"), ((), "ended")]


def test_a_trigger_without_an_edge_is_refused_and_changes_nothing():
    machine = Machine.at_start(LAMP)
    with pytest.raises(IllegalTransition, match=r"^lamp: 'off' is illegal in state 'dark'; legal: on$"):
        machine.fire(Push.OFF)
    assert machine.state is LAMP.states["dark"]


def test_only_the_owner_has_the_rows_of_owned_triggers():
    state = evolve(TASK, owned={"end"}).states["running"]
    assert [state.row_for(trigger, is_owner=True) for trigger in ("end", "start")] == [state.rows["end"], None]
    assert [state.row_for(trigger, is_owner=False) for trigger in ("end", "wait")] == [None, state.rows["wait"]]


def test_a_final_state_refuses_every_trigger():
    with pytest.raises(IllegalTransition, match=r"^task: 'end' is illegal in state 'ended'; legal: nothing$") as caught:
        Machine(TASK.states["ended"]).fire("end")
    refused = caught.value
    assert (refused.table, refused.state, refused.trigger, refused.legal) == ("task", "ended", "end", ())


WRONG = {
    "state 'a' has two edges for 'go'": {"edges": [*GOOD, Edge("a", "go", "c")]},
    "state 'lost' cannot be reached": {"edges": [*GOOD, Edge("lost", "end", "c")]},
    "state 'nowhere' cannot be reached": {"initial": "nowhere"},
    "state 'never' cannot be reached": {"final": {"c", "never"}},
    "state 'c' is final but has edges": {"edges": [*GOOD, Edge("c", "linger", "c")]},
    "state 'd' is not final but has no edge": {"edges": [*GOOD, Edge("b", "stop", "d")]},
    "state 'c' is not final but has no edge": {"final": frozenset()},
    "state 'd' has no way to a final state": {"edges": [*GOOD, Edge("b", "stop", "d"), Edge("d", "wait", "d")]},
    "state 'b' has no edge for go": {"total": ["end", "go"], "edges": [*GOOD, Edge("a", "end", "c")]},
    "state 'a' has no edge for stop, halt": {"total": ["go", "end", "stop", "halt"], "edges": [*GOOD, Edge("a", "end", "c")]},
    "state 'a' has an edge for go, which total does not list": {"total": {"a": [], "b": ["end"]}},
    "total must list exactly the non-final states a, b; it lists a, c": {"total": {"a": ["go"], "c": []}},
    "state 'r' cannot be reached": {"edges": [*GOOD, Edge("r", "stop", "c")]},
    "region 'r' needs two states or more": {"edges": [*GOOD, Edge("r", "stop", "c")], "regions": {"r": ["a"]}},
    "region 'r' lists 'd', which is not a state": {"edges": [*GOOD, Edge("r", "stop", "c")], "regions": {"r": ["a", "d"]}},
    "owned lists stop, which no edge has": {"owned": {"stop"}},
    "region 'b' has the name of a state": {"regions": {"b": ["a", "c"]}},
    "region 'r' has the name of a state": {"edges": [*GOOD, Edge("a", "stop", "r"), Edge("r", "stop", "c")], "regions": R},
    "state 'b' has two edges for 'end'": {"edges": [*GOOD, Edge("r", "end", "c")], "regions": R},
}


@for_each("message", WRONG)
def test_an_invalid_table_is_refused(message):
    with pytest.raises(DeclarationError) as caught:
        Table(**{"name": "thing", "initial": "a", "edges": GOOD, "final": {"c"}, **WRONG[message]})
    assert str(caught.value) == f"table 'thing': {message}"


def test_a_state_may_be_in_two_regions():
    regional = [Edge("r", "stop", "c"), Edge("s", "halt", "b")]
    table = Table("thing", "a", [*GOOD, *regional], {"c"}, regions={**R, "s": ["b", "a"]})
    assert {name: [*state.rows] for name, state in table.states.items()} == {
        "a": ["go", "stop", "halt"],
        "b": ["end", "stop", "halt"],
        "c": [],
    }


def test_an_edge_in_a_region_is_one_edge_in_each_of_its_states():
    regional = [Edge("r", "stop", "c", [1]), Edge("r", "wait", "r", [2])]
    table = Table("thing", "a", [*GOOD, *regional], {"c"}, regions=R)
    assert table.edges == (
        *GOOD,
        Edge("a", "stop", "c", [1]),
        Edge("b", "stop", "c", [1]),
        Edge("a", "wait", "a", [2]),
        Edge("b", "wait", "b", [2]),
    )
    explicit = Table("thing", "a", table.edges, {"c"})
    assert rows(table) == rows(explicit)


def rows(table):
    """Every row of a table, as names."""
    return {
        name: {trigger: (dest.name, effects) for trigger, (dest, effects) in state.rows.items()}
        for name, state in table.states.items()
    }


def test_the_table_of_turns_has_the_rows_of_its_region_in_each_state():
    broken, stored = ("ended", ("break_off", "free")), ("settling", ("store",))
    freed, refused = ("ended", ("free",)), ("refused", ("refuse",))
    aborted = {"fail": ("settling", ("break_off", "store")), "leave": broken}
    open_ = {"interrupt": ("interrupted", ("stop",)), **aborted}
    yielding = "ending", ("yield",)
    preparing, compacting = ("preparing", ("prepare",)), ("compacting", ("compact",))
    assert rows(TURNS) == {
        "absent": {"begin": ("admitting", ("take", "admit")), "interrupt": ("unwanted", ())},
        "unwanted": {"begin": ("withdrawn", ("take",))},
        "admitting": {
            "prepare": preparing,
            "compact": compacting,
            "open": ("opening", ("open",)),
            "interrupt": ("withdrawn", ("stop",)),
            "fail": refused,
            "leave": freed,
        },
        "withdrawn": {"fail": refused, "leave": freed},
        "refused": {"leave": freed},
        "opening": {"prepare": preparing, "compact": compacting, **open_},
        "compacting": {"prepare": preparing, "answer": ("ending", ("finish",)), **open_},
        "preparing": {"go_on": ("generating", ("generate",)), "call": ("running", ("run",)), "end": stored, **open_},
        "generating": {
            "answer": ("ending", ("finish",)),
            "call": ("running", ("run",)),
            "steer": yielding,
            "end": stored,
            **open_,
        },
        "running": {
            "go_on": ("generating", ("generate",)),
            "answer": ("ending", ("finish",)),
            "exhaust": ("ending", ("cut",)),
            "steer": yielding,
            "end": stored,
            **open_,
        },
        "ending": {"end": stored, **open_},
        "interrupted": aborted,
        "settling": {"settle": ("settled", ("free",)), "leave": freed},
        "settled": {"leave": ("ended", ())},
        "ended": {},
    }


def test_a_total_table_has_a_row_for_each_trigger_in_each_state():
    both = [Edge("dark", Push.OFF, "dark"), Edge("lit", Push.ON, "lit")]
    total = Table("lamp", "dark", [*LAMP.edges, *both], total=Push)
    assert {name: set(state.rows) for name, state in total.states.items()} == {"dark": set(Push), "lit": set(Push)}


def test_total_may_list_the_triggers_of_each_state():
    Table("thing", "a", GOOD, {"c"}, total={"a": ["go"], "b": ["end"]})


def test_the_doctest_of_the_module_passes():
    results = doctest.testmod(table)
    assert (results.failed, results.attempted) == (0, 7)


# The error for an invalid declaration names the state or the edge


OPEN = Edge("absent", "open", "started", [added])
CUT = Edge("started", "cut", "ended", [done])

WRONG_LIFECYCLES = {
    "state 'started' has two edges for 'cut'": [OPEN, CUT, CUT],
    "state 'lost' cannot be reached": [OPEN, CUT, Edge("lost", "cut", "ended", [done])],
    "state 'ended' is final but has edges": [OPEN, CUT, Edge("ended", "linger", "ended")],
    "state 'stuck' has no way to a final state": [
        OPEN,
        CUT,
        Edge("started", "wait", "stuck"),
        Edge("stuck", "wait", "stuck"),
    ],
    "state 'absent' has no way to a final state": [OPEN, Edge("started", "cut", "started")],
    "state 'started' has no edge for 'cut'": [OPEN, Edge("started", "close", "ended", [done])],
    "'cut' in state 'started' does not lead to a final state": [
        OPEN,
        Edge("started", "cut", "cutting"),
        Edge("cutting", "cut", "ended", [done]),
    ],
    "state 'started' has no edge for 'fail'": [OPEN, CUT, Edge("started", "succeed", "ended", [done])],
    "'fail' in state 'started' does not lead to a final state": [
        OPEN,
        CUT,
        Edge("started", "succeed", "ended", [done]),
        Edge("started", "fail", "started"),
    ],
    "'open' in state 'absent' emits response.output_item.done in place 'outside', not 'item'": [
        Edge("absent", "open", "started", [done]),
        CUT,
    ],
    "'append' in state 'started' emits response.output_text.delta in place 'item', not 'part'": [
        OPEN,
        CUT,
        Edge("started", "append", "started", [text_delta]),
    ],
    "'cut' in state 'started' emits response.output_item.done in place 'part', not 'item'": [
        OPEN,
        CUT,
        Edge("started", "append", "started", [text_part_added]),
    ],
    "state 'ended' is entered in place 'after' and in place 'item'": [OPEN, CUT, Edge("started", "close", "ended")],
    "state 'ended' is final in place 'part_done'": [
        OPEN,
        Edge("started", "cut", "ended", [text_part_added, text_done]),
    ],
    "state 'after' is not final, but the item has ended": [
        OPEN,
        CUT,
        Edge("started", "close", "after", [done]),
        Edge("after", "cut", "ended"),
    ],
}


@for_each("message", WRONG_LIFECYCLES)
def test_an_invalid_lifecycle_is_refused(message):
    with pytest.raises(DeclarationError) as caught:
        Lifecycle(name="thing", initial="absent", final={"ended"}, edges=WRONG_LIFECYCLES[message])
    assert str(caught.value) == f"table 'thing': {message}"


@for_each(
    ("fact", "value"),
    {
        "generated_ids": {"day": "day"},
        "required_at_open": ("day",),
        "empty_at_open": {"day": ""},
        "text_path": ("day", "name"),
        "known_at_done": ("day",),
        "tool_result": ("day",),
        "plain_result": "day",
        "no_result": {"day": None},
        "encrypted_field": "day",
        "as_function_call": ("calendar", "day"),
        "as_function_output": "day",
    }.items(),
)
def test_the_lifecycle_of_a_kind_whose_facts_name_a_missing_field_is_refused(fact, value, monkeypatch):
    with monkeypatch.context() as changed:
        changed.setattr(ITEMS["program"], fact, value)
        with pytest.raises(DeclarationError) as caught:
            Lifecycle(name="program", initial="absent", final={"ended"}, edges=[OPEN, CUT])
    assert str(caught.value) == f"table 'program': `{fact}` names fields that the item lacks: day"


def test_a_final_state_that_no_edge_enters_is_refused():
    with pytest.raises(DeclarationError) as caught:
        Lifecycle(name="thing", initial="absent", final={"ended", "never"}, edges=[OPEN, CUT])
    assert str(caught.value) == "table 'thing': state 'never' cannot be reached"


def test_a_final_state_may_be_entered_without_an_event():
    lifecycle = Lifecycle(
        name="thing",
        initial="absent",
        final={"dropped"},
        edges=[Edge("absent", "open", "pending"), Edge("pending", "cut", "dropped")],
    )
    assert [*lifecycle.states] == ["absent", "pending", "dropped"]


def test_a_valid_lifecycle_is_accepted():
    assert [*Lifecycle(name="thing", initial="absent", final={"ended"}, edges=[OPEN, CUT]).states] == [
        "absent",
        "started",
        "ended",
    ]


def test_a_progress_event_that_no_item_declares_is_refused():
    with pytest.raises(DeclarationError, match=r"^`ProgressName` in events/items.py has no 'response.mcp_call.started'$"):
        progress("mcp_call.started")


def test_a_done_event_with_several_fields_needs_an_emission_of_its_own():
    with pytest.raises(DeclarationError) as caught:
        _field_done(ArgumentsDone)
    assert str(caught.value) == "`_field_done` is for events with one field; write an `@emission` for ArgumentsDone"


# Lifecycles run as they are declared: the compiled rows equal the edges


EVERY = {"response": RESPONSE, **LIFECYCLES}


@emission
def created(door) -> Created:
    door.times += 1
    return Created(door.times)


DOOR = Lifecycle(
    name="door",
    initial="shut",
    final={"gone"},
    edges=[
        Edge("shut", "open", "ajar", [created]),
        Edge("ajar", "append", "ajar", [Emission(lambda door: Queued(door.times), Queued)]),
        Edge("ajar", "cut", "gone", [Emission(lambda door: Completed(door.times), Completed)]),
    ],
)


class Door(Subject["Door"]):
    times: int = 0


@for_each("name", EVERY)
def test_a_lifecycle_has_exactly_the_rows_of_its_edges(name):
    lifecycle = EVERY[name]
    rows = {
        (state.name, trigger, dest.name, emissions)
        for state in lifecycle.states.values()
        for trigger, (dest, emissions) in state.rows.items()
    }
    assert rows == {(edge.source, edge.trigger, edge.dest, tuple(edge.effects)) for edge in lifecycle.edges}


@for_each("name", EVERY)
def test_only_final_states_have_no_rows(name):
    lifecycle = EVERY[name]
    assert {state.name for state in lifecycle.states.values() if not state.rows} == lifecycle.final


@for_each("name", EVERY)
def test_every_illegal_trigger_is_refused(name):
    lifecycle = EVERY[name]
    for state in lifecycle.states.values():
        for trigger in {*lifecycle.triggers, "unheard_of"} - state.rows.keys():
            with pytest.raises(IllegalTransition) as caught:
                state.row(trigger)
            assert (caught.value.table, caught.value.state, caught.value.trigger) == (name, state.name, trigger)
            assert caught.value.legal == tuple(state.rows)


def test_an_illegal_transition_lists_the_legal_triggers():
    with pytest.raises(IllegalTransition, match=r"^door: 'shut' is illegal in state 'ajar'; legal: append, cut$"):
        DOOR.states["ajar"].row("shut")
    with pytest.raises(IllegalTransition, match=r"^door: 'cut' is illegal in state 'gone'; legal: nothing$"):
        DOOR.states["gone"].row("cut")


def test_an_emission_changes_the_subject_and_makes_the_event():
    door = Door(DOOR.states["shut"])
    door.state, (opening,) = door.state.row("open")
    assert door.state is DOOR.states["ajar"]
    assert opening.make(door) == Created(1)
    assert door.times == 1
    assert (opening.event, str(opening)) == (Created, "response.created")


def test_restore_undoes_an_edge():
    door = Door(DOOR.states["shut"])
    saved = door.save()
    door.state, (opening,) = door.state.row("open")
    opening.make(door)
    door.restore(saved)
    assert (door.state, door.times) == (DOOR.states["shut"], 0)


def test_a_state_streams_text_only_if_append_emits_a_single_delta():
    streams = {
        (name, state.name): str(emission)
        for name, each in EVERY.items()
        for state in each.states.values()
        if (emission := stream_of(state)) is not None
    }
    assert streams == {
        ("reasoning", "reasoning_text"): "response.reasoning_text.delta",
        ("message", "output_text"): "response.output_text.delta",
        ("function_call", "in_progress"): "response.function_call_arguments.delta",
        ("custom_tool_call", "in_progress"): "response.custom_tool_call_input.delta",
        ("mcp_call", "in_progress"): "response.mcp_call_arguments.delta",
        ("code_interpreter_call", "in_progress"): "response.code_interpreter_call_code.delta",
        ("apply_patch_call", "diff"): "response.apply_patch_call_operation_diff.delta",
        ("shell_call", "command"): "response.shell_call_command.delta",
    }


def test_declared_has_every_lifecycle():
    assert (DECLARED.response, DECLARED.items) == (RESPONSE, LIFECYCLES)
    assert [lifecycle.name for lifecycle in LIFECYCLES.values()] == [*LIFECYCLES]


# Only the edges of lifecycles make events


ROOT = Path(__file__).parents[2] / "src" / "interlock"
CLASSES = {event.__name__ for event in EVENTS.values()}
MAKERS = {"fsm/emissions.py"}


@cache
def calls(path):
    """Return the source of the function in each call of a file."""
    return [ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def modules(*folders):
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def test_only_the_emissions_of_edges_make_events():
    makers = {
        path.relative_to(ROOT).as_posix() for path in modules("") if {call.rpartition(".")[2] for call in calls(path)} & CLASSES
    }
    assert makers == MAKERS


def test_only_the_driver_and_rebuilding_run_emissions():
    runners = {path.relative_to(ROOT).as_posix() for path in modules("fsm", "serving") if "emission.make" in calls(path)}
    assert runners == {"fsm/driver.py", "fsm/rebuilding.py"}


def test_parsers_and_servers_call_no_writer():
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
