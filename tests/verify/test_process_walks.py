"""The walks find no fault in the tables of the processes, and find the fault in changed tables."""

import pytest
from attrs import evolve
from table_mutations import changes

from interlock.fsm.errors import DeclarationError
from interlock.fsm.table import Edge
from interlock.serving.engines.upstream.connection_table import UPSTREAM_CONNECTION
from interlock.serving.http.connection_table import CONNECTION, ConnectionEffect, ConnectionTrigger
from interlock.serving.http.lane_table import LANE, LaneEffect, LaneTrigger
from interlock.serving.http.server_table import SERVER, ServerEffect, ServerTrigger
from interlock.serving.http.steering_table import STEERING, SteeringEffect, SteeringTrigger
from interlock.serving.http.worker_table import WORKER, WorkerEffect, WorkerTrigger
from interlock.serving.requests.async_call_table import ASYNC_CALL, AsyncCallEffect, AsyncCallTrigger
from interlock.serving.responses.background_table import BACKGROUND, BackgroundEffect, BackgroundTrigger
from interlock.serving.responses.turns_table import TURNS, TurnEffect, TurnTrigger
from interlock.serving.store.conversation_table import CONVERSATION, ConversationEffect, ConversationTrigger
from interlock.serving.store.stored_table import STORED, StoredEffect, StoredTrigger
from interlock.serving.tools.container_table import CONTAINER, ContainerEffect, ContainerTrigger
from interlock.verify.process_walks import walk


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
    assert "begin, prepare, call, leave: the run has ended and the response has not" in result.faults


def test_a_delta_after_the_end_is_found():
    result = walk(change_row(TURNS, "generating", TurnTrigger.END, effects=[TurnEffect.CUT, TurnEffect.STORE]))
    assert "begin, prepare, go_on, end: cut after the response has ended" in result.faults


def test_a_slot_that_is_not_taken_or_not_given_back_or_given_back_too_soon_is_found():
    trigger, effect = TurnTrigger, TurnEffect
    kept = walk(change_row(TURNS, "withdrawn", trigger.FAIL, dest="ended"))
    assert "interrupt, begin, fail: the run has ended and holds a slot" in kept.faults
    soon = walk(change_row(TURNS, "admitting", trigger.FAIL, effects=[effect.REFUSE, effect.FREE]))
    assert "begin, fail, leave: free with 0 slots" in soon.faults
    none = walk(change_row(TURNS, "absent", trigger.BEGIN, effects=[effect.ADMIT]))
    assert "begin: admit with 0 slots" in none.faults


def test_work_without_an_admission_a_second_admission_and_a_late_refusal_are_found():
    trigger, effect = TurnTrigger, TurnEffect
    none = walk(change_row(TURNS, "absent", trigger.BEGIN, effects=[effect.TAKE]))
    assert "begin, prepare: prepare before the admission, or a second admission" in none.faults
    twice = walk(change_row(TURNS, "admitting", trigger.OPEN, effects=[effect.OPEN, effect.ADMIT]))
    assert "begin, open: admit before the admission, or a second admission" in twice.faults
    late = walk(change_row(TURNS, "opening", trigger.PREPARE, effects=[effect.REFUSE]))
    assert "begin, open, prepare: a response is refused after it has started" in late.faults


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


def test_every_edge_of_a_stored_response_fires_and_it_has_one_owner_and_one_end():
    result = walk(STORED)
    assert (result.holds, result.edges, result.faults) == (True, len(STORED.edges), ())


def test_writing_without_a_lease_and_after_the_end_is_found():
    early = Edge("absent", StoredTrigger.APPEND, "running", [StoredEffect.LOG, StoredEffect.EXTEND, StoredEffect.WAKE])
    late = Edge("ended", StoredTrigger.APPEND, "ended", [StoredEffect.LOG, StoredEffect.WAKE])
    result = walk(evolve(STORED, edges=[*STORED.edges, early, late]))
    assert (result.unfired, result.faults) == (("absent/append", "ended/append"), ())  # nobody is the owner then
    anybody = walk(evolve(STORED, edges=[*STORED.edges, early, late], owned=set()))
    assert "absent/append: an owner writes without a lease" in anybody.faults
    assert "ended/append: events are appended after the end" in anybody.faults


def test_a_stalled_owner_that_writes_after_another_has_taken_over_is_found():
    assert {trigger: walk(evolve(STORED, owned=STORED.owned - {trigger})).faults for trigger in STORED.owned} == {
        trigger: tuple(f"{state}/{trigger}: an owner writes without a lease" for state in ("queued", "running", "lost"))
        for trigger in STORED.owned
    }
    twice = change_row(STORED, "running", StoredTrigger.CANCEL, effects=[StoredEffect.TAKE, StoredEffect.WAKE])
    assert "running/cancel: a second owner takes the lease" in walk(twice).faults


def test_an_end_that_keeps_the_lease_and_a_change_that_wakes_no_watcher_are_found():
    leased = change_row(STORED, "running", StoredTrigger.FINISH, effects=[StoredEffect.KEEP])
    assert "running/finish: the response has ended and its lease has not" in walk(leased).faults
    silent = change_row(STORED, "running", StoredTrigger.CANCEL, effects=[StoredEffect.FLAG])
    assert walk(silent).faults == ("running/cancel: no watcher is woken",)


def test_every_edge_of_a_conversation_fires_and_its_items_do_not_change_during_a_lease():
    result = walk(CONVERSATION)
    assert (result.holds, result.edges, result.faults) == (True, len(CONVERSATION.edges), ())


LATE_JOIN = "a response is added after items that it has not read"


@pytest.mark.parametrize(
    ("trigger", "faults"),
    [
        (
            ConversationTrigger.RENEW,
            ["leased/renew: a second response takes the lease", f"leased/join: {LATE_JOIN}", f"lapsed/join: {LATE_JOIN}"],
        ),
        (
            ConversationTrigger.JOIN,
            [
                "leased/join: the items change during a lease",
                f"leased/join: {LATE_JOIN}",
                "leased/join: a response frees the lease of another",
                f"lapsed/join: {LATE_JOIN}",
            ],
        ),
        (ConversationTrigger.RELEASE, ["leased/release: a response frees the lease of another"]),
    ],
)
def test_a_late_end_that_is_not_the_owners_is_found(trigger, faults):
    assert sorted(walk(evolve(CONVERSATION, owned=CONVERSATION.owned - {trigger})).faults) == sorted(faults)


def test_a_lapse_after_which_nobody_knows_the_owner_is_found():
    """A response whose lease has lapsed once joined whatever came after it, and freed the next owner's lease."""
    late = [
        Edge("free", ConversationTrigger.JOIN, "free", [ConversationEffect.WRITE]),
        Edge("leased", ConversationTrigger.LAPSE, "free", [ConversationEffect.FREE]),
    ]
    kept = [edge for edge in CONVERSATION.edges if edge.source != "lapsed" and edge.trigger is not ConversationTrigger.LAPSE]
    faults = walk(evolve(CONVERSATION, edges=[*kept, *late], regions={}, owned=set())).faults
    assert {f"free/join: {LATE_JOIN}", "leased/join: a response frees the lease of another"} <= {*faults}


@pytest.mark.parametrize(
    "table", [STORED, CONVERSATION, STEERING, SERVER, WORKER, CONTAINER, UPSTREAM_CONNECTION], ids=lambda table: table.name
)
def test_every_mutation_is_refused_or_found(table):
    alike = {"queued", "running"}  # have the same edges, so that no walk can tell one from the other
    survived = set()
    for place, edge in enumerate(table.edges):
        for change, edges in changes(table, edge):
            if change.startswith(("double", "swap")):
                continue  # a commit has neither order nor repetition; no other edge has two effects whose order matters
            if {edge.dest, change.removeprefix("go to ")} == alike:
                continue
            try:
                mutated = evolve(table, edges=[*table.edges[:place], *edges, *table.edges[place + 1 :]], regions={}, total=())
            except DeclarationError:
                continue
            if walk(mutated).holds:
                survived.add(f"{edge.source}/{edge.trigger}: {change}")
    assert survived == set()


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
    assert (
        "running/succeed: a successor does not start before the queue"
        in walk(change_row(LANE, "running", trigger.SUCCEED, effects=[effect.QUEUE])).faults
    )
    assert (
        "running/end: the lane closes before its last request ends"
        in walk(change_row(LANE, "running", trigger.END, dest="closed", effects=[])).faults
    )


def test_every_edge_of_a_connection_fires_and_it_is_closed_when_nothing_is_in_flight():
    result = walk(CONNECTION)
    assert (result.holds, result.edges, result.faults) == (True, len(CONNECTION.edges), ())


def test_faults_of_a_connection_are_found():
    trigger, effect = ConnectionTrigger, ConnectionEffect
    accepted = change_row(CONNECTION, "finishing", trigger.REQUEST, effects=[effect.DISPATCH])
    fault = "finishing/request: a request on an expired connection is not refused, or the reverse"
    assert fault in walk(accepted).faults
    steered = change_row(CONNECTION, "expired", trigger.STEER, effects=[effect.STEER])
    assert "expired/steer: an expired connection steers a response, or another one does not" in walk(steered).faults
    unheeded = change_row(CONNECTION, "open", trigger.LEAVE, effects=[effect.SETTLE])
    assert "open/leave: the lanes are left although the client has not gone, or the reverse" in walk(unheeded).faults
    waiting = change_row(CONNECTION, "open", trigger.SHUT_DOWN, effects=[])
    assert "open/shut_down: nothing is in flight and the connection stays open" in walk(waiting).faults
    hasty = change_row(CONNECTION, "open", trigger.LEAVE, dest="closed")
    assert "open/leave: the connection closes while a request is in flight" in walk(hasty).faults


@pytest.mark.parametrize("trigger", [StoredTrigger.CANCEL, StoredTrigger.DELETE])
def test_a_running_response_that_a_client_cannot_end_is_found(trigger) -> None:
    edges = [edge for edge in STORED.edges if (edge.source, edge.trigger) != ("running", trigger)]
    assert f"running: no edge for {trigger}" in walk(evolve(STORED, edges=edges)).faults


def test_a_response_with_the_id_of_a_hidden_one_is_found() -> None:
    put = Edge("hidden", StoredTrigger.PUT, "ended", [StoredEffect.KEEP, StoredEffect.JOIN])
    faults = walk(evolve(STORED, edges=[*STORED.edges, put])).faults
    assert faults == ("hidden/put: another response gets the id of one that is hidden",)


@pytest.mark.parametrize("table", [STEERING, SERVER, WORKER, CONTAINER, UPSTREAM_CONNECTION], ids=lambda table: table.name)
def test_every_edge_fires(table) -> None:
    result = walk(table)
    assert (result.holds, result.edges, result.faults) == (True, len(table.edges), ())


def test_faults_of_steering_are_found() -> None:
    trigger, effect = SteeringTrigger, SteeringEffect
    lost = walk(change_row(STEERING, "queued", trigger.FAIL, effects=[])).faults
    assert lost == (
        "queued/fail: input does not go back to the client when nothing takes it, or does before",
        "queued/fail: the steering is over and input waits, or the reverse",
    )
    deaf = [edge for edge in STEERING.edges if (edge.source, edge.trigger) != ("queued", trigger.STEER)]
    assert "queued: no edge for steer" in walk(evolve(STEERING, edges=deaf)).faults
    late = Edge("pending", trigger.STEER, "pending", [effect.ACCEPT])
    faults = walk(evolve(STEERING, edges=[*STEERING.edges, late])).faults
    assert faults == ("pending/steer: a response that has ended accepts input",)


def test_faults_of_a_server_are_found() -> None:
    trigger, effect = ServerTrigger, ServerEffect
    hasty = walk(change_row(SERVER, "serving", trigger.STOP, effects=[effect.END])).faults
    assert "serving/stop: the first signal does not drain the server, or something else does" in hasty
    assert "serving/stop: the responses do not end when the server has drained, or end before" in hasty
    deaf = [edge for edge in SERVER.edges if (edge.source, edge.trigger) != ("ending", trigger.STOP)]
    assert "ending: no edge for stop" in walk(evolve(SERVER, edges=deaf)).faults


def test_faults_of_a_worker_are_found() -> None:
    trigger, effect = WorkerTrigger, WorkerEffect
    kept = walk(change_row(WORKER, "ready", trigger.EXIT, effects=[effect.BACK_OFF])).faults
    assert kept == (
        "ready/exit: the slots of a process are not given back when it exits, or are while it runs",
        "backing_off/due: a process starts beside another, with the slots of an earlier one, or after the server has stopped",
    )
    orphan = walk(change_row(WORKER, "starting", trigger.STOP, effects=[])).faults
    assert orphan == ("starting/stop: a process gets no request to exit when the server stops, or is before",)


def test_faults_of_a_container_are_found() -> None:
    trigger, effect = ContainerTrigger, ContainerEffect
    twice = walk(change_row(CONTAINER, "idle", trigger.RUN, effects=[effect.START, effect.FEED])).faults
    assert twice == ("idle/run: a second process starts",)
    unstarted = walk(change_row(CONTAINER, "new", trigger.RUN, effects=[effect.FEED])).faults
    assert "new/run: code runs without a process" in unstarted
    orphan = walk(change_row(CONTAINER, "running", trigger.BREAK, effects=[])).faults
    assert orphan == (
        "running/break: a process goes on after its container, or ends before",
        "running/break: the container is over before its process, or the reverse",
    )
    idle = walk(change_row(CONTAINER, "new", trigger.RUN, effects=[effect.START])).faults
    assert "new/run: a call does not run its code, or code runs without a call" in idle
    edges = [edge for edge in CONTAINER.edges if edge.trigger is not trigger.DROP]
    assert "idle: no edge for drop" in walk(evolve(CONTAINER, edges=edges)).faults


def test_faults_of_an_async_call_are_found() -> None:
    trigger, effect = AsyncCallTrigger, AsyncCallEffect
    result = walk(ASYNC_CALL)
    assert (result.holds, result.edges, result.faults) == (True, len(ASYNC_CALL.edges), ())
    bare = walk(change_row(ASYNC_CALL, "called", trigger.END, effects=[])).faults
    assert bare == ("called/end: the model does not read exactly one output next to the call",)
    lost = walk(change_row(ASYNC_CALL, "pending", trigger.ANSWER, effects=[])).faults
    assert lost == ("pending/answer: the model does not read an output, or a call is repeated without one",)
    late = walk(change_row(ASYNC_CALL, "pending", trigger.ANSWER, effects=[effect.KEEP])).faults
    assert "pending/answer: an output is kept although an item separates it from its call" in late
    deaf = [edge for edge in ASYNC_CALL.edges if (edge.source, edge.trigger) != ("pending", trigger.ANSWER)]
    assert "pending: no edge for answer" in walk(evolve(ASYNC_CALL, edges=deaf)).faults
    endless = walk(change_row(ASYNC_CALL, "pending", trigger.CONTINUE, dest="ended")).faults
    assert endless == ("pending/continue: the call is over before the conversation, or the reverse",)
