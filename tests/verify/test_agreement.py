"""The acceptor and the oracle, which share only the rules, agree on legal streams and on mutated ones.

`INTERLOCK_FUZZ_STREAMS` sets how many streams are made, and `INTERLOCK_FUZZ_SEED` where they begin.
"""

import json
import os
import random
from itertools import product

import pytest
from corpus_streams.broken import BROKEN
from corpus_streams.legal import LEGAL
from open_responses_oracle import check_in
from stream_mutations import mutated

from interlock.events.dialects import from_open_responses
from interlock.events.json import as_json
from interlock.events.sse import EventWriter, SseWriter
from interlock.events.stream import EVENTS
from interlock.fsm import Finish, Open, ResponseDriver, SequentialIds, Start
from interlock.fsm.deltas import EndOutput, EndTurn, Progress, Succeed
from interlock.judges import Acceptor
from interlock.testing import findings
from interlock.testing.streams import renumber, stream

STREAMS = int(os.environ.get("INTERLOCK_FUZZ_STREAMS", "1000"))
SEED = int(os.environ.get("INTERLOCK_FUZZ_SEED", "0"))
MUTANTS = 9
PIECES = ("rain", "", " ", "\n", "é", "a b", "{", "𝄞", " x")
KEEPALIVE = {"type": "keepalive", "sequence_number": 0}


class Seeded(random.Random):
    """Makes the choices of a generator from a seed."""

    def text(self):
        return self.choice(PIECES)


PARTS = 5
every_part = pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))])
"""Parts of the streams; the first is enough to cover all branches of the judges."""


def seeds(part):
    return range(SEED + part, SEED + STREAMS, PARTS)


def verdicts(bodies, dialect="openai"):
    """The rules that a stream breaks by the acceptor, and by the oracle."""
    return (
        {finding.rule for finding in findings(bodies, dialect=dialect)},
        {finding.rule for finding in check_in(dialect, bodies)},
    )


@every_part
def test_both_judges_accept_the_drivers_streams_in_both_dialects(part):
    for seed in seeds(part):
        assert verdicts(stream(Seeded(seed))) == (set(), set()), seed
        assert verdicts(stream(Seeded(seed), dialect="open_responses"), "open_responses") == (set(), set()), seed


@every_part
def test_both_judges_refuse_the_same_mutants_by_a_common_rule(part):
    refused = 0
    for seed in seeds(part):
        chance = Seeded(seed)
        legal = stream(chance)
        for _ in range(MUTANTS):
            what, bodies = mutated(chance, legal)
            by_acceptor, by_oracle = verdicts(bodies)
            assert bool(by_acceptor) == bool(by_oracle), (seed, what, by_acceptor, by_oracle)
            assert not by_acceptor or by_acceptor & by_oracle, (seed, what, by_acceptor, by_oracle)
            refused += bool(by_acceptor)
    assert refused > len(seeds(part)) * MUTANTS // 2


@every_part
def test_both_judges_refuse_the_same_mutants_of_mutants(part):
    for seed in seeds(part):
        chance = Seeded(seed)
        bodies = stream(chance, min_items=2)
        for _ in range(3):
            if bodies:
                _, bodies = mutated(chance, bodies)
        by_acceptor, by_oracle = verdicts(bodies)
        assert bool(by_acceptor) == bool(by_oracle), (seed, by_acceptor, by_oracle)


def spoiled(chance, bodies):
    """Take a field of an item, other than its id and type, out of its `added` or `done` event, or give it a wrong type."""
    items = [(place, name) for place, body in enumerate(bodies) for name in body.get("item", {}) if name not in {"id", "type"}]
    if not items:  # the response ended before its first item
        return bodies
    place, name = chance.choice(items)
    value, body = chance.choice(({}, {name: [[0]]})), bodies[place]
    item = {field: one for field, one in body["item"].items() if field != name}
    return [*bodies[:place], {**body, "item": {**item, **value}}, *bodies[place + 1 :]]


@every_part
def test_both_judges_report_a_wrong_field_of_an_item_once(part):
    for seed in seeds(part):
        chance = Seeded(seed)
        by_acceptor, by_oracle = verdicts(spoiled(chance, stream(chance, min_items=1)))
        assert "R14" not in by_oracle or (by_acceptor, by_oracle) == ({"R14"}, {"R14"}), seed


@every_part
def test_both_judges_find_the_same_faults_beside_a_wrong_field_of_an_item(part):
    found = 0
    for seed in seeds(part):
        chance = Seeded(seed)
        what, bodies = mutated(chance, stream(chance, min_items=1))
        if verdicts(bodies)[1].isdisjoint({"R14"}):
            by_acceptor, by_oracle = (rules - {"R14"} for rules in verdicts(spoiled(chance, bodies)))
            assert bool(by_acceptor) == bool(by_oracle), (seed, what, by_acceptor, by_oracle)
            assert not by_acceptor or by_acceptor & by_oracle, (seed, what, by_acceptor, by_oracle)
            found += bool(by_acceptor)
    assert found > len(seeds(part)) // 4


def test_both_judges_agree_on_the_corpus():
    for name, bodies in {**LEGAL, **BROKEN}.items():
        by_acceptor, by_oracle = verdicts(bodies)
        assert bool(by_acceptor) == bool(by_oracle) == (name in BROKEN), name


def test_an_item_that_is_added_complete_may_have_content_without_events():
    content = [{"type": "input_text", "text": "Go on."}]
    driver = ResponseDriver({"model": "m"}, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 0)
    driver_input = [Start(), Open("agent_message", {"author": "root", "recipient": "a", "content": content}), Finish()]
    bodies = [json.loads(frame[frame.index(b"{") :]) for frame in driver.feed(driver_input)]
    assert verdicts(bodies) == (set(), set())


def test_a_stream_in_open_responses_has_the_same_content():
    for seed in range(SEED, SEED + 20):
        bodies = [from_open_responses(body) for body in stream(Seeded(seed), dialect="open_responses")]
        assert [body["type"] for body in bodies] == [body["type"] for body in stream(Seeded(seed))]


def samples():
    """An event of each name, and for each kind of item its `added` and `done`, all of the item at index 0."""
    found = {("keepalive", None): KEEPALIVE}
    for bodies in [*LEGAL.values(), *(stream(Seeded(seed)) for seed in range(1000))]:
        for body in bodies:
            indices = dict.fromkeys({"output_index", "command_index"} & body.keys(), 0)
            found.setdefault((body["type"], body.get("item", {}).get("type")), {**body, **indices})
    return [*found.values()]


def assert_judges_agree(bodies):
    """Assert that both judges accept a stream or both refuse it, and that neither raises, also for its tail."""
    bodies = renumber(bodies)
    by_acceptor, by_oracle = verdicts(bodies)
    assert bool(by_acceptor) == bool(by_oracle), bodies
    assert not by_acceptor or by_acceptor & by_oracle, bodies
    acceptor = Acceptor(first_sequence_number=None)
    for body in bodies[2:]:
        acceptor.feed(body)
    acceptor.end()


@pytest.mark.parametrize("item_ends", [True, pytest.param(False, marks=pytest.mark.long)])
def test_both_judges_agree_on_every_pair_of_events_of_one_item(item_ends):
    opening, ending = LEGAL["message"][:2], LEGAL["message"][-1]
    events = samples()
    assert {body["type"] for body in events} == {*EVENTS}
    for one, other in product(events, repeat=2):
        if (other["type"] == "response.output_item.done") is item_ends:
            assert_judges_agree([*opening, one, other, ending])


@every_part
def test_both_judges_agree_on_random_events_of_one_item(part):
    events = samples()
    for seed in seeds(part):
        chance = Seeded(seed)
        assert_judges_agree([*LEGAL["message"][:2], *(chance.choice(events) for _ in range(6)), LEGAL["message"][-1]])


@pytest.mark.parametrize("name", LEGAL)
def test_keepalive_events_are_legal_only_between_the_first_and_the_last_event(name):
    bodies = LEGAL[name]
    for place in range(1, len(bodies)):
        assert verdicts(renumber([*bodies[:place], KEEPALIVE, *bodies[place:]])) == (set(), set()), place
    everywhere = [one for body in bodies for one in (KEEPALIVE, KEEPALIVE, body)]
    assert verdicts(renumber(everywhere[2:])) == (set(), set())
    assert verdicts([KEEPALIVE, *everywhere[2:]])[0] >= {"R2"} <= verdicts([KEEPALIVE, *everywhere[2:]])[1]
    assert verdicts(renumber([KEEPALIVE, *bodies])) == ({"R4a"}, {"R4a"})
    assert verdicts(renumber([*bodies, KEEPALIVE])) == ({"R3"}, {"R3"})


def test_both_judges_check_the_command_index_of_a_shell_output():
    driver = ResponseDriver({"model": "m"}, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 0)
    output = [Open("shell_call_output", {"call_id": "call_1"}), Progress("sho_1", {"stdout": "a", "stderr": ""})]
    end = [EndOutput("sho_1", {"type": "exit", "exit_code": 0}), Succeed("sho_1"), EndTurn("stop"), Finish()]
    bodies = [as_json(event) for event in driver.feed([Start(), *output, *end])]
    assert verdicts(bodies) == (set(), set())
    for body in bodies:
        if "command_index" in body:
            body["command_index"] += 1
    assert [{"R8"} <= rules for rules in verdicts(bodies)] == [True, True]
