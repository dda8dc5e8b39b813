"""The walk through the tables of those who make responses finds nothing in them, and does find what is wrong with others."""

from attrs import evolve

from interlock.fsm.processes.background import BACKGROUND, BackgroundEffect, BackgroundTrigger
from interlock.fsm.processes.connection import CONNECTION, ConnectionEffect, ConnectionTrigger
from interlock.fsm.processes.conversation import CONVERSATION, ConversationEffect, ConversationTrigger
from interlock.fsm.processes.lane import LANE, LaneEffect, LaneTrigger
from interlock.fsm.processes.stored import STORED, StoredEffect, StoredTrigger
from interlock.fsm.processes.turns import TURNS, TurnEffect, TurnTrigger
from interlock.fsm.proof.process_walks import walk_background, walk_connection, walk_conversation, walk_lane, walk_stored, walk_turns
from interlock.fsm.table import Edge


def changed(table, source, trigger, **change):
    edges = [evolve(edge, **change) if (edge.source, edge.trigger) == (source, trigger) else edge for edge in table.edges]
    return evolve(table, edges=edges)


def test_every_edge_of_the_loop_over_turns_fires_and_every_stream_is_legal():
    walk = walk_turns()
    assert (walk.holds, walk.edges, walk.unfired, walk.faults) == (True, len(TURNS.edges), (), ())


def test_every_edge_of_the_owner_in_the_background_fires_and_every_way_ends():
    walk = walk_background()
    assert (walk.holds, walk.states, walk.edges, walk.faults) == (True, 9, len(BACKGROUND.edges), ())


def test_a_response_that_is_stored_before_it_has_ended_is_found():
    walk = walk_turns(changed(TURNS, "generating", TurnTrigger.FAIL, effects=[TurnEffect.STORE]))
    assert not walk.holds
    assert "begin, prepare, go_on, fail: a response is stored that has not ended" in walk.faults


def test_a_loop_that_is_over_before_the_response_has_ended_is_found():
    walk = walk_turns(changed(TURNS, "running", TurnTrigger.LEAVE, effects=[]))
    assert "begin, prepare, call, leave: the loop is over and the response has not ended" in walk.faults


def test_what_is_fed_after_the_end_is_found():
    walk = walk_turns(changed(TURNS, "generating", TurnTrigger.END, effects=[TurnEffect.CUT, TurnEffect.STORE]))
    assert "begin, prepare, go_on, end: cut after the response has ended" in walk.faults


def test_an_edge_that_cannot_fire_is_named():
    walk = walk_turns(evolve(TURNS, edges=[*TURNS.edges, Edge("settling", TurnTrigger.CALL, "settling")]))
    assert walk.holds  # a settling run could fire it


def test_an_owner_that_writes_twice_at_once_or_ends_too_soon_or_waits_for_ever_is_found():
    twice = changed(BACKGROUND, "writing", BackgroundTrigger.GROW, effects=[BackgroundEffect.WRITE])
    assert walk_background(twice).faults == ("writing/grow: a second write begins before the first is answered",)
    soon = changed(BACKGROUND, "holding", BackgroundTrigger.DUE, effects=[BackgroundEffect.FINISH])
    assert walk_background(soon).faults == ("holding/due: the response is ended before its run is over",)
    waiting = changed(BACKGROUND, "closing", BackgroundTrigger.RETRY, effects=[])
    assert walk_background(waiting).faults == (
        "closing/retry: what a store answers is not what is waited for",
        "closing/retry: the run is over, and nothing more happens",
    )
    silent = changed(BACKGROUND, "ending", BackgroundTrigger.WRITTEN, effects=[])
    assert walk_background(silent).faults == ("ending/written: those who wait for the end do not go on with it",)


def test_every_edge_of_the_life_of_a_stored_response_fires_and_it_has_one_owner_and_one_end():
    walk = walk_stored()
    assert (walk.holds, walk.edges, walk.faults) == (True, len(STORED.edges), ())


def test_writing_without_a_lease_and_after_the_end_is_found():
    early = Edge("absent", StoredTrigger.APPEND, "running", [StoredEffect.LOG, StoredEffect.EXTEND, StoredEffect.WAKE])
    walk = walk_stored(evolve(STORED, edges=[*STORED.edges, early]))
    assert "absent/append: somebody writes without a lease" in walk.faults
    late = Edge("ended", StoredTrigger.APPEND, "ended", [StoredEffect.LOG, StoredEffect.WAKE])
    walk = walk_stored(evolve(STORED, edges=[*STORED.edges, late]))
    assert "ended/append: events are appended after the end" in walk.faults


def test_an_end_that_keeps_the_lease_and_a_change_that_wakes_nobody_are_found():
    leased = changed(STORED, "running", StoredTrigger.FINISH, effects=[StoredEffect.KEEP])
    assert "running/finish: the response is kept as it ended, and its lease goes on" in walk_stored(leased).faults
    silent = changed(STORED, "running", StoredTrigger.CANCEL, effects=[StoredEffect.FLAG])
    assert walk_stored(silent).faults == ("running/cancel: nobody is woken",)


def test_every_edge_of_the_life_of_a_conversation_fires_and_who_holds_it_finds_it_as_it_was():
    walk = walk_conversation()
    assert (walk.holds, walk.states, walk.edges, walk.faults) == (True, 4, len(CONVERSATION.edges), ())


def test_what_is_wrong_with_the_holds_of_a_conversation_is_found():
    def faults(state, trigger, dest, *effects):
        edges = [edge for edge in CONVERSATION.edges if (edge.source, edge.trigger) != (state, trigger)]
        return walk_conversation(evolve(CONVERSATION, edges=[*edges, Edge(state, trigger, dest, [*effects])])).faults

    trigger, effect = ConversationTrigger, ConversationEffect
    assert faults("held", trigger.CHANGE, "held", effect.WRITE) == (
        "held/change: the items change under who holds them",
        "held/change: it is added to and held on to",
    )
    assert faults("held", trigger.HOLD, "held", effect.TAKE) == ("held/hold: a second one takes it",)
    assert faults("free", trigger.RELEASE, "free", effect.FREE) == ("free/release: it is freed although nobody holds it",)
    without = [edge for edge in CONVERSATION.edges if edge.trigger is not trigger.LAPSE]
    assert walk_conversation(evolve(CONVERSATION, edges=without)).faults == (
        "free/hold: a hold that does not end",
        "held/describe: a hold that does not end",
        "held/renew: a hold that does not end",
    )


def test_every_edge_of_a_lane_fires_and_it_runs_one_request_at_a_time_and_forgets_none():
    walk = walk_lane()
    assert (walk.holds, walk.edges, walk.faults) == (True, len(LANE.edges), ())


def test_what_is_wrong_with_a_lane_is_found():
    trigger, effect = LaneTrigger, LaneEffect
    assert walk_lane(changed(LANE, "running", trigger.ASK, effects=[effect.BEGIN])).faults == (
        "running/ask: two requests run at once",
    )
    assert "running/ask: a request is forgotten" in walk_lane(changed(LANE, "running", trigger.ASK, effects=[])).faults
    assert "running/end: a request waits for nothing" in walk_lane(changed(LANE, "running", trigger.END, effects=[])).faults
    assert walk_lane(changed(LANE, "running", trigger.CANCEL, effects=[])).faults == (
        "running/cancel: what is interrupted is not what was cancelled",
    )
    assert walk_lane(changed(LANE, "cancelled", trigger.BEGUN, effects=[])).faults == (
        "cancelled/begun: what was cancelled before it ran is not what is interrupted",
    )
    assert (
        "running/leave: the lane is closed before its end"
        in walk_lane(changed(LANE, "running", trigger.LEAVE, dest="closed")).faults
    )


def test_every_edge_of_a_connection_fires_and_it_is_closed_when_nothing_is_in_flight():
    walk = walk_connection()
    assert (walk.holds, walk.edges, walk.faults) == (True, len(CONNECTION.edges), ())


def test_what_is_wrong_with_a_connection_is_found():
    trigger, effect = ConnectionTrigger, ConnectionEffect
    taken = changed(CONNECTION, "finishing", trigger.REQUEST, effects=[effect.DISPATCH])
    assert (
        "finishing/request: a request is not refused because the connection is too old, and only then"
        in walk_connection(taken).faults
    )
    left = changed(CONNECTION, "open", trigger.LEAVE, effects=[effect.SETTLE])
    assert "open/leave: the lanes are left by another than a client that goes" in walk_connection(left).faults
    waiting = changed(CONNECTION, "open", trigger.SHUT_DOWN, effects=[])
    assert "open/shut_down: nothing is in flight, and the connection is not closed" in walk_connection(waiting).faults
    hasty = changed(CONNECTION, "open", trigger.LEAVE, dest="closed")
    assert "open/leave: the connection is closed while a request is in flight" in walk_connection(hasty).faults
