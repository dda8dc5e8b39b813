"""A compiled table and a `transitions.Machine` run side by side, and agree at every step.

The machine is made from the edges, not from the compiled rows: it is a second opinion on what the edges mean, by an
implementation that others wrote and tested.
"""

import copy
from io import BytesIO

import pytest
from for_each import for_each
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from transitions import MachineError

from interlock.events import response_object as events
from interlock.events.items import open_item
from interlock.events.sse import SseWriter
from interlock.fsm.lifecycle import NO_FIELDS, ItemState, ResponseState
from interlock.fsm.lifecycles import DECLARED, LIFECYCLES
from interlock.fsm.table import Edge, IllegalTransition, Table, as_transitions
from interlock.fsm.table import Machine as TableMachine
from interlock.parsers.harmony import HARMONY, HarmonyTrigger
from interlock.serving.http.tables import LANE, LaneEffect
from interlock.verify.proof import FIELDS

TRIGGERS = sorted({trigger for each in (DECLARED.response, *DECLARED.items.values()) for trigger in each.triggers})


ARGS = {"annotate": {"type": "url_citation"}}


class Model:
    """The model of the machine."""

    def __init__(self, table):
        self.effects = []
        self.machine = as_transitions(table, lambda effect: self.effects.append(str(effect)), self)

    def fire(self, trigger):
        """Fire a trigger; return whether the state has an edge for it."""
        event = self.machine.events.get(str(trigger))
        try:
            return event is not None and event.trigger(self)
        except MachineError:
            return False


def start_of(kind):
    """Return an item or the response in its initial state, with every field that its events could need."""
    if kind == "response":
        body = events.Response(id="resp_1", created_at=7, model="m")
        return ResponseState(DECLARED.response.states[DECLARED.response.initial], body=body, clock=lambda: 7)
    lifecycle = DECLARED.items[kind]
    return ItemState(lifecycle.states[lifecycle.initial], id="id_1", body=open_item(kind, FIELDS[kind]), output_index=0)


def copy_of_fields(subject):
    """Return a copy of the fields of a subject, in which a change shows."""
    saved = subject.save()
    return {
        name: value.getvalue() if isinstance(value, BytesIO) else copy.copy(value)
        for name in saved.__struct_fields__
        if (value := getattr(saved, name)) is not NO_FIELDS and name != "state"
    }


class Lockstep(RuleBasedStateMachine):
    @initialize(kind=st.sampled_from(["response", *DECLARED.items]))
    def begin(self, kind):
        self.lifecycle = DECLARED.response if kind == "response" else DECLARED.items[kind]
        self.subject = start_of(kind)
        self.model = Model(self.lifecycle)

    @rule(trigger=st.sampled_from(TRIGGERS))
    def fire(self, trigger):
        self.prepare(trigger)
        before, state = copy_of_fields(self.subject), self.subject.state
        self.model.effects.clear()
        try:
            self.subject.state, emissions = state.row(trigger)
        except IllegalTransition:
            assert self.subject.state is state
            assert copy_of_fields(self.subject) == before
            assert not self.model.fire(trigger)
            assert self.model.effects == []
        else:
            emitted = [self.emit(emission) for emission in emissions]
            assert self.model.fire(trigger)
            assert self.model.effects == emitted
        assert self.model.state == self.subject.state.name

    def emit(self, emission):
        """Make an event, and return its name in the written frame."""
        frame = SseWriter().write(emission.make(self.subject))
        return frame.partition(b"\n")[0].decode().removeprefix("event: ")

    def prepare(self, trigger):
        """Add the text to the item that the driver would add before it fires."""
        if trigger in self.subject.state.rows and trigger in {"append", "split", "refuse", "summarize"}:
            self.subject.hold("x", ())
        image = self.subject.state.table == "image_generation_call"
        self.subject.args = {"partial_image_b64": ""} if trigger == "progress" and image else ARGS.get(trigger, NO_FIELDS)


TestLockstep = pytest.mark.long(Lockstep.TestCase)
TestLockstep.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)


@given(st.lists(st.sampled_from(HarmonyTrigger), max_size=30))
def test_the_table_of_harmony_and_its_machine_agree(triggers):
    run, model = TableMachine.at_start(HARMONY), Model(HARMONY)
    for trigger in triggers:
        model.effects.clear()
        try:
            effects = run.fire(trigger)
        except IllegalTransition:
            assert not model.fire(trigger)
        else:
            assert model.fire(trigger)
            assert model.effects == [*effects]
        assert model.state == run.state.name


def test_a_trigger_of_another_table_is_illegal():
    assert not Model(DECLARED.items["function_call"]).fire("annotate")
    with pytest.raises(IllegalTransition):
        start_of("function_call").state.row("annotate")


# A table as a machine of `transitions`: the same states, triggers and effects


TURNSTILE = Table(
    "turnstile",
    initial="locked",
    final={"broken"},
    edges=[
        Edge("locked", "pay", "unlocked", ["unlock"]),
        Edge("unlocked", "push", "locked", ["count", "lock"]),
        Edge("locked", "kick", "broken"),
    ],
)


class Visitor:
    """An empty model."""


def test_a_trigger_enters_the_next_state_and_carries_out_the_effects_in_order() -> None:
    effects: list[str] = []
    visitor = Visitor()
    as_transitions(TURNSTILE, effects.append, visitor)
    assert visitor.state == "locked"
    assert (visitor.pay(), visitor.state, effects) == (True, "unlocked", ["unlock"])
    assert (visitor.push(), visitor.state, effects) == (True, "locked", ["unlock", "count", "lock"])


def test_without_a_model_the_machine_is_its_own_model() -> None:
    machine = as_transitions(TURNSTILE, print)
    assert (machine.kick(), machine.state, machine.get_state("broken").final) == (True, "broken", True)


def test_a_trigger_without_an_edge_is_refused_and_changes_nothing() -> None:
    effects: list[str] = []
    machine = as_transitions(TURNSTILE, effects.append)
    with pytest.raises(MachineError, match="push"):
        machine.push()
    assert (machine.state, effects) == ("locked", [])


@for_each("table", [*LIFECYCLES.values(), LANE], ids=lambda table: table.name)
def test_every_table_has_the_same_states_and_edges_as_its_machine(table) -> None:
    machine = as_transitions(table, print, Visitor())
    edges = {
        (source, name, transition.dest, tuple(each.args[0] for each in transition.after))
        for name, event in machine.events.items()
        for source, transitions in event.transitions.items()
        for transition in transitions
    }
    assert edges == {(edge.source, str(edge.trigger), edge.dest, tuple(edge.effects)) for edge in table.edges}
    assert [*machine.states] == [*table.states]
    assert {name for name, state in machine.states.items() if state.final} == {*table.final}


def test_the_machine_of_a_process_carries_out_its_effects() -> None:
    effects: list[LaneEffect] = []
    lane = Visitor()
    as_transitions(LANE, effects.append, lane)
    assert (lane.ask(), lane.ask(), lane.end()) == (True, True, True)
    assert effects == [LaneEffect.BEGIN, LaneEffect.QUEUE, LaneEffect.ADVANCE]
