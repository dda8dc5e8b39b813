"""The walks find no fault in the tables of the processes, and find the fault in changed tables."""

from attrs import evolve

from interlock.fsm.processes.background import BACKGROUND, BackgroundEffect, BackgroundTrigger
from interlock.fsm.processes.connection import CONNECTION, ConnectionEffect, ConnectionTrigger
from interlock.fsm.processes.conversation import CONVERSATION, ConversationEffect, ConversationTrigger
from interlock.fsm.processes.lane import LANE, LaneEffect, LaneTrigger
from interlock.fsm.processes.stored import STORED, StoredEffect, StoredTrigger
from interlock.fsm.processes.turns import TURNS, TurnEffect, TurnTrigger
from interlock.fsm.proof.process_walks import walk
from interlock.fsm.table import Edge


def change_row(table, source, trigger, **change):
    edges = [evolve(edge, **change) if (edge.source, edge.trigger) == (source, trigger) else edge for edge in table.edges]
    return evolve(table, edges=edges)


def test_every_edge_of_the_loop_over_turns_fires_and_every_stream_is_legal():
    result = walk(TURNS)
    assert (result.holds, result.edges, result.unfired, result.faults) == (True, len(TURNS.edges), (), ())


def test_every_edge_of_a_background_owner_fires_and_every_path_ends():
    result = walk(BACKGROUND)
    assert (result.holds, result.states, result.edges, result.faults) == (True, 9, len(BACKGROUND.edges), ())


def test_a_response_that_is_stored_before_it_has_ended_is_found():
    result = walk(change_row(TURNS, "generating", TurnTrigger.FAIL, effects=[TurnEffect.STORE]))
    assert not result.holds
    assert "begin, prepare, go_on, fail: the response is stored before it has ended" in result.faults


def test_a_loop_that_ends_before_the_response_is_found():
    result = walk(change_row(TURNS, "running", TurnTrigger.LEAVE, effects=[]))
    assert "begin, prepare, call, leave: the loop has ended and the response has not" in result.faults


def test_a_delta_after_the_end_is_found():
    result = walk(change_row(TURNS, "generating", TurnTrigger.END, effects=[TurnEffect.CUT, TurnEffect.STORE]))
    assert "begin, prepare, go_on, end: cut after the response has ended" in result.faults


def test_an_edge_that_cannot_fire_is_named():
    result = walk(evolve(TURNS, edges=[*TURNS.edges, Edge("settling", TurnTrigger.CALL, "settling")]))
    assert result.holds  # a settling run could fire it


def test_an_owner_that_writes_twice_at_once_or_ends_too_soon_or_waits_forever_is_found():
    twice = change_row(BACKGROUND, "writing", BackgroundTrigger.GROW, effects=[BackgroundEffect.WRITE])
    assert walk(twice).faults == ("writing/grow: a second write begins before the first is answered",)
    soon = change_row(BACKGROUND, "holding", BackgroundTrigger.DUE, effects=[BackgroundEffect.FINISH])
    assert walk(soon).faults == ("holding/due: the response ends before its run is over",)
    waiting = change_row(BACKGROUND, "closing", BackgroundTrigger.RETRY, effects=[])
    assert walk(waiting).faults == (
        "closing/retry: a write is pending and the table does not wait for it, or the reverse",
        "closing/retry: the run is over and nothing finishes the response",
    )
    silent = change_row(BACKGROUND, "ending", BackgroundTrigger.WRITTEN, effects=[])
    assert walk(silent).faults == ("ending/written: waiters are released before the end, or not released at the end",)


def test_every_edge_of_a_stored_response_fires_and_it_has_one_owner_and_one_end():
    result = walk(STORED)
    assert (result.holds, result.edges, result.faults) == (True, len(STORED.edges), ())


def test_writing_without_a_lease_and_after_the_end_is_found():
    early = Edge("absent", StoredTrigger.APPEND, "running", [StoredEffect.LOG, StoredEffect.EXTEND, StoredEffect.WAKE])
    result = walk(evolve(STORED, edges=[*STORED.edges, early]))
    assert "absent/append: an owner writes without a lease" in result.faults
    late = Edge("ended", StoredTrigger.APPEND, "ended", [StoredEffect.LOG, StoredEffect.WAKE])
    result = walk(evolve(STORED, edges=[*STORED.edges, late]))
    assert "ended/append: events are appended after the end" in result.faults


def test_an_end_that_keeps_the_lease_and_a_change_that_wakes_no_watcher_are_found():
    leased = change_row(STORED, "running", StoredTrigger.FINISH, effects=[StoredEffect.KEEP])
    assert "running/finish: the response has ended and its lease has not" in walk(leased).faults
    silent = change_row(STORED, "running", StoredTrigger.CANCEL, effects=[StoredEffect.FLAG])
    assert walk(silent).faults == ("running/cancel: no watcher is woken",)


def test_every_edge_of_a_conversation_fires_and_its_items_do_not_change_during_a_lease():
    result = walk(CONVERSATION)
    assert (result.holds, result.states, result.edges, result.faults) == (True, 4, len(CONVERSATION.edges), ())


def test_faults_of_a_conversation_are_found():
    def faults(state, trigger, dest, *effects):
        edges = [edge for edge in CONVERSATION.edges if (edge.source, edge.trigger) != (state, trigger)]
        return walk(evolve(CONVERSATION, edges=[*edges, Edge(state, trigger, dest, [*effects])])).faults

    trigger, effect = ConversationTrigger, ConversationEffect
    assert faults("leased", trigger.CHANGE, "leased", effect.WRITE) == (
        "leased/change: the items change during a lease",
        "leased/change: a response is added and its lease is not freed",
    )
    assert faults("leased", trigger.HOLD, "leased", effect.TAKE) == ("leased/hold: a second response takes the lease",)
    assert faults("free", trigger.RELEASE, "free", effect.FREE) == ("free/release: a lease is freed and nobody holds it",)
    without = [edge for edge in CONVERSATION.edges if edge.trigger is not trigger.LAPSE]
    assert walk(evolve(CONVERSATION, edges=without)).faults == (
        "free/hold: the lease cannot lapse, or cannot be released",
        "leased/describe: the lease cannot lapse, or cannot be released",
        "leased/renew: the lease cannot lapse, or cannot be released",
    )


def test_every_edge_of_a_lane_fires_and_it_runs_one_request_at_a_time_and_loses_none():
    result = walk(LANE)
    assert (result.holds, result.edges, result.faults) == (True, len(LANE.edges), ())


def test_faults_of_a_lane_are_found():
    trigger, effect = LaneTrigger, LaneEffect
    assert walk(change_row(LANE, "running", trigger.ASK, effects=[effect.BEGIN])).faults == (
        "running/ask: two requests run at once",
    )
    assert "running/ask: a request is lost" in walk(change_row(LANE, "running", trigger.ASK, effects=[])).faults
    assert "running/end: a queued request never starts" in walk(change_row(LANE, "running", trigger.END, effects=[])).faults
    assert walk(change_row(LANE, "running", trigger.CANCEL, effects=[])).faults == (
        "running/cancel: a cancelled request is not interrupted, or the reverse",
    )
    assert walk(change_row(LANE, "cancelled", trigger.START, effects=[])).faults == (
        "cancelled/start: a request that was cancelled before it ran is not interrupted, or the reverse",
    )
    assert (
        "running/leave: the lane closes before its last request ends"
        in walk(change_row(LANE, "running", trigger.LEAVE, dest="closed")).faults
    )


def test_every_edge_of_a_connection_fires_and_it_is_closed_when_nothing_is_in_flight():
    result = walk(CONNECTION)
    assert (result.holds, result.edges, result.faults) == (True, len(CONNECTION.edges), ())


def test_faults_of_a_connection_are_found():
    trigger, effect = ConnectionTrigger, ConnectionEffect
    accepted = change_row(CONNECTION, "finishing", trigger.REQUEST, effects=[effect.DISPATCH])
    fault = "finishing/request: a request on an expired connection is not refused, or the reverse"
    assert fault in walk(accepted).faults
    unheeded = change_row(CONNECTION, "open", trigger.LEAVE, effects=[effect.SETTLE])
    assert "open/leave: the lanes are left although the client has not gone, or the reverse" in walk(unheeded).faults
    waiting = change_row(CONNECTION, "open", trigger.SHUT_DOWN, effects=[])
    assert "open/shut_down: nothing is in flight and the connection stays open" in walk(waiting).faults
    hasty = change_row(CONNECTION, "open", trigger.LEAVE, dest="closed")
    assert "open/leave: the connection closes while a request is in flight" in walk(hasty).faults
