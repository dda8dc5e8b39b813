"""The compiled table and the machine that it was compiled from walk side by side, and agree at every step."""

import copy
from io import BytesIO

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from transitions import MachineError

from interlock.events.items import ITEMS
from interlock.fsm.errors import IllegalTransition
from interlock.fsm.ids import SequentialIds
from interlock.fsm.item import Item
from interlock.fsm.lifecycles import DECLARED
from interlock.fsm.response import Response

TRIGGERS = sorted({trigger for each in (DECLARED.response, *DECLARED.items.values()) for trigger in each.triggers})


class Model:
    """What the machine moves."""

    def __init__(self, state):
        self.state = state
        self.emitted = []

    def emit(self, name):
        self.emitted.append(name)


def begun(kind):
    """Give an item, or the response, that nothing has happened to, with all that any of its events could need."""
    if kind == "response":
        return Response(DECLARED.response.states[DECLARED.response.initial], "resp_1", {}, 7, lambda: 7)
    lifecycle = DECLARED.items[kind]
    item = Item(lifecycle.states[lifecycle.initial], ITEMS[kind], SequentialIds()("id"), [], {"name": "f"})
    item.show_progress({"partial_image_b64": "YQ=="})
    return item


def remembered(subject):
    """Give all that a subject knows, so that a change of it shows."""
    known = {attribute.name: getattr(subject, attribute.name) for attribute in subject.__attrs_attrs__}
    return {
        name: value.getvalue() if isinstance(value, BytesIO) else copy.deepcopy(value)
        for name, value in known.items()
        if name not in {"state", "output", "clock"}
    }


class Lockstep(RuleBasedStateMachine):
    @initialize(kind=st.sampled_from(["response", *DECLARED.items]))
    def begin(self, kind):
        self.lifecycle = DECLARED.response if kind == "response" else DECLARED.items[kind]
        self.subject = begun(kind)
        self.model = Model(self.lifecycle.initial)
        self.lifecycle.machine.add_model(self.model, initial=self.lifecycle.initial)

    @rule(trigger=st.sampled_from(TRIGGERS))
    def fire(self, trigger):
        self.prepare(trigger)
        before, state = remembered(self.subject), self.subject.state
        self.model.emitted.clear()
        try:
            emitted = [spec.name for spec, _ in self.subject.take(trigger)]
        except IllegalTransition:
            assert self.subject.state is state
            assert remembered(self.subject) == before
            assert self.refused_by_machine(trigger)
        else:
            self.lifecycle.machine.events[trigger].trigger(self.model)
            assert self.model.emitted == emitted
        assert self.model.state == self.subject.state.name

    def prepare(self, trigger):
        """Tell the item what the driver would tell it before it fires."""
        if trigger in self.subject.state.rows:
            if trigger == "annotate":
                self.subject.annotate({"type": "url_citation"})
            elif trigger in {"append", "refuse", "summarize"}:
                self.subject.hold("x", ())

    def refused_by_machine(self, trigger):
        event = self.lifecycle.machine.events.get(trigger)
        if event is None:
            return True
        try:
            event.trigger(self.model)
        except MachineError:
            return self.model.emitted == []
        return False

    def teardown(self):
        if hasattr(self, "model"):
            self.lifecycle.machine.remove_model(self.model)


TestLockstep = Lockstep.TestCase
TestLockstep.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)


def test_a_trigger_that_only_others_have_is_unknown_to_the_machine():
    machine = DECLARED.items["function_call"].machine
    assert "annotate" not in machine.events
    with pytest.raises(IllegalTransition):
        next(begun("function_call").take("annotate"))
