"""A table runs as it is declared, and a wrong one is refused by a message that names the state."""

import doctest
from enum import StrEnum

import pytest
from attrs import evolve
from each import each

from interlock.fsm import table
from interlock.fsm.errors import DeclarationError, IllegalTransition
from interlock.fsm.table import Edge, Machine, Table
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


def test_a_state_is_linked_to_those_that_follow_and_shows_its_triggers():
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


def test_a_final_state_refuses_everything():
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


@each("message", WRONG)
def test_a_wrong_table_is_refused(message):
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


def test_the_turns_have_the_rows_that_they_would_have_without_a_region():
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


def test_a_total_table_answers_each_trigger_in_each_state():
    both = [Edge("dark", Push.OFF, "dark"), Edge("lit", Push.ON, "lit")]
    total = Table("lamp", "dark", [*LAMP.edges, *both], total=Push)
    assert {name: set(state.rows) for name, state in total.states.items()} == {"dark": set(Push), "lit": set(Push)}


def test_total_may_list_the_triggers_of_each_state():
    Table("thing", "a", GOOD, {"c"}, total={"a": ["go"], "b": ["end"]})


def test_the_example_of_the_module_is_true():
    results = doctest.testmod(table)
    assert (results.failed, results.attempted) == (0, 7)
